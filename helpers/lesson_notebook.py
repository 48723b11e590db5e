"""One lesson's notebook: made from its source, with the outputs that still hold.

Sources are py:percent, read by jupytext; the header block is described in helpers.lessons.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from helpers.lessons import ROOT, Lesson, lesson_table, read_header, routes
from helpers.parameters import LessonError

BLOCK = "torch_compile_suite"
# The closed set: what the runners, nbval and the lab judge know, and nothing else.
TAGS = frozenset(
    {
        "parameters",
        "nbval-check-output",
        "nbval-ignore-output",
        "widget",
        "check",
        "hint",
        "solution",
    }
)
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
# Tools around the lessons, not in them: a change there leaves stored outputs true.
_NOT_IN_LESSONS = frozenset(
    {
        *("authoring", "execution", "lesson_notebook", "lesson_run", "my", "run"),
        *("install", "pip_runner", "setup", "testing", "wheels"),
    }
)


def build_notebook(lesson: Lesson, old: Any = None, root: Path = ROOT) -> Any:
    """Returns the notebook of a lesson, with the outputs and the stamp of `old` where they hold.

    LessonError for a tag, a cell kind or a placeholder that does not exist, and for a first
    heading that is not the header's title.
    """
    import jupytext
    import nbformat

    _, body = read_header(lesson.source.read_text(encoding="utf-8"), lesson.source.name)
    notebook = nbformat.v4.new_notebook(metadata=nbformat.from_dict(_METADATA))
    notebook.nbformat_minor = 5
    notebook.cells = [
        _new_cell(one, lesson) for one in jupytext.reads(body.lstrip(), fmt="py:percent").cells
    ]
    first = notebook.cells[0].source if notebook.cells else ""
    if first.split("\n", 1)[0] != f"# {lesson.title}":
        raise LessonError(f"{lesson.source.name} must start with the heading '# {lesson.title}'")
    _number_cells(notebook.cells)
    stamp = read_stamp(old)
    _reattach(notebook, old)
    notebook.metadata[BLOCK] = {"lesson": lesson.number} | ({"stamp": stamp} if stamp else {})
    fill = {
        "facts": lambda: facts_line(lesson, stamp, code_hash(notebook)),
        "lessons": lambda: lesson_table(root).markdown(),
        "routes": lambda: routes(root).markdown(),
    }
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _fill_in(cell.source, fill, lesson.source.name)
    nbformat.validate(notebook)
    return notebook


def facts_line(lesson: Lesson, stamp: dict[str, str], code: str) -> str:
    """Returns minutes, needs and where the lesson's code, as it is now, was last executed."""
    verified = "not yet executed since its code last changed"
    if stamp.get("lesson") == code:
        torch = stamp["torch"].split("+")[0]
        verified = f"verified on {stamp['device']}, torch {torch}, {stamp['date']}"
    return f"**{lesson.minutes} minutes** · needs: {lesson.needs} · {verified}"


def read_notebook(path: Path) -> Any:
    """Returns the notebook at `path`, None if there is none; LessonError if it is unreadable."""
    import nbformat

    if not path.exists():
        return None
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises its own, json's and schema errors alike
        reason = str(error).splitlines()[0]
        raise LessonError(
            f"{path.name} is not a readable notebook ({reason}); restore it with git, or delete it"
        ) from None


def read_stamp(notebook: Any) -> dict[str, str]:
    """Returns the stamp (lesson, helpers, torch, device, date) of a notebook, or {}."""
    block = notebook.metadata.get(BLOCK, {}) if notebook is not None else {}
    return dict(block.get("stamp", {}))


def to_text(notebook: Any) -> str:
    """Returns the one way in which a notebook is written here: nbformat's JSON and a newline."""
    import nbformat

    return nbformat.writes(notebook, version=4) + "\n"


def code_hash(notebook: Any) -> str:
    """Returns a short hash of the code cells, in order."""
    return _short_hash([cell.source for cell in notebook.cells if cell.cell_type == "code"], 16)


def helpers_hash(root: Path = ROOT) -> str:
    """Returns a short hash of all of helpers/ that can change what a lesson shows."""
    folder, parts = root / "helpers", []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".js", ".css") and path.stem not in _NOT_IN_LESSONS:
            parts += [path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")]
    return _short_hash(parts, 16)


def code_cells(notebook: Any) -> list[Any]:
    """Returns the code cells of a notebook, without the one that papermill injects."""
    return [
        cell
        for cell in notebook.cells
        if cell.cell_type == "code" and "injected-parameters" not in cell.metadata.get("tags", [])
    ]


def _new_cell(cell: Any, lesson: Lesson) -> Any:
    import nbformat

    tags = cell.metadata.get("tags", [])
    unknown = sorted(set(tags) - TAGS)
    if unknown:
        known = ", ".join(sorted(TAGS))
        raise LessonError(
            f"{lesson.source.name}: unknown tag {', '.join(unknown)}; the tags are {known}"
        )
    makers = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    if cell.cell_type not in makers:
        raise LessonError(f"{lesson.source.name}: a lesson has no {cell.cell_type} cells")
    return makers[cell.cell_type](cell.source, metadata={"tags": tags} if tags else {})


def _number_cells(cells: Iterable[Any]) -> None:
    """Gives each cell the hash of its source as its id, before placeholders are filled in."""
    seen: dict[str, int] = {}
    for cell in cells:
        short = _short_hash([cell.cell_type, cell.source], 10)
        seen[short] = seen.get(short, 0) + 1
        cell.id = short if seen[short] == 1 else f"{short}-{seen[short]}"


def _reattach(notebook: Any, old: Any) -> None:
    """Copies outputs and counts over, up to the first code cell that changed."""
    for new, stored in zip(code_cells(notebook), code_cells(old) if old else [], strict=False):
        if new.source != stored.source:
            return
        new.outputs, new.execution_count = stored.outputs, stored.execution_count


def _fill_in(source: str, fill: dict[str, Callable[[], str]], name: str) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in fill:
            raise LessonError(
                f"{name}: unknown placeholder {match[0]}; there are {', '.join(fill)}"
            )
        return fill[match[1]]()

    return _PLACEHOLDER.sub(value, source)


def _short_hash(parts: Iterable[str], length: int) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]
