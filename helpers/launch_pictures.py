"""The wrapper as a picture: kernels and library calls in launch order, buffers between them."""

from __future__ import annotations

import hashlib
import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.display import View, art_html, details_html, table_html, table_text, wrap
from helpers.generated import GeneratedCode
from helpers.generated_views import unstyled
from helpers.launches import Buffer, Launch, read_launches
from helpers.layout import lay_out
from helpers.words import counted

_MOST = 40  # more boxes than this no longer fit a screen; the table then stands alone
# (fill, edge) per kind; the kind also stands in words in each box.
_TINTS = {
    "kernel": ("#d3efe4", "#00805c"), "copy": ("#fdf6c4", "#857a00"),
    "library": ("#e1def5", "#5a4fb0"), "input": ("#ffffff", "#6b7280"),
}  # fmt: skip
_WORDS = {"kernel": "kernel", "copy": "kernel, only copies", "library": "library call"}
_COLUMNS = ("", "what runs", "operations", "reads", "writes")


@dataclass(frozen=True, repr=False)
class LaunchView(View):
    """The picture and table, and what they show: `launches` of all graphs, in order."""

    launches: tuple[Launch, ...] = ()


def launch_view(code: GeneratedCode) -> LaunchView:
    """Returns what the wrappers launch, in order: a sentence, a picture and a table per graph."""
    parts, texts, every = [], [], []
    for index in range(len(code.graphs)):
        launches = read_launches(code, index)
        every += launches
        sentence = _sentence(code, index, launches)
        texts.append(sentence)
        parts.append(f'<p style="margin:6px 0 4px">{html.escape(sentence)}</p>')
        if not launches:
            continue
        rows = [_table_row(place, one) for place, one in enumerate(launches, start=1)]
        if len(launches) <= _MOST:
            label = f"picture of the launches of graph {index}"
            forms = {one.name: one.kind for one in code.kernels if one.graph_index == index}
            parts.append(art_html(_svg(launches, sentence, forms), label, sentence))
        table = table_html(_COLUMNS, rows)
        title = f"Launches of graph {index} as a table, with buffers and their layout"
        parts.append(details_html(title, table, len(launches) > _MOST))
        texts.append(table_text(_COLUMNS, rows))
    if not code.graphs:
        texts.append("Nothing was compiled, so nothing is launched.")
        parts.append(f"<p>{texts[-1]}</p>")
    parts.append(code.origin.html())
    return LaunchView(
        wrap(*map(unstyled, parts)), "\n".join([*texts, code.origin.text()]), tuple(every)
    )


def _sentence(code: GeneratedCode, index: int, launches: Sequence[Launch]) -> str:
    kinds = Counter(one.kind for one in launches)
    own = kinds["kernel"] + kinds["copy"]
    text = f"Graph {index} ({code.graphs[index].phase}): "
    if not launches:
        return text + "it launches nothing that could be read from its wrapper."
    distinct = len({one.name for one in launches if one.kind != "library"})
    different = f" ({distinct} different)" if distinct != own else ""
    text += f"{len(launches)} launches" if len(launches) > 1 else "1 launch"
    text += f", {own} of generated kernels{different} and {kinds['library']} of library calls"
    return text + (f"; {counted(kinds['copy'], 'launch')} only for a copy.".replace(
        "launchs", "launches") if kinds["copy"] else ".")  # fmt: skip


def _table_row(place: int, one: Launch) -> tuple[str, ...]:
    what = f"{_WORDS[one.kind]} {one.name}"
    return (
        str(place),
        what,
        ", ".join(one.ops),
        ", ".join(map(str, one.reads)),
        ", ".join(map(str, one.writes)),
    )


def _numel(buffer: Buffer) -> int:
    whole = buffer.shape is not None and all(isinstance(size, int) for size in buffer.shape)
    return math.prod(buffer.shape) if whole else 0  # type: ignore[arg-type]


def _large_inputs(launches: Sequence[Launch]) -> list[str]:
    """Returns the inputs that are worth a box: at least an eighth of the largest tensor."""
    written = {one.name for launch in launches for one in launch.writes}
    every = {one.name: _numel(one) for launch in launches for one in launch.reads + launch.writes}
    most = max(every.values(), default=0)
    read = dict.fromkeys(one.name for launch in launches for one in launch.reads)
    own = [name for name in read if name.startswith(("arg", "primals", "tangents"))]
    return [name for name in own if name not in written and 8 * every[name] >= most > 0]


def _detail(place: int, one: Launch, forms: Mapping[str, str]) -> str:
    """Returns place and kind in words, with the kernel's own kind: one graph's may be namesakes."""
    form = forms.get(one.name, "").replace("_", " ")
    more = f", {form}" if one.kind == "kernel" and form not in ("", "cpp") else ""
    return f"{place + 1} · {_WORDS[one.kind]}{more}"


def _svg(launches: Sequence[Launch], sentence: str, forms: Mapping[str, str]) -> str:
    boxes: dict[str, tuple[str, str, str]] = {}
    edges = []
    for name in _large_inputs(launches):
        boxes[name] = ("input", f"input {name}", "")
    for place, one in enumerate(launches):
        title = one.title if len(one.title) < 46 else one.title[:44] + " …"
        boxes[str(place)] = (one.kind, title, _detail(place, one, forms))
        edges += [(str(before), str(place)) for before in one.after]
        edges += [(buffer.name, str(place)) for buffer in one.reads if buffer.name in boxes]
    # Mean advance of common sans-serif fonts, bold 13 px and plain 11 px, rounded up.
    sizes = {
        key: (max(90.0, 8.0 * len(title) + 22, 6.4 * len(detail) + 22), 40.0)
        for key, (_, title, detail) in boxes.items()
    }
    plan = lay_out(sizes, list(dict.fromkeys(edges)))
    mark = "l" + hashlib.sha256(repr((boxes, edges)).encode()).hexdigest()[:10]
    drawn = "".join(_draw(*boxes[key], sizes[key], plan.centres[key]) for key in boxes)
    lines = "".join(f'<path d="{path}" marker-end="url(#{mark})"/>' for path in plan.paths.values())
    width, height, text = plan.width + 12, plan.height + 12, html.escape(sentence, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="-6 -6 {width:.0f} '
        f'{height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'style="display:block;max-width:none" aria-label="{text}"><desc>{text}</desc>'
        f'<defs><marker id="{mark}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--tcs-soft,#6b7280)"/>'
        '</marker></defs><g fill="none" stroke="var(--tcs-soft,#6b7280)" stroke-width="1.4">'
        f"{lines}</g>{drawn}</svg>"
    )


def _draw(
    kind: str, title: str, detail: str, size: tuple[float, float], centre: tuple[float, float]
) -> str:
    (width, height), (x, y), (fill, edge) = size, centre, _TINTS[kind]
    dash = ' stroke-dasharray="4 3"' if kind in ("input", "copy") else ""
    return (
        '<g font-family="system-ui,sans-serif" text-anchor="middle">'
        f'<rect x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="{20 if kind == "input" else 3 if kind == "library" else 8}" '
        f'fill="{fill}" stroke="{edge}" stroke-width="{2.5 if kind == "library" else 1.5}"{dash}/>'
        f'<text x="{x:.1f}" y="{y - 3 if detail else y + 5:.1f}" font-size="13" font-weight="600" '
        f'fill="#1a1a1a">{html.escape(title)}</text>'
        f'<text x="{x:.1f}" y="{y + 12:.1f}" font-size="11" fill="#3f4650">'
        f"{html.escape(detail)}</text></g>"
    )
