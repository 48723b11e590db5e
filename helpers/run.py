"""Runs lessons unattended: `python -m helpers.run [LESSON ...] [-p NAME VALUE]...`.

Each run gets a folder runs/TIME with, per lesson, the executed notebook, an HTML page and what went
to stderr, and one JUnit file. Exit code 0: all ran as they should; 1: a lesson failed (the others
still ran); 2: a wrong call; 130: stopped by Ctrl-C, what was finished is kept.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.lesson_notebook import read_notebook
from helpers.lesson_run import (
    Outcome,
    require_one_parameters_cell,
    run_notebook,
    whole_seconds,
)
from helpers.lessons import ROOT, Lesson, check_parameters, choose_lessons
from helpers.parameters import LessonError

SLOWEST = 10


def run_lessons(
    lessons: Sequence[Lesson],
    parameters: dict[str, Any],
    folder: Path,
    cell_timeout: int = 600,
    root: Path = ROOT,
) -> tuple[list[Outcome], bool]:
    """Runs lessons one after the other into `folder`; returns the outcomes, and if all were run.

    It is False after Ctrl-C; the lesson that was running then counts as failed.
    """
    outcomes: list[Outcome] = []
    for lesson in lessons:
        print(f"{lesson.name}: running", flush=True)
        output, log = folder / f"{lesson.name}.ipynb", folder / f"{lesson.name}.stderr.log"
        try:
            done = run_notebook(lesson.notebook, output, log, parameters, cell_timeout, root=root)
            _write_page(output)
        except KeyboardInterrupt:
            outcomes.append(Outcome(lesson.name, "stopped by Ctrl-C", 0.0))
            return outcomes, False
        outcomes.append(done)
        state = f"FAILED: {done.reason}" if done.reason else "ok"
        print(f"{lesson.name}: {state} ({done.seconds:.1f} s)", flush=True)
    return outcomes, True


def write_junit(outcomes: Sequence[Outcome], path: Path) -> None:
    """Writes one JUnit test case per lesson; times in seconds."""
    failures = [one for one in outcomes if one.reason]
    suite = ET.Element(
        "testsuite",
        name="lessons",
        tests=str(len(outcomes)),
        failures=str(len(failures)),
        errors="0",
        skipped="0",
        time=f"{sum(one.seconds for one in outcomes):.3f}",
    )
    for one in outcomes:
        case = ET.SubElement(
            suite, "testcase", classname="lessons", name=one.name, time=f"{one.seconds:.3f}"
        )
        if one.reason:
            reason = "".join(char for char in one.reason if char.isprintable())  # XML's rule
            ET.SubElement(case, "failure", message=reason).text = reason
    ET.indent(suite)
    ET.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def read_values(lessons: Sequence[Lesson], pairs: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Turns -p pairs into values of the types that the lessons want; LessonError if they cannot."""
    parameters: dict[str, Any] = {}
    for lesson in lessons:
        defaults = {one.name: one.default for one in lesson.parameters()}
        given = {name: _value(text, defaults.get(name)) for name, text in pairs}
        check_parameters(lesson, given)
        if any(name in parameters and parameters[name] != given[name] for name in given):
            raise LessonError("the lessons take one of these values as different types; run one")
        parameters |= given
    return parameters


@dataclass(frozen=True)
class Call:
    """A command line that was read: the lessons, the values that they get, seconds per cell."""

    lessons: tuple[Lesson, ...]
    parameters: dict[str, Any]
    cell_timeout: int


def read_call(arguments: list[str] | None = None, root: Path = ROOT) -> Call | int:
    """Reads the command line with the standard library only; the exit code if nothing is to run."""
    parser = argparse.ArgumentParser(
        prog="python -m helpers.run", description=__doc__.split("\n", 1)[0]
    )
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="such as 03; none: all")
    parser.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"))
    parser.add_argument("--cell-timeout", type=whole_seconds, default=600, metavar="SECONDS")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # argparse has printed its message; --help ends with 0
        return int(stop.code or 0)
    try:
        lessons = choose_lessons(options.lessons, root)
        return Call(lessons, read_values(lessons, options.p), options.cell_timeout)
    except LessonError as error:
        return _wrong_call(error)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Runs the command line; returns the exit code described at the top of this module."""
    call = read_call(arguments, root)
    if isinstance(call, int):
        return call
    try:
        for lesson in call.lessons:
            _require_runnable(lesson)
        _require_device(call.parameters)
    except LessonError as error:
        return _wrong_call(error)
    folder = _new_folder(root / "runs")
    outcomes, complete = run_lessons(call.lessons, call.parameters, folder, call.cell_timeout, root)
    write_junit(outcomes, folder / "junit.xml")
    _print_summary(outcomes, len(call.lessons), folder.relative_to(root))
    if not complete:
        return 130
    return 1 if any(one.reason for one in outcomes) else 0


def _wrong_call(error: LessonError) -> int:
    print(f"helpers.run: {error}", file=sys.stderr)
    return 2


def _require_device(parameters: dict[str, Any]) -> None:
    """Raises LessonError where a card is asked for and none is usable: each lesson would fail."""
    if parameters.get("device") != "cuda":
        return
    from helpers.environment import require_cuda

    try:
        require_cuda()
    except RuntimeError as error:
        raise LessonError(str(error)) from None


def _require_runnable(lesson: Lesson) -> None:
    notebook = read_notebook(lesson.notebook)
    if notebook is None:
        raise LessonError(f"{lesson.notebook.name} does not exist; run: make build")
    require_one_parameters_cell(notebook, lesson.notebook.name)


def _print_summary(outcomes: Sequence[Outcome], asked: int, folder: Path) -> None:
    slowest = sorted((cell, one.name) for one in outcomes for cell in one.cells)[-SLOWEST:]
    if slowest:
        print("slowest cells:")
    for (seconds, label), name in reversed(slowest):
        print(f"  {seconds:6.1f} s  {name}, {label}")
    good = sum(not one.reason for one in outcomes)
    print(f"{good} of {asked} lessons ran as they should; all of it is in {folder.as_posix()}")


def _write_page(notebook: Path) -> None:
    """Writes the HTML page beside an executed notebook, where there is one."""
    if not notebook.exists():
        return
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter().from_filename(str(notebook))
    notebook.with_suffix(".html").write_text(page, encoding="utf-8")


def _new_folder(parent: Path) -> Path:
    """Makes and returns a folder named by the time, never one that exists."""
    stem = datetime.datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    for suffix in ("", *(f"-{number}" for number in range(2, 100))):
        folder = parent / f"{stem}{suffix}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise LessonError(f"{parent.name} has a hundred runs of this second")


def _value(text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    try:
        return ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (ValueError, SyntaxError):
        return text


if __name__ == "__main__":
    sys.exit(main())
