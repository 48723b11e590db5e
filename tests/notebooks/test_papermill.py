"""Every lesson, whole, through papermill: parameter sets, both folders, and wrong calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import lessons
from helpers.lesson_run import Outcome, read_lenient, run_notebook, visible_text

ROOT = Path(__file__).resolve().parents[2]
LESSONS = lessons.find_lessons()
CELL_TIMEOUT = 300
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)


def run(lesson: lessons.Lesson, folder: Path, values: dict, cwd: Path = ROOT) -> Outcome:
    output, log = folder / lesson.notebook.name, folder / "stderr.log"
    done = run_notebook(lesson.notebook, output, log, values, CELL_TIMEOUT, cwd=cwd)
    if done.reason:
        print(log.read_text(encoding="utf-8", errors="replace")[-4000:])  # shown if the test fails
    return done


def test_there_are_lessons_to_run():
    assert LESSONS, "no lesson found in notebooks/src"


# Two sets that differ in both, so that each lesson runs twice and not four times.
@pytest.mark.parametrize(
    ("values", "cwd"),
    [({}, ROOT), ({"device": "cpu"}, ROOT / "notebooks")],
    ids=["default, from the root", "on the CPU, from notebooks"],
)
@each_lesson
def test_a_lesson_runs_and_shows_what_it_was_given(lesson, values, cwd, tmp_path):
    # run_notebook looks for error outputs, errors hidden in widgets, and the values given.
    assert run(lesson, tmp_path, values, cwd).reason == ""
    text = visible_text(read_lenient(tmp_path / lesson.notebook.name))
    given = values.get("device", "auto")
    assert f"lesson {lesson.number}, parameters: device={given!r}" in text


@pytest.mark.cuda
@each_lesson
def test_a_lesson_runs_on_the_card(lesson, tmp_path):
    assert run(lesson, tmp_path, {"device": "cuda"}).reason == ""
    assert "; runs on: cuda" in visible_text(read_lenient(tmp_path / lesson.notebook.name))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"devise": "cpu"}, "has no parameter 'devise'; it has device"),
        (
            {"device": "tpu"},
            "device = 'tpu' is not possible here; use one of 'auto', 'cpu', 'cuda'",
        ),
        ({"device": 3}, "device = 3 is not possible here"),
    ],
    ids=["wrong name", "wrong value", "wrong type"],
)
@each_lesson
def test_a_wrong_call_fails_with_our_message(lesson, values, message, tmp_path):
    reason = run(lesson, tmp_path, values).reason
    assert "LessonError" in reason and message in reason
