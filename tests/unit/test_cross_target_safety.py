"""Pretending that there is a card leaves nothing behind, whatever happens inside; bad input is
answered in the learner's terms.

Two ways lead to code for a card that is not here: the worker process, and, for what cannot travel
there, this process. Nearly every test runs both.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import types
from pathlib import Path

import pytest
import torch
import torch._dynamo
import torch._inductor.compile_fx
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers import TARGETS, CannotGenerate, capture_graphs, generated_code, inductor, worker
from helpers.travel import CannotTravel
from helpers.usable_gpu import NoGPU

# torch 2.7 keeps one record of metrics for the whole process, and refuses a second user of it.
ONE_RECORD = (
    ""
    if hasattr(torch._C, "_ensureCUDADeviceGuardSet")
    else "torch 2.7 allows one compilation at a time within one process"
)

pytest.importorskip("triton", reason="without Triton there is no code for a GPU")

ROOT = Path(__file__).resolve().parents[2]
PATHS = ("worker", "here")


@pytest.fixture(scope="module", autouse=True)
def stopped_afterwards():
    yield
    worker.stop_worker()


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def no_card(monkeypatch):
    """On a machine with a card too, "auto" means here the card that is not there."""
    monkeypatch.setattr(inductor, "why_no_gpu", lambda: NoGPU("no GPU"))


def cannot_travel(*args, **kwargs):
    raise CannotTravel("The test keeps it here.")


@pytest.fixture(params=PATHS)
def path(request, monkeypatch):
    if request.param == "here":
        monkeypatch.setattr(inductor, "run_in_worker", cannot_travel)
    return request.param


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(inductor, "run_in_worker", cannot_travel)


def shifted(x):
    return x.sin() + 1


def rows(n=4, m=8, **options):
    return torch.randn(n, m, **options)


def one_sentence(error: BaseException, longest: int = 420) -> str:
    """The message is short, and holds nothing that is torch's or ours only."""
    text = str(error)
    assert 3 < len(text) <= longest, text
    for word in ("backend=", "Traceback", "TORCHDYNAMO", "0x", "helpers" + os.sep, "_Lowering"):
        assert word not in text, text
    return text


# --- what could stay behind -----------------------------------------------------------------


