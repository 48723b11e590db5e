"""Graph breaks to look at: the call as a strip of graphs and cuts, and one card per break."""

from __future__ import annotations

import html
import linecache
import re
from typing import TYPE_CHECKING

from helpers.break_strip import (
    EFFECTS,
    MOST_PIECES,
    function_of,
    strip_pieces,
    strip_sentence,
    strip_svg,
)
from helpers.display import art_html, code_html, details_html, notice_html, wrap
from helpers.generated_views import unstyled

if TYPE_CHECKING:  # graph_breaks shows itself through this module
    from helpers.graph_breaks import GraphBreak, GraphBreaks

_PATH = re.compile(r"(?<![\w.])/[^\s\"'`<>]*/[\w.-]+\.py\b")
_AROUND = 2  # lines of source shown before and after the marked one
_STYLE = (
    "<style>"
    ".tcs-break{border:1px solid var(--tcs-line);border-left:4px solid var(--tcs-warn);"
    "border-radius:4px;padding:6px 12px;margin:8px 0}"
    ".tcs-break p{margin:4px 0}"
    ".tcs-effect{border:1px solid var(--tcs-warn);border-radius:10px;padding:0 8px;"
    "color:var(--tcs-warn);font-weight:600;white-space:nowrap}"
    ".tcs .tcs-break-line{display:block;background:var(--tcs-line);font-weight:600}"
    ".tcs .tcs-break-other{display:block}"
    "</style>"
)


def place_text(filename: str, lineno: int) -> str:
    """Returns a line as a person names it: "line 4 of model.py", "line 4 of the cell"."""
    from helpers.dynamo import short_name

    name = short_name(filename)
    if name == "cell":
        name = "the cell"
    elif name.startswith("<"):
        name = "your text" if name == "<your_function>" else name.strip("<>")
    return f"line {lineno} of {name}"


def breaks_html(found: GraphBreaks) -> str:
    """Returns the strip, then one card per break, then notes and where it was seen, as HTML."""
    pieces, sentence = strip_pieces(found), strip_sentence(found)
    parts = [f'<p style="margin:6px 0 4px">{html.escape(sentence)}</p>']
    if len(pieces) <= MOST_PIECES:
        parts.append(art_html(strip_svg(pieces, sentence), "the call as a strip", sentence))
    if found.changes_behaviour is not None:
        parts.append(unstyled(notice_html(behaviour_text(found.changes_behaviour), "error")))
    parts += [unstyled(notice_html(note)) for note in found.notes]
    parts += [card_html(one, place) for place, one in enumerate(found, start=1)]
    return wrap(_STYLE, *parts, found.origin.html())


def without_folders(text: str) -> str:
    """Returns torch's words with files by name alone: the folders say nothing to a reader."""
    from helpers.dynamo import short_name

    return _PATH.sub(lambda match: short_name(match[0]), text)


def behaviour_text(error: Exception) -> str:
    """Says that compiling changed what the code does, and with which error it stopped."""
    first = next((line for line in str(error).strip().splitlines() if line.strip()), "")
    said = type(error).__name__ + (f": {without_folders(first)}" if first else "")
    return (
        f"Compiled, this code behaves differently. Python alone runs it; compiled it stops with "
        f"{said}. This is no matter of speed: repair it before anything else."
    )


def card_html(one: GraphBreak, place: int) -> str:
    """Returns one break as a card: place, source, effect, why, repair, change, call paths."""
    sign, words, costs = EFFECTS[one.effect]
    function = function_of(one)
    where = place_text(one.filename, one.lineno) + (f", in {function}" if function else "")
    head = (
        f"<p><b>{place}. {html.escape(where)}</b> "
        f'<span class="tcs-effect"><span aria-hidden="true">{sign} </span>{words}</span></p>'
    )
    parts = [head, _own_line_html(one) + source_html(one)]
    why = _sentences(one.title or one.reason, one.explanation)
    parts.append(f"<p>{html.escape(costs)}</p>")
    parts.append(f"<p><b>Why:</b> {inline_html(why)}</p>")
    parts.append(f"<p><b>Repair:</b> {inline_html(without_folders(one.fix))}</p>")
    if one.change:
        parts.append(change_html(one.change))
    parts.append(unstyled(details_html("How it was reached, and what torch says", _more(one))))
    label = f"graph break {place}"
    return f'<div class="tcs-break" role="group" aria-label="{label}">{"".join(parts)}</div>'


