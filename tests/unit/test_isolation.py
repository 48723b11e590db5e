"""An inspection leaves no trace: compiler, values, settings. Holds for every supported torch."""

import dataclasses
import logging
import random
import threading
import types
import warnings

import numpy as np
import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounter

from helpers import capture_graphs
from helpers.isolation import no_trace, unwrap


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.history = []
        self.cache = types.SimpleNamespace(keys=torch.zeros(3), filled=0)

    def forward(self, x):
        y = torch.nn.functional.dropout(self.norm(self.linear(x)))
        torch._dynamo.graph_break()
        return after_the_break(y)


def after_the_break(y):
    torch._dynamo.graph_break()

    def scaled(z):
        return z.sin() * 2

    torch._dynamo.graph_break()
    parts = [scaled(part) for part in (y, y + 1)]
    return parts[0] + parts[1].relu()


def compiled(fn, **options):
    counter = CompileCounter()
    return torch.compile(fn, backend=counter, **options), counter


# --- the compiler ---------------------------------------------------------------------------


def test_fifty_inspections_agree_and_the_learners_compile_is_untouched():
    def noisy(x):
        y = torch.nn.functional.dropout(x)
        torch._dynamo.graph_break()
        return halved(y)

    def halved(y):
        return y / 2

    x = torch.randn(4, 8)
    learners, counter = compiled(noisy)
    learners(x)
    before = counter.frame_count
    torch.manual_seed(0)
    first = capture_graphs(noisy, x)
    for _ in range(49):
        again = capture_graphs(noisy, x)
        assert again.graphs == first.graphs
        assert torch.equal(again.result, first.result)
    learners(x)
    learners(torch.randn(4, 8))
    assert counter.frame_count == before


@pytest.mark.parametrize("inspected", [True, False])
def test_the_recompile_limit_counts_only_the_learners_compiles(inspected):
    def scale(x, factor):
        return x * len(factor)

    def calls_after_a_break(x, factor):
        torch._dynamo.graph_break()
        return scale(x, factor)

    learners, counter = compiled(calls_after_a_break, dynamic=False)
    limit = torch._dynamo.config.recompile_limit
    for n in range(limit):
        learners(torch.ones(3), (0,) * (n + 1))
        if inspected:
            for size in range(3):
                capture_graphs(calls_after_a_break, torch.ones(3), (0,) * (n + size))
    assert counter.frame_count == limit  # the last allowed one was still allowed
    learners(torch.ones(3), (0,) * (limit + 1))
    assert counter.frame_count == limit  # and one more is refused, as without inspections


def history_of_compiles(fn, sizes, inspect_with=None):
    torch._dynamo.reset()
    learners, counter = compiled(fn)
    seen = []
    for size in sizes:
        if inspect_with is not None:
            capture_graphs(fn, torch.ones(inspect_with, 8))
        learners(torch.ones(size, 8))
        seen.append(counter.frame_count)
    return seen


def test_shapes_seen_by_an_inspection_do_not_make_the_learners_sizes_dynamic():
    sizes = [4, 4, 5, 6, 7]
    model = Block().eval()
    plain = history_of_compiles(model, sizes)
    assert plain[1] < plain[2] == plain[3]  # one promotion to dynamic, then reuse
    assert history_of_compiles(model, sizes, inspect_with=9) == plain


def test_a_first_compile_after_an_inspection_is_as_without_one():
    def plain(x):
        torch._dynamo.graph_break()
        return after_the_break(x)

    x = torch.randn(4, 8)
    without, counter = compiled(plain)
    without(x)
    torch._dynamo.reset()
    capture_graphs(plain, x)
    learners, after = compiled(plain)
    learners(x)
    assert after.frame_count == counter.frame_count
    assert after.op_count == counter.op_count


def test_code_met_for_the_first_time_keeps_nothing_of_an_inspection():
    def first_met(x):
        torch._dynamo.graph_break()
        return after_the_break(x)

    capture_graphs(first_met, torch.randn(4, 8))
    for function in (first_met, after_the_break):
        assert torch._dynamo.eval_frame._debug_get_cache_entry_list(function.__code__) == []


