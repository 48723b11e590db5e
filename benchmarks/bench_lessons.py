"""Seconds that each lesson takes from an empty and from a warm compile cache, in one run.

    python benchmarks/bench_lessons.py [LESSON ...] [--device cpu]

Each run is a fresh process; the second finds the Inductor cache that the first one filled. The
limits for a CPU are those that the lessons were written to: 150 s empty, 60 s warm, on two cores.
Seen on 2026-11-30 on two cores of an AMD EPYC, torch 2.11.0, a test run going on beside it, empty
and warm: lesson 00 35 and 14 s, lesson 01 41 and 27 s, lesson 02 12 and 12 s.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from helpers.lessons import choose_lessons  # noqa: E402, the path comes first


def seconds(notebook: Path, device: str, cache: str) -> float:
    """Returns how long papermill takes for one notebook; its error ends the benchmark."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "PYTHONPATH": path}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "papermill", "--no-progress-bar", "-p", "device", device,
         str(notebook), str(Path(cache) / "out.ipynb")],
        check=True, env=environment, cwd=ROOT, capture_output=True,
    )  # fmt: skip
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lessons", nargs="*")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    asked = parser.parse_args()
    print("lesson             empty cache   warm cache   empty / warm")
    for lesson in choose_lessons(asked.lessons):
        with tempfile.TemporaryDirectory() as cache:
            empty, warm = (seconds(lesson.notebook, asked.device, cache) for _ in range(2))
        print(f"{lesson.name:18}{empty:10.0f} s{warm:11.0f} s{empty / warm:14.1f}", flush=True)


if __name__ == "__main__":
    main()
