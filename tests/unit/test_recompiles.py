"""trace_recompiles and would_reuse: outcomes, limits, errors, what is put back and what stays."""

import dataclasses
import random
from typing import NamedTuple

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._dynamo.utils import counters

from helpers import trace_recompiles, would_reuse
from helpers.recompile_report import RecompileReport


def outcomes(report):
    return [call.outcome for call in report.calls]


def graphs(report):
    return [call.graphs for call in report.calls]


def ones(*shape):
    return torch.ones(*shape)


# -- what people met, each with its repair ---------------------------------------------------------


def repeat_sine(x, times):
    for _ in range(times):
        x = x + 0.5 * x.sin()
    return x


def test_a_loop_count_is_unrolled_until_the_limit():
    report = trace_recompiles(repeat_sine, [(ones(4), n) for n in (*range(2, 13), 3, 12, 9)])
    assert graphs(report) == [1] * 8 + [0] * 6
    assert outcomes(report) == [
        "compiled", *["recompiled"] * 7, *["eager"] * 3, "reused", "eager", "reused",
    ]  # fmt: skip
    assert [r.guard for r in report.recompiles] == [f"times == {n}" for n in range(2, 9)]
    assert all(r.will_repeat and "loop" in r.fix for r in report.recompiles)
    limit = report.hit_limit
    assert (limit.call_index, limit.function, limit.number) == (8, "repeat_sine", 8)
    assert limit.limit == "recompile_limit" and limit.guard == "times == 9"
    assert report.eager_calls == (8, 9, 10, 12)
    for text in (str(report), report._repr_html_()):
        assert "recompile_limit = 8" in text
        assert "Run eagerly: calls[8], calls[9], calls[10], calls[12]" in text
        assert "still run compiled, and so did calls[11], calls[13]" in text


def test_a_loop_outside_of_the_compiled_body_compiles_once():
    def looped(n):
        def call(compiled):
            x = ones(4)
            for _ in range(n):
                x = compiled(x)

        return call

    report = trace_recompiles(lambda x: x + 0.5 * x.sin(), [looped(n) for n in range(2, 13)])
    assert outcomes(report) == ["compiled"] + ["reused"] * 10
    assert report.recompiles == () and report.hit_limit is None and report.eager_calls == ()
    assert [call.ran for call in report.calls] == list(range(2, 13))


class Speaker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(128, 4)

    def forward(self, words):
        if isinstance(words, str):
            words = torch.tensor([ord(letter) % 128 for letter in words])
        return self.table(words).sum(0)


WORDS = ["cats sit", "two dogs", "an apple", "red door", "big hill", "old farm", "my house",
         "new road", "hot soup", "dry wood"]  # fmt: skip


def test_text_compiles_for_each_string_and_token_ids_do_not():
    report = trace_recompiles(Speaker(), [(words,) for words in WORDS])
    assert graphs(report) == [1] * 8 + [0, 0] and report.eager_calls == (8, 9)
    first = report.recompiles[0]
    assert first.guard == "words == 'cats sit'" and first.source == "words" and first.will_repeat
    assert "token ids" in first.fix and "string" in first.reason
    ids = [(torch.tensor([ord(letter) for letter in words + "s" * (i % 3)]),)
           for i, words in enumerate(WORDS)]  # fmt: skip
    report = trace_recompiles(Speaker(), ids)
    assert graphs(report) == [1, 1] + [0] * 8 and report.hit_limit is None
    assert [r.promoted for r in report.recompiles] == [True]


class Meter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = 0
        self.gain = torch.nn.Parameter(ones(3))

    def forward(self, x):
        self.rows = self.rows + x.shape[0]
        return (x * self.gain).sigmoid()


class BufferMeter(Meter):
    def __init__(self):
        super().__init__()
        del self.rows
        self.register_buffer("rows", torch.zeros((), dtype=torch.long))


