"""Runs the test layers one after the other: `python -m helpers.testing [pytest arguments]`.

A layer that fails does not stop the next; one that collects nothing has failed. Which layers: all,
or those that LAYERS names ("unit papermill"). Ends with 0, 1 (a layer failed) or 2 (a wrong call).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Cheap to dear. What pytest gets for each; a path with * stands for all files that match.
LAYERS: dict[str, tuple[str, ...]] = {
    "static": ("tests/notebooks/test_structure.py",),
    "unit": ("tests/unit",),
    "nbval": (
        "--nbval-lax",  # compares the cells tagged nbval-check-output, runs all
        "--nbval-current-env",
        "--nbval-cell-timeout=600",
        "--nbval-sanitize-with=tests/nbval_sanitize.cfg",
        "notebooks/*.ipynb",
    ),
    "papermill": ("tests/notebooks/test_papermill.py",),
    "browser": ("tests/browser",),
}
_NOTHING_COLLECTED = 5  # pytest's exit code for it


@dataclass(frozen=True)
class LayerResult:
    """How one layer ended: counts of tests, seconds, and why it failed (empty if it did not).

    slowest: (seconds, test), longest first.
    """

    name: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    reason: str
    slowest: tuple[tuple[float, str], ...] = ()


def choose_layers(names: str, layers: Mapping[str, Sequence[str]] = LAYERS) -> list[str]:
    """Returns the layers that `names` (separated by spaces or commas; empty: all) stands for.

    They come in the order of `layers`. Raises ValueError for a name that is none.
    """
    asked = names.replace(",", " ").split()
    unknown = [name for name in asked if name not in layers]
    if unknown:
        raise ValueError(f"there is no layer {unknown[0]!r}: choose from {' '.join(layers)}")
    return [name for name in layers if not asked or name in asked]


def run_layer(
    name: str, arguments: Sequence[str], extra: Sequence[str], reports: Path, root: Path = ROOT
) -> LayerResult:
    """Runs pytest on one layer and reads its JUnit file, which stays as reports/NAME.xml."""
    report = reports / f"{name}.xml"
    report.unlink(missing_ok=True)
    expanded, missing = _expand(arguments, root)
    if missing:
        return LayerResult(name, 0, 0, 0, 0.0, f"there is nothing at {missing[0]}")
    command = [sys.executable, "-m", "pytest", *expanded, f"--junitxml={report}", *extra]
    code = subprocess.run(command, cwd=root).returncode
    return _read_report(name, report, code)


def summary(results: Sequence[LayerResult]) -> str:
    """Returns the slowest ten tests, one line per layer, and the line of totals."""
    slowest = sorted((entry for r in results for entry in r.slowest), reverse=True)[:10]
    lines = ["", "Slowest tests"]
    lines += [f"{seconds:8.1f} s  {test}" for seconds, test in slowest]
    lines += ["", "Layers"]
    for r in results:
        counts = f"{r.passed} passed, {r.failed} failed, {r.skipped} skipped"
        verdict = f"FAILED: {r.reason}" if r.reason else "ok"
        lines.append(f"{r.name:>10}  {counts}, {r.seconds:.0f} s, {verdict}")
    total = [sum(getattr(r, what) for r in results) for what in ("passed", "failed", "skipped")]
    lines += ["", "{} passed, {} failed, {} skipped".format(*total)]
    return "\n".join(lines)


def _expand(arguments: Sequence[str], root: Path) -> tuple[list[str], list[str]]:
    """Fills in the paths with *; second, the paths that lead to nothing."""
    expanded: list[str] = []
    missing: list[str] = []
    for argument in arguments:
        if argument.startswith("-"):
            expanded.append(argument)
            continue
        found = sorted(str(path.relative_to(root)) for path in root.glob(argument))
        expanded += found
        missing += [] if found else [argument]
    return expanded, missing


def _read_report(name: str, report: Path, code: int) -> LayerResult:
    from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

    if not report.exists():
        return LayerResult(name, 0, 0, 0, 0.0, f"pytest stopped with exit code {code}")
    xml = JUnitXml.fromfile(str(report))
    suites = [xml] if isinstance(xml, TestSuite) else list(xml)
    cases = [case for suite in suites for case in suite]
    kinds = [{type(entry) for entry in case.result} for case in cases]
    failed = sum(bool(kind & {Error, Failure}) for kind in kinds)
    skipped = sum(Skipped in kind and not kind & {Error, Failure} for kind in kinds)
    seconds = sum(suite.time or 0.0 for suite in suites)
    times = sorted(((c.time or 0.0, f"{c.classname}::{c.name}") for c in cases), reverse=True)
    reason = f"{failed} tests failed" if failed else ""
    if code == _NOTHING_COLLECTED or not cases:
        reason = "it collected no test, and a layer without tests proves nothing"
    elif code and not reason:
        reason = f"pytest ended with exit code {code}"
    passed = len(cases) - failed - skipped
    return LayerResult(name, passed, failed, skipped, seconds, reason, tuple(times[:10]))


def main(
    extra: Sequence[str] | None = None,
    layers: Mapping[str, Sequence[str]] = LAYERS,
    root: Path = ROOT,
) -> int:
    """Runs the chosen layers and prints the summary; `extra` goes to each pytest."""
    try:
        chosen = choose_layers(os.environ.get("LAYERS", ""), layers)
    except ValueError as error:
        print(f"test: {error}", file=sys.stderr)
        return 2
    from importlib.metadata import version

    reports = root / "runs" / "tests" / f"torch-{version('torch').split('+')[0]}"
    reports.mkdir(parents=True, exist_ok=True)
    results = []
    try:
        for number, name in enumerate(chosen, 1):
            print(f"\n=== layer {name} ({number} of {len(chosen)})", flush=True)
            arguments = sys.argv[1:] if extra is None else extra
            results.append(run_layer(name, layers[name], arguments, reports, root))
    except KeyboardInterrupt:
        print(summary(results) + "\ntest: stopped before the end", file=sys.stderr)
        return 130
    print(summary(results))
    return 1 if any(result.reason for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
