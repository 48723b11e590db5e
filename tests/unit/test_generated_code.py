"""`generated_code`: what it gives for each kind of call, and what it says where it gives nothing.

No GPU is needed; what a card itself generates is compared in the fidelity tests.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.nn import functional as F

from helpers import TARGETS, CannotGenerate, GeneratedCode, generated_code, inductor, worker
from helpers.generated import PHASES, STAGES
from helpers.usable_gpu import NoGPU

triton = pytest.importorskip("triton", reason="without Triton there is no code for a GPU")
import triton.language as tl  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NO_CARD = not torch.cuda.is_available()


@pytest.fixture(scope="module", autouse=True)
def stopped_afterwards():
    yield
    worker.stop_worker()


@pytest.fixture(autouse=True)
def no_card(monkeypatch):
    """On a machine with a card too, "auto" means here the card that is not there."""
    monkeypatch.setattr(inductor, "why_no_gpu", lambda: NoGPU("no GPU"))


def shifted(x):
    return x.sin() + 1


def rows(n=4, m=8, **options):
    return torch.randn(n, m, **options)


def check(code: GeneratedCode, expected=None, graphs=None, phases=None) -> GeneratedCode:
    """What holds for every answer, and the given result, number of graphs and set of phases."""
    assert code.graphs and str(code) and code._repr_html_().startswith("<")
    assert code.target in str(code)
    for kernel in code.kernels:
        graph = code.graphs[kernel.graph_index]
        assert kernel.name in graph.wrapper and kernel.source.strip() in graph.wrapper
        assert kernel.phase == graph.phase
        assert kernel.phase in PHASES
        if kernel.kind != "cpp":
            assert kernel.stages["triton"] == kernel.source
            assert kernel.config in kernel.configs
    in_graphs = [call for graph in code.graphs for call in graph.library_calls]
    assert list(code.library_calls) == in_graphs
    for reason in (*code.unavailable.values(), *code.notes):
        one_sentence(reason)
    if expected is not None:
        assert "result" not in code.unavailable
        torch.testing.assert_close(code.result, expected)
    if graphs is not None:
        assert len(code.graphs) == graphs
    if phases is not None:
        assert {graph.phase for graph in code.graphs} == set(phases)
    return code


def one_sentence(text: str, longest: int = 420) -> None:
    """It is short, ends as a sentence, and holds nothing that is torch's or ours only."""
    assert 10 < len(text) <= longest, text
    assert text[-1] in ".!?", text
    assert "\n" not in text and "backend=" not in text and "Traceback" not in text, text
    assert "helpers" + os.sep not in text and "0x" not in text and "TORCHDYNAMO" not in text, text


# --- targets and stages ---------------------------------------------------------------------


@pytest.mark.parametrize("key", TARGETS)
def test_every_target_is_found_whatever_the_case(key):
    x = rows()
    code = check(generated_code(shifted, x, target=key.upper()), shifted(x), 1, ["inference"])
    assert code.target == key
    assert code.origin.kind == "cross-target" and TARGETS[key].name in code.origin.text()
    assert TARGETS[key].name in code.unavailable["times"]
    assert f"cc={TARGETS[key].compute_capability}" in code.kernels[0].source


@pytest.mark.skipif(not NO_CARD, reason="this machine has a GPU, which auto then takes")
def test_auto_is_the_h200_where_there_is_no_gpu():
    code = check(generated_code(shifted, rows()))
    assert code.target == "h200"
    assert code.graphs == generated_code(shifted, rows(), target="Auto").graphs


@pytest.mark.skipif(not NO_CARD, reason="this machine has a GPU")
def test_live_without_a_gpu_is_one_sentence():
    with pytest.raises(RuntimeError, match='target="live" needs an NVIDIA card') as caught:
        generated_code(shifted, rows(), target="live")
    one_sentence(str(caught.value))


def test_cpu_gives_cpp():
    x = rows()
    code = check(generated_code(shifted, x, target="CPU"), shifted(x), 1)
    assert code.target == "cpu" and code.origin.kind == "live"
    [kernel] = code.kernels
    assert kernel.kind == "cpp" and "sin(" in kernel.source and "triton" not in kernel.source
    assert "C++" in code.unavailable["triton"] and "times" not in code.unavailable


