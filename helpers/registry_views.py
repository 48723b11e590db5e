"""One kind of graph break to look at: torch's words about it, and our repairs with programs."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from helpers.break_causes import Cause
from helpers.break_views import inline_html
from helpers.display import code_html, details_html, wrap
from helpers.generated_views import unstyled

if TYPE_CHECKING:  # an entry shows itself through this module
    from helpers.break_registry import Entry

_STYLE = (
    "<style>.tcs-entry p{margin:4px 0}.tcs-entry ul{margin:2px 0 6px;padding-left:24px}"
    ".tcs-entry .tcs-heading{margin-top:0;overflow-wrap:anywhere}"
    ".tcs.tcs .tcs-entry a{color:var(--tcs-name);text-decoration:underline;"
    "overflow-wrap:anywhere}</style>"
)
_BLANK = re.compile(r"\{[^{}]+\}")


def entry_html(entry: Entry) -> str:
    """Returns one entry: torch's explanation, each repair with its programs, torch's hints."""
    name = html.escape(f"{entry.gb_id} {entry.title}".strip())
    parts = [f'<div class="tcs-heading">{name}</div>']
    if entry.gb_id:
        said = inline_html(entry.explanation) or "no explanation."
        parts.append(f"<p><b>torch says:</b> {said}</p>")
    if not entry.causes:
        parts.append("<p>We have no repair of our own for this kind.</p>")
    elif len(entry.causes) > 1:
        many = f"We have {len(entry.causes)} repairs for it, the most general first."
        parts.append(f"<p>{many}</p>")
    for number, cause in enumerate(sorted(entry.causes, key=lambda one: one != entry.cause)):
        parts.append(unstyled(cause_html(cause, number == 0)))
    hints = _joined(entry.hints)
    if hints:
        listed = "".join(f"<li>{inline_html(hint)}</li>" for hint in hints)
        parts.append(f"<p><b>torch's hints:</b></p><ul>{listed}</ul>")
    if any(_BLANK.search(text) for text in (entry.explanation, *hints)):
        parts.append(
            "<p>In place of what stands in {braces}, a message names what it met in your code.</p>"
        )
    if entry.link:
        link = html.escape(entry.link, quote=True)
        parts.append(
            f'<p><a href="{link}" target="_blank" rel="noopener noreferrer">torch\'s page about '
            f"{entry.gb_id} (opens a new tab)</a></p>"
        )
    return wrap(f'{_STYLE}<div class="tcs-entry">{"".join(parts)}</div>')


def _joined(hints: Sequence[str]) -> list[str]:
    """Returns hints as whole sentences: torch's list has some that are cut in two or three."""
    whole: list[str] = []
    for hint in filter(None, (hint.strip() for hint in hints)):
        if whole and (whole[-1].endswith(",") or hint[0].islower()):
            whole[-1] += f" {hint}"
        else:
            whole.append(hint)
    return whole


def cause_html(cause: Cause, is_open: bool = True) -> str:
    """Returns what we know of a cause, with a program that breaks and its repaired form."""
    change = [f"<b>Smallest change:</b> {inline_html(cause.change)}"] if cause.change else []
    words = [
        inline_html(cause.explanation),
        f"<b>Repair:</b> {inline_html(cause.fix)}",
        *change,
        f"The first program below breaks on torch {html.escape(', '.join(cause.breaks_on))}, the "
        "second does not.",
    ]
    programs = (
        f"<p>It breaks:</p>{code_html(cause.snippet.strip())}"
        f"<p>Repaired:</p>{code_html(cause.repaired.strip())}"
    )
    inner = "".join(f"<p>{text}</p>" for text in words) + programs
    return details_html(f"Our repair: {cause.title}", wrap(inner), is_open)