def test_a_count_in_a_module_is_seen_changing_and_put_back():
    meter = Meter()
    report = trace_recompiles(meter, [(ones(4, 3),)] * 12)
    assert meter.rows == 0
    first = report.recompiles[0]
    assert (first.guard, first.source) == ("self.rows == 0", "self.rows")
    assert "was 0; now 4" in first.reason
    if not first.promoted:  # torch 2.7 makes such an int dynamic
        assert outcomes(report) == ["compiled"] + ["recompiled"] * 7 + ["eager"] * 4
        assert report.hit_limit.source == "self.rows" and "register_buffer" in first.fix
    with_buffer = trace_recompiles(BufferMeter(), [(ones(4, 3),)] * 12)
    assert outcomes(with_buffer) == ["compiled"] + ["reused"] * 11


def test_a_ragged_epoch_promotes_once_and_a_single_row_stands_alone():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LogSoftmax(-1))
    report = trace_recompiles(model, [(ones(n, 3),) for n in (6, 6, 4, 6, 5, 1, 6)])
    assert outcomes(report) == [
        "compiled", "reused", "promoted", "reused", "reused", "recompiled", "reused",
    ]  # fmt: skip
    ragged, single = report.recompiles
    assert ragged.guard == "tensor 'input' size mismatch at index 0. expected 6, actual 4"
    assert "had 6 rows (dimension 0 of size 6); now 4" in ragged.reason
    assert single.guard.startswith("2 <= ") and "Sizes 0 and 1 are special" in single.reason
    assert not ragged.will_repeat and not single.will_repeat and "drop_last" in single.fix
    assert outcomes(trace_recompiles(model, [(ones(6, 3),)] * 5)) == ["compiled"] + ["reused"] * 4


def test_each_recompile_is_explained_by_the_entry_that_came_closest():
    def image(dtype=torch.float32, memory_format=torch.contiguous_format):
        return (torch.ones(2, 3, 4, 5, dtype=dtype).to(memory_format=memory_format),)

    last, half = torch.channels_last, torch.float16
    calls = [image(), image(memory_format=last), image(half), image(half, last), image()]
    report = trace_recompiles(lambda x: x.relu().amax((2, 3)), calls)
    assert outcomes(report) == ["compiled", *["recompiled"] * 3, "reused"]
    assert [r.guard.split("mismatch")[0].split()[-1] for r in report.recompiles] == [
        "stride", "dtype", "stride",
    ]  # fmt: skip
    assert "Float, actual Half" in report.recompiles[1].guard
    assert [len(r.all_guards) for r in report.recompiles] == [1, 2, 3]
    assert not any(r.will_repeat for r in report.recompiles)
    once = [tuple(x.float().contiguous(memory_format=last) for x in call) for call in calls]
    assert outcomes(trace_recompiles(lambda x: x.relu(), once)) == ["compiled"] + ["reused"] * 4


def test_a_mask_that_breaks_compiles_a_second_continuation_without_a_failed_guard():
    def attend(scores, keep):
        bias = None if keep.all() else (~keep).float() * -9.0
        if bias is not None:
            scores = scores + bias
        return scores.softmax(-1)

    full, padded = torch.ones(4, dtype=torch.bool), torch.tensor([True, True, True, False])
    report = trace_recompiles(attend, [(ones(4, 4), keep) for keep in (full, padded, full)])
    assert graphs(report) == [2, 1, 0] and report.recompiles == ()
    assert outcomes(report) == ["compiled", "compiled", "reused"]
    assert {call.ran for call in report.calls} == {2}


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    shift: float = 0.5


def test_new_instances_of_records_are_reused():
    def step(pair, sample):
        pair = pair._replace(right=pair.right.sigmoid())
        sample = dataclasses.replace(sample, image=sample.image - sample.shift)
        return pair.left * pair.right, sample.image.mean()

    def inputs():
        return Pair(ones(4), ones(4)), Sample(ones(2, 3))

    report = trace_recompiles(step, [inputs(), inputs(), inputs()])
    if graphs(report) == [0, 0, 0]:  # torch 2.7 leaves a frame with _replace to Python
        assert outcomes(report) == ["eager"] * 3 and "no graph" in report.calls[0].why
    else:
        assert outcomes(report) == ["compiled", "reused", "reused"]


def test_einops_costs_one_promotion_of_the_batch():
    einops = pytest.importorskip("einops")

    def heads(x):
        return einops.rearrange(x.sin(), "b n (h d) -> b h n d", h=2).cos()

    report = trace_recompiles(heads, [(ones(b, 5, 8),) for b in (2, 3, 7)])
    assert outcomes(report) == ["compiled", "promoted", "reused"]