def test_inner_functions_of_a_compiled_function_keep_their_entries():
    def outer(x):
        def inner(y):
            torch._dynamo.graph_break()
            return y + 1

        torch._dynamo.graph_break()
        return inner(x)

    def recursive(x):
        def down(y, n):
            torch._dynamo.graph_break()
            return down(y * 2, n - 1) if n else y

        torch._dynamo.graph_break()
        return down(x, 2)

    for fn in (outer, recursive):
        learners, counter = compiled(fn)
        learners(torch.ones(3))
        codes = [c for c in fn.__code__.co_consts if hasattr(c, "co_code")]
        entries = torch._dynamo.eval_frame._debug_get_cache_entry_list
        kept = [len(entries(code)) for code in (fn.__code__, *codes)]
        assert all(kept)
        for size in (3, 5):
            assert capture_graphs(fn, torch.ones(size)).changes_behaviour is None
        assert [len(entries(code)) for code in (fn.__code__, *codes)] == kept
        before = counter.frame_count
        learners(torch.ones(3))
        assert counter.frame_count == before
        learners(torch.ones(4))  # a guard fails, and Dynamo can still tell which
    assert history_of_compiles(outer, [3, 4], inspect_with=5) == history_of_compiles(outer, [3, 4])


def test_what_is_already_compiled_is_unwrapped_and_left_alone():
    model, x = Block().eval(), torch.randn(4, 8)
    learners, counter = compiled(model)
    learners(x)
    before = counter.frame_count
    for subject in (learners, learners.forward, compiled(after_the_break)[0]):
        assert capture_graphs(subject, x).graphs
    learners(x)
    assert counter.frame_count == before


def test_a_module_compiled_in_place_is_inspected_with_our_backend():
    model, x = Block().eval(), torch.randn(4, 8)
    counter = CompileCounter()
    model.compile(backend=counter)
    assert capture_graphs(model, x).graphs
    assert counter.frame_count == 0
    model(x)
    before = counter.frame_count
    assert before
    capture_graphs(model, x)
    model(x)
    assert counter.frame_count == before


def test_unwrap_ends_at_the_learners_own_callable():
    model = Block()
    assert unwrap(torch.compile(model)) is model
    assert unwrap(torch.compile(after_the_break)) is after_the_break
    assert unwrap(model.forward) == model.forward
    assert unwrap(after_the_break) is after_the_break


def test_dynamos_tables_and_the_learners_globals_are_as_before():
    x = torch.randn(4, 8)
    compiled(after_the_break)[0](x)
    tables = torch._dynamo.utils
    frames = torch._dynamo.convert_frame
    names = set(globals())

    def state():
        return (
            {key: dict(value) for key, value in tables.counters.items()},
            dict(frames.FRAME_COMPILE_COUNTER),
            frames.FRAME_COUNTER,
            list(tables.graph_break_reasons),
            len(tables._compilation_metrics),
            torch._dynamo.pgo._CODE_STATE and dict(torch._dynamo.pgo._CODE_STATE),
        )

    before = state()
    capture_graphs(Block(), x)
    capture_graphs(after_the_break, x)
    assert state() == before
    assert set(globals()) == names


def test_it_compiles_although_the_learner_switched_compiling_off():
    with torch.compiler.set_stance("force_eager"):
        assert len(capture_graphs(lambda x: x.sin(), torch.ones(2)).graphs) == 1
        learners, counter = compiled(after_the_break)
        learners(torch.ones(2))
        assert counter.frame_count == 0  # the learner's choice still holds
    with torch._dynamo.config.patch(disable=True):
        assert len(capture_graphs(lambda x: x.cos(), torch.ones(2)).graphs) == 1
        assert torch._dynamo.config.disable


