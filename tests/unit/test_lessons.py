"""helpers.lessons and helpers.parameters: headers, tables, routes, and how a lesson begins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import lessons, parameters
from helpers.parameters import LessonError


def add_lesson(
    root: Path, name: str, minutes: int, needs: str = "nothing", extra: str = ""
) -> None:
    header = f"# ---\n# title: Do {name}\n# minutes: {minutes}\n# needs: {needs}\n{extra}# ---\n"
    (root / "notebooks" / "src" / f"{name}.py").write_text(header + "\n# %%\nx = 1\n")


def python(root: Path, code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True
    )


def test_a_lesson_is_read_from_its_header(tiny_repository):
    (lesson,) = lessons.find_lessons(tiny_repository)
    assert (lesson.number, lesson.name) == ("00", "00_add_numbers")
    assert (lesson.title, lesson.minutes, lesson.needs) == ("Add two numbers", 5, "nothing")
    assert lesson.notebook == tiny_repository / "notebooks" / "00_add_numbers.ipynb"
    names = [(one.name, one.default) for one in lesson.parameters()]
    assert names == [("device", "auto"), ("size", 3), ("mode", "default")]
    assert lesson.parameters()[2].choices == ("default", "fast")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# %%\n", "must open with a header block"),
        ("# ---\n# title: A\n# ---\n", "lacks minutes, needs"),
        ("# ---\n# title: A\n# minutes: ten\n# needs: no\n# ---\n", "minutes .* whole number"),
    ],
)
def test_a_bad_header_is_named(text, message):
    with pytest.raises(LessonError, match=message):
        lessons.read_header(text, "00_x.py")


def test_two_lessons_with_one_number_are_refused(tiny_repository):
    add_lesson(tiny_repository, "00_other", 5)
    with pytest.raises(LessonError, match=r"00_add_numbers.py and 00_other.py share a number"):
        lessons.find_lessons(tiny_repository)


def test_the_table_has_each_lesson_in_every_view(tiny_repository):
    add_lesson(tiny_repository, "01_more", 20)
    table = lessons.lesson_table(tiny_repository)
    assert table.markdown().splitlines()[2:] == [
        "| 00 | [Add two numbers](00_add_numbers.ipynb) | 5 |",
        "| 01 | [Do 01_more](01_more.ipynb) | 20 |",
    ]
    assert str(table) == "00  Add two numbers (5 min)\n01  Do 01_more (20 min)"
    assert table._repr_html_().count("<tr>") == 3
    assert '<a href="01_more.ipynb">Do 01_more</a>' in table._repr_html_()


def test_one_lesson_makes_one_line_of_routes(tiny_repository):
    text = str(lessons.routes(tiny_repository))
    assert text == "90 minutes, half a day or a day: 00 (5 min)"


def test_routes_keep_to_their_minutes_and_to_what_a_lesson_needs(tiny_repository):
    add_lesson(tiny_repository, "01_first", 40)
    add_lesson(tiny_repository, "02_second", 60, "lesson 01")
    add_lesson(tiny_repository, "03_third", 30, "lesson 02")
    add_lesson(tiny_repository, "04_last", 200)
    chosen = {
        label: [one.number for one in those]
        for label, those in lessons.routes(tiny_repository).routes
    }
    # 02 does not fit into 90 minutes, so 03, which would, is left out too.
    assert chosen["90 minutes"] == ["00", "01"]
    assert chosen["half a day"] == ["00", "01", "02", "03"]
    assert chosen["a day"] == ["00", "01", "02", "03", "04"]


def test_priority_goes_before_number(tiny_repository):
    add_lesson(tiny_repository, "01_first", 80)
    add_lesson(tiny_repository, "02_second", 80, extra="# priority: 1\n")
    label, chosen = lessons.routes(tiny_repository).routes[0]
    assert (label, [one.number for one in chosen]) == ("90 minutes", ["00", "02"])


def test_no_lesson_is_an_error_not_an_empty_answer(tmp_path):
    with pytest.raises(LessonError, match="no lesson in notebooks/src"):
        lessons.choose_lessons([], tmp_path)


@pytest.mark.parametrize("name", ["0", "00", "00_add_numbers", "notebooks/00_add_numbers.ipynb"])
def test_a_lesson_is_chosen_by_number_or_name(tiny_repository, name):
    (lesson,) = lessons.choose_lessons([name], tiny_repository)
    assert lesson.number == "00"


def test_an_unknown_lesson_lists_those_that_exist(tiny_repository):
    with pytest.raises(LessonError, match="no lesson '7'; the lessons are 00"):
        lessons.choose_lessons(["7"], tiny_repository)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "tpu"}, "device = 'tpu' .* use one of 'auto', 'cpu', 'cuda'"),
        ({"size": "big"}, "size = 'big' .* type int, such as 3"),
        ({"size": True}, "size = True .* type int"),
        ({"size": 2.5}, "size = 2.5 .* type int"),
        ({"mode": "slow"}, "mode = 'slow' .* use one of 'default', 'fast'"),
        ({"sise": 3}, "lesson 00 has no parameter 'sise'; it has device, size, mode"),
    ],
)
def test_a_wrong_parameter_is_named(tiny_repository, given, message):
    (lesson,) = lessons.find_lessons(tiny_repository)
    with pytest.raises(LessonError, match=message):
        lessons.check_parameters(lesson, given)
    lessons.check_parameters(lesson, {"device": "cuda", "size": 9, "mode": "fast"})


@pytest.mark.parametrize(
    "code",
    ["n = 2\nm = n + 1", "import os", "device: str = 'auto'", "a = b = 1", "a, b = 1, 2", "x ="],
)
def test_a_parameters_cell_holds_plain_literals_only(code):
    with pytest.raises(LessonError, match="parameters cell"):
        parameters.read_parameters(code)


def test_only_what_papermill_injected_counts_as_injected():
    cells = ["", "device = 'auto'", "# Parameters\ndevice = 'cpu'\nsise = 3\n"]
    begin = "device = begin_lesson('00', device=device)"
    assert parameters.injected_names([*cells, begin]) == ["device", "sise"]
    assert parameters.injected_names([*cells[:2], begin, cells[2], begin]) == []


BEGIN = "from helpers import begin_lesson\n"
CALL = "begin_lesson('00', device='auto', size=4, mode='fast')"


def test_begin_lesson_works_without_ipython_and_twice(tiny_repository):
    done = python(tiny_repository, f"{BEGIN}print('got', {CALL}, {CALL})")
    assert done.returncode == 0, done.stderr
    line = "lesson 00, parameters: device='auto', size=4, mode='fast'; runs on: cpu"
    assert done.stdout.splitlines() == [line, "a tiny machine"] * 2 + ["got cpu cpu"]


def test_begin_lesson_must_be_given_every_parameter(tiny_repository):
    done = python(tiny_repository, f"{BEGIN}begin_lesson('00', device='auto')")
    assert done.returncode == 1
    assert "must also be given size, mode" in done.stderr


@pytest.mark.parametrize("number", [0, None, ["00"], True])
def test_a_number_that_is_no_text_is_said(number):
    with pytest.raises(LessonError, match='write the number as text, such as "00"'):
        lessons.begin_lesson(number, device="auto")


def test_a_lesson_error_in_ipython_is_one_message_without_a_traceback(tiny_repository):
    code = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        f"shell.run_cell({BEGIN!r}, store_history=True)\n"
        "shell.run_cell('# Parameters\\nsise = 3\\n', store_history=True)\n"
        f"shell.run_cell({CALL!r}, store_history=True)\n"
    )
    done = python(tiny_repository, code)
    shown = done.stdout + done.stderr
    assert "LessonError: lesson 00 has no parameter 'sise'" in shown
    assert "Traceback" not in shown


def test_the_module_imports_the_standard_library_only(tiny_repository):
    code = (
        "import sys, helpers.lessons, helpers.my\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(names - set(sys.stdlib_module_names) - {'helpers', '__main__'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tiny_repository, capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