def owners():
    """Modules and classes in which names are replaced while there is a pretended card."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._functorch._aot_autograd import runtime_wrappers
    from torch._functorch.aot_autograd import aot_export_module  # noqa: F401, it is imported
    from torch._inductor import graph, select_algorithm
    from torch._inductor.fx_passes import joint_graph, pad_mm, post_grad
    from torch._subclasses import fake_tensor, functional_tensor
    from triton.runtime import driver

    from helpers import cross_target, pretended_driver

    told = [owner for owner, *_ in cross_target._replacements()]
    told += [owner for owner, *_ in cross_target.ATTRIBUTES]
    told += [owner for owner, *_ in pretended_driver._answers()]
    told += [torch.cuda, torch.cuda.amp.common, CudaInterface, CudaInterface.Worker, driver]
    told += [fake_tensor, fake_tensor.FakeTensor, fake_tensor.FakeTensorMode, torch._C]
    told += [functional_tensor, functional_tensor.FunctionalTensor, torch.Tensor, torch]
    told += [torch._dynamo.utils, torch._dynamo.variables.builder, torch._dynamo.output_graph]
    told += [torch._inductor.compile_fx, torch.utils._triton, graph.GraphLowering]
    told += [select_algorithm.AlgorithmSelectorCache, pad_mm, joint_graph, post_grad]
    told += [runtime_wrappers.AutogradLazyBackwardCompileInfo]
    told += [torch._dynamo.backends.common.AotAutograd]
    return list({id(owner): owner for owner in told}.values())


_KEPT = (types.FunctionType, types.BuiltinFunctionType, type, staticmethod, classmethod, property)


def names_of(owner):
    """The functions, classes and devices that an owner holds, by name; no counters or caches."""
    is_driver = getattr(owner, "__name__", "") == "" or hasattr(owner, "set_active")
    return {
        name: value
        for name, value in vars(owner).items()
        if isinstance(value, _KEPT) or callable(value) or is_driver
    }


def kernels_in_python():
    from helpers.composites import KERNELS

    return {operator: dict(operator.py_kernels) for operator in KERNELS(TARGETS["h200"])}


def everything():
    from torch._subclasses import fake_tensor

    for mode in (torch._inductor.fx_passes.joint_graph, torch._inductor.fx_passes.post_grad):
        mode.lazy_init()
    return {
        "names": [(owner, names_of(owner)) for owner in owners()],
        "kernels": kernels_in_python(),
        "handlers": dict(fake_tensor._DISPATCH_META_HANDLERS),
        "available": torch.cuda.is_available(),
        "initialized": torch.cuda.is_initialized(),
        "count": torch.cuda.device_count(),
        "has_triton": torch.utils._triton.has_triton(),
        "grad": torch.is_grad_enabled(),
        "config": torch._inductor.config.get_config_copy(),
        "dynamo": torch._dynamo.config.get_config_copy(),
        "loggers": [(name, logging.getLogger(name).level) for name in ("", "torch")],
    }


def assert_same(before, after):
    for (owner, old), (_, new) in zip(before.pop("names"), after.pop("names"), strict=True):
        changed = [name for name in {*old, *new} if old.get(name) is not new.get(name)]
        lazy = [name for name in changed if isinstance(new.get(name), types.ModuleType)]
        assert set(changed) == set(lazy), (owner, changed)
    for name, value in before.items():
        assert after[name] == value, name
    cached = [repr(getattr(key, "key", key)) for key in FakeTensorMode.cache]
    assert not [key for key in cached if "cuda" in key]


@pytest.fixture
def nothing_stays():
    """Around a test: what torch holds afterwards is what it held before."""
    FakeTensorMode.cache_clear()  # of what other tests made
    generated_code(shifted, rows(), target="cpu")
    before = everything()
    yield
    assert_same(before, everything())
    a_normal_compile_works()


def a_normal_compile_works():
    def casts(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = a @ b
        return y.float().softmax(-1), nn.functional.layer_norm(a, (8,)), a.to("cpu"), a.device.type

    a, b = rows(8, 8, requires_grad=True), rows(8, 8)
    out = torch.compile(casts, backend="aot_eager", fullgraph=True)(a, b)
    expected = casts(a, b)
    assert out[3] == "cpu" and out[0].dtype == expected[0].dtype
    torch.testing.assert_close(out[:3], expected[:3])
    assert all(tensor.device.type == "cpu" for tensor in out[:3])
    (out[0].sum() + out[1].sum()).backward()
    graph = capture_graphs(shifted, a).graphs[0]
    assert "cuda" not in graph.code


# --- whatever happens inside ----------------------------------------------------------------


def test_nothing_stays_of_an_ordinary_call(path, nothing_stays):
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.2))
    code = generated_code(model, rows(), stages=("triton", "ptx"))
    assert [graph.phase for graph in code.graphs] == ["forward", "backward"]
    assert bool(code.notes) == (path == "here")


class Odd(Exception):
    pass


def test_nothing_stays_of_an_error(path, nothing_stays):
    def fails(x):
        y = x.sin()
        torch._dynamo.graph_break()
        if y.device.type == "cpu":
            raise Odd("the learner's own")
        return y

    with pytest.raises(Odd, match="the learner's own"):
        generated_code(fails, rows())
    with pytest.raises(ValueError, match="backward=True"):
        generated_code(shifted, rows(), backward=True)


@pytest.mark.parametrize("where", ["compile_to_module", "codegen"])
def test_nothing_stays_of_an_error_inside_inductor(here, nothing_stays, monkeypatch, where):
    from torch._inductor.graph import GraphLowering

    def stops(self, *args, **kwargs):
        raise Odd("inside the compiler")

    if where == "codegen":
        monkeypatch.setattr(GraphLowering, "codegen", stops)
    else:
        monkeypatch.setattr(GraphLowering, "run", stops)
    with pytest.raises(CannotGenerate, match="inside the compiler") as caught:
        generated_code(shifted, rows())
    one_sentence(caught.value)
    monkeypatch.undo()


def test_nothing_stays_of_an_interrupt_in_the_function(path, nothing_stays):
    def stopped(x):
        x.sin()
        torch._dynamo.graph_break()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated_code(stopped, rows())


def test_nothing_stays_of_an_interrupt_in_inductor(here, nothing_stays, monkeypatch):
    from torch._inductor.graph import GraphLowering

    def stops(self, *args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(GraphLowering, "codegen", stops)
    with pytest.raises(KeyboardInterrupt):
        generated_code(shifted, rows())
    monkeypatch.undo()


def interruptible() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("way", PATHS)
def test_ctrl_c_while_it_works(tmp_path, way):
    """The learner's function says on the screen that it runs; then Ctrl-C comes."""
    lock = "threading.Lock()" if way == "here" else "None"
    (tmp_path / "mine.py").write_text(
        textwrap.dedent(f"""
            import threading, time
            import torch, torch._dynamo
            from helpers import generated_code

            held = {lock}

            def slow(x):
                held
                y = x.sin()
                torch._dynamo.graph_break()
                print("running", flush=True)
                time.sleep(600)
                return y

            def quick(x):
                return x.sin() + 1

            dispatch = torch.cuda.is_available, torch._dynamo.utils.run_node
            x = torch.randn(4, 8)
            try:
                generated_code(slow, x)
            except KeyboardInterrupt:
                print("stopped", flush=True)
            assert dispatch == (torch.cuda.is_available, torch._dynamo.utils.run_node)
            assert torch.allclose(torch.compile(quick, backend="aot_eager")(x), quick(x))
            print(generated_code(quick, x).kernels[0].name)
        """)
    )
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "mine.py")], cwd=tmp_path, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, preexec_fn=interruptible,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "running\n", process.stderr.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert out.splitlines() == ["stopped", "triton_poi_fused_add_sin_0"], (out, err)


