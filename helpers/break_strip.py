"""The call as a strip: stretches of graph, cuts, and what is left to Python, from left to right."""

from __future__ import annotations

import hashlib
import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # graph_breaks shows itself through break_views, and so through this module
    from helpers.graph_breaks import GraphBreak, GraphBreaks

# Effect to sign, words, and the sentence that says what it costs. The words carry the meaning.
EFFECTS = {
    "split": (
        "✂",
        "split in two",
        "The graph ends at this line. Python runs the line, and a new graph goes on after it.",
    ),
    "rest_eager": (
        "◧",
        "rest left to Python",
        "What comes before this line is compiled. From here on, this function runs as plain "
        "Python.",
    ),
    "frame_skipped": (
        "○",
        "whole function skipped",
        "Nothing of this function is compiled, not even the lines before this one. Functions that "
        "it calls are still tried, each on its own.",
    ),
}
_PER_ROW = 7  # pieces of the strip in one row; more would not fit a laptop's notebook
MOST_PIECES = 41  # pieces in all; beyond, the sentence and the cards have to do
# (fill, edge, width) of the pieces of the strip; each also says in words what it is.
_LOOKS = {
    "graph": ("#d3efe4", "#00805c", 80),
    "cut": ("#fde8d0", "#9a4d00", 116),
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


def strip_pieces(found: GraphBreaks) -> tuple[Piece, ...]:
    """Returns the call as pieces in order: stretches of graph, cuts, and what Python keeps.

    Stretches have a number only where each lies between two cuts of one function; where a called
    function was cut, its callers were too, and a stretch may be several graphs.
    """
    breaks = tuple(found)
    if not breaks:
        many = f"{found.graphs} graphs" if found.graphs != 1 else "one graph"
        return (Piece("graph", many, "the whole call"),) if found.graphs else (
            Piece("python", "plain Python", "no graph"),)  # fmt: skip
    simple = all(one.effect == "split" and one.count == 1 for one in breaks)
    numbered = simple and found.graphs == len(breaks) + 1
    pieces: list[Piece] = []
    for place, one in enumerate(breaks):
        before = _stretch(numbered, place, "before" if place == 0 else "between")
        skipped = one.effect == "frame_skipped"
        if not skipped and (not pieces or pieces[-1].kind != "python" or found.graphs):
            pieces.append(before)
        sign = EFFECTS[one.effect][0]
        pieces.append(Piece("cut", f"{sign} line {one.lineno}", _short(one.source_line)))
        if skipped or one.effect == "rest_eager":
            name = function_of(one) or "the function"
            what = "all of" if skipped else "rest of"
            pieces.append(Piece("python", "plain Python", f"{what} {_short(name, 14)}"))
    if pieces[-1].kind == "cut":
        pieces.append(_stretch(numbered, len(breaks), "after"))
    return tuple(pieces)


def _stretch(numbered: bool, place: int, where: str) -> Piece:
    return Piece("graph", f"graph {place}" if numbered else "compiled", where)


def _short(text: str, most: int = 17) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def strip_sentence(found: GraphBreaks) -> str:
    """Returns in words what the strip shows: graphs, breaks, and what each break does."""
    graphs = "1 graph" if found.graphs == 1 else f"{found.graphs or 'no'} graphs"
    breaks = tuple(found)
    if not breaks:
        return f"No graph break; {graphs}."
    head = f"{len(breaks)} graph break{'s' if len(breaks) > 1 else ''}, {graphs}"
    parts = [f"line {one.lineno} ({EFFECTS[one.effect][1]})" for one in breaks]
    text = f"{head}: {', '.join(parts)}."
    if found.graphs > len(breaks) + 1:
        text += (
            " There are more graphs than stretches between the breaks: a break inside a called "
            "function also cuts every function that called it."
        )
    return text


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
