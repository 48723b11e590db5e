"""The installed torch's own list of graph breaks, whole and searchable, with our repairs linked."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from helpers.break_causes import Cause, load_causes
from helpers.display import notice_html, sentence_html, table_html, table_text

# Where torch keeps the list, and where its messages send the reader (torch/_dynamo/exc.py).
_FILE = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
_PAGE = "https://meta-pytorch.github.io/compile-graph-break-site/gb/{}.html"
_ID = re.compile(r"(?:gb)?(\d{1,4})", re.IGNORECASE)
SHOWN = 20


@dataclass(frozen=True)
class Entry:
    """One kind of graph break in torch's list, in torch's words, and what we know of it.

    gb_id: "GB0059"; title, context, explanation, hints: torch's own texts, with {names} where a
    message has values; causes: the entries of our list that torch files here, special before
    general. An entry of our list that torch's has no place for has an empty gb_id.
    """

    gb_id: str
    title: str
    context: str
    explanation: str
    hints: tuple[str, ...]
    causes: tuple[Cause, ...] = field(default=(), repr=False)

    @property
    def cause(self) -> Cause | None:
        """Our most general entry for this kind, None if we have none."""
        return self.causes[-1] if self.causes else None

    @property
    def link(self) -> str:
        """torch's public page about it, as its messages print it (empty without an id)."""
        return _PAGE.format(self.gb_id.lower()) if self.gb_id else ""

    @property
    def words(self) -> str:
        """Everything that a search looks through."""
        own = [f"{c.id} {c.title} {c.explanation} {c.fix} {c.change}" for c in self.causes]
        return " ".join(
            [self.gb_id, self.title, self.context, self.explanation, *self.hints, *own]
        ).casefold()

    def __str__(self) -> str:
        parts = [f"{self.gb_id} {self.title}".strip(), f"  {self.explanation}"]
        parts += [f"  Hint: {hint}" for hint in self.hints]
        for cause in self.causes:
            parts += [f"  Repair ({cause.title}): {cause.fix}"]
            parts += [f"    {cause.change}"] if cause.change else []
        return "\n".join([*parts, *([f"  {self.link}"] if self.link else [])])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers.registry_views import entry_html

        return entry_html(self)


@dataclass(frozen=True)
class Registry:
    """Kinds of graph breaks; len, iterate, index. Shows the first 20.

    missing: one sentence, if the installed torch has no such list (then `entries` is empty and
    the view shows our own causes instead); searched: what was looked for.
    """

    entries: tuple[Entry, ...]
    missing: str = ""
    searched: str = ""

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __getitem__(self, index: int) -> Entry:
        return self.entries[index]

    def search(self, text: str) -> Registry:
        """Returns the entries in which each word of `text` occurs, in any field, case ignored.

        An id ("GB0059", "gb59", "59") finds the entry of that id alone; "" finds all.
        """
        found = tuple(one for one in self.entries if _fits(one, text))
        return Registry(found, self.missing, text.strip())

    def shown(self) -> tuple[Entry, ...]:
        """Returns what there is to look at: the entries, or our own causes where torch has none."""
        if not self.missing:
            return self.entries
        return tuple(one for one in _own_entries() if _fits(one, self.searched))

    def sentence(self) -> str:
        """Returns in one sentence what this is, and how much of it is shown."""
        shown = self.shown()
        if self.missing:
            what = f"{self.missing} Our own causes with repairs: {len(shown)}"
        else:
            repairs = sum(bool(one.causes) for one in shown)
            kinds = f"{len(shown)} {'kind' if len(shown) == 1 else 'kinds'} of graph break"
            what = f"{kinds} in torch {torch.__version__}, {repairs} of them with our repairs"
        if self.searched:
            what += f", found for “{self.searched}”"
        return what + (f"; the first {SHOWN} are shown." if len(shown) > SHOWN else ".")

    def _rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (one.gb_id, one.title, _shortened(one.explanation), _repairs(one))
            for one in self.shown()[:SHOWN]
        ]

    def __str__(self) -> str:
        return f"{self.sentence()}\n{table_text(_COLUMNS, self._rows())}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        notice = notice_html(self.missing) if self.missing else ""
        said = self.sentence().removeprefix(self.missing).strip()
        if not self.shown():
            return notice + sentence_html(said)
        return notice + sentence_html(said) + table_html(_COLUMNS, self._rows())


_COLUMNS = ("id", "torch's title", "explanation", "our repair")


@functools.cache
def graph_break_registry() -> Registry:
    """Returns the installed torch's whole list of graph breaks (empty, and said so, in torch 2.7).

    Of each entry's wordings over time, which torch keeps, the newest is taken.
    """
    if not _FILE.exists():
        return Registry((), f"torch {torch.__version__} brings no list of its graph breaks.")
    data = json.loads(_FILE.read_text(encoding="utf-8"))
    return Registry(tuple(_entry(gb_id, wordings) for gb_id, wordings in sorted(data.items())))


def _entry(gb_id: str, wordings: Sequence[dict[str, Any]]) -> Entry:
    newest = wordings[0]
    titles = {wording["Gb_type"] for wording in wordings}
    causes = tuple(cause for cause in load_causes() if titles.intersection(cause.gb_types))
    return Entry(
        gb_id=gb_id,
        title=newest["Gb_type"],
        context=newest["Context"],
        explanation=newest["Explanation"],
        hints=tuple(newest["Hints"]),
        causes=causes,
    )


def _own_entries() -> tuple[Entry, ...]:
    return tuple(
        Entry("", cause.title, "", cause.explanation, (), (cause,)) for cause in load_causes()
    )


def _fits(entry: Entry, text: str) -> bool:
    number = _ID.fullmatch(text.strip())
    if number and entry.gb_id:
        return int(entry.gb_id.removeprefix("GB")) == int(number[1])
    return all(word in entry.words for word in text.casefold().split())


def _shortened(text: str, most: int = 110) -> str:
    return text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0] + " …"


def _repairs(entry: Entry) -> str:
    """Returns our repairs in a few words; where there are many, the most general."""
    if entry.cause is None:
        return ""
    more = len(entry.causes) - 1
    also = f" (and {more} more)" if more else ""
    return (entry.cause.change or entry.cause.fix) + also


def registry_view(search: str = "", only_with_repairs: bool = False) -> Registry:
    """Returns the list, or what `search` finds in it, to be the last value of a cell.

    Found in a title comes before found elsewhere, and what has our repairs before what has none.
    only_with_repairs: leave out the kinds for which we have no repair.
    """
    found = graph_break_registry().search(search)
    entries = [one for one in found if one.causes or not only_with_repairs]
    if search.strip():
        entries.sort(key=lambda one: _rank(one, search))
    return Registry(tuple(entries), found.missing, found.searched)


def _rank(entry: Entry, text: str) -> tuple[int, bool]:
    """Returns 0 if each word begins a word of the title, 1 of our own titles, 2 if elsewhere."""
    words = [re.compile(rf"\b{re.escape(word)}", re.IGNORECASE) for word in text.split()]
    titles = (entry.title, " ".join(cause.title for cause in entry.causes))
    places = (n for n, title in enumerate(titles) if all(word.search(title) for word in words))
    return next(places, 2), not entry.causes
