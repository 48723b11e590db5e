"""The lessons that exist, the routes through them, and the check each one starts with.

A lesson is a file notebooks/src/NN_name.py (py:percent) that opens with a header block:

    # ---
    # title: Check your machine and pick a route
    # minutes: 15
    # needs: nothing
    # ---

`priority: 1` (the default is 2) may follow: routes take lessons in order of priority, then number.
Importing this module imports the standard library only.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.parameters import (
    LessonError,
    Parameter,
    find_parameters,
    injected_names,
    show_parameters,
)

ROOT = Path(__file__).resolve().parents[1]
ROUTE_MINUTES = {"90 minutes": 90, "half a day": 240, "a day": 420}
_HEADER = re.compile(r"\A# ---\n(?P<lines>(?:#.*\n)*?)# ---\n")


@dataclass(frozen=True)
class Lesson:
    """One lesson: two-digit number, file stem, title, minutes to plan, what it needs."""

    number: str
    name: str
    title: str
    minutes: int
    needs: str
    priority: int
    source: Path

    @property
    def notebook(self) -> Path:
        """The .ipynb that is built from the source."""
        return self.source.parents[1] / f"{self.name}.ipynb"

    def parameters(self) -> tuple[Parameter, ...]:
        """Returns the names of the one cell tagged `parameters`; LessonError if there isn't one."""
        return find_parameters(self.source.read_text(encoding="utf-8"), self.source.name)


@dataclass(frozen=True)
class LessonTable:
    """The lessons as a table with links; `folder` is the way from the reader to notebooks/."""

    lessons: tuple[Lesson, ...]
    folder: str = ""

    def markdown(self) -> str:
        """Returns the table as Markdown."""
        rows = [
            f"| {one.number} | [{one.title}]({self.folder}{one.name}.ipynb) | {one.minutes} |"
            for one in self.lessons
        ]
        return "\n".join(["| no | lesson | minutes |", "|---|---|---|", *rows])

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td>{one.number}</td><td style="text-align:left"><a href="{self.folder}{one.name}'
            f'.ipynb">{html.escape(one.title)}</a></td><td>{one.minutes}</td></tr>'
            for one in self.lessons
        )
        names = ("no", "lesson", "minutes")
        head = "".join(f'<th scope="col">{name}</th>' for name in names)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def __str__(self) -> str:
        return "\n".join(f"{one.number}  {one.title} ({one.minutes} min)" for one in self.lessons)

    def __repr__(self) -> str:
        return f"LessonTable({len(self.lessons)} lessons)"


@dataclass(frozen=True)
class Routes:
    """Ways through the lessons: pairs of a label such as "half a day" and the lessons to take."""

    routes: tuple[tuple[str, tuple[Lesson, ...]], ...]

    def _rows(self, link: str) -> list[tuple[str, str, int]]:
        return [
            (
                label,
                ", ".join(_fill(link, one) for one in chosen),
                sum(one.minutes for one in chosen),
            )
            for label, chosen in self.routes
        ]

    def markdown(self) -> str:
        """Returns one list item per route, as Markdown with links."""
        rows = self._rows("[{number}]({name}.ipynb)")
        return "\n".join(f"- **{label}**: {links} ({total} min)" for label, links, total in rows)

    def _repr_html_(self) -> str:
        rows = self._rows('<a href="{name}.ipynb">{number}</a>')
        items = (f"<li><b>{label}</b>: {links} ({total} min)</li>" for label, links, total in rows)
        return f"<ul>{''.join(items)}</ul>"

    def __str__(self) -> str:
        rows = self._rows("{number}")
        return "\n".join(f"{label}: {names} ({total} min)" for label, names, total in rows)

    def __repr__(self) -> str:
        return f"Routes({len(self.routes)} routes)"


def read_header(text: str, name: str) -> tuple[dict[str, str], str]:
    """Splits a lesson source into its header block (key to value) and the rest.

    A source without the block, or without title, minutes and needs in it, raises LessonError.
    """
    match = _HEADER.match(text)
    if match is None:
        raise LessonError(f"{name} must open with a header block between two lines '# ---'")
    pairs = (line[1:].partition(":") for line in match["lines"].splitlines())
    header = {key.strip(): value.strip().strip("\"'") for key, _, value in pairs if value.strip()}
    missing = [key for key in ("title", "minutes", "needs") if key not in header]
    if missing:
        raise LessonError(f"the header block of {name} lacks {', '.join(missing)}")
    for key in ("minutes", "priority"):
        if not header.get(key, "1").isdigit():
            raise LessonError(f"{key} in the header of {name} must be a whole number")
    return header, text[match.end() :]


