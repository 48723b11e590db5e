"""Records the figures of lesson 01 on this machine's GPU: `python THIS_FILE` (under two minutes).

Writes notebooks/recordings/01_first_compile.json: eager, first and later calls over sizes, batches
and dtypes; a race that compiling wins and one that it loses; a clock that does not wait. First
calls are made with an empty cache on disk, after one compilation that starts the tool chain.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # also where nothing is installed

from helpers import first_compile, recordings
from helpers.environment import remember_vector_isa
from helpers.first_compile import (
    BATCHES,
    DTYPES,
    RECORDING,
    SIZES,
    Case,
    keep,
    measure_case,
)
from helpers.origin import Origin

REPEATS = 50


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As in the lesson."""
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return x * scale * weight


def residual(x: torch.Tensor, r: torch.Tensor) -> torch.Tensor:
    """As in the lesson."""
    return torch.relu(x) + r


def record_race(fn: Any, *args: torch.Tensor) -> dict[str, Any]:
    """Returns both timings of one function, and in words what ran."""
    shapes = ", ".join(" x ".join(map(str, one.shape)) for one in args)
    eager, compiled = first_compile.time_both(fn, args, repeats=REPEATS)
    what = f"{fn.__name__} on {shapes}, {str(args[0].dtype).removeprefix('torch.')}"
    return {"what": what, "eager": keep(eager), "compiled": keep(compiled)}


def record_races(device: str, rows: int) -> dict[str, Any]:
    """Returns the race over many numbers and the one over few."""
    x, weight = torch.randn(rows, 1024, device=device), torch.randn(1024, device=device)
    small = torch.randn(16, 16, device=device)
    return {
        "rms_norm": record_race(rms_norm, x, weight),
        "residual": record_race(residual, small, small.clone()),
    }


def record_without_waiting(width: int) -> dict[str, Any]:
    """Times eight products, 20 times each way: the clock stopped at once, or after waiting."""
    a, b = (torch.randn(width, width, device="cuda") for _ in range(2))
    found: dict[str, list[float]] = {"without": [], "with": []}
    for name in ["with"] * 3 + ["without", "with"] * 20:
        torch.cuda.synchronize()
        start, y = time.perf_counter(), a
        for _ in range(8):
            y = torch.tanh(y @ b)
        if name == "with":
            torch.cuda.synchronize()
        found[name].append(1000 * (time.perf_counter() - start))
    return {
        "what": f"8 times tanh(y @ b) on {width} x {width}, float32",
        "without_ms": found["without"],
        "with_ms": found["with"][3:],
    }


def record_grid(device: str, cases: list[Case], until: float) -> dict[str, Any]:
    """Returns both timings of each case, smallest first; those after `until` are left out."""
    grid = {}
    for case in cases:
        if time.monotonic() > until:
            print(f"left out, no time: {case}", file=sys.stderr)
            continue
        started = time.monotonic()
        eager, compiled = measure_case(case, device, repeats=REPEATS)
        grid[case.key] = {"eager": keep(eager), "compiled": keep(compiled)}
        print(f"{case}: {time.monotonic() - started:.1f} s", flush=True)
    return grid


def main(arguments: list[str] | None = None) -> int:
    """Records; exit code 0, or 2 where there is no GPU and none was waived."""
    parser = recordings.recording_parser(__doc__ or "")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--seconds", type=float, default=90, help="for the grid of cases")
    given = parser.parse_args(arguments)
    device = recordings.recording_device(given, "01")
    if device is None:
        return 2
    remember_vector_isa()
    with tempfile.TemporaryDirectory() as cache, torch.no_grad():
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        os.environ["TRITON_CACHE_DIR"] = os.path.join(cache, "triton")
        torch.compile(lambda x: torch.sin(x) + 1)(torch.randn(64, device=device))
        data: dict[str, Any] = {"races": record_races(device, 65536 if device == "cuda" else 1024)}
        if device == "cuda":
            data["no_sync"] = record_without_waiting(4096)
        cases = [Case(s, b, d) for s in given.sizes for b in BATCHES for d in DTYPES]
        data["grid"] = record_grid(device, cases, time.monotonic() + given.seconds)
        name = torch.cuda.get_device_name() if device == "cuda" else recordings.stamp()["device"]
        print(recordings.save(RECORDING, data, Origin.live(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
