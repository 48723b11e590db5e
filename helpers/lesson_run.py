"""One lesson through papermill, in a process of its own, and whether it ran as it should.

Papermill's exit code is not enough: an error inside an Output widget leaves it at 0, and a value
may be injected without reaching the lesson.
"""

from __future__ import annotations

import argparse
import functools
import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.lesson_notebook import code_cells
from helpers.lessons import ROOT
from helpers.parameters import LessonError, show_parameters

WIDGET_STATE = "application/vnd.jupyter.widget-state+json"
# What jupyter_client says of a kernel that ends before it answers for the first time.
_NOT_STARTED = "Kernel died before replying to kernel_info"
_AT_START = "before its first cell"
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Outcome:
    """How one run ended: `reason` is empty if all is well; times in seconds.

    cells: (seconds, "cell N: first line") for each code cell that was run.
    """

    name: str
    reason: str
    seconds: float
    cells: tuple[tuple[float, str], ...] = ()


def run_notebook(
    source: Path,
    output: Path,
    log: Path,
    parameters: Mapping[str, Any] | None = None,
    cell_timeout: int = 600,
    cwd: Path | None = None,
    root: Path = ROOT,
) -> Outcome:
    """Executes `source` into `output` in a fresh kernel; what goes to stderr ends up in `log`.

    A kernel that dies at its start, before any cell, is started a second time.
    The notebook so far is kept in `output` when a cell fails, takes longer than `cell_timeout`
    seconds, or its kernel dies. Ctrl-C stops the kernel and raises KeyboardInterrupt.
    """
    parameters = dict(parameters or {})
    command = [sys.executable, "-m", "papermill", str(source), str(output), "--kernel", "python3"]
    command += ["--cwd", str(cwd or root / "notebooks"), "--no-progress-bar"]
    command += ["--log-level", "WARNING", "--execution-timeout", str(cell_timeout)]
    command += ["--parameters_yaml", json.dumps(parameters)] if parameters else []
    started = time.monotonic()
    log.write_text("", encoding="utf-8")
    start = functools.partial(_papermill, command, output, log, source.stem, root)
    code = start()
    if code and _NOT_STARTED in _read(log):
        # Its ports are picked before it starts: another program may have taken one meanwhile.
        # No cell was run yet, so a second start repeats nothing.
        code = start()
    seconds = time.monotonic() - started
    reason = _judge(code, output, log, parameters, cell_timeout)
    notebook = read_lenient(output)
    with open(log, "a", encoding="utf-8") as stderr:
        stderr.writelines(text for name, text in streams(notebook) if name == "stderr")
    return Outcome(source.stem, reason, seconds, _cell_times(notebook))


def _papermill(command: list[str], output: Path, log: Path, name: str, root: Path) -> int:
    """Runs papermill, its words added to `log`, and returns its exit code. name: the lesson's."""
    with open(log, "a", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            command,
            env=kernel_environment(root),
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            start_new_session=True,  # so that Ctrl-C reaches papermill once, and through us
        )
        try:
            _wait(process, output, name)
        except KeyboardInterrupt:
            _stop(process)
            raise
    return process.returncode


def kernel_environment(root: Path = ROOT) -> dict[str, str]:
    """Returns this process's environment, with the repository root first on the Python path."""
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    # The debugger's warning about frozen modules would be the only line in most logs.
    quiet = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    return {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(paths)}


def find_faults(notebook: Any, parameters: Mapping[str, Any] | None = None) -> list[str]:
    """Returns what went wrong in an executed notebook, one line each; none found is [].

    Looks for error outputs, errors hidden in an Output widget's state, code cells that were not
    run, and values of `parameters` that no output shows as `name=value` (see begin_lesson).
    """
    faults = []
    for number, cell in enumerate(code_cells(notebook), start=1):
        errors = [one for one in cell.outputs if one.output_type == "error"]
        faults += [f"{_label(number, cell)}: {_error_line(one)}" for one in errors]
        if cell.source.strip() and cell.execution_count is None and not faults:
            faults.append(f"{_label(number, cell)} was not run")
    state = notebook.metadata.get("widgets", {}).get(WIDGET_STATE, {}).get("state", {})
    for model in state.values():
        hidden = model.get("state", {}).get("outputs") or ()
        errors = [one for one in hidden if one.get("output_type") == "error"]
        faults += [f"error inside an Output widget: {_error_line(one)}" for one in errors]
    text = visible_text(notebook)
    for name, value in (parameters or {}).items():
        if not faults and show_parameters({name: value}) not in text:
            faults.append(f"the value given for {name} ({value!r}) is not seen in any output")
    return faults