# --- one inside another ---------------------------------------------------------------------


def test_a_call_within_a_call(path, nothing_stays):
    inner = []

    def outer(x):
        y = x.sin()
        inner.append(generated_code(shifted, x, target="t4").kernels[0].name)
        return y.exp() + x

    x = rows()
    code = generated_code(outer, x)
    torch.testing.assert_close(code.result, x.sin().exp() + x)
    assert len(code.graphs) == 2 and all("cuda" in graph.wrapper for graph in code.graphs)


def test_a_call_for_the_cpu_within_a_call_for_a_card(path, nothing_stays):
    kinds = []

    def outer(x):
        y = x.sin()
        kinds.append(generated_code(shifted, x, target="cpu").kernels[0].kind)
        assert kinds == ["cpp"]
        return y + 1

    assert generated_code(outer, rows()).target == "h200"


def test_a_call_within_a_backend_and_within_a_compiled_function(path, nothing_stays):
    if path == "here" and ONE_RECORD:
        pytest.skip(ONE_RECORD)
    names = []

    def backend(gm, inputs):
        names.append(generated_code(shifted, rows()).kernels[0].name)
        return gm.forward

    x = rows()
    assert torch.equal(torch.compile(shifted, backend=backend)(x), shifted(x))

    @torch.compile(backend="eager")
    def shows(x):
        names.append(generated_code(shifted, x).kernels[0].name)
        return x + 1

    assert torch.equal(shows(x), x + 1)
    assert names == ["triton_poi_fused_add_sin_0"] * 2


# --- threads --------------------------------------------------------------------------------


def in_threads(*functions):
    """Runs functions at once, each in a thread; returns results, raises the first error."""
    results, errors = {}, []
    start = threading.Barrier(len(functions))

    def run(place, function):
        try:
            start.wait()
            results[place] = function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[place] for place in range(len(functions))]