def test_all_stages_for_two_targets():
    x = rows(64, 100)
    made = {}
    for key, in_ptx in (("t4", ".target sm_75"), ("h100", ".target sm_90a")):
        code = check(generated_code(shifted, x, target=key, stages=STAGES), shifted(x))
        [kernel] = code.kernels
        assert not set(STAGES) & set(code.unavailable)
        assert tuple(kernel.stages) == STAGES
        assert in_ptx in kernel.stages["ptx"]
        made[key] = kernel.stages
    for stage in ("ttgir", "ptx", "sass"):
        assert made["t4"][stage] != made["h100"][stage]


def test_one_stage_may_be_given_as_a_word():
    [kernel] = generated_code(shifted, rows(), target="a100", stages="ttir").kernels
    assert list(kernel.stages) == ["ttir"]


# --- words that are wrong -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (ValueError, "no target 'h900'.*h100, h200", {"target": "h900"}),
        (ValueError, "no target", {"target": None}),
        (ValueError, "no stage 'pxt'.*ptx", {"stages": ("pxt",)}),
        (TypeError, "takes no 'dynamik'", {"compile_options": {"dynamik": True}}),
        (ValueError, "backend was 'eager'", {"compile_options": {"backend": "eager"}}),
        (ValueError, "mode.*'fastest'.*max-autotune", {"compile_options": {"mode": "fastest"}}),
        (ValueError, "max_fusion_sizes", {"compile_options": {"options": {"max_fusion_sizes": 1}}}),
        (TypeError, "int", {"stages": 3}),
        (TypeError, "compile_options", {"compile_options": None}),
        (TypeError, "kwargs", {"kwargs": 3}),
    ],
)
def test_a_wrong_word_is_one_sentence(error, words, options):
    with pytest.raises(error, match=words) as caught:
        generated_code(shifted, rows(), **options)
    one_sentence(str(caught.value), longest=250)


def test_what_cannot_be_called():
    with pytest.raises(TypeError, match="a function or a module, got int"):
        generated_code(3, rows())


# --- shapes, graphs, outputs ----------------------------------------------------------------


def test_open_sizes_by_mark_dynamic_and_by_option():
    def sums(x):
        return (x * 2).sum(1)

    x = rows(6, 9)
    static = check(generated_code(sums, x), sums(x))
    marked = rows(6, 9)
    torch._dynamo.mark_dynamic(marked, 0)
    some = check(generated_code(sums, marked), sums(marked))
    every = check(generated_code(sums, x, compile_options={"dynamic": True}), sums(x))
    assert "xnumel = 6" in static.kernels[0].source
    assert "xnumel = 6" not in some.kernels[0].source and "9" in some.kernels[0].source
    assert "ks0" in every.kernels[0].source
    assert "s0" in every.graphs[0].wrapper or re.search(r"\bs\d+\b", every.graphs[0].wrapper)


def test_graphs_of_a_broken_function_come_in_order():
    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.exp(), y.sum()

    x = rows(4, 64)
    code = check(generated_code(broken, x), broken(x), 2, ["inference"])
    assert [graph.capture_index for graph in code.graphs] == [0, 1]
    assert {kernel.graph_index for kernel in code.kernels} == {0, 1}
    assert "sin" in code.kernels[0].name