class Walker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, x):
        return x + self.lin(x).tanh()

    def walk(self, x):
        return self(self(x))


def test_a_method_beside_forward_goes_past_the_compiled_object():
    report = trace_recompiles(Walker(), [lambda c: c.walk(ones(2, 3))] * 2)
    assert outcomes(report) == ["eager", "eager"] and report.compiles == 0
    assert "went past the compiled object" in report.calls[0].why
    assert not would_reuse(report, lambda c: c.walk(ones(2, 3)))
    report = trace_recompiles(Walker().walk, [(ones(2, 3),)] * 2)
    assert outcomes(report) == ["compiled", "reused"]


def test_a_hook_added_late_stays_and_is_ignored_unless_torch_guards_hooks():
    def hooked(model, hits):
        def call(compiled):
            model.lin.register_forward_hook(lambda *_: hits.append(1))
            compiled(ones(2, 3))

        return call

    hits, model = [], Walker()
    report = trace_recompiles(model, [(ones(2, 3),), hooked(model, hits), (ones(2, 3),)])
    assert outcomes(report) == ["compiled", "reused", "reused"] and hits == []
    assert len(model.lin._forward_hooks) == 1
    hits, model = [], Walker()
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        report = trace_recompiles(model, [(ones(2, 3),), hooked(model, hits)])
    assert outcomes(report) == ["compiled", "recompiled"] and "hook" in report.recompiles[0].source


def test_a_librarys_module_is_spoken_of_in_its_own_names():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))

    def evaluate(compiled):
        compiled.eval()
        compiled(ones(4, 3))

    calls = [(ones(4, 3),), evaluate, lambda compiled: compiled(input=ones(4, 3))]
    report = trace_recompiles(model, calls)
    assert not model.training  # what a callable changes stays
    switched, by_name = report.recompiles
    assert (switched.function, switched.source) == ("forward", "self[1].training")
    assert "by position" in by_name.reason and not by_name.will_repeat
    text = str(report)
    assert "inner" not in text and "args[" not in text and "fn." not in text


# -- callables, errors, limits ---------------------------------------------------------------------


def test_an_optimizer_step_in_a_callable_stays_and_a_tuples_changes_do_not():
    model = Meter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    def train(compiled):
        compiled(ones(2, 3)).sum().backward()
        optimizer.step()

    before = model.gain.detach().clone()
    trace_recompiles(model, [(ones(4, 3),), train, (ones(4, 3),)])
    assert not torch.equal(model.gain, before) and model.gain.grad is not None
    assert model.rows == 6  # 4 of the tuple before it, and its own 2; the last tuple is undone
    assert isinstance(model.gain, torch.nn.Parameter) and optimizer.param_groups[0]["params"]


def test_an_error_is_kept_and_the_history_goes_on():
    def root(x, y):
        return (x @ y).sqrt()

    report = trace_recompiles(root, [(ones(2, 3), ones(3, 2)), (ones(2, 3), ones(2, 3)), (1,),
                                     (ones(2, 3), ones(3, 2))])  # fmt: skip
    assert outcomes(report) == ["compiled", "error", "error", "reused"]
    assert isinstance(report.calls[2].error, TypeError) and "y" in report.calls[2].why
    assert report.calls[1].error is not None


@pytest.mark.parametrize("how", ["fullgraph", "fail_on_recompile_limit_hit"])
def test_a_limit_that_raises_is_said_with_the_error(how):
    options = {"fullgraph": True} if how == "fullgraph" else {}
    patch = {} if options else {how: True}
    with torch._dynamo.config.patch(recompile_limit=2, **patch):
        calls = [(ones(4), n) for n in (2, 3, 4, 2)]
        report = trace_recompiles(repeat_sine, calls, compile_options=options)
    assert outcomes(report) == ["compiled", "recompiled", "error", "reused"]
    assert "recompile limit was hit" in report.calls[2].why
    assert report.hit_limit.call_index == 2 and report.hit_limit.number == 2