def test_two_threads_that_both_call(path, nothing_stays):
    def normed(x):
        return nn.functional.layer_norm(x, (8,))

    x = rows()
    alone = [generated_code(shifted, x, target="t4"), generated_code(normed, x, target="b200")]
    both = in_threads(
        lambda: generated_code(shifted, x, target="t4"),
        lambda: generated_code(normed, x, target="b200"),
    )
    for one, other in zip(alone, both, strict=True):
        assert [k.source for k in one.kernels] == [k.source for k in other.kernels]
        torch.testing.assert_close(one.result, other.result)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_thread_that_compiles_for_real_meanwhile(nothing_stays, backend):
    done = threading.Event()
    seen = []

    def compiles():
        for n in itertools.count(2):
            namespace = {"torch": torch}
            exec("def f(x):\n    return (x.sin() * x.shape[0]).softmax(-1), x.device", namespace)
            x = rows(n, 8, requires_grad=True)
            values, device = torch.compile(namespace["f"], backend=backend)(x)
            torch.testing.assert_close(values, (x.sin() * n).softmax(-1))
            values.sum().backward()
            seen.append((str(device), values.device.type, torch.cuda.is_available()))
            if done.is_set() or n > 200:
                return

    def generates():
        try:
            for _ in range(3):
                code = generated_code(nn.LayerNorm(8), rows())
                assert [graph.phase for graph in code.graphs] == ["forward", "backward"]
        finally:
            done.set()

    available = torch.cuda.is_available()
    in_threads(compiles, generates)
    assert set(seen) == {("cpu", "cpu", available)}


def test_another_thread_sees_torch_as_it_is_while_this_one_pretends(here):
    seen = []
    available = torch.cuda.is_available()

    def asks(x):
        y = x.sin()
        torch._dynamo.graph_break()

        def look():
            t = torch.ones(2)
            with FakeTensorMode() as mode:
                fake = mode.from_tensor(t)
            out = torch.softmax(t, 0), t.to(torch.float64)
            seen.append((torch.cuda.is_available(), str(fake.device), fake.is_cuda, out[1].dtype))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        return y

    generated_code(asks, rows())
    assert seen == [(available, "cpu", False, torch.float64)]


@pytest.mark.skipif(bool(ONE_RECORD), reason=ONE_RECORD or "torch 2.7")
def test_a_backward_of_another_thread_is_compiled_for_real(here, monkeypatch):
    """AOTAutograd compiles a backward when it is first asked for, and takes no lock for it."""
    from helpers import lowering

    x = rows(3, 3, requires_grad=True)
    out = torch.compile(lambda v: v.exp() * 2, backend="aot_eager")(x)
    original, results = lowering.Lowering._inner, []

    def inner(self, *args, **kwargs):
        def other():
            out.sum().backward()
            results.append(torch.allclose(x.grad, 2 * x.detach().exp()))

        if not results:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return original(self, *args, **kwargs)

    monkeypatch.setattr(lowering.Lowering, "_inner", inner)
    code = generated_code(nn.Linear(8, 8), rows())
    assert results == [True]
    assert [graph.phase for graph in code.graphs] == ["forward", "backward"]


def test_a_thread_that_runs_inductor_itself_meanwhile(here, monkeypatch):
    """What stops before the launch stops this thread only."""
    from torch._inductor.graph import GraphLowering

    from helpers import lowering

    original, ran = lowering.Lowering.backward, []
    monkeypatch.setattr(GraphLowering, "compile_to_module", lambda graph: "for real")

    def backward(self):
        def other():
            ran.append(GraphLowering.compile_to_module(None))

        with self._stopped_before_launch():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return original(self)

    monkeypatch.setattr(lowering.Lowering, "backward", backward)
    assert len(generated_code(nn.Linear(8, 8), rows()).graphs) == 2
    assert ran == ["for real"]


# --- the learner's own things ---------------------------------------------------------------


def test_the_learners_compiled_function_compiles_nothing_new(path):
    counter = CompileCounter()
    learners = torch.compile(shifted, backend=counter)
    learners(rows())
    limit = torch._dynamo.config.recompile_limit
    first = generated_code(shifted, rows())
    for _ in range(limit + 2):
        again = generated_code(learners, rows())
    assert [g.wrapper for g in again.graphs] == [g.wrapper for g in first.graphs]
    learners(rows())
    assert counter.frame_count == 1
    counters = {k: dict(v) for k, v in torch._dynamo.utils.counters.items()}
    generated_code(shifted, rows())
    assert {k: dict(v) for k, v in torch._dynamo.utils.counters.items()} == counters
    for n in range(limit - 1):
        learners(rows(dtype=(torch.float64, torch.float16, torch.bfloat16)[n % 3]).sin()[: n + 1])
    assert counter.frame_count <= limit


