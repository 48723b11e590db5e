"""Pictures as inline SVG: the operations of a captured graph, layer by layer."""

from __future__ import annotations

import hashlib
import html
import os
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from helpers.display import View, art_html, table_text, wrap
from helpers.layout import lay_out
from helpers.pipeline import pipeline_picture
from helpers.words import counted

if TYPE_CHECKING:
    from helpers.dynamo import Graph, Op

__all__ = ["MOST_OPS", "graph_picture", "graph_svg", "pipeline_picture", "short_name"]

MOST_OPS = 40  # more boxes than this no longer fit a screen; the picture then sums them up
_MOST_GROUPS = 12

# (fill, edge) per source line, used in turn. Light fills under dark text read in both themes;
# the hues come from Okabe and Ito's palette for colour-blind readers, lightened.
_TINTS = (
    ("#d6e9f8", "#0072b2"), ("#fde5c0", "#b06f00"), ("#d3efe4", "#00805c"), ("#f6dbea", "#a8507f"),
    ("#fdf6c4", "#857a00"), ("#f9dccd", "#b34700"), ("#e1def5", "#5a4fb0"), ("#e4e8d3", "#5d6b1f"),
)  # fmt: skip
Place = tuple[str, int]  # file and line
_PLAIN = ("#ffffff", "#6b7280")
_INK = "#1a1a1a"


@dataclass(frozen=True)
class _Box:
    name: str
    title: str
    detail: str
    place: Place | None
    kind: str
    marked: bool = False

    @property
    def size(self) -> tuple[float, float]:
        # Mean advance of common sans-serif fonts, bold 13 px and plain 11 px, rounded up.
        wide = max(len(self.title + ("  new" if self.marked else "")) * 8.0, len(self.detail) * 6.4)
        return max(64.0, wide + 22), 40.0


def short_name(op: Op) -> str:
    """Returns the name by which a person calls an op: "softmax", "input q", "result"."""
    if op.kind == "output":
        return "result"
    if op.kind == "placeholder":
        return f"input {_input_name(op.name)}"
    words = re.findall(r"[A-Za-z_]\w*", op.target) or [op.name]
    return words[-1] if op.kind != "get_attr" else f"value {words[-1]}"


def _input_name(name: str) -> str:
    """Turns Dynamo's L_self_modules_up_parameters_weight_ into self.up.weight."""
    inner = re.fullmatch(r"[lL]_(\w+?)_*", name)
    if inner is None:
        return name
    parts = re.sub(r"_(?:modules|parameters|buffers)_+", ".", inner[1])
    return parts.strip("_")


def _shape(op: Op) -> str:
    if op.shape is None:
        return ""
    return " × ".join(str(size) for size in op.shape) if op.shape else "a single number"


def _place(op: Op) -> Place | None:
    """Returns the source line of an operation; inputs and results have none of their own."""
    return (op.filename, op.lineno) if op.kind.startswith("call") and op.lineno else None


def _places(graph: Graph) -> dict[Place, str]:
    """Returns the text of each source line that has operations, by file and line."""
    found = {_place(op): op.source_line for op in graph.ops}
    return {place: found[place] for place in sorted(found.keys() - {None})}


def _names(graph: Graph) -> dict[Place | None, str]:
    """Returns what to call each source line; the file is named only where there are several."""
    places = _places(graph)
    several = len({file for file, _ in places}) > 1
    return {
        (file, line): f"{os.path.basename(file)} line {line}" if several else f"line {line}"
        for file, line in places
    }


def _box(op: Op, names: dict[Place | None, str], highlight: Collection[str]) -> _Box:
    place = _place(op)
    detail = " · ".join(part for part in (_shape(op), names.get(place, "")) if part)
    return _Box(op.name, short_name(op), detail, place, op.kind, op.name in highlight)


def _edges(ops: Sequence[Op], home: dict[str, str]) -> list[tuple[str, str]]:
    """Returns each pair (from, to) of boxes once; `home` says in which box an op stands."""
    pairs = {
        (home[source], home[op.name]): None
        for op in ops
        for source in op.inputs
        if source in home and op.name in home and home[source] != home[op.name]
    }
    return list(pairs)