def test_training_is_forward_then_backward():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU())
    x = rows()
    code = check(generated_code(model, x), model(x).detach(), 2, ["forward", "backward"])
    assert [graph.phase for graph in code.graphs] == ["forward", "backward"]
    assert {k.phase for k in code.kernels} == {"forward", "backward"}
    assert not code.result.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_backward_of_several_graphs_comes_after_each_forward():
    def broken(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.exp()

    x = rows(requires_grad=True)
    code = check(generated_code(broken, x), broken(x).detach(), 4)
    assert [graph.phase for graph in code.graphs] == ["forward"] * 2 + ["backward"] * 2
    assert [graph.capture_index for graph in code.graphs] == [0, 1, 1, 0]
    assert x.grad is None


def test_a_text_of_live_code_tells_which_graph_it_belongs_to():
    from helpers.live_code import graph_number

    texts = [
        "['3_forward']",
        "['4_inference']",
        "['5_forward']",
        "['5_backward']",
        "['3_backward']",
    ]
    numbers: dict[str, int] = {}
    found = [
        graph_number(f"# AOT ID: {name}\nfrom ctypes import c_void_p", numbers) for name in texts
    ]
    assert found == [0, 1, 2, 2, 0]


def test_when_a_backward_is_generated():
    x = rows(requires_grad=True)
    phases = {
        wanted: [graph.phase for graph in generated_code(shifted, x, backward=wanted).graphs]
        for wanted in (None, True, False)
    }
    assert phases[None] == phases[True] == ["forward", "backward"]
    assert phases[False] == ["forward"]
    with torch.no_grad():
        check(generated_code(shifted, x), graphs=1, phases=["inference"])
        with pytest.raises(ValueError, match="no output of the call requires grad"):
            generated_code(shifted, x, backward=True)
    with pytest.raises(ValueError, match="no output of the call requires grad") as caught:
        generated_code(shifted, x.detach(), backward=True)
    one_sentence(str(caught.value))


def test_a_gradient_that_was_there_stays_the_very_same():
    model = nn.Linear(8, 8)
    model(rows()).sum().backward()
    before = [(p.grad, p.grad.clone()) for p in model.parameters()]
    check(generated_code(model, rows()), phases=["forward", "backward"])
    for parameter, (grad, values) in zip(model.parameters(), before, strict=True):
        assert parameter.grad is grad and torch.equal(grad, values)


@dataclasses.dataclass(frozen=True)
class Answer:
    values: torch.Tensor
    label: str


class Parts(dict):
    pass


def test_outputs_of_many_shapes():
    def several(x):
        return [x + 1, 3, "word", None, {"k": (x * 2, x.sum())}]

    x = rows()
    code = check(generated_code(several, x), graphs=1)
    assert code.result[1:4] == [3, "word", None]
    torch.testing.assert_close(code.result[4]["k"][1], x.sum())

    def answers(x):
        return Answer(x.sin(), "sine")

    made = check(generated_code(answers, x), graphs=1).result
    assert type(made) is Answer and made.label == "sine"
    torch.testing.assert_close(made.values, x.sin())


def test_a_dataclass_that_learns_comes_back_without_its_graph():
    def answers(x):
        return Answer(x.sin(), "sine")

    x = rows(requires_grad=True)
    code = check(generated_code(answers, x), phases=["forward", "backward"])
    torch.testing.assert_close(code.result.values.detach(), x.sin().detach())


def test_an_input_that_is_changed_is_not_the_learners():
    def changes(x, y):
        x.mul_(2)
        return x + y, y.view(-1)

    x, y = rows(), rows()
    before = x.clone(), y.clone(), x._version
    code = check(generated_code(changes, x, y), graphs=1)
    assert torch.equal(x, before[0]) and torch.equal(y, before[1]) and x._version == before[2]
    torch.testing.assert_close(code.result, (before[0] * 2 + y, y.view(-1)))
    code.result[1].zero_()
    assert torch.equal(y, before[1])
    assert "in_out_ptr" in code.kernels[0].source or "in_ptr0" in code.kernels[0].source


def test_the_same_call_gives_the_same_text_and_an_edited_one_another():
    namespace = {}
    x = rows()
    texts = []
    for body in ("x.sin()", "x.sin()", "x.cos()", "x.sin()"):
        exec(f"def f(x):\n    return {body}\n", namespace)
        code = generated_code(namespace["f"], x)
        torch.testing.assert_close(code.result, namespace["f"](x))
        texts.append([graph.wrapper for graph in code.graphs])
    assert texts[0] == texts[1] == texts[3] != texts[2]


# --- what people compile --------------------------------------------------------------------


def test_dropout_and_embedding():
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 8)

        def forward(self, ids):
            return F.dropout(self.table(ids), 0.5, self.training)

    model, ids = Words(), torch.randint(0, 50, (4, 6))
    torch.manual_seed(3)
    state = torch.get_rng_state()
    code = check(generated_code(model, ids), phases=["forward", "backward"])
    assert torch.equal(torch.get_rng_state(), state)
    # torch 2.14 may take the random numbers from ATen's generator.
    texts = [kernel.source for kernel in code.kernels] + [g.wrapper for g in code.graphs]
    assert any("tl.rand" in text or "aten.rand" in text for text in texts)
    assert model.table.weight.grad is None
    check(generated_code(model.eval(), ids), model(ids).detach())