def test_gradients_statistics_modes_and_random_numbers_are_untouched(path):
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    x = rows(requires_grad=True)
    model(x).sum().backward()
    tensors = [*model.parameters(), *model.buffers(), x]
    before = [(t.clone(), t._version, t.grad, None if t.grad is None else t.grad.clone())
              for t in tensors]  # fmt: skip
    states = torch.get_rng_state(), random.getstate()
    code = generated_code(model, x)
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    for tensor, (values, version, grad, copied) in zip(tensors, before, strict=True):
        assert torch.equal(tensor, values) and tensor._version == version
        assert tensor.grad is grad and (grad is None or torch.equal(grad, copied))
    assert model.training and torch.is_grad_enabled()
    assert not any(code.result is t for t in tensors)
    with torch.no_grad():
        generated_code(model.eval(), x)
        assert not torch.is_grad_enabled()
    assert not model.training


def test_an_argument_that_is_changed_stays_the_learners(path):
    def changes(x, box):
        x.add_(1)
        box["seen"] = x
        return x.view(-1)

    x, box = rows(), {}
    before = x.clone()
    code = generated_code(changes, x, box)
    assert torch.equal(x, before) and box == {}
    torch.testing.assert_close(code.result, (before + 1).view(-1))
    code.result.zero_()
    assert torch.equal(x, before)


def test_inputs_that_are_views_or_lie_otherwise_in_memory(path):
    x = rows(8, 8)
    for argument in (x.t(), x[1:5], x[:, ::2], x.expand(2, 8, 8), x.view(2, 4, 8).permute(1, 0, 2)):
        code = generated_code(shifted, argument)
        torch.testing.assert_close(code.result, shifted(argument))
        assert "device='cuda:0'" in code.graphs[0].wrapper
        assert [kernel.kind for kernel in code.kernels] == ["pointwise"]


def test_the_learners_caches_get_no_files(path, tmp_path, monkeypatch):
    for variable in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME"):
        (tmp_path / variable).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / variable))
    code = generated_code(nn.Linear(8, 8), rows(), stages=("triton", "ptx"))
    generated_code(shifted, rows(), stages=("ptx",))
    assert code.graphs
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


# --- bad input ------------------------------------------------------------------------------


def test_a_typo_is_the_learners_own_error_with_its_line(path, capfd):
    def typo(x):
        x.sin()
        return yy  # noqa: F821

    with pytest.raises(NameError, match="name 'yy' is not defined") as caught:
        generated_code(typo, rows())
    told = "".join(getattr(caught.value, "__notes__", ())) + str(caught.getrepr(style="native"))
    assert "return yy" in told and "test_cross_target_safety.py" in told
    assert capfd.readouterr().err.count("\n") <= 1


def bad_shapes(x):
    return x @ x


def bad_attribute(x):
    return x.sine()


def own_error(x):
    if x.shape[0] == 4:
        raise Odd("four rows")
    return x


def endless(x):
    return endless(x)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (bad_shapes, RuntimeError, "mat1 and mat2 shapes cannot be multiplied"),
        (bad_attribute, AttributeError, "no attribute 'sine'"),
        (own_error, Odd, "four rows"),
        (endless, RecursionError, "maximum recursion depth"),
    ],
)
def test_errors_are_those_of_plain_python(path, capfd, function, error, words):
    with pytest.raises(error, match=words) as caught:
        generated_code(function, rows())
    one_sentence(caught.value)
    said = capfd.readouterr().err
    assert "Traceback" not in said and "fake_tensor" not in said


def picks(x):
    return x.nonzero()


def all_sparse(x):
    return torch.sparse.mm(x.to_sparse(), x.t())


@pytest.mark.parametrize("function", [picks, all_sparse, nn.LSTM(8, 8)])
def test_where_dynamo_captures_nothing_the_reason_is_said(function):
    with pytest.raises(CannotGenerate) as caught:
        generated_code(function, rows())
    text = one_sentence(caught.value)
    if function is not all_sparse:  # torch 2.7 captures it, and Inductor then refuses
        assert "captured no" in text and "It stopped" in text


def test_what_depends_on_values_breaks_as_on_a_card():
    def branches(x):
        return x + 1 if x.sum() > 0 else x - 1

    x = rows()
    code = generated_code(branches, x)
    assert len(code.graphs) == 2
    torch.testing.assert_close(code.result, branches(x))
    with pytest.raises(CannotGenerate, match=r"[Dd]ata-dependent") as caught:
        generated_code(branches, x, compile_options={"fullgraph": True})
    one_sentence(caught.value)