def _group(
    ops: Sequence[Op], names: dict[Place | None, str], highlight: Collection[str]
) -> tuple[list[_Box], dict[str, str]]:
    """Joins neighbouring ops of one source line, then neighbouring lines, into one box each.

    Dynamo lists ops in an order in which they can run, so groups of neighbours form no cycle.
    """
    runs = [list(run) for _, run in groupby(ops, key=_place)]
    step = -(-len(runs) // _MOST_GROUPS)
    boxes, home = [], {}
    for i in range(0, len(runs), step):
        group, name = list(chain.from_iterable(runs[i : i + step])), f"group {i}"
        home.update({op.name: name for op in group})
        places = sorted({place for op in group if (place := _place(op))})
        where = [names[places[0]], names[places[-1]]] if len(places) > 1 else [names.get(
            places[0] if places else None, "")]  # fmt: skip
        most = ", ".join(
            f"{label} {count} times" if count > 1 else label
            for label, count in Counter(short_name(op) for op in group).most_common(3)
        )
        title = " · ".join(part for part in (f"{len(group)} ops", " to ".join(where)) if part)
        new = any(op.name in highlight for op in group)
        boxes.append(_Box(name, title, most, places[0] if places else None, "group", new))
    return boxes, home


def _contents(graph: Graph, highlight: Collection[str]) -> tuple[list[_Box], list[tuple[str, str]]]:
    """Returns the boxes to draw and the arrows between them."""
    names = _names(graph)
    if len(graph.calls) <= MOST_OPS:
        used = {name for op in graph.ops for name in op.inputs}
        inputs = ("placeholder", "get_attr")
        shown = [op for op in graph.ops if op.kind not in inputs or op.name in used]
        home = {op.name: op.name for op in shown}
        return [_box(op, names, highlight) for op in shown], _edges(shown, home)
    boxes, home = _group(graph.calls, names, highlight)
    results = [op for op in graph.ops if op.kind == "output"]
    home.update({op.name: op.name for op in results})
    boxes += [_box(op, names, ()) for op in results]
    return boxes, _edges([*graph.calls, *results], home)


def _sentence(graph: Graph) -> str:
    """Says what the picture shows, for readers who do not see it."""
    calls = graph.calls
    inputs = [_input_name(op.name) for op in graph.ops if op.kind == "placeholder"]
    few = ", ".join(inputs[:6]) + (" and more" if len(inputs) > 6 else "")
    names = [short_name(op) for op in calls]
    order = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    text = (
        f"Graph {graph.index}, captured from {graph.function}: "
        f"{counted(len(inputs), 'input')}{f' ({few})' if few else ''}, "
        f"{counted(len(calls), 'operation')} from {counted(len(_places(graph)), 'source line')}"
    )
    text += f", in this order: {order}." if order else "."
    if len(calls) > MOST_OPS:
        text += (
            f" With more than {MOST_OPS} operations, the picture joins neighbours into one box "
            "and leaves the inputs out."
        )
    return text


def _tints(graph: Graph) -> dict[Place | None, tuple[str, str]]:
    return {place: _TINTS[i % len(_TINTS)] for i, place in enumerate(_places(graph))}


def _svg(graph: Graph, highlight: Collection[str]) -> str:
    boxes, edges = _contents(graph, highlight)
    plan = lay_out({box.name: box.size for box in boxes}, edges)
    tints = _tints(graph)
    # Ids are shared by a whole page, so they come from the contents.
    mark = "a" + hashlib.sha256(repr((boxes, edges)).encode()).hexdigest()[:10]
    width, height = plan.width + 12, plan.height + 12
    lines = "".join(f'<path d="{path}" marker-end="url(#{mark})"/>' for path in plan.paths.values())
    text = html.escape(_sentence(graph), quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="-6 -6 {width:.0f} '
        f'{height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'style="display:block;max-width:none" aria-label="{text}">'
        f"<title>Captured graph {graph.index} of {html.escape(graph.function)}</title>"
        f"<desc>{text}</desc>"
        f'<defs><marker id="{mark}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--tcs-soft,#6b7280)"/>'
        '</marker></defs><g fill="none" stroke="var(--tcs-soft,#6b7280)" stroke-width="1.4">'
        f"{lines}</g>{''.join(_draw(box, plan.centres[box.name], tints) for box in boxes)}</svg>"
    )


def _draw(box: _Box, centre: tuple[float, float], tints: dict[Any, tuple[str, str]]) -> str:
    (width, height), (x, y) = box.size, centre
    fill, edge = tints.get(box.place, _PLAIN)
    dash = ' stroke-dasharray="4 3"' if box.kind in ("placeholder", "get_attr") else ""
    title, detail = html.escape(box.title), html.escape(box.detail)
    new = '<tspan fill="#a31515" font-size="11"> new</tspan>' if box.marked else ""
    return (
        '<g font-family="system-ui,sans-serif" text-anchor="middle">'
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="{20 if dash or box.kind == "output" else 6}" fill="{fill}" '
        f'stroke="{edge}" stroke-width="{3 if box.marked else 1.5}"{dash}/>'
        f'<text x="{x:.1f}" y="{y - 3 if detail else y + 5:.1f}" font-size="13" font-weight="600" '
        f'fill="{_INK}">{title}{new}</text>'
        f'<text x="{x:.1f}" y="{y + 12:.1f}" font-size="11" fill="#3f4650">{detail}</text></g>'
    )


def graph_svg(graph: Graph, highlight: Collection[str] = ()) -> str:
    """Returns a captured graph as inline SVG with a sentence and the line behind each colour.

    Inputs stand on top, one colour per source line. `highlight`: names of ops to mark as new.
    Above MOST_OPS operations, neighbours share a box, and the sentence says so.
    """
    text = _sentence(graph)
    return wrap(
        f'<p style="margin:2px 0 8px">{html.escape(text)}</p>'
        '<div style="display:flex;flex-wrap:wrap;gap:12px 28px;align-items:flex-start">',
        art_html(_svg(graph, highlight), f"picture of graph {graph.index}", text),
        f'<div style="flex:1 1 300px;font-size:13px">{_legend(graph)}</div></div>',
    )


def _legend(graph: Graph) -> str:
    tints, names = _tints(graph), _names(graph)
    return "".join(
        '<div style="display:flex;gap:8px;margin:2px 0;align-items:baseline">'
        '<span aria-hidden="true" style="flex:none;width:11px;height:11px;border-radius:3px;'
        f'background:{tints[place][0]};border:1.5px solid {tints[place][1]}"></span>'
        f'<span style="flex:none">{html.escape(names[place])}</span>'
        f'<code style="white-space:pre-wrap">{html.escape(source)}</code></div>'
        for place, source in _places(graph).items()
    )


def graph_picture(graph: Graph, highlight: Collection[str] = ()) -> View:
    """Returns the picture as the last value of a cell; as text, the table of its operations."""
    rows = [
        (op.name, short_name(op), ", ".join(op.inputs), _shape(op), op.lineno or "")
        for op in graph.ops
    ]
    text = table_text(("name", "operation", "uses", "shape", "line"), rows)
    return View(graph_svg(graph, highlight), f"{_sentence(graph)}\n{text}")