def change_html(change: str) -> str:
    """Returns the smallest change: words with code between backticks, or code as a block."""
    title = "<b>The smallest change:</b>"
    if "\n" in change or "`" not in change:
        return f"<p>{title}</p>{unstyled(code_html(change))}"
    return f"<p>{title} {inline_html(change)}</p>"


def inline_html(text: str) -> str:
    """Returns words in which what stands between backticks is shown as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def _own_line_html(one: GraphBreak) -> str:
    """Names the learner's line that led into torch's own code, where the break lies there."""
    if not one.in_framework:
        return ""
    filename, lineno, text = one.entry
    words = f"It lies in torch's own code. Yours that leads there: {place_text(filename, lineno)},"
    return f"<p>{html.escape(words)} <code>{html.escape(text.strip())}</code></p>"


def source_html(one: GraphBreak) -> str:
    """Returns the lines around the break; the line itself has an arrow, and is marked."""
    lines = linecache.getlines(one.filename)
    last = min(len(lines), one.lineno + _AROUND)
    while last > one.lineno and not lines[last - 1].strip():
        last -= 1
    numbers = range(max(1, one.lineno - _AROUND), last + 1)
    shown = [(number, lines[number - 1].rstrip("\n")) for number in numbers]
    if one.lineno not in numbers:
        shown = [(one.lineno, one.source_line)]
    rows = []
    for number, text in shown:
        here = number == one.lineno
        style = "tcs-break-line" if here else "tcs-break-other"
        arrow = "▶" if here else " "
        rows.append(f'<span class="{style}">{arrow}{number:>4} | {html.escape(text)}</span>')
    label = html.escape(f"source around line {one.lineno}", quote=True)
    return f'<pre role="group" tabindex="0" aria-label="{label}">{"".join(rows)}</pre>'


def _sentences(*parts: str) -> str:
    """Joins texts, each with a full stop, leaving out one that another already says."""
    kept: list[str] = []
    for part in (part.strip() for part in parts):
        if part and not any(part.rstrip(".") in other for other in kept):
            kept.append(part if part.endswith((".", "!", "?", ":")) else part + ".")
    return without_folders(" ".join(kept))


def _more(one: GraphBreak) -> str:
    """Returns the folded part: calls that lead there, count, torch's id and words."""
    paths = "".join(f"<li>{html.escape(' → '.join(path))}</li>" for path in one.call_paths)
    times = "once" if one.count == 1 else f"{one.count} times"
    parts = [f"<p>Dynamo met it {times}, by these calls:</p><ul>{paths}</ul>"] if paths else []
    if one.gb_id:
        parts.append(f"<p>Its number in torch's registry: {html.escape(one.gb_id)}.</p>")
    message = without_folders(one.message or one.reason)
    parts.append(f"<p>torch says:</p><pre>{html.escape(message)}</pre>")
    return "".join(parts)


def breaks_text(found: GraphBreaks) -> str:
    """Returns the same as plain text: the sentence, the strip in brackets, a paragraph each."""
    strip = " ".join(
        f"[{one.title}]" if one.kind != "cut" else one.title for one in strip_pieces(found)
    )
    texts = [strip_sentence(found), strip]
    if found.changes_behaviour is not None:
        texts.append(f"Error: {behaviour_text(found.changes_behaviour)}")
    texts += [f"Note: {note}" for note in found.notes]
    texts += [_card_text(one, place) for place, one in enumerate(found, start=1)]
    return "\n".join([*texts, found.origin.text()])


def _card_text(one: GraphBreak, place: int) -> str:
    function = function_of(one)
    where = place_text(one.filename, one.lineno) + (f", in {function}" if function else "")
    lines = [f"{place}. {where} ({EFFECTS[one.effect][1]}): {one.source_line}"]
    lines.append(f"   why: {_sentences(one.title or one.reason, one.explanation)}")
    lines.append(f"   repair: {without_folders(one.fix)}")
    if one.change:
        lines += ["   change:", *(f"     {line}" for line in one.change.splitlines())]
    return "\n".join(lines)
