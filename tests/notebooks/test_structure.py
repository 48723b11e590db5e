"""Static rules for the stored notebooks: what nbval and papermill would let pass in silence."""

from __future__ import annotations

import ast
import copy
import re
from pathlib import Path

import nbformat
import pytest

from helpers import authoring, lesson_notebook, lessons, parameters, stored_outputs
from helpers.lesson_run import WIDGET_STATE

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_LINES, MAX_COLUMNS, MAX_WORDS, MAX_KB = 20, 88, 180, 400
HEADINGS = (
    "What you'll do",
    "What you'll learn",
    "What you'll need",
    "Setup",
    "Explore it",
    "Check yourself",
    "Recap",
    "In practice",
    "Further reading",
)


def faults_in(notebook: nbformat.NotebookNode) -> list[str]:
    """Returns every rule that a notebook breaks, one line each."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    text = lesson_notebook.to_text(notebook)
    faults = [f"a path of some machine: {path}" for path in paths_in(notebook)]
    faults += parameters_faults(notebook) + heading_faults(prose) + count_faults(code)
    faults += [one for cell in code for one in code_faults(cell)]
    faults += [
        f"a text of {len(cell.source.split())} words: {first_line(cell)}"
        for cell in prose
        if len(cell.source.split()) > MAX_WORDS
    ]
    tags = {tag for cell in notebook.cells for tag in cell.metadata.get("tags", [])}
    faults += [f"unknown tag {tag}" for tag in sorted(tags - lesson_notebook.TAGS)]
    if len(text.encode()) > MAX_KB * 1024:
        faults.append(f"the file has {len(text.encode()) // 1024} KB")
    if "widgets" in notebook.metadata or WIDGET_STATE in text:
        faults.append("it holds widget state")
    if stored_outputs.WIDGET_VIEW in text:
        faults.append("an output is a widget that nobody stored")
    return faults


def first_line(cell: nbformat.NotebookNode) -> str:
    return cell.source.split("\n", 1)[0][:60]


def paths_in(notebook: nbformat.NotebookNode) -> list[str]:
    """Looks through all but pictures, whose base64 may hold anything."""
    bare = copy.deepcopy(notebook)
    for cell in bare.cells:
        for output in cell.get("outputs", ()):
            for kind in stored_outputs.PICTURES:
                output.get("data", {}).pop(kind, None)
    return stored_outputs.find_machine_paths(lesson_notebook.to_text(bare))


def parameters_faults(notebook: nbformat.NotebookNode) -> list[str]:
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        return [f"{len(tagged)} cells are tagged parameters"]
    try:
        names = [one.name for one in parameters.read_parameters(tagged[0].source)]
    except parameters.LessonError as error:
        return [str(error)]
    return [] if "device" in names else ["the parameters have no device"]


def heading_faults(prose: list[nbformat.NotebookNode]) -> list[str]:
    text = "\n".join(cell.source for cell in prose)
    found = [one for one in re.findall(r"^## (.+)$", text, re.MULTILINE) if one in HEADINGS]
    faults = [] if tuple(found) == HEADINGS else [f"the fixed headings are {found}"]
    titles = re.findall(r"^# .+$", text, re.MULTILINE)
    return faults + ([] if len(titles) == 1 else [f"{len(titles)} headings of the first level"])


def count_faults(code: list[nbformat.NotebookNode]) -> list[str]:
    """nbval compares nothing in a cell without a count, so such a cell would pass for ever."""
    counts = [cell.execution_count for cell in code]
    faults = [] if counts == list(range(1, len(code) + 1)) else [f"the counts are {counts}"]
    checked = [cell for cell in code if "nbval-check-output" in cell.metadata.get("tags", [])]
    faults += [] if checked else ["no cell is checked by nbval"]
    return faults + [
        f"checked, but no output: {first_line(one)}" for one in checked if not one.outputs
    ]


def code_faults(cell: nbformat.NotebookNode) -> list[str]:
    lines, name = cell.source.split("\n"), first_line(cell)
    faults = [f"{len(lines)} lines of code: {name}"] if len(lines) > MAX_LINES else []
    faults += [f"{len(one)} columns: {one[:60]}" for one in lines if len(one) > MAX_COLUMNS]
    faults += [f"an error is stored: {name}" for one in cell.outputs if one.output_type == "error"]
    if re.search(r"^\s*[!%]", cell.source, re.MULTILINE):
        return [*faults, f"a shell or magic command: {name}"]
    for node in ast.walk(ast.parse(cell.source)):
        if isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names):
            faults.append(f"a star import: {name}")
    return faults


def test_lessons_are_found_and_equal_the_table_in_the_readme():
    assert NOTEBOOKS, "no notebook found in notebooks/"
    table = re.search(
        r"<!-- lessons\b.*?<!-- /lessons -->", (ROOT / "README.md").read_text(), re.DOTALL
    )
    linked = re.findall(r"\]\(notebooks/(\w+\.ipynb)\)", table[0])
    assert linked == [path.name for path in NOTEBOOKS]
    assert linked == [one.notebook.name for one in lessons.find_lessons()]


def test_no_notebook_differs_from_its_source():
    assert authoring.check() == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_lesson_keeps_every_rule(path):
    assert faults_in(nbformat.read(path, as_version=4)) == []


# The rules themselves, each broken on purpose in a notebook that keeps them all.


@pytest.fixture
def good() -> nbformat.NotebookNode:
    new = nbformat.v4
    cells = [new.new_markdown_cell("# Do it")]
    cells += [new.new_markdown_cell(f"## {heading}\n\nSome words.") for heading in HEADINGS]
    said = new.new_output("stream", name="stdout", text="two\n")
    cells.append(new.new_code_cell('device = "auto"', metadata={"tags": ["parameters"]}))
    tags = {"tags": ["nbval-check-output"]}
    cells.append(new.new_code_cell('print("two")', metadata=tags, outputs=[said]))
    for count, cell in enumerate(cells[-2:], start=1):
        cell.execution_count = count
    return new.new_notebook(cells=cells)


def test_the_good_notebook_breaks_no_rule(good):
    assert faults_in(good) == []


def last(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    return notebook.cells[-1]


def display(**data: str) -> nbformat.NotebookNode:
    kinds = {name.replace("__", "/").replace("_", "."): text for name, text in data.items()}
    return nbformat.v4.new_output("display_data", data=kinds)


BREAKS = {
    "cells are tagged parameters": lambda n: n.cells[-2].metadata.pop("tags"),
    "2 cells are tagged": lambda n: last(n).metadata.tags.append("parameters"),
    "is not 'name = literal'": lambda n: n.cells[-2].update(source='device = "au" + "to"'),
    "the parameters have no device": lambda n: n.cells[-2].update(source="size = 3"),
    "the counts are": lambda n: last(n).update(execution_count=None),
    "the counts are [2, 1]": lambda n: [
        cell.update(execution_count=3 - cell.execution_count) for cell in n.cells[-2:]
    ],
    "checked, but no output": lambda n: last(n).update(outputs=[]),
    "no cell is checked": lambda n: last(n).metadata.pop("tags"),
    "unknown tag": lambda n: last(n).metadata.tags.append("nbval-skip"),
    "21 lines of code": lambda n: last(n).update(source="x = 1\n" * 20),
    "89 columns": lambda n: last(n).update(source="x = " + "1" * 85),
    "a text of 182 words": lambda n: n.cells[0].update(source="# " + "word " * 181),
    "the file has": lambda n: last(n).outputs.append(display(text__plain="x" * 410_000)),
    "a path of some machine: /home/me": lambda n: last(n).outputs.append(
        display(text__plain="in /home/me/x.py")
    ),
    "it holds widget state": lambda n: n.metadata.update(widgets={}),
    "a widget that nobody stored": lambda n: last(n).outputs.append(
        nbformat.v4.new_output("display_data", data={stored_outputs.WIDGET_VIEW: {}})
    ),
    "an error is stored": lambda n: last(n).outputs.append(
        nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])
    ),
    "a shell or magic": lambda n: last(n).update(source="!pip install x"),
    "a star import": lambda n: last(n).update(source="from helpers import *"),
    "the fixed headings are": lambda n: n.cells[3].update(source="## What you need"),
    "2 headings of the first level": lambda n: n.cells.insert(
        1, nbformat.v4.new_markdown_cell("# Again")
    ),
}


@pytest.mark.parametrize("rule", BREAKS)
def test_each_rule_turns_red(good, rule):
    BREAKS[rule](good)
    assert any(rule in fault for fault in faults_in(good)), faults_in(good)
