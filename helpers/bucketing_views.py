"""The trade between padding and compiling, as a picture and a table."""

from __future__ import annotations

import html
from collections.abc import Sequence

from helpers.bucketing import PlanResult
from helpers.bucketing_times import PlanTimes
from helpers.display import View, art_html, notice_html, sentence_html, table_html, table_text, wrap
from helpers.words import counted

_LEFT, _TOP, _WIDE, _TALL = 64, 16, 660, 300
_ROW = 17  # height of a label's line, px
_LETTER = 7.2  # mean advance of common sans-serif fonts at 13 px, rounded up
# A rim in the page's colour, so that no grid line runs through a label.
_HALO = "paint-order:stroke;stroke:var(--tcs-page,#fff);stroke-width:5px"
_ABOUT = (
    "Each point is one way to serve the same calls: to the right more compilations, upwards more "
    "padding. A cross stands for one that ran into the limit. The table has the same figures."
)


def bucketing_view(results: Sequence[PlanResult], times: PlanTimes | str | None = None) -> View:
    """Shows each plan as a point: to the right its compilations, upwards its padding waste.

    results: from `count_plans`; times: microseconds per real token, or a sentence why there are
    none. The same figures stand in a table; a plan that fell to eager has a cross for a point.
    """
    words = _sentence(results)
    columns, rows = _table(results, times)
    parts = [sentence_html(_ABOUT)]
    parts.append(wrap(art_html(_svg(results, words), "picture: compilations and padding", words)))
    parts.append(table_html(columns, rows))
    texts = [_ABOUT, table_text(columns, rows)]
    if isinstance(times, str):
        parts.append(notice_html(times))
        texts.append(times)
    elif times is not None:
        notes = [note for one in times.times.values() for note in one.notes]
        if times.what:
            parts.append(sentence_html(f"The times are those of {times.what}."))
        parts += [notice_html("\n".join(dict.fromkeys(notes)), "warning")] if notes else []
        refused = [f"{name}: {one.refused}" for name, one in times.times.items() if one.refused]
        parts += [notice_html("\n".join(["Not measured:", *refused]))] if refused else []
        parts.append(times.origin.html())
        texts += [times.what, *dict.fromkeys(notes), *refused, times.origin.text()]
    return View("".join(parts), "\n".join(filter(None, texts)))


def _sentence(results: Sequence[PlanResult]) -> str:
    each = [
        f"{one.plan.name}: {counted(one.compiles, 'compilation')} and {one.plan.waste:.0%} padding"
        + (f", and {one.eager_calls} calls ran eager" if one.eager_calls else "")
        for one in results
    ]
    return f"{len(results[0].plan.lengths)} calls, {'; '.join(each)}." if results else "No plans."


def _table(
    results: Sequence[PlanResult], times: PlanTimes | str | None
) -> tuple[list[str], list[list[str]]]:
    columns = ["plan", "sizes computed", "compilations", "calls run eager", "padding"]
    timed = times if isinstance(times, PlanTimes) else None
    columns += ["µs per real token (interval)"] if timed else []
    rows = []
    for one in results:
        sizes = one.plan.sizes
        named = ", ".join(map(str, sizes)) if len(sizes) <= 6 else f"{len(sizes)} different"
        row = [one.plan.name, named, str(one.compiles), str(one.eager_calls)]
        row.append(f"{one.plan.waste:.0%}")
        if timed:
            found = timed.times.get(one.plan.name)
            missing = "none: it hits the limit" if one.eager_calls else "not recorded"
            row.append(found.words if found else missing)
        rows.append(row)
    return columns, rows


Box = tuple[float, float, float, float]  # left, top, right, bottom


def _svg(results: Sequence[PlanResult], words: str) -> str:
    most = max((one.compiles for one in results), default=1)
    step = _WIDE / (most + 2.2)  # room for a label to the right of the last point
    points = [
        (_LEFT + one.compiles * step, _TOP + _TALL * (1 - one.plan.waste), one) for one in results
    ]
    taken: list[Box] = [(x - 8, y - 8, x + 8, y + 8) for x, y, _ in points]
    body = [_grid(most, step)]
    for x, y, one in sorted(points, key=lambda point: (-point[1], point[0])):
        label = f"{one.plan.name}{', then eager' if one.eager_calls else ''}"
        left, base = _free_place(x, y, len(label) * _LETTER, taken)
        if abs(base - 4 - y) > _ROW:
            body.append(
                f'<path d="M{x:.0f} {y - 7:.0f}L{x:.0f} {base + 4:.0f}" '
                'style="stroke:var(--tcs-soft)" fill="none"/>'
            )
        body.append(_mark(x, y, one.eager_calls > 0))
        body.append(
            f'<text x="{left:.0f}" y="{base:.0f}" style="{_HALO}">{html.escape(label)}</text>'
        )
    wide, tall = _LEFT + _WIDE + 10, _TOP + _TALL + 44
    text = html.escape(words, quote=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {wide} {tall}" '
        f'width="{wide}" height="{tall}" font-family="system-ui,sans-serif" font-size="13" '
        f'aria-label="{text}" style="fill:var(--tcs-ink)">'
        f"<title>Compilations and padding of each plan</title>{''.join(body)}</svg>"
    )


def _grid(most: int, step: float) -> str:
    bottom, parts = _TOP + _TALL, []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - _TALL * share
        parts.append(
            f'<line x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{y:.0f}" y2="{y:.0f}" '
            'style="stroke:var(--tcs-line)"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{share:.0%}</text>'
        )
    parts += [
        f'<text x="{_LEFT + n * step:.0f}" y="{bottom + 18}" text-anchor="middle">{n}</text>'
        for n in range(most + 1)
    ]
    parts.append(f'<text x="{_LEFT}" y="{bottom + 38}" font-weight="600">compilations →</text>')
    parts.append(
        f'<text x="14" y="{bottom}" font-weight="600" transform="rotate(-90 14 {bottom})">'
        "computed tokens that are padding →</text>"
    )
    return "".join(parts)


def _free_place(x: float, y: float, wide: float, taken: list[Box]) -> tuple[float, float]:
    """Returns left and base line of a label: right of its point, else above it where it is free."""
    edge = _LEFT + _WIDE
    above = min(x - 5, edge - wide)
    places = [(x + 12, y + 4), *((above, y - 12 - _ROW * n) for n in range(8))]
    for left, base in places:
        box = (left, base - 12, left + wide, base + 4)
        if box[2] <= edge and not any(_meet(box, other) for other in taken):
            break
    taken.append(box)
    return left, base


def _meet(one: Box, two: Box) -> bool:
    return one[0] < two[2] and two[0] < one[2] and one[1] < two[3] and two[1] < one[3]


def _mark(x: float, y: float, crossed: bool) -> str:
    if crossed:
        return (
            f'<path d="M{x - 6:.1f} {y - 6:.1f}l12 12m0 -12l-12 12" fill="none" '
            'stroke-width="2.5" style="stroke:var(--tcs-bad)"/>'
        )
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" style="fill:var(--tcs-note)"/>'
