"""What the finders cost over a pass-through torch.compile of the same calls, in processor seconds.

Run: python benchmarks/bench_finders.py. Each is measured REPEATS times in one process, in turn
with its plain counterpart, and the median is printed; both start from the same state each time.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

from helpers import explain_graph_breaks, trace_recompiles
from helpers.isolation import no_trace

REPEATS = 3


class Deep(torch.nn.Module):
    """Three blocks, so that a cache entry has hundreds of guards."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.Sequential(
            *[torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(3)]
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


def seconds(work: Callable[[], Any]) -> float:
    """Returns the processor seconds that `work` took: other programs do not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def plain(fn: Any, calls: list[tuple[Any, ...]]) -> None:
    """Makes the calls under a pass-through torch.compile, and nothing else."""
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # a limit that is hit is no news
    compiled = torch.compile(fn, backend=lambda gm, _: gm.forward)
    for call in calls:
        compiled(*call)


def compare(name: str, fn: Any, calls: list[tuple[Any, ...]], find: Callable[[], Any]) -> None:
    """Prints one line: the finder's seconds, torch's own, and the difference."""
    ours, torchs = [], []
    for _ in range(REPEATS):
        with no_trace(fn, *calls):
            torchs.append(seconds(lambda: plain(fn, calls)))
        ours.append(seconds(find))
    finder, bare = statistics.median(ours), statistics.median(torchs)
    print(f"{name}: pass-through {bare:.2f} s, finder {finder:.2f} s, "
          f"{finder - bare:+.2f} s, ratio {finder / bare:.2f}")  # fmt: skip


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
    deep = Deep()
    count = [(torch.ones(2, 4, 16),)] * 8
    compare("trace_recompiles, 3 blocks and a counter, 8 calls", deep, count,
            lambda: trace_recompiles(deep, count))  # fmt: skip
    compare("explain_graph_breaks, three breaks", broken, [(torch.ones(4),)],
            lambda: explain_graph_breaks(broken, torch.ones(4)))  # fmt: skip


if __name__ == "__main__":
    main()