def test_convolution_with_batch_norm_in_training_leaves_the_statistics():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(2, 3, 8, 8)
    code = check(generated_code(model, x), phases=["forward", "backward"])
    assert "extern_kernels.convolution" in code.library_calls
    assert "torch.ops.aten.convolution_backward.default" in code.library_calls
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert int(model[1].num_batches_tracked) == 0
    torch.testing.assert_close(code.result, model(x).detach())


def test_attention_is_the_cards_own():
    def attends(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = (torch.randn(1, 2, 32, 16, dtype=torch.float16) for _ in range(3))
    code = check(generated_code(attends, q, k, v))
    assert any("flash" in call or "cudnn" in call for call in code.library_calls)
    assert not any("for_cpu" in graph.wrapper for graph in code.graphs)
    torch.testing.assert_close(code.result, attends(q, k, v), rtol=1e-2, atol=1e-2)


@triton.jit
def add_kernel(left, right, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(left + at, mask) + tl.load(right + at, mask), mask)


def with_a_kernel_of_its_own(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out.relu()


def test_a_users_triton_kernel():
    code = check(generated_code(with_a_kernel_of_its_own, rows(), rows(), stages=("triton", "ptx")))
    assert code.result is None and "Triton kernel" in code.unavailable["result"]
    kinds = {kernel.kind: kernel for kernel in code.kernels}
    assert "user" in kinds and len(kinds) == 2
    assert "tl.store(out + at" in kinds["user"].source
    assert ".visible .entry add_kernel" in kinds["user"].stages["ptx"]


# --- what may be given as fn ----------------------------------------------------------------


class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, x, *, plus=None):
        y = x * self.factor
        return y if plus is None else y + plus

    def other(self, x):
        return (x / self.factor).exp()


def test_modules_methods_partials_and_what_is_already_compiled():
    model, x = Scales().eval().requires_grad_(False), rows()
    plain = check(generated_code(model, x), model(x))
    for subject in (torch.compile(model), model.forward, torch.compile(model.forward)):
        code = check(generated_code(subject, x), model(x))
        assert [k.source for k in code.kernels] == [k.source for k in plain.kernels]
    check(generated_code(model.other, x), model.other(x))
    check(generated_code(torch.compile(shifted), x), shifted(x))
    check(generated_code(torch.sin, x), x.sin())
    check(generated_code(functools.partial(torch.add, x), x), x + x)
    check(generated_code(functools.partial(F.layer_norm, normalized_shape=(8,)), x))
    check(generated_code(lambda value: model(value) + 1, x), model(x) + 1)


def test_keyword_arguments():
    model, x = Scales().requires_grad_(False), rows()
    check(generated_code(model, x, kwargs={"plus": x}), model(x, plus=x))
    with pytest.raises(TypeError, match="unexpected keyword argument 'minus'"):
        generated_code(shifted, x, kwargs={"minus": x})


def test_a_module_compiled_in_place():
    model, x = Scales().requires_grad_(False), rows()
    model.compile(backend="eager")
    check(generated_code(model, x), model.forward(x))


# --- options of torch.compile ---------------------------------------------------------------


def test_max_autotune_says_what_is_measured_on_the_card(capfd):
    def product(a, b):
        return (a @ b).relu()

    a, b = torch.randn(64, 64), torch.randn(64, 64)
    code = check(
        generated_code(product, a, b, compile_options={"mode": "max-autotune"}), product(a, b)
    )
    assert "measured" in code.unavailable["autotuning"]
    assert "CUDA graphs" in code.unavailable["cudagraphs"]
    shown = capfd.readouterr()
    assert "AUTOTUNE" not in shown.err + shown.out and " ms " not in shown.err + shown.out


def test_reduce_overhead_says_why_there_are_no_cuda_graphs():
    def product(a, b):
        return (a @ b).relu()

    a, b = torch.randn(64, 64), torch.randn(64, 64)
    plain = check(generated_code(product, a, b), product(a, b))
    code = check(
        generated_code(product, a, b, compile_options={"mode": "reduce-overhead"}), product(a, b)
    )
    assert "CUDA graphs" in code.unavailable["cudagraphs"]
    assert "cudagraphs" not in plain.unavailable
    assert [k.body for k in code.kernels] == [k.body for k in plain.kernels]


def test_options_reach_inductor_and_do_not_stay():
    def two(x):
        return x.softmax(-1), x.cumsum(0)

    x = rows(8, 4096)
    plain = generated_code(two, x)
    split = generated_code(
        two, x, compile_options={"options": {"triton.persistent_reductions": False}}
    )
    wide = {kernel.kind for kernel in split.kernels}
    assert "persistent_reduction" not in wide and "reduction" in wide
    assert generated_code(two, x).graphs == plain.graphs


def test_fullgraph_stops_at_a_break_in_one_sentence():
    def broken(x):
        torch._dynamo.graph_break()
        return x + 1

    with pytest.raises(CannotGenerate, match="graph_break") as caught:
        generated_code(broken, rows(), compile_options={"fullgraph": True})
    one_sentence(str(caught.value))


# --- code that says cuda --------------------------------------------------------------------


def on_card_by_method(x):
    return x.cuda() + 1


def on_card_by_name(x):
    return x.to("cuda:0") + torch.ones(8, device="cuda")


def on_card_if_there_is_one(x):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return x.sin() + torch.arange(8, device=device)


def asks_the_tensor(x):
    return x.sin() if x.is_cuda and x.device.type == "cuda" and x.get_device() == 0 else x.cos()


def made_beside(x):
    return x.sin() + torch.full((8,), 2.0, device=x.device)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (on_card_by_method, lambda x: x + 1),
        (on_card_by_name, lambda x: x + 1),
        (on_card_if_there_is_one, lambda x: x.sin() + torch.arange(8)),
        (asks_the_tensor, torch.sin),
        (made_beside, made_beside),
    ],
)
def test_code_that_says_cuda(function, expected):
    x = rows()
    code = check(generated_code(function, x), expected(x), 1)
    assert "cuda:0" in code.graphs[0].wrapper or "_DeviceGuard(0)" in code.graphs[0].wrapper
    assert {kernel.kind for kernel in code.kernels} == {"pointwise"}


