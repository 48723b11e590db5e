"""`generated_code` on a machine with a card: what runs there, and the same without looking."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers import TARGETS, count_bytes_of, generated_code

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fidelity.compare import normalised

pytestmark = pytest.mark.cuda


def on_card(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", **options)


def scores(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(x @ w).softmax(-1).sum()


def cases() -> dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    half = {"dtype": torch.bfloat16, "requires_grad": True}
    return {
        "training": (scores, (on_card(128, 256, **half), on_card(256, 512, **half))),
        "inference": (lambda x: x.relu() + 1, (on_card(1000, 37),)),
        "module": (nn.LayerNorm(64).cuda(), (on_card(256, 64, requires_grad=True),)),
    }


def this_target() -> str:
    """The name in TARGETS of this machine's card; the comparison needs one that is there."""
    name = torch.cuda.get_device_name()
    found = [key for key, target in TARGETS.items() if target.name == name]
    if not found:
        pytest.skip(f"{name} is not among TARGETS")
    return found[0]


@pytest.mark.parametrize("name", ["training", "inference", "module"])
def test_live_code_is_what_cross_target_says_and_the_result_is_right(name: str) -> None:
    fn, args = cases()[name]
    live = generated_code(fn, *args, stages=("triton", "ptx", "sass"))
    there = generated_code(fn, *args, target=this_target())
    assert live.origin.kind == "live" and live.target == torch.cuda.get_device_name()
    assert [normalised(k.source) for k in live.kernels] == [
        normalised(k.source) for k in there.kernels
    ]
    assert live.library_calls == there.library_calls
    assert all(k.config and {"ptx", "sass"} <= set(k.stages) for k in live.kernels)
    assert live.result.is_cuda and not there.result.is_cuda
    torch.testing.assert_close(live.result, fn(*args).detach(), atol=1e-2, rtol=1e-2)
    assert all(arg.grad is None for arg in args)
    assert count_bytes_of(live).total == count_bytes_of(there).total


def test_inputs_on_the_cpu_are_copied_and_stay_where_they_are() -> None:
    model, x = nn.Linear(64, 64), torch.randn(8, 64)
    code = generated_code(model, x)
    assert code.target == torch.cuda.get_device_name() and code.result.is_cuda
    assert "copies" in code.notes[0]
    assert not x.is_cuda and not model.weight.is_cuda and model.weight.grad is None
    torch.testing.assert_close(code.result.cpu(), model(x).detach(), atol=1e-3, rtol=1e-3)


def test_cuda_inputs_are_accepted_for_any_target() -> None:
    x = on_card(64, 64)
    for target in ("t4", "cpu"):
        code = generated_code(torch.sin, x, target=target)
        assert code.target == target and len(code.kernels) == 1


def test_what_the_learner_compiled_goes_on_as_before() -> None:
    compiled = torch.compile(lambda x: x.sin() + 1)
    x = on_card(100)
    before = compiled(x)
    generated_code(compiled, x)
    generated_code(compiled, x, target="h100")
    assert torch.cuda.is_available()
    torch.testing.assert_close(compiled(x), before)
    torch.testing.assert_close(torch.compile(lambda y: y.cos() * 2)(x), x.cos() * 2)


def test_the_ptx_is_that_of_the_kernel_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    ran: dict[str, Any] = {}
    run = CachingAutotuner.run

    def spy(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        out = run(tuner, *args, **kwargs)
        ran[tuner.inductor_meta["kernel_name"]] = tuner.compile_results[0].kernel.asm["ptx"]
        return out

    static = ("use_static_cuda_launcher", "use_static_triton_launcher")
    flags = {name: False for name in static if hasattr(config, name)}  # it drops the stages
    fn, args = cases()["training"]
    torch._dynamo.reset()
    with monkeypatch.context() as patch, config.patch(force_disable_caches=True, **flags):
        patch.setattr(CachingAutotuner, "run", spy)
        torch.compile(fn)(*args).backward()
    code = generated_code(fn, *args, stages=("ptx",))
    assert len(code.kernels) == 3
    for kernel in code.kernels:
        assert instructions(kernel.stages["ptx"]) == instructions(ran[kernel.name])


def test_each_backward_belongs_to_its_forward_though_the_last_is_compiled_first() -> None:
    def two_graphs(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        torch._dynamo.graph_break()
        return y.exp().sum(-1)

    code = generated_code(two_graphs, on_card(64, 64, requires_grad=True))
    told = {(graph.phase, graph.capture_index) for graph in code.graphs}
    assert told == {("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1)}
    backward = {graph.capture_index: graph for graph in code.graphs if graph.phase == "backward"}
    assert "cos" in backward[0].wrapper and "cos" not in backward[1].wrapper  # of the sine


def instructions(ptx: str) -> list[str]:
    """The instructions alone: places in the source and debug sections name files."""
    left_out = (".loc", ".file", "//", "$L__", ".section", ".b8", ".b32", ".b64", ".b16", "{", "}")
    lines = (line.strip() for line in ptx.splitlines())
    return [line for line in lines if line and not line.startswith(left_out)]