def test_two_threads_inspect_one_after_the_other():
    results, x = [], torch.ones(4, 8)

    def inspect():
        results.append(capture_graphs(after_the_break, x).graphs)

    threads = [threading.Thread(target=inspect) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(graphs == results[0] for graphs in results)


# --- values ---------------------------------------------------------------------------------


def test_modules_and_arguments_are_as_before():
    class Busy(Block):
        def forward(self, x, table):
            self.history.append(len(self.history))
            self.cache.keys.add_(1)
            self.cache.filled += 1
            self.eval()
            self.extra = 1
            self.register_buffer("late", torch.ones(1))
            table["seen"] = x.clone()
            x.add_(1)
            y = self.norm(self.linear(x))
            y.sum().backward()
            with torch.no_grad():
                self.linear.weight.mul_(2)
            self.linear.bias.requires_grad_(False)
            self.norm.train()
            return self.norm(y.detach())

    model = Busy()
    model.linear.bias.grad = torch.full((8,), 7.0)
    x, table = torch.randn(4, 8), {"old": 1}
    x_before, bias_grad = x.clone(), model.linear.bias.grad
    state = {k: v.clone() for k, v in model.state_dict().items()}
    capture_graphs(model, x, table)
    assert torch.equal(x, x_before)
    assert table == {"old": 1}
    assert model.training
    assert model.norm.training
    assert model.history == []
    assert model.cache.filled == 0
    assert torch.equal(model.cache.keys, torch.zeros(3))
    assert not hasattr(model, "extra")
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert model.linear.weight.grad is None
    assert model.linear.bias.grad is bias_grad
    assert torch.equal(bias_grad, torch.full((8,), 7.0))
    assert model.linear.bias.requires_grad


def test_a_model_reached_by_name_or_closure_is_as_before():
    model = Block()
    weight = model.linear.weight.clone()

    def step(x):
        with torch.no_grad():
            model.linear.weight.add_(1)
        return model(x)

    capture_graphs(step, torch.randn(4, 8))
    capture_graphs(torch.no_grad()(step), torch.randn(4, 8))
    assert torch.equal(model.linear.weight, weight)
    assert model.norm.num_batches_tracked == 0


def test_the_result_is_real_and_survives_the_putting_back():
    x = torch.zeros(3)

    def in_place(x):
        x.add_(1)
        return x, x.view(3, 1), x * 2

    same, view, double = capture_graphs(in_place, x).result
    assert same.tolist() == [1, 1, 1]
    assert view.flatten().tolist() == [1, 1, 1]
    assert double.tolist() == [2, 2, 2]
    assert x.tolist() == [0, 0, 0]


def test_a_backward_that_waits_still_runs():
    x = torch.ones(3)
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * x).sum()  # saves x at its present version
    capture_graphs(lambda x: x.mul_(5), x)
    loss.backward()
    assert weight.grad.tolist() == [1, 1, 1]


def test_in_place_operations_on_arguments_do_not_falsify_gradients():
    leaf = torch.ones(3, requires_grad=True)
    computed = leaf * 2
    view = computed[:2]
    result = capture_graphs(lambda y, v: y.mul_(3) + v.sum(), computed, view).result
    assert result.tolist() == [10, 10, 10]
    computed.sum().backward()
    assert leaf.grad.tolist() == [2, 2, 2]
    x, weight = torch.ones(3), torch.ones(3, requires_grad=True)
    capture_graphs(lambda x, w: x.mul_(w), x, weight)
    assert x.is_leaf
    assert not x.requires_grad


def test_gradients_behind_an_argument_and_hooks_on_it_are_as_before():
    leaf = torch.ones(3, requires_grad=True)
    computed = leaf * 2
    computed.retain_grad()

    def meddling(y, z):
        z.register_hook(lambda grad: grad * 100)
        (y * 3).sum().backward(retain_graph=True)
        return y + z

    other = torch.ones(3, requires_grad=True)
    capture_graphs(torch._dynamo.disable(meddling), computed, other)
    assert leaf.grad is None
    assert computed.grad is None
    other.sum().backward()
    assert other.grad.tolist() == [1, 1, 1]


def test_containers_and_objects_in_the_result_are_real_too():
    @dataclasses.dataclass
    class Pair:
        first: torch.Tensor
        rest: list

    def fill(x, seen, table, array):
        x.add_(1)
        seen.append(x)
        table["a"] = 1
        array += 1
        return Pair(x, [x, 2]), seen, table, array

    given = (torch.zeros(2), [], {}, np.zeros(2))
    pair, seen, table, array = capture_graphs(fill, *given).result
    assert pair.first.tolist() == [1, 1]
    assert pair.rest[0].tolist() == [1, 1]
    assert [x.tolist() for x in seen] == [[1, 1]]
    assert table == {"a": 1}
    assert array.tolist() == [1, 1]
    assert given[0].tolist() == [0, 0]
    assert (given[1], given[2], given[3].tolist()) == ([], {}, [0, 0])