def test_autocast_casts_as_on_the_card():
    def mixed(a, b):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return a @ b

    a, b = torch.randn(64, 64), torch.randn(64, 64)
    code = check(generated_code(mixed, a, b))
    assert code.result.dtype == torch.bfloat16
    assert any("bf16" in kernel.source for kernel in code.kernels)


def test_what_is_put_on_the_cpu_is_computed_there():
    def leaves(x):
        return x.sin().cpu() + 1, x.cos()

    x = rows()
    code = check(generated_code(leaves, x), leaves(x))
    assert [kernel.kind for kernel in code.kernels] == ["pointwise", "cpp"]


def test_a_tensor_made_without_a_device_is_noted():
    def mixes(x):
        return x + torch.ones(8)

    x = rows()
    code = check(generated_code(mixes, x), mixes(x), 1)
    [note] = code.notes
    assert "On a card this call would stop" in note and "device=x.device" in note
    assert "torch.ones(8)" in note or "Expected all tensors" in note or "two different" in note


# --- what surrounds the call ----------------------------------------------------------------


def test_what_cannot_travel_is_generated_here_and_says_so():
    lock = threading.Lock()

    def guarded(x):
        assert not lock.locked()
        return x.sin() + 1

    x = rows()
    code = check(generated_code(guarded, x), shifted(x), 1)
    [note] = [text for text in code.notes if "this process" in text]
    assert "'lock'" in note and "no other thread" in note
    assert code.kernels[0].body == generated_code(shifted, x).kernels[0].body


def test_a_function_of_a_script(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(
        textwrap.dedent("""
            import torch
            from helpers import generated_code

            SCALE = 3.0

            class Mine(torch.nn.Module):
                def forward(self, x):
                    return helper(x) * SCALE

            def helper(x):
                return x.sin()

            x = torch.randn(4, 8)
            for fn in (helper, Mine(), lambda v: Mine()(v)):
                code = generated_code(fn, x, target="a100")
                assert torch.allclose(code.result, fn(x))
                print(code.kernels[0].name, len(code.notes))
        """)
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all(line.endswith(" 0") for line in lines)
    assert "sin" in lines[0] and "mul" in lines[1] and lines[1] == lines[2]
    assert "Traceback" not in done.stderr and len(done.stderr) < 300
