"""The parameters cell of a lesson: what it may hold, and which values its names take.

Importing this module imports the standard library only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

DEVICES = ("auto", "cpu", "cuda")
_PARAMETERS_CELL = re.compile(
    r"^# %%[^\n]*\btags=\[[^\]\n]*[\"']parameters[\"'][^\n]*\n(?P<code>.*?)(?=^# %%|\Z)",
    re.MULTILINE | re.DOTALL,
)


class LessonError(ValueError):
    """A mistake in how a lesson was called or written; notebooks show its message, no traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True)
class Parameter:
    """One name of a lesson's parameters cell, its default, and the values allowed (empty: any)."""

    name: str
    default: Any
    choices: tuple[Any, ...] = ()

    def check(self, value: Any) -> None:
        """Raises LessonError unless `value` is a choice, or of the default's type."""
        given = f"{self.name} = {value!r} is not possible here"
        if self.choices:
            if value not in self.choices:
                raise LessonError(f"{given}; use one of {', '.join(map(repr, self.choices))}")
        elif self.default is not None and not _same_type(value, self.default):
            kind = type(self.default).__name__
            raise LessonError(f"{given}: it must be of type {kind}, such as {self.default!r}")


def find_parameters(source: str, name: str) -> tuple[Parameter, ...]:
    """Returns the parameters of a py:percent source; LessonError unless one cell has the tag."""
    found = _PARAMETERS_CELL.findall(source)
    if len(found) != 1:
        raise LessonError(f"{name} has {len(found)} cells tagged parameters; it needs exactly one")
    return read_parameters(found[0])


def read_parameters(code: str) -> tuple[Parameter, ...]:
    """Returns the parameters that a parameters cell's code assigns.

    A comment `# one of: a, b` behind a value lists the values allowed. Anything but a plain
    assignment of a literal raises LessonError: a value computed in this cell would keep its old
    result when papermill overrides the name that it was computed from.
    """
    try:
        statements, lines = ast.parse(code).body, code.splitlines()
    except SyntaxError as error:
        raise LessonError(f"the parameters cell is not valid Python: {error.msg}") from None
    found = []
    for node in statements:
        names = node.targets if isinstance(node, ast.Assign) else []
        try:
            (target,) = names
            default, name = ast.literal_eval(node.value), target.id
        except (ValueError, AttributeError, TypeError):
            where = f"line {node.lineno} of the parameters cell"
            raise LessonError(f"{where} is not 'name = literal': {ast.unparse(node)}") from None
        listed = re.search(r"#\s*one of:\s*(.+)$", lines[node.end_lineno - 1])
        choices = tuple(_literal(item) for item in listed[1].split(",")) if listed else ()
        found.append(Parameter(name, default, DEVICES if name == "device" else choices))
    return tuple(found)


def injected_names(history: Iterable[str]) -> list[str]:
    """Returns the names that papermill injected, given the cells run so far (IPython's `In`).

    Papermill's cell opens with the line "# Parameters" and runs before the cell that calls
    begin_lesson; a learner's own cells further down are not looked at.
    """
    names = []
    for cell in history:
        if "begin_lesson(" in cell:
            break
        if cell.split("\n", 1)[0].strip() == "# Parameters":
            assigned = (node for node in ast.parse(cell).body if isinstance(node, ast.Assign))
            names += [node.targets[0].id for node in assigned]
    return names


def show_parameters(parameters: Mapping[str, Any]) -> str:
    """Returns `name=value, ...`, the form in which begin_lesson prints what reached the lesson."""
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items())


def _same_type(value: Any, default: Any) -> bool:
    if isinstance(value, bool) or isinstance(default, bool):
        return type(value) is type(default)
    if isinstance(default, float):
        return isinstance(value, int | float)
    if isinstance(default, tuple):
        return isinstance(value, list | tuple)
    return isinstance(value, type(default))


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()
