"""What code for a GPU that is not here costs: `python benchmarks/bench_cross_target.py`.

Prints seconds and, what lasts on a noisy machine, ratios made in this one run: the whole call over
the bare Inductor lowering inside it, over Inductor's C++ for the same function, and the cost of a
Vision Transformer's forward and backward by its number of layers. Nothing is served from a memo:
each shape is new.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._inductor.compile_fx as compile_fx_module
from torch.nn import functional as F

from helpers import generated_code
from helpers.cross_generation import generate
from helpers.generated import Request
from helpers.models import VisionTransformer
from helpers.targets import find_target
from helpers.worker import start_worker, worker_start_seconds

LAYERS = (1, 4, 12, 24)


def ten_operations(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Ten pointwise operations and reductions, as a feed-forward block has them."""
    y = F.gelu(x * scale) + x
    y = y - y.mean(-1, keepdim=True)
    return torch.tanh(y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)) * 0.5


def seconds(call: Callable[[], Any]) -> float:
    """Returns how long one call took."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def inputs(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the arguments of `ten_operations` for this many rows."""
    return torch.randn(rows, 512), torch.randn(512)


def share_of_lowering() -> float:
    """Returns the time of the whole over the time within Inductor's own lowering, in process."""
    inner = compile_fx_module.compile_fx_inner
    spent = []

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return inner(*args, **kwargs)
        finally:
            spent.append(time.perf_counter() - began)

    compile_fx_module.compile_fx_inner = timed
    ratios = []
    try:
        for rows in (300, 301, 302, 303, 304):
            torch._dynamo.reset()
            request = Request(
                ten_operations, inputs(rows), {}, find_target("h200"), {}, {}, False, ()
            )
            spent.clear()
            whole = seconds(lambda asked=request: generate(asked))
            ratios.append(whole / sum(spent))
    finally:
        compile_fx_module.compile_fx_inner = inner
    return statistics.median(ratios[1:])


def vision_transformer(layers: int) -> float:
    """Returns the seconds for forward and backward of a ViT with this many layers."""
    model = VisionTransformer(size=64, patch=8, width=192, depth=layers, heads=3)
    images = torch.randn(2, 3, 64, 64)
    return seconds(lambda: generated_code(model, images))


def main() -> None:
    """Prints the figures, the worker's start apart."""
    start_worker()
    generated_code(ten_operations, *inputs(100))  # waits for the worker, and warms it up
    print(f"worker's start: {worker_start_seconds():.1f} s (torch {torch.__version__})")
    plain = range(101, 111)
    triton = [seconds(lambda n=n: generated_code(ten_operations, *inputs(n))) for n in plain]
    deep = [
        seconds(lambda n=n: generated_code(ten_operations, *inputs(n), stages=("ptx", "sass")))
        for n in range(111, 116)
    ]
    generated_code(ten_operations, *inputs(99), target="cpu")  # learns the vector instructions
    cpp = [
        seconds(lambda n=n: generated_code(ten_operations, *inputs(n), target="cpu"))
        for n in range(116, 121)
    ]
    one, more, cpu = map(statistics.median, (triton, deep, cpp))
    print(f"Triton code of ten operations: {one:.2f} s; with PTX and SASS: {more - one:.2f} s more")
    print(f"  over the bare Inductor lowering inside it: {share_of_lowering():.2f} times")
    print(f"  over Inductor's C++ code for the same:     {one / cpu:.2f} times")
    print("ViT, forward and backward, by layers:")
    first = None
    for layers in LAYERS:
        took = vision_transformer(layers)
        first = first or took
        print(f"  {layers:>2}: {took:5.1f} s, {took / first:4.1f} times one layer")


if __name__ == "__main__":
    main()