def test_the_accumulated_limit_is_told_apart():
    with torch._dynamo.config.patch(accumulated_recompile_limit=3):
        report = trace_recompiles(repeat_sine, [(ones(4), n) for n in (2, 3, 4, 5)])
    assert report.hit_limit.limit == "accumulated_recompile_limit"
    assert report.hit_limit.number == 3 and report.eager_calls == (3,)


def test_at_a_limit_inside_a_callable_each_frame_is_seen():
    def both(compiled):
        compiled(ones(4), 2)
        compiled(ones(4), 9)

    with torch._dynamo.config.patch(recompile_limit=2):
        report = trace_recompiles(repeat_sine, [(ones(4), n) for n in (2, 3, 4)] + [both])
    assert outcomes(report) == ["compiled", "recompiled", "eager", "eager"]
    assert report.calls[3].ran == 1  # the first of its two calls ran compiled


def test_a_fresh_function_each_call_is_named():
    def apply(x, f):
        return f(x)

    report = trace_recompiles(apply, [(ones(3), f) for f in (torch.sin, torch.cos, torch.sin)])
    assert outcomes(report) == ["compiled", "recompiled", "reused"]
    assert report.recompiles[0].source == "f" and report.recompiles[0].will_repeat
    assert "f is the same object as then" in report.recompiles[0].guard


def test_a_learning_rate_that_changes_is_seen_in_a_compiled_step():
    parameter = torch.nn.Parameter(ones(3))
    parameter.grad = ones(3)
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def step():
        optimizer.step()

    def at(rate):
        def call(compiled):
            optimizer.param_groups[0]["lr"] = rate
            compiled()

        return call

    report = trace_recompiles(step, [at(0.1), at(0.05), at(0.025)])
    assert report.calls[0].outcome == "compiled" and report.recompiles, str(report)
    assert "lr" in report.recompiles[0].guard and "lr" in report.recompiles[0].source
    assert "tensor" in report.recompiles[0].fix


# -- inputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fn", "calls", "message"),
    [
        (3, [], "needs a function or a module first, got int"),
        (repeat_sine, 5, "calls is a list"),
        (repeat_sine, (t for t in ()), "calls is a list"),
        (repeat_sine, [torch.ones(3)], r"calls\[0\] is a Tensor; write a tuple"),
        (repeat_sine, [(ones(3), 2), [ones(3), 2]], r"calls\[1\] is a list; write a tuple"),
    ],
)
def test_wrong_input_ends_in_one_sentence(fn, calls, message):
    with pytest.raises(TypeError, match=message):
        trace_recompiles(fn, calls)


def test_every_kind_of_function_is_taken():
    class Adder:
        def __call__(self, x):
            return x + 1

        def method(self, x):
            return x + 2

    compiled = torch.compile(repeat_sine, backend="eager")
    for fn, args in (
        (Adder(), (ones(3),)), (Adder().method, (ones(3),)), (compiled, (ones(3), 2)),
        (torch.compile(Meter(), backend="eager"), (ones(2, 3),)),
    ):  # fmt: skip
        report = trace_recompiles(fn, [args, args])
        assert report.calls[0].outcome == "compiled", (fn, str(report))


def test_no_calls_and_a_named_backend():
    report = trace_recompiles(repeat_sine, [])
    assert isinstance(report, RecompileReport) and "No calls" in str(report)
    report = trace_recompiles(
        repeat_sine, [(ones(3), 2)] * 2, compile_options={"backend": "aot_eager"}
    )
    assert outcomes(report) == ["compiled", "reused"] and report.calls[1].ran == 1


# -- no trace --------------------------------------------------------------------------------------


def test_the_learners_own_compilation_and_limit_are_untouched():
    counter = CompileCounter()
    compiled = torch.compile(repeat_sine, backend=counter)
    compiled(ones(4), 2)
    with torch._dynamo.config.patch(recompile_limit=3):
        before = dict(counters["stats"])
        report = trace_recompiles(compiled, [(ones(4), n) for n in (2, 3, 4, 5)])
        assert report.hit_limit and outcomes(report)[-1] == "eager"
        compiled(ones(4), 2)
        assert counter.frame_count == 1 and dict(counters["stats"]) == before
        compiled(ones(4), 3)
        compiled(ones(4), 4)  # two more fit under the limit of three
        assert counter.frame_count == 3
    torch._dynamo.reset()


