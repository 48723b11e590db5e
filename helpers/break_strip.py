"""The call as a strip: stretches of graph, cuts, and what is left to Python, from left to right."""

from __future__ import annotations

import hashlib
import html
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from helpers.words import file_name

if TYPE_CHECKING:  # graph_breaks shows itself through break_views, and so through this module
    from helpers.break_reports import GraphBreak, GraphBreaks

# Effect to sign, words, and what to add to GraphBreak.effect_words. The words carry the meaning.
EFFECTS = {
    "split": ("✂", "split in two", "Python runs this line in between."),
    "rest_eager": ("◧", "rest left to Python", ""),
    "frame_skipped": (
        "○",
        "whole function skipped",
        "Functions that it calls are still tried, each on its own.",
    ),
}
_PER_ROW = 7  # pieces of the strip in one row; more would not fit a laptop's notebook
MOST_PIECES = 41  # pieces in all; beyond, the sentence and the cards have to do
# (fill, edge, width) of the pieces of the strip; each also says in words what it is.
_LOOKS = {
    "graph": ("#d3efe4", "#00805c", 80),
    "cut": ("#fde8d0", "#9a4d00", 124),
    "python": ("#ececf1", "#6b7280", 116),
}
_HEIGHT, _GAP = 46, 12


@dataclass(frozen=True)
class Piece:
    """One box of the strip: kind "graph", "cut" or "python"; two short lines of text."""

    kind: str
    title: str
    detail: str = ""


def function_of(found: GraphBreak) -> str:
    """Returns the name of the function that the break lies in, empty if it is not known."""
    return found.call_paths[0][-1] if found.call_paths and found.call_paths[0] else ""


def payer_of(found: GraphBreak) -> str:
    """Returns the name of the function that the break costs something, which may be a caller."""
    return found.function or function_of(found) or "the function"


def strip_pieces(found: GraphBreaks) -> tuple[Piece, ...]:
    """Returns the call as pieces in order: stretches of graph, cuts, and what Python keeps.

    Stretches have a number only where each lies between two cuts of one function; where a called
    function was cut, its callers were too, and a stretch may be several graphs. Which stretches
    have none, where there are fewer graphs, is not known.
    """
    breaks = tuple(found)
    if not breaks:
        many = f"{found.graphs} graphs" if found.graphs != 1 else "one graph"
        return (Piece("graph", many, "the whole call"),) if found.graphs else (
            Piece("python", "plain Python", "no graph"),)  # fmt: skip
    lost = {payer_of(one) for one in breaks if one.effect != "split"}
    pieces: list[Piece] = []
    for one in breaks:
        goes_on = _caller_goes_on(one, lost)
        if one.effect != "frame_skipped" or goes_on:
            pieces.append(Piece("graph", "compiled", "between" if pieces else "before"))
        times = f" ({one.count}×)" if one.count > 1 else ""
        title = f"{EFFECTS[one.effect][0]} line {one.lineno}{times}"
        pieces.append(Piece("cut", title, _short(one.source_line)))
        if one.effect != "split":
            what = "all of" if one.effect == "frame_skipped" else "rest of"
            detail = f"{what} {_short(payer_of(one), 12)}"
            pieces.append(Piece("python", "plain Python", detail))
    if pieces[-1].kind == "cut" or _caller_goes_on(breaks[-1], lost):
        pieces.append(Piece("graph", "compiled", "after"))
    return _with_graphs(pieces, found)


def _caller_goes_on(one: GraphBreak, lost: set[str]) -> bool:
    """True if a break costs a called function, and one that calls it is compiled still."""
    path, name = one.call_paths[0] if one.call_paths else (), payer_of(one)
    callers = path[: path.index(name)] if name in path else ()
    return bool(callers) and not lost.issuperset(callers)


def _with_graphs(pieces: list[Piece], found: GraphBreaks) -> tuple[Piece, ...]:
    """Numbers the stretches where that is certain; takes away what cannot be compiled."""
    error = found.changes_behaviour
    stretches = sum(one.kind == "graph" for one in pieces)
    unsure = error is not None or (pieces[-2:-1] and pieces[-2].kind == "python")
    if unsure and pieces[-1].kind == "graph" and found.graphs < stretches:
        pieces, stretches = pieces[:-1], stretches - 1
    if not found.graphs:
        pieces = [one for one in pieces if one.kind != "graph"]
    if all(b.effect == "split" and b.count == 1 for b in found) and found.graphs == stretches:
        numbers = itertools.count()
        pieces = [
            replace(one, title=f"graph {next(numbers)}") if one.kind == "graph" else one
            for one in pieces
        ]
    if error is not None:
        pieces = [*pieces, Piece("python", "stops here", _short(type(error).__name__, 16))]
    return tuple(pieces)


