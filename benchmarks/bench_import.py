"""What starting costs, in fresh processes: importing helpers, the first graph, vector instructions.

Run by hand from the repository: `python benchmarks/bench_import.py`. It prints ratios and seconds
with the conditions they were taken under; nothing is asserted, as the machine may be busy.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLOCK = "import time; start = time.perf_counter()\n"
STOP = "\nprint(time.perf_counter() - start)"
PARTS = {
    "python": CLOCK + "pass" + STOP,
    "torch": CLOCK + "import torch" + STOP,
    "torch, helpers": CLOCK + "import torch, helpers" + STOP,
    "helpers, after torch": "import torch\n" + CLOCK + "import helpers" + STOP,
    "first graph": CLOCK + "import torch\nfrom helpers import capture_graphs\n"
    "graphs = capture_graphs(lambda x: torch.relu(x) + 1, torch.ones(4)).graphs\n"
    "assert len(graphs) == 1" + STOP,
}  # fmt: skip
# The same function twice, so that only the probe differs: once as torch is, once remembered.
COMPILE = """
import time
import torch
{remedy}
fn = torch.compile(lambda x: torch.relu(x) * 2 + 1)
x = torch.randn(64)
start = time.perf_counter()
fn(x)
print(time.perf_counter() - start)
"""
REMEDY = "from helpers.environment import remember_vector_isa\nremember_vector_isa()"


def run(code: str, **settings: str) -> float:
    """Runs code in a fresh Python and returns the seconds that it prints last."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **settings},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"a measured process failed:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def alternate(parts: dict[str, str], rounds: int, **settings: str) -> dict[str, list[float]]:
    """Runs all parts in turn, so that a slow spell of the machine meets each of them."""
    taken: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, code in parts.items():
            taken[name].append(run(code, **settings))
    return taken


def line(name: str, seconds: list[float]) -> str:
    """Returns a line with median, least and most, in seconds."""
    middle = statistics.median(seconds)
    return f"  {name:28} {middle:7.3f} s  ({min(seconds):.3f} to {max(seconds):.3f})"


def imports(rounds: int) -> None:
    """Prints what helpers cost over torch, and the time to the first captured graph."""
    run(PARTS["torch, helpers"])  # byte code is written, files are in memory
    taken = alternate(PARTS, rounds)
    print(f"fresh processes, {rounds} rounds, medians (least to most):")
    for name, seconds in taken.items():
        print(line(name, seconds))
    pairs = list(zip(taken["torch"], taken["torch, helpers"], strict=True))
    ratio = statistics.median(both / alone for alone, both in pairs)
    extra = statistics.median(both - alone for alone, both in pairs)
    print(f"  helpers over torch: ratio {ratio:.3f}, {extra:+.3f} s (medians of pairs)")


def vector_instructions(rounds: int) -> None:
    """Prints the first Inductor compile of a fresh process with a warm cache, with and without."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor", "XDG_CACHE_HOME": folder}
        remedies = {"as torch is": "", "remembered": REMEDY}
        parts = {name: COMPILE.format(remedy=text) for name, text in remedies.items()}
        cold = {name: run(code, **settings) for name, code in parts.items()}
        print("\nfirst Inductor compile of a process, on the CPU:")
        print(f"  {'empty cache':28} {cold['as torch is']:7.3f} s  (once)")
        taken = alternate(parts, rounds, **settings)
    for name, seconds in taken.items():
        print(line(f"warm cache, {name}", seconds))
    ratio = statistics.median(a / b for a, b in zip(*taken.values(), strict=True))
    print(f"  as torch is over remembered: ratio {ratio:.2f} (median of pairs)")


def main() -> None:
    """Prints everything, with the machine and its load before and after."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="fresh processes of each kind")
    rounds = parser.parse_args().rounds
    if rounds < 1:
        parser.error("--rounds is a number from 1 on")
    sys.path.insert(0, str(ROOT))
    from helpers import describe_environment

    print(describe_environment())
    load = [os.getloadavg()[0]] if hasattr(os, "getloadavg") else []
    imports(rounds)
    vector_instructions(rounds)
    if load:
        print(f"\nload average: {load[0]:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
