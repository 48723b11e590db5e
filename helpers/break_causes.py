"""The commonest causes of graph breaks, in plain words, each with a repair and a tested snippet.

The knowledge is data, in break_causes.toml, which describes its own fields.
"""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_suffix(".toml")
_QUOTING = re.compile(r"Stack variable source attribution:|^from user code:", re.MULTILINE)
_ASIDE = re.compile(r"\s*(Hint:|# File )")


@dataclass(frozen=True)
class Pattern:
    """What a cause is known by: parts found in torch's message and in the source line, all of them.

    An empty part is found in every text.
    """

    message: re.Pattern[str]
    line: re.Pattern[str]

    def fits(self, message: str, source_line: str) -> bool:
        """True if both parts are found."""
        return bool(self.message.search(message) and self.line.search(source_line))


@dataclass(frozen=True)
class Cause:
    """One kind of graph break.

    id: stable name; title, explanation, fix: plain words; change: the smallest change of code
    (empty where none can be named); gb_types: titles of its entries in torch's registry;
    breaks_on: the torch versions on which `snippet` breaks; effect: what the break costs in the
    snippet, the same on all of them (empty where they differ); snippet, repaired: programs that
    define `fn` and `inputs()`; in the snippet the line that breaks ends in "# breaks here".
    """

    id: str
    title: str
    explanation: str
    fix: str
    change: str
    gb_types: tuple[str, ...]
    breaks_on: tuple[str, ...]
    effect: str
    snippet: str
    repaired: str
    patterns: tuple[Pattern, ...] = field(repr=False)


@dataclass(frozen=True)
class Clean:
    """Code that looks as if it broke the graph, and breaks it on no torch: id, title, snippet."""

    id: str
    title: str
    snippet: str


@functools.cache
def load_causes() -> tuple[Cause, ...]:
    """Returns every known cause, the special before the general ones."""
    return tuple(_cause(entry) for entry in _data()["cause"])


@functools.cache
def load_clean() -> tuple[Clean, ...]:
    """Returns what looks like a graph break and is none."""
    return tuple(Clean(**entry) for entry in _data()["clean"])


def find_cause(message: str, source_line: str, entry_line: str = "") -> Cause | None:
    """Returns the first cause whose pattern fits torch's whole message and the source line.

    source_line: where Dynamo stopped; entry_line: the learner's line that led there, where that
    is another one. None if this is no kind that we know.
    """
    message = _without_quotes(message)
    lines = [_without_comment(line) for line in (source_line, entry_line)]
    for cause in load_causes():
        if any(pattern.fits(message, line) for pattern in cause.patterns for line in lines):
            return cause
    return None


def _without_quotes(message: str) -> str:
    """Returns torch's message without the code that it quotes, and without its advice.

    Both name other things than the cause, and so would let one be taken for another.
    """
    own = _QUOTING.split(message, maxsplit=1)[0]
    return "\n".join(line for line in own.splitlines() if not _ASIDE.match(line))


def _without_comment(line: str) -> str:
    """Returns the line up to a comment: what it says is no code."""
    return re.sub(r"\s#\s[^'\"]*$", "", line)


@functools.cache
def _data() -> dict[str, Any]:
    with _FILE.open("rb") as file:
        return tomllib.load(file)


def _cause(entry: dict[str, Any]) -> Cause:
    patterns = tuple(
        Pattern(re.compile(one.get("message", "")), re.compile(one.get("line", "")))
        for one in entry["patterns"]
    )
    texts = {name: entry.get(name, "") for name in ("change", "effect")}
    lists = {name: tuple(entry[name]) for name in ("gb_types", "breaks_on")}
    plain = {name: entry[name] for name in ("id", "title", "explanation", "fix")}
    programs = {name: entry[name] for name in ("snippet", "repaired")}
    return Cause(**plain, **texts, **lists, **programs, patterns=patterns)