def test_fifty_traces_give_the_same_answer():
    def scale(x):
        return x * 2

    calls = [(ones(6),), (ones(4),), (ones(6),)]
    first = trace_recompiles(scale, calls)
    assert outcomes(first) == ["compiled", "promoted", "reused"]
    for _ in range(49):
        again = trace_recompiles(scale, calls)
        assert again.calls == first.calls and again.recompiles == first.recompiles


def test_values_random_state_and_grad_mode_are_put_back():
    class Changing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(3)
            self.seen = []

        def forward(self, x):
            self.seen.append(1)
            return torch.nn.functional.dropout(self.norm(x)) + random.random()

    model, x = Changing(), torch.randn(4, 3)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    rng, python_rng, kept = torch.get_rng_state(), random.getstate(), x.clone()
    trace_recompiles(model, [(x,), (x[:3],), lambda c: torch.set_grad_enabled(False)])
    assert torch.is_grad_enabled() and model.seen == [] and torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), rng) and random.getstate() == python_rng
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


# -- would_reuse -----------------------------------------------------------------------------------


def test_would_reuse_agrees_with_what_then_happens():
    history = [(ones(8, 3), 2), (ones(5, 3), 2)]
    asked = [(ones(7, 3), 2), (ones(1, 3), 2), (ones(7, 4), 2), (ones(7, 3), 3),
             (ones(7, 3).double(), 2)]  # fmt: skip
    report = trace_recompiles(repeat_sine, history)
    expected = []
    for call in asked:
        outcome = trace_recompiles(repeat_sine, [*history, call]).calls[-1].outcome
        expected.append(outcome == "reused")
    assert [would_reuse(report, call) for call in asked] == expected
    assert expected == [True, False, False, False, False]
    assert report.first_failure(asked[0]) is None
    assert report.first_failure(asked[3]) == "times == 2"


def test_would_reuse_heeds_grad_mode_and_takes_callables():
    model = Walker()
    report = trace_recompiles(model, [(ones(8, 3),), (ones(5, 3),)])
    assert would_reuse(report, (ones(7, 3),)) and would_reuse(report, lambda c: c(ones(7, 3)))
    with torch.no_grad():
        assert not would_reuse(report, (ones(7, 3),))
    assert "grad_mode" in report.first_failure(lambda c: torch.no_grad()(c)(ones(7, 3)))
    model.train(False)
    assert isinstance(would_reuse(report, (ones(7, 3),)), bool)


def test_would_reuse_changes_nothing():
    meter, optimizer_steps = Meter(), []
    optimizer = torch.optim.Adam(meter.parameters())
    report = trace_recompiles(meter, [(ones(4, 3),)])

    def train(compiled):
        compiled(ones(4, 3)).sum().backward()
        optimizer.step()

    before = meter.gain.detach().clone()
    names = set(globals())
    assert would_reuse(report, train) is True
    assert torch.equal(meter.gain, before) and meter.gain.grad is None and meter.rows == 0
    assert not optimizer.state and optimizer_steps == [] and set(globals()) == names
    assert meter.gain.grad is None


def test_would_reuse_refuses_what_is_no_report_or_no_call():
    report = trace_recompiles(repeat_sine, [(ones(4), 2)])
    with pytest.raises(TypeError, match="needs the report"):
        would_reuse("report", (ones(4), 2))
    with pytest.raises(TypeError, match="the call is a Tensor; write a tuple"):
        would_reuse(report, ones(4))
    with pytest.raises(TypeError, match="times"):
        would_reuse(report, (ones(4),))


def test_the_learners_earlier_compilation_does_not_confuse_would_reuse():
    compiled = torch.compile(repeat_sine, backend="eager")
    compiled(ones(4), 2)
    report = trace_recompiles(compiled, [(ones(4), 3)])
    assert would_reuse(report, (ones(4), 3)) and not would_reuse(report, (ones(4), 2))
    torch._dynamo.reset()
    assert would_reuse(report, (ones(4), 3))
