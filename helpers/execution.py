"""Executes lessons and stores what they showed; runs the recordings: an author's tools.

Called as `python -m helpers.authoring execute` and `... record`. A lesson's old notebook stays as
it is until the new one is complete, so both can be interrupted, and go on when called again.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from helpers.files import write_whole
from helpers.lesson_notebook import (
    BLOCK,
    build_notebook,
    code_cells,
    code_hash,
    helpers_hash,
    read_notebook,
    read_stamp,
    to_text,
)
from helpers.lesson_run import kernel_environment, read_lenient, run_notebook
from helpers.lessons import ROOT, Lesson
from helpers.parameters import LessonError
from helpers.stored_outputs import clean_outputs

# Printed by a fresh process, as the author's own one need not import torch for it.
_ASK_MACHINE = """
import json, platform, sys, torch
from helpers.environment import choose_device
device = choose_device(sys.argv[1])
name = torch.cuda.get_device_name(0) if device == "cuda" else f"CPU ({platform.machine()})"
print(json.dumps({"device": name, "torch": torch.__version__}))
"""


def execute(
    lessons: Iterable[Lesson],
    device: str = "auto",
    force: bool = False,
    cell_timeout: int = 600,
    root: Path = ROOT,
) -> int:
    """Runs lessons in fresh kernels and stores them; returns 0, or 1 if one failed.

    A lesson whose stamp is current (its code, helpers/, torch, device) is skipped unless `force`.
    One that fails keeps its old notebook; the failed run goes to runs/failed/.
    """
    machine, failed = describe_machine(device, root), 0
    for lesson in lessons:
        old = read_notebook(lesson.notebook)
        if not force and is_current(build_notebook(lesson, old, root), machine, root):
            print(f"{lesson.name}: stored already from this code, torch and device; skipped")
            continue
        print(f"{lesson.name}: executing", flush=True)
        reason, seconds = _execute_one(lesson, device, machine, cell_timeout, root)
        failed += bool(reason)
        print(f"{lesson.name}: {f'FAILED: {reason}' if reason else f'stored, {seconds:.0f} s'}")
    return 1 if failed else 0


def describe_machine(device: str, root: Path = ROOT) -> dict[str, str]:
    """Returns the device's name and torch's version as a fresh process sees them."""
    command = [sys.executable, "-c", _ASK_MACHINE, device]
    environment = kernel_environment(root)
    answer = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)
    if answer.returncode:
        last = answer.stderr.strip().splitlines()[-1:]
        raise LessonError(f"cannot execute on {device!r}: {''.join(last)}")
    return json.loads(answer.stdout.splitlines()[-1])


def is_current(notebook: Any, machine: dict[str, str], root: Path = ROOT) -> bool:
    """Says whether the outputs in a freshly built notebook are all there and from here."""
    stamp, cells = read_stamp(notebook), code_cells(notebook)
    wanted = {"lesson": code_hash(notebook), "helpers": helpers_hash(root), **machine}
    complete = all(cell.execution_count is not None for cell in cells)
    return complete and all(stamp.get(key) == value for key, value in wanted.items())


def store(lesson: Lesson, executed: Any, machine: dict[str, str], root: Path = ROOT) -> None:
    """Writes the lesson's notebook with the outputs of an executed one, cleaned and stamped."""
    notebook = build_notebook(lesson, None, root)
    pairs = zip(code_cells(notebook), code_cells(executed), strict=True)
    for count, (cell, run) in enumerate(pairs, start=1):
        cell.outputs, cell.execution_count = clean_outputs(run.outputs, count, root), count
    notebook.metadata[BLOCK]["stamp"] = {
        "lesson": code_hash(notebook),
        "helpers": helpers_hash(root),
        "date": datetime.date.today().isoformat(),
        **machine,
    }
    # Built once more, so that the facts line says what the stamp says.
    write_whole(lesson.notebook, to_text(build_notebook(lesson, notebook, root)))


def record(root: Path = ROOT) -> bool:
    """Runs each notebooks/recordings/record_*.py in a process of its own; False if one failed."""
    scripts = sorted((root / "notebooks" / "recordings").glob("record_*.py"))
    if not scripts:
        print("no recording is registered (notebooks/recordings/record_*.py); nothing to record")
    good = True
    for script in scripts:
        print(f"{script.stem}: recording", flush=True)
        done = subprocess.run([sys.executable, str(script)], env=kernel_environment(root), cwd=root)
        good = good and done.returncode == 0
        print(f"{script.stem}: {'done' if done.returncode == 0 else 'FAILED'}")
    return good


def _execute_one(
    lesson: Lesson, device: str, machine: dict[str, str], cell_timeout: int, root: Path
) -> tuple[str, float]:
    """Returns why the lesson was not stored ("" if it was), and the seconds that it took."""
    parameters = {} if device == "auto" else {"device": device}
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, f"{lesson.name}.ipynb"), Path(folder, "executed.ipynb")
        log = Path(folder, "stderr.log")
        source.write_text(to_text(build_notebook(lesson, None, root)), encoding="utf-8")
        done = run_notebook(source, output, log, parameters, cell_timeout, root=root)
        if not done.reason:
            store(lesson, read_lenient(output), machine, root)
            return "", done.seconds
        kept = root / "runs" / "failed"
        for path, name in ((output, f"{lesson.name}.ipynb"), (log, f"{lesson.name}.stderr.log")):
            if path.exists():
                write_whole(kept / name, path.read_text(encoding="utf-8"))
    return f"{done.reason} (its notebook is unchanged; this run is in runs/failed)", done.seconds
