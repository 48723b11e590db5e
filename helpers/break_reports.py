"""What `explain_graph_breaks` returns: one entry per place where capture stopped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from helpers.origin import Origin
from helpers.words import counted, file_name

_STANDS_IN = {
    "loop": ": the break stands in a loop, and Dynamo cannot go on in the middle of one",
    "with": ": the break stands in a with block that Dynamo cannot enter again",
    "": ": it stands where Dynamo cannot go on (inside try, a generator, half an expression)",
}
_USER_LINE = re.compile(r'File "[^"]+", line (\d+), in ')


@dataclass(frozen=True)
class GraphBreak:
    """One place where capture stopped: the innermost source line, as a person counts causes.

    Lines of Python's own library do not count: the place is then the line that called into it.

    reason: torch's title of what stopped it, in one line; title: the same in plain words; gb_id:
    the id in torch's registry ("GB0059"; empty where the installed torch names none); filename,
    lineno, source_line: the place; effect: "split" (two graphs), "rest_eager" (compiled up to
    here, the rest of the function is not) or "frame_skipped" (nothing of the function is
    compiled), the costliest that it had; explanation, fix: never empty; change: the smallest
    change of code (empty where none can be named); cause: the id in our list of causes (empty if
    it is in none); function: the one that pays for it; stands_in: "loop" or "with" if that kept
    Dynamo from going on after the break; call_paths: the functions called to get there; count:
    how often Dynamo met it; in_framework: the line lies in torch's own code; entry: the learner's
    innermost line, as (filename, lineno, text); message: torch's whole text.
    """

    reason: str
    gb_id: str
    filename: str
    lineno: int
    source_line: str
    effect: str
    explanation: str
    fix: str
    call_paths: tuple[tuple[str, ...], ...]
    count: int
    in_framework: bool
    title: str = ""
    change: str = ""
    cause: str = ""
    entry: tuple[str, int, str] = ("", 0, "")
    function: str = ""
    stands_in: str = ""
    message: str = field(default="", repr=False)

    def __str__(self) -> str:
        where = f"{file_name(self.filename)}:{self.lineno}"
        return (
            f"{where}: {self.source_line}\n    {self.title}. {self.explanation}\n"
            f"    {self.effect_words}\n    {self.fix}"
        )

    @property
    def effect_words(self) -> str:
        """What became of the function, as a sentence."""
        name = self.function
        return {
            "split": f"{name} is compiled in pieces: what comes before, and what comes after.",
            "rest_eager": f"{name} is compiled up to here, or to the break before; the rest of it "
            "runs in eager.",
            "frame_skipped": f"Nothing of {name} itself is compiled, not even what comes before"
            f"{_STANDS_IN[self.stands_in]}.",
        }[self.effect]


@dataclass(frozen=True)
class GraphBreaks:
    """The graph breaks of one call, in the order in which Dynamo met them; len, index, iterate.

    result: what the call returned; changes_behaviour: the error that the compiled run raised
    although eager ran (the result is then eager's), else None; graphs: how many graphs were
    captured; notes: what else is to be known, a sentence each.
    """

    breaks: tuple[GraphBreak, ...]
    result: Any = field(repr=False)
    changes_behaviour: Exception | None
    graphs: int
    notes: tuple[str, ...]
    origin: Origin

    def __len__(self) -> int:
        return len(self.breaks)

    def __iter__(self) -> Iterator[GraphBreak]:
        return iter(self.breaks)

    def __getitem__(self, index: int) -> GraphBreak:
        return self.breaks[index]

    def summary(self) -> str:
        """Returns one or two sentences: how many breaks and graphs, and what costs most."""
        graphs = counted(self.graphs, "graph")
        text = f"{counted(len(self), 'graph break')}, {graphs}." if self.breaks else (
            f"No graph break, {graphs}."
        )  # fmt: skip
        skipped = sum(found.effect == "frame_skipped" for found in self)
        if skipped:
            text += f" {counted(skipped, 'break')} cost a whole function its compilation."
        if self.changes_behaviour is not None:
            error = self.changes_behaviour
            text += f" The compiled run stopped with {_in_one_line(error)}"
            text += " Eager runs: compiling changes what this code does."
        return text

    def __str__(self) -> str:
        return "\n\n".join([self.summary(), *map(str, self), *self.notes, self.origin.text()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers import break_views

        return break_views.breaks_html(self)


def _in_one_line(error: Exception) -> str:
    """Returns an error as a sentence, with the learner's line where torch names one."""
    said = str(error).strip()
    lines = _USER_LINE.findall(said)
    first = (said.splitlines() or [""])[0].rstrip(".")
    first = "" if first.startswith("from user code") else first
    words = f"{type(error).__name__}: {first}" if first else type(error).__name__
    where = f" (at line {lines[-1]})" if lines and f"line {lines[-1]}" not in words else ""
    return f"{words}{where}."