def test_gradients_flow_through_the_result():
    model, x = Block(), torch.randn(4, 8, requires_grad=True)
    capture_graphs(model, x).result.sum().backward()
    assert x.grad is not None
    assert model.linear.weight.grad is not None


def test_nan_and_negative_zero_are_put_back_bit_by_bit():
    x = torch.tensor([float("nan"), -0.0])
    before = x.view(torch.int32).tolist()
    capture_graphs(lambda x: x.zero_(), x)
    assert x.view(torch.int32).tolist() == before


def test_generators_given_as_arguments_are_as_before():
    generators = (torch.Generator(), random.Random(1), np.random.default_rng(1))
    array = np.arange(4.0)

    def draw(x, generators, array):
        array += 1
        torch_generator, python_generator, numpy_generator = generators
        noise = torch.rand(2, generator=torch_generator)
        return x + noise + python_generator.random() + numpy_generator.random()

    before = (generators[0].get_state(), generators[1].getstate(),
              generators[2].bit_generator.state)  # fmt: skip
    capture_graphs(draw, torch.ones(2), generators, array)
    assert torch.equal(generators[0].get_state(), before[0])
    assert generators[1].getstate() == before[1]
    assert generators[2].bit_generator.state == before[2]
    assert array.tolist() == [0, 1, 2, 3]


# --- settings -------------------------------------------------------------------------------


def test_random_numbers_settings_logging_and_config_are_as_before():
    def meddling(x):
        torch.rand(1), random.random(), np.random.rand()
        torch.set_grad_enabled(False)
        torch.set_default_dtype(torch.float64)
        logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
        logging.getLogger("torch").addHandler(logging.NullHandler())
        torch._dynamo.config.suppress_errors = True
        torch.set_default_device("meta")
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.autograd.set_detect_anomaly(True)
        torch.set_float32_matmul_precision("medium")
        warnings.simplefilter("error")
        return x + 1

    def state():
        logger = logging.getLogger("torch")
        return (torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state()),
                torch.is_grad_enabled(), torch.get_default_dtype(), list(logger.handlers),
                torch.get_default_device(), torch.get_num_threads(), torch.is_anomaly_enabled(),
                torch.get_float32_matmul_precision(),
                logging.getLogger("torch._dynamo").level, torch._dynamo.config.suppress_errors,
                list(warnings.filters))  # fmt: skip

    before = state()
    capture_graphs(torch._dynamo.disable(meddling), torch.ones(2))
    assert state() == before


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_matmul_precision_is_as_before_in_both_interfaces(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        capture_graphs(torch._dynamo.disable(lambda: torch.set_float32_matmul_precision("medium")))
        assert torch.get_float32_matmul_precision() == precision
        matmul = torch.backends.cuda.matmul
        if hasattr(matmul, "fp32_precision"):
            matmul.fp32_precision = "tf32"
            capture_graphs(lambda x: x + 1, torch.ones(2))
            assert matmul.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision(before)


# --- errors and interrupts ------------------------------------------------------------------


def test_the_learners_error_is_their_own_and_nothing_stays_changed():
    x = torch.zeros(3)

    def failing(x):
        x.add_(1)
        raise ValueError("my own mistake")

    with pytest.raises(ValueError, match="my own mistake") as caught:
        capture_graphs(failing, x)
    assert caught.traceback[-1].name == "failing"
    assert caught.value.__cause__ is None
    assert x.tolist() == [0, 0, 0]


def test_a_shape_error_is_eagers_error_at_the_learners_line():
    def mismatch(x, y):
        return x @ y

    with pytest.raises(RuntimeError, match="cannot be multiplied") as caught:
        capture_graphs(mismatch, torch.ones(2, 3), torch.ones(2, 3))
    assert type(caught.value) is RuntimeError
    assert caught.traceback[-1].name == "mismatch"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_no_trace_either(stop):
    model, x = Block(), torch.randn(4, 8)
    learners, counter = compiled(model)
    learners(x)
    before, batches = counter.frame_count, int(model.norm.num_batches_tracked)

    def interrupted(x):
        model(x)
        raise stop

    with pytest.raises(stop):
        capture_graphs(torch._dynamo.disable(interrupted), x)
    with pytest.raises(stop), no_trace(model, x):
        raise stop
    learners(x)
    assert counter.frame_count == before
    assert model.norm.num_batches_tracked == batches + 1