def _short(text: str, most: int = 17) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def strip_sentence(found: GraphBreaks) -> str:
    """Returns in words what the strip shows: graphs, breaks, and what each break does."""
    graphs = "1 graph" if found.graphs == 1 else f"{found.graphs or 'no'} graphs"
    breaks = tuple(found)
    if not breaks:
        return f"No graph break; {graphs}."
    head = f"{len(breaks)} graph break{'s' if len(breaks) > 1 else ''}, {graphs}"
    parts = []
    for (effect, filename), group in itertools.groupby(breaks, lambda b: (b.effect, b.filename)):
        lines = [str(one.lineno) for one in group]
        where = f"line{'s' if len(lines) > 1 else ''} {_listed(lines)}"
        if any(one.filename != filename for one in breaks):
            where += f" of {file_words(filename)}"
        parts.append(f"{where} ({EFFECTS[effect][1]})")
    text = f"{head}: {', '.join(parts)}."
    stretches = sum(one.kind == "graph" for one in strip_pieces(found))
    empty = stretches - found.graphs
    if empty > 0:
        text += (
            f" {empty} of the {stretches} stretches compute{'s' if empty == 1 else ''} nothing "
            f"with tensors, and so {'has' if empty == 1 else 'have'} no graph."
        )
    elif empty < 0 and any(one.count > 1 for one in breaks):
        text += (
            " There are more graphs than stretches: a break inside a called function also cuts "
            "every function that called it, at every call."
        )
    return text


def file_words(filename: str) -> str:
    """Returns what a person calls a file: "model.py", "the cell", "your text"."""
    name = file_name(filename)
    if name == "cell":
        return "the cell"
    return "your text" if name == "<your_function>" else name.strip("<>")


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def strip_svg(pieces: Sequence[Piece], sentence: str) -> str:
    """Returns the pieces as boxes from left to right, row by row, as inline SVG."""
    rows = [pieces[i : i + _PER_ROW] for i in range(0, len(pieces), _PER_ROW)]
    widest = max(sum(_LOOKS[one.kind][2] + _GAP for one in row) for row in rows)
    height = len(rows) * (_HEIGHT + 18)
    drawn, mark = [], "b" + hashlib.sha256(repr(pieces).encode()).hexdigest()[:10]
    for number, row in enumerate(rows):
        x, y = 0.0, 4 + number * (_HEIGHT + 18)
        for one in row:
            if x:
                drawn.append(_arrow(x - _GAP, y, mark))
            drawn.append(_box(one, x, y))
            x += _LOOKS[one.kind][2] + _GAP
    text = html.escape(sentence, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="-3 0 {widest:.0f} {height}" '
        f'width="{widest:.0f}" height="{height}" style="display:block;max-width:none" '
        f'aria-label="{text}"><desc>{text}</desc><defs><marker id="{mark}" viewBox="0 0 8 8" '
        'refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="var(--tcs-soft,#6b7280)"/></marker></defs>'
        f"{''.join(drawn)}</svg>"
    )


def _arrow(x: float, y: float, mark: str) -> str:
    return (
        f'<path d="M{x:.0f} {y + _HEIGHT / 2:.0f}h{_GAP - 1}" marker-end="url(#{mark})" '
        'stroke="var(--tcs-soft,#6b7280)" stroke-width="1.4" fill="none"/>'
    )


def _box(one: Piece, x: float, y: float) -> str:
    fill, edge, width = _LOOKS[one.kind]
    dash = {"graph": "", "cut": "5 3", "python": "2 3"}[one.kind]
    middle = x + width / 2
    return (
        '<g font-family="system-ui,sans-serif" text-anchor="middle">'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width}" height="{_HEIGHT}" '
        f'rx="{8 if one.kind == "graph" else 2}" fill="{fill}" stroke="{edge}" '
        f'stroke-width="1.5" stroke-dasharray="{dash}"/>'
        f'<text x="{middle:.0f}" y="{y + 20:.0f}" font-size="13" font-weight="600" '
        f'fill="#1a1a1a">{html.escape(one.title)}</text>'
        f'<text x="{middle:.0f}" y="{y + 36:.0f}" font-size="11" fill="#3f4650">'
        f"{html.escape(one.detail)}</text></g>"
    )
