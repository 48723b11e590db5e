"""Graph breaks to look at: the call as a strip of graphs and cuts, and one card per break."""

from __future__ import annotations

import html
import linecache
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.break_strip import (
    EFFECTS,
    MOST_PIECES,
    file_words,
    function_of,
    payer_of,
    strip_pieces,
    strip_sentence,
    strip_svg,
)
from helpers.display import art_html, code_html, details_html, notice_html, wrap
from helpers.generated_views import unstyled
from helpers.words import error_line, file_name

if TYPE_CHECKING:  # graph_breaks shows itself through this module
    from helpers.break_reports import GraphBreak, GraphBreaks

_PATH = re.compile(r"(?<![\w.])/[^\s\"'`<>]*/[\w.-]+\.py\b")
_AROUND = 2  # lines of source shown before and after the marked one
_STYLE = (
    "<style>"
    ".tcs-break{border:1px solid var(--tcs-line);border-left:4px solid var(--tcs-warn);"
    "border-radius:4px;padding:6px 12px;margin:8px 0}"
    ".tcs-break p{margin:4px 0}"
    ".tcs-effect{border:1px solid var(--tcs-warn);border-radius:10px;padding:0 8px;"
    "color:var(--tcs-warn);font-weight:600;white-space:nowrap}"
    ".tcs-break .tcs-small{font-size:12.5px;color:var(--tcs-soft)}"
    # A long line goes on below its own text, not below its number.
    ".tcs .tcs-break-line,.tcs .tcs-break-other{display:block;white-space:pre-wrap;"
    "word-break:normal;overflow-wrap:anywhere;padding-left:8ch;text-indent:-8ch}"
    ".tcs .tcs-break-line{background:var(--tcs-line);font-weight:600}"
    ".tcs.tcs .tcs-break details pre{white-space:pre-wrap;word-break:normal;"
    "overflow-wrap:anywhere}"
    "</style>"
)


def place_text(filename: str, lineno: int) -> str:
    """Returns a line as a person names it: "line 4 of model.py", "line 4 of the cell"."""
    return f"line {lineno} of {file_words(filename)}"


def breaks_html(found: GraphBreaks) -> str:
    """Returns the strip, then one card per break, then notes and where it was seen, as HTML."""
    pieces, sentence = strip_pieces(found), strip_sentence(found)
    parts = [f'<p style="margin:6px 0 4px">{html.escape(sentence)}</p>']
    if len(pieces) <= MOST_PIECES:
        parts.append(art_html(strip_svg(pieces, sentence), "the call as a strip", sentence))
    if found.changes_behaviour is not None:
        parts.append(unstyled(notice_html(behaviour_text(found.changes_behaviour), "error")))
    parts += [unstyled(notice_html(without_folders(note))) for note in found.notes]
    first: dict[tuple[str, ...], int] = {}
    for place, one in enumerate(found, start=1):
        same = first.setdefault((one.title, one.explanation, one.fix, one.change), place)
        parts.append(card_html(one, place, same if same != place else 0))
    return wrap(_STYLE, *parts, found.origin.html())


def without_folders(text: str) -> str:
    """Returns torch's words with files by name alone: the folders say nothing to a reader."""
    return _PATH.sub(lambda match: file_name(match[0]), text)


def behaviour_text(error: Exception) -> str:
    """Says that compiling changed what the code does, and with which error it stopped."""
    said = without_folders(error_line(error))
    return (
        f"Compiled, this code behaves differently. Python alone runs it; compiled it stops with "
        f"{said}. This is no matter of speed: repair it before anything else."
    )