@pytest.mark.parametrize("argument", [3, "word", None, [1, 2]])
def test_no_tensor_at_all(argument):
    with pytest.raises(CannotGenerate, match="no tensor operation") as caught:
        generated_code(lambda value: value, argument)
    one_sentence(caught.value)


def test_an_operator_that_only_a_card_has():
    def flash(q):
        operator = torch.ops.aten._flash_attention_forward
        return operator(q, q, q, None, None, 16, 16, 0.0, False, False)[0]

    code = generated_code(flash, torch.randn(1, 16, 2, 8, dtype=torch.float16))
    assert code.library_calls == ("torch.ops.aten._flash_attention_forward.default",)
    assert code.result is None
    reason = code.unavailable["result"]
    assert "_flash_attention_forward" in reason and len(reason) < 300 and reason.endswith(".")


def test_fp8_matrix_products():
    def scaled(a, b, scale):
        return torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16)

    a, b = (torch.randn(32, 32).to(torch.float8_e4m3fn) for _ in range(2))
    code = generated_code(scaled, a, b.t(), torch.ones(()), target="h100")
    assert any("_scaled_mm" in call for call in code.library_calls)
    assert not code.notes


def test_complex_numbers_are_noted():
    def spectrum(x):
        return torch.fft.fft(x).abs() + 1

    x = rows()
    code = generated_code(spectrum, x)
    assert any("complex numbers" in note for note in code.notes)
    assert "torch.ops.aten._fft_r2c.default" in code.library_calls
    torch.testing.assert_close(code.result, spectrum(x))


def test_bf16_on_a_card_without_it():
    with pytest.raises(CannotGenerate, match=r"(?i)bf16|bfloat16") as caught:
        generated_code(shifted, rows().bfloat16(), target="t4")
    text = one_sentence(caught.value)
    assert "SkipFrame" not in text and "T4" in text
    assert generated_code(shifted, rows().bfloat16(), target="a100").kernels


def test_empty_tensors_and_meta_tensors():
    code = generated_code(shifted, torch.empty(0, 8))
    assert code.kernels == () and code.result.shape == (0, 8)
    text = str(code)
    assert "0 kernels" in text


def test_a_sparse_argument(capfd):
    with pytest.raises(CannotGenerate, match="captured no") as caught:
        generated_code(lambda x: x.to_dense() + 1, rows().to_sparse())
    one_sentence(caught.value)
    assert "UserWarning" not in capfd.readouterr().err


def test_a_generator_of_random_numbers_as_an_argument(path):
    def noisy(x, generator):
        return x + torch.rand(x.shape, generator=generator)

    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    code = generated_code(noisy, rows(), generator)
    assert torch.equal(generator.get_state(), state)
    assert code.graphs


def test_a_generator_of_python():
    numbers = (n for n in range(3))
    notes = ["a generator: torch 2.14 captures nothing of such a call, and says so"]
    with contextlib.suppress(CannotGenerate):
        notes = generated_code(lambda x, more: x + next(more), rows(), numbers).notes
    assert any("generator" in note for note in notes)


def test_wrong_arguments_are_said_as_plain_python_says_it():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        generated_code(shifted)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        generated_code(shifted, rows(), rows())
    with pytest.raises(NotImplementedError, match='missing the required "forward"'):
        generated_code(nn.Module(), rows())


def waits(x):
    torch.cuda.synchronize()
    return x + 1


def moves_a_model(x):
    return MODEL.to("cuda")(x)


MODEL = nn.Linear(8, 8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
@pytest.mark.parametrize("function", [waits, moves_a_model])
def test_a_call_that_needs_the_card_itself_is_said_to(function):
    if function is moves_a_model and hasattr(torch._C, "_is_ck_sdpa_available"):
        pytest.skip("torch 2.14 captures the move itself, and there is code to show")
    with pytest.raises(CannotGenerate, match=r"needs? (the|a) card") as caught:
        generated_code(function, rows())
    text = one_sentence(caught.value)
    assert "The function itself runs" not in text
