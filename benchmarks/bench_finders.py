"""What the finders cost over a pass-through torch.compile of the same calls, in seconds.

Run: python benchmarks/bench_finders.py. Each is measured REPEATS times in one process, in turn
with its plain counterpart, and the medians are printed; both start from the same state each time.
Judge by the processor seconds where other programs run too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

from helpers import explain_graph_breaks, trace_recompiles
from helpers.isolation import no_trace
from helpers.models import VisionTransformer
from helpers.tracing import without_remarks

REPEATS = 3


class Deep(torch.nn.Module):
    """Several blocks, so that a cache entry has hundreds of guards."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(
            *[torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(blocks)]
        )
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return self.blocks(x)


def repeated(x: torch.Tensor, steps: int) -> torch.Tensor:
    """A loop that is unrolled: each number of steps compiles again."""
    for _ in range(steps):
        x = x + 0.1 * x.sin()
    return x


def broken(x: torch.Tensor) -> torch.Tensor:
    """Three graph breaks."""
    for _ in range(3):
        x = x + 1
        print(end="")
    return x


def seconds(work: Callable[[], Any]) -> tuple[float, float]:
    """Returns the processor seconds that `work` took, and the seconds by the clock."""
    clock, start = time.perf_counter(), time.process_time()
    work()
    return time.process_time() - start, time.perf_counter() - clock


def plain(fn: Any, calls: list[tuple[Any, ...]]) -> None:
    """Makes the calls under a pass-through torch.compile, and nothing else."""
    compiled = torch.compile(fn, backend=lambda gm, _: gm.forward)
    with without_remarks():  # a limit that is hit is no news
        for call in calls:
            compiled(*call)


def compare(name: str, fn: Any, calls: list[tuple[Any, ...]], find: Callable[[], Any]) -> None:
    """Prints two lines: the finder's seconds, torch's own, and the difference."""
    ours, torchs = [], []
    for _ in range(REPEATS):
        with no_trace(fn, *calls):
            torchs.append(seconds(lambda: plain(fn, calls)))
        ours.append(seconds(find))
    for kind, i in (("processor", 0), ("clock", 1)):
        finder, bare = (statistics.median(one[i] for one in made) for made in (ours, torchs))
        print(f"{name}, {kind}: pass-through {bare:.2f} s, finder {finder:.2f} s, "
              f"{finder - bare:+.2f} s, ratio {finder / bare:.2f}", flush=True)  # fmt: skip


def main() -> None:
    """Prints one line for each finder and history."""
    # Both need Dynamo's own modules, which load at the first compilation.
    plain(lambda x: x + 1, [(torch.ones(2),)])
    print(f"torch {torch.__version__}, median of {REPEATS}")
    loop = [(torch.ones(4), n) for n in range(2, 14)]
    compare("trace_recompiles, unrolled loop, 12 calls", repeated, loop,
            lambda: trace_recompiles(repeated, loop))  # fmt: skip
    sizes = [(torch.ones(n, 8),) for n in (8, 8, 3, 8, 5, 1, 8)]
    linear = torch.nn.Linear(8, 2)
    compare("trace_recompiles, ragged batches, 7 calls", linear, sizes,
            lambda: trace_recompiles(linear, sizes))  # fmt: skip
    count = [(torch.ones(2, 4, 16),)] * 10
    for blocks in (3, 6, 12):
        deep = Deep(blocks)
        compare(f"trace_recompiles, {blocks} blocks and a counter, 10 calls", deep, count,
                lambda deep=deep: trace_recompiles(deep, count))  # fmt: skip
    vision = VisionTransformer()
    images = [(torch.ones(n, 3, 32, 32),) for n in (8, 8, 5, 1, 7)]
    compare("trace_recompiles, ViT, ragged batches, 5 calls", vision, images,
            lambda: trace_recompiles(vision, images))  # fmt: skip
    compare("explain_graph_breaks, three breaks", broken, [(torch.ones(4),)],
            lambda: explain_graph_breaks(broken, torch.ones(4)))  # fmt: skip


if __name__ == "__main__":
    main()