def visible_text(notebook: Any) -> str:
    """Returns all that the outputs show as text: streams, plain text, HTML without its tags."""
    parts = [text for _, text in streams(notebook)]
    for cell in notebook.cells if notebook else ():
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            parts += [data.get("text/plain", "")]
            parts += [html.unescape(re.sub(r"<[^>]*>", "", data.get("text/html", "")))]
    return "\n".join(parts)


def streams(notebook: Any) -> Iterator[tuple[str, str]]:
    """Yields (stdout or stderr, text) for each stream output, in order."""
    for cell in notebook.cells if notebook else ():
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                yield output.name, output.text


def read_lenient(path: Path) -> Any:
    """Returns the notebook at `path`, or None if there is none or it is not readable (yet)."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError):
        return None


def _wait(process: subprocess.Popen[bytes], output: Path, name: str) -> None:
    """Waits for papermill; on a terminal, one line shows how many cells are done."""
    show, started = sys.stderr.isatty(), time.monotonic()
    while True:
        try:
            process.wait(timeout=1)
            break
        except subprocess.TimeoutExpired:
            if show:
                _show_progress(read_lenient(output), name, time.monotonic() - started)
    if show:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _show_progress(notebook: Any, name: str, seconds: float) -> None:
    cells = code_cells(notebook) if notebook else []
    done = sum(_status(cell) == "completed" for cell in cells)
    bar = "#" * (20 * done // max(len(cells), 1))
    line = f"{name} [{bar:<20}] cell {done} of {len(cells)}, {seconds:.0f} s"
    print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends papermill and, through it, the kernel: first politely, then not."""
    for send, seconds in ((signal.SIGINT, 10), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        process.send_signal(send)
        try:
            process.wait(timeout=seconds)
            return
        except subprocess.TimeoutExpired:
            continue


def _judge(
    code: int, output: Path, log: Path, parameters: Mapping[str, Any], cell_timeout: int
) -> str:
    """Returns why the run counts as failed, in one line, or "" if it does not."""
    notebook, errors = read_lenient(output), _read(log)
    lines = [line for line in errors.splitlines() if line.strip()]
    at, last = _where(notebook), lines[-1] if lines else f"exit code {code}"
    if "DeadKernelError" in errors:
        return f"the kernel died {at} (crashed, killed, or out of memory); see {log.name}"
    if "CellTimeoutError" in errors:
        return f"a cell took longer than {cell_timeout} s and was stopped {at}"
    if notebook is None:
        return f"papermill wrote no notebook: {last}"
    if code and at == _AT_START:
        return f"the kernel did not start, so no cell was run: {last}; see {log.name}"
    faults = find_faults(notebook, parameters)
    if faults:
        return faults[0]
    if code:
        return f"papermill ended with code {code}: {lines[-1] if lines else 'no message'}"
    return ""


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _where(notebook: Any) -> str:
    """Returns "in code cell N (first line)" for the last cell that papermill started."""
    started = [
        _label(number, cell)
        for number, cell in enumerate(code_cells(notebook) if notebook else [], start=1)
        if cell.metadata.get("papermill", {}).get("start_time")
    ]
    return f"in {started[-1]}" if started else _AT_START


def _status(cell: Any) -> str | None:
    return cell.metadata.get("papermill", {}).get("status")


def _label(number: int, cell: Any) -> str:
    first = cell.source.strip().split("\n", 1)[0]
    return f"code cell {number} ({first[:50]})"


def _error_line(output: Any) -> str:
    message = _ANSI.sub("", str(output.get("evalue", ""))).strip().split("\n", 1)[0]
    return f"{output.get('ename', 'error')}: {message}"


def _cell_times(notebook: Any) -> tuple[tuple[float, str], ...]:
    timed = []
    for number, cell in enumerate(code_cells(notebook) if notebook else [], start=1):
        seconds = cell.metadata.get("papermill", {}).get("duration")
        timed += [(float(seconds), _label(number, cell))] if seconds is not None else []
    return tuple(timed)


def whole_seconds(text: str) -> int:
    """Reads a time limit from a command line; argparse shows the message of its error as it is."""
    try:
        seconds = int(text)
    except ValueError:
        seconds = 0
    if seconds < 1:
        raise argparse.ArgumentTypeError(f"a whole number of seconds from 1 on, not {text!r}")
    return seconds


def require_one_parameters_cell(notebook: Any, name: str) -> None:
    """Raises LessonError unless exactly one cell is tagged `parameters`.

    Without one, papermill only warns, and the lesson's own values win.
    """
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise LessonError(f"{name} has {len(tagged)} cells tagged parameters; it needs exactly one")