def card_html(one: GraphBreak, place: int, same_as: int = 0) -> str:
    """Returns one break as a card: title, place, source, effect, why, repair, change, the rest.

    same_as: the number of an earlier card with the same reason and repair, which are then folded.
    """
    sign, words, _ = EFFECTS[one.effect]
    parts = [
        f"<p><b>{place}. {inline_html(one.title or one.reason)}</b> "
        f'<span class="tcs-effect"><span aria-hidden="true">{sign} </span>{words}</span></p>',
        f"<p>{html.escape(_where(one))}</p>",
        _own_line_html(one) + source_html(one, 0 if same_as else _AROUND),
        f"<p>{inline_html(_effect_text(one))}</p>",
    ]
    why = f"<p><b>Why:</b> {inline_html(_sentences(one.explanation))}</p>"
    why += f"<p><b>Repair:</b> {inline_html(_fix_text(one))}</p>"
    why += change_html(one.change) if one.change else ""
    if same_as:
        why = unstyled(details_html(f"Why, and the repair: as in {same_as} above", why))
    parts.append(why)
    number = f" ({one.gb_id})" if one.gb_id else ""
    called = without_folders(one.reason).rstrip(".")
    small = f'<p class="tcs-small">torch calls it: {inline_html(called + number)}</p>'
    more = _more(one)
    if same_as:
        more = small + more
    else:
        parts.append(small)
    parts.append(unstyled(details_html("How it was reached, and what torch says", more)))
    label = f"graph break {place}"
    return f'<div class="tcs-break" role="group" aria-label="{label}">{"".join(parts)}</div>'


def _where(one: GraphBreak) -> str:
    """Returns the place in words, with the function, and how often Dynamo met it if not once."""
    function = function_of(one)
    where = place_text(one.filename, one.lineno) + (f", in {function}" if function else "")
    return where + (f"; Dynamo met it {one.count} times" if one.count > 1 else "")


def _effect_text(one: GraphBreak) -> str:
    """Returns in sentences what became of the function, its name between backticks."""
    named = replace(one, function=f"`{payer_of(one)}`")
    return f"{named.effect_words} {EFFECTS[one.effect][2]}".strip()


def _fix_text(one: GraphBreak) -> str:
    """Returns the repair, with files as a person calls them."""
    text = one.fix
    for filename in filter(None, (one.entry[0], one.filename)):
        text = text.replace(os.path.basename(filename), file_words(filename))
    return without_folders(text)


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


def source_html(one: GraphBreak, around: int = _AROUND) -> str:
    """Returns the break's line, with an arrow and marked, and as many before and after."""
    lines = linecache.getlines(one.filename)
    last = min(len(lines), one.lineno + around)
    while last > one.lineno and not lines[last - 1].strip():
        last -= 1
    numbers = range(max(1, one.lineno - around), last + 1)
    shown = [(number, lines[number - 1].rstrip("\n")) for number in numbers]
    if one.lineno not in numbers:
        shown = [(one.lineno, one.source_line)]
    rows = []
    for number, text in shown:
        here = number == one.lineno
        style = "tcs-break-line" if here else "tcs-break-other"
        arrow = "▶" if here else " "
        rows.append(f'<span class="{style}">{arrow}{number:>4} | {html.escape(text)}</span>')
    return f"<pre>{''.join(rows)}</pre>"


def _sentences(*parts: str) -> str:
    """Joins texts, each with a full stop, leaving out one that another already says."""
    kept: list[str] = []
    for part in (part.strip() for part in parts):
        if part and not any(part.rstrip(".") in other for other in kept):
            kept.append(part if part.endswith((".", "!", "?", ":", ".)")) else part + ".")
    return without_folders(" ".join(kept))


def _more(one: GraphBreak) -> str:
    """Returns the folded part: the calls that lead there, and torch's words."""
    paths = "".join(f"<li>{html.escape(' → '.join(path))}</li>" for path in one.call_paths)
    parts = [f"<p>It was reached by these calls:</p><ul>{paths}</ul>"] if paths else []
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
    texts += [f"Note: {without_folders(note)}" for note in found.notes]
    texts += [_card_text(one, place) for place, one in enumerate(found, start=1)]
    return "\n".join([*texts, found.origin.text()])


def _card_text(one: GraphBreak, place: int) -> str:
    head = f"{place}. {one.title or one.reason} ({EFFECTS[one.effect][1]})"
    lines = [head, f"   {_where(one)}: {one.source_line}"]
    if one.in_framework:
        lines.append(f"   your line that leads there: {place_text(*one.entry[:2])}: {one.entry[2]}")
    lines.append(f"   effect: {_effect_text(one).replace('`', '')}")
    lines.append(f"   why: {_sentences(one.explanation)}")
    lines.append(f"   repair: {_fix_text(one)}")
    if one.change:
        lines += ["   change:", *(f"     {line}" for line in one.change.splitlines())]
    return "\n".join(lines)