def check_parameters(lesson: Lesson, given: Mapping[str, Any], names: Iterable[str] = ()) -> None:
    """Raises LessonError for a name that the lesson does not have, or a value it cannot take."""
    known = {one.name: one for one in lesson.parameters()}
    for name in [*names, *given]:
        if name not in known:
            raise LessonError(
                f"lesson {lesson.number} has no parameter {name!r}; it has {', '.join(known)}"
            )
    for name, value in given.items():
        known[name].check(value)


def find_lessons(root: Path = ROOT) -> tuple[Lesson, ...]:
    """Returns the lessons under notebooks/src, by number; LessonError for two with one number."""
    found: dict[str, Lesson] = {}
    for source in sorted((root / "notebooks" / "src").glob("[0-9][0-9]_*.py")):
        header, _ = read_header(source.read_text(encoding="utf-8"), source.name)
        number, priority = source.name[:2], int(header.get("priority", 2))
        if number in found:
            raise LessonError(f"{found[number].source.name} and {source.name} share a number")
        minutes, needs = int(header["minutes"]), header["needs"]
        found[number] = Lesson(
            number, source.stem, header["title"], minutes, needs, priority, source
        )
    return tuple(found.values())


def choose_lessons(asked: list[str], root: Path = ROOT) -> tuple[Lesson, ...]:
    """Returns the lessons asked for by number or name (none asked: all); LessonError if unknown."""
    lessons = find_lessons(root)
    if not lessons:
        raise LessonError("there is no lesson in notebooks/src; is this the whole repository?")
    by_name = {key: one for one in lessons for key in (one.number, one.name, f"{one.name}.ipynb")}
    chosen = []
    for name in asked:
        key = Path(name).name
        key = key.zfill(2) if key.isdigit() else key
        if key not in by_name:
            numbers = ", ".join(one.number for one in lessons)
            raise LessonError(f"there is no lesson {name!r}; the lessons are {numbers}")
        chosen.append(by_name[key])
    return tuple(dict.fromkeys(chosen)) or lessons


def lesson_table(root: Path = ROOT) -> LessonTable:
    """Returns the table of the lessons that exist, with links for a reader in notebooks/."""
    return LessonTable(find_lessons(root))


def routes(root: Path = ROOT) -> Routes:
    """Returns routes for 90 minutes, half a day and a day, from the lessons and their minutes.

    A longer route that would hold the same lessons as the one before it shares its line.
    """
    lessons = find_lessons(root)
    labels: dict[tuple[Lesson, ...], list[str]] = {}
    for label, budget in ROUTE_MINUTES.items():
        labels.setdefault(_fit(lessons, budget), []).append(label)
    found = ((_listed(those), chosen) for chosen, those in labels.items() if chosen)
    return Routes(tuple(found))


def begin_lesson(number: str, /, **parameters: Any) -> str:
    """Checks how a lesson was called, prints what it runs on, and returns "cpu" or "cuda".

    Call it right after the parameters cell, with every name of that cell. LessonError for a wrong
    value, and for a name that papermill injected although the lesson does not have it.
    """
    if not isinstance(number, str):
        raise LessonError(f'begin_lesson got {number!r}: write the number as text, such as "00"')
    (lesson,) = choose_lessons([number])
    try:
        injected = injected_names(get_ipython().user_ns["In"])  # type: ignore[name-defined]
    except (NameError, KeyError):
        injected = []  # a plain Python run: nobody injects anything
    check_parameters(lesson, parameters, injected)
    missing = [one.name for one in lesson.parameters() if one.name not in parameters]
    if missing:
        raise LessonError(f"begin_lesson({number!r}) must also be given {', '.join(missing)}")
    from helpers import environment

    environment.remember_vector_isa()
    device = environment.choose_device(parameters["device"])
    print(f"lesson {lesson.number}, parameters: {show_parameters(parameters)}; runs on: {device}")
    print(environment.describe_environment())
    return device


def _fit(lessons: tuple[Lesson, ...], budget: int) -> tuple[Lesson, ...]:
    """Picks lessons by priority whose numbered needs are picked already, within the minutes."""
    numbers, chosen = {one.number for one in lessons}, {}
    for one in sorted(lessons, key=lambda one: (one.priority, one.number)):
        used = sum(other.minutes for other in chosen.values())
        needs = set(re.findall(r"\b\d\d\b", one.needs)) & numbers
        if not chosen or (used + one.minutes <= budget and needs <= chosen.keys()):
            chosen[one.number] = one
    return tuple(sorted(chosen.values(), key=lambda one: one.number))


def _listed(labels: list[str]) -> str:
    """Returns "a", "a or b", or "a, b or c"."""
    return " or ".join(filter(None, [", ".join(labels[:-1]), labels[-1]]))


def _fill(link: str, lesson: Lesson) -> str:
    return link.format(number=lesson.number, name=lesson.name)
