"""Guards to look at: in plain words, grouped, with the line that asked for each."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from helpers.display import View, details_html, table_text, wrap
from helpers.dynamo import Graph
from helpers.guards import Guard
from helpers.words import counted

GROUPS = ("your values", "your model and objects", "the surroundings")
_MOST_ROWS = 12  # of one group; the rest is folded
_OF_VALUES = ("TENSOR_MATCH", "EQUALS_MATCH", "CONSTANT_MATCH", "TRUE_MATCH", "FALSE_MATCH")
_SELDOM = "seldom fail; the usual surprise is torch.no_grad()"
# Graph index, source and words of a guard that is new, to the words it had before (or empty).
Marks = Mapping[tuple[int, str, str], str]


def group_guards(guards: Sequence[Guard]) -> dict[str, list[Guard]]:
    """Returns the guards by group (GROUPS): arguments and globals; attributes of a model; the rest.

    The rest is what a learner seldom changes: modes, torch itself, names of functions, the build
    of a model (which class each part has).
    """
    tensors = {guard.source for guard in guards if guard.kind == "TENSOR_MATCH"}
    roots = {guard.source.split(".")[0] for guard in guards if "." in guard.source}
    models = roots - tensors
    found: dict[str, list[Guard]] = {group: [] for group in GROUPS}
    for guard in guards:
        if _is_housekeeping(guard, models):
            found[GROUPS[2]].append(guard)
        else:
            found[GROUPS[1 if guard.source.split(".")[0] in models else 0]].append(guard)
    return found


def _is_housekeeping(guard: Guard, models: set[str]) -> bool:
    root, _, attribute = guard.source.partition(".")
    constant = guard.words.endswith((" is True", " is False", " is None"))
    return (
        guard.ambient
        or root in ("torch", "math")
        or guard.words.endswith("the very same object as then")
        or guard.words.startswith("no dimension of ")
        or attribute.startswith("_")
        or "._" in attribute
        or (root in models and guard.kind not in _OF_VALUES and not constant)
    )


def guards_view(graph: Graph, marks: Marks = MappingProxyType({})) -> View:
    """Returns the guards of a graph in plain words, grouped; those hardly ever in play folded.

    Each row: what the guard protects, what must hold, and the line that asked for it where torch
    tells (2.7.1 does not). `marks`: what to mark as different from an earlier capture.
    """
    groups = group_guards(graph.guards)
    known = {op.source_line for op in graph.ops} | {
        graph.bytecode_before.source_line(one.lineno) for one in graph.bytecode_before.instructions
    }
    asked = any(guard.lineno for guard in graph.guards)
    columns = ["protects", "what must hold", *(["asked for by"] if asked else [])]
    parts, texts = [], []
    for group, guards in groups.items():
        if not guards:
            continue
        rows = [_guard_row(guard, graph.index, known, marks)[: len(columns)] for guard in guards]
        title = f"{group[0].upper()}{group[1:]}: {counted(len(rows), 'guard')}"
        folded = group == GROUPS[2]
        shown = [] if folded else rows[:_MOST_ROWS]
        if shown:
            parts.append(rich_table(columns, shown, title))
        if len(rows) > len(shown):
            rest = f"{len(rows) - len(shown)} more of {group}" if shown else title
            inner = rich_table(columns, rows[len(shown) :], rest)
            parts.append(details_html(f"{rest} ({_SELDOM})" if folded else rest, inner))
        texts.append(f"{title}\n{table_text(('protects', 'must hold'), _plain(guards))}")
    sentence = _guards_sentence(graph, groups)
    top = wrap(f'<p style="margin:2px 0">{html.escape(sentence)}</p>')
    return View(top + "".join(parts), "\n".join([sentence, *texts]))


def _plain(guards: Iterable[Guard]) -> list[tuple[str, str]]:
    return [(guard.source or "(mode)", guard.words) for guard in guards]


def _guards_sentence(graph: Graph, groups: Mapping[str, Sequence[Guard]]) -> str:
    counts = ", ".join(f"{len(found)} on {group}" for group, found in groups.items() if found)
    if not counts:
        return f"Graph {graph.index} of {graph.function}: no guards were kept."
    return (
        f"Graph {graph.index} of {graph.function} may be used again while all its "
        f"{counted(len(graph.guards), 'guard')} hold: {counts}."
    )


def _guard_row(guard: Guard, index: int, known: set[str], marks: Marks) -> tuple[str, str, str]:
    words = html.escape(guard.words)
    before = marks.get((index, guard.source, guard.words))
    if before:
        words += f" <b>(changed; it was: {html.escape(before)})</b>"
    elif before is not None:
        words += " <b>(new)</b>"
    where = ""
    if guard.lineno:
        place = f"line {guard.lineno}: " if guard.line in known else "in code that it calls: "
        where = f"{place}<code>{html.escape(guard.line)}</code>"
    return f"<code>{html.escape(guard.source)}</code>" if guard.source else "(mode)", words, where


def rich_table(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """Returns a table whose cells are HTML; a row of one cell is a heading within the table."""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>"
        + (
            "".join(f"<td>{cell}</td>" for cell in row)
            if len(row) > 1
            else f'<th scope="colgroup" colspan="{len(columns)}">{row[0]}</th>'
        )
        + "</tr>"
        for row in rows
    )
    label = html.escape(caption, quote=True)
    return wrap(
        f'<div class="tcs-scroll" role="group" tabindex="0" aria-label="{label}"><table>'
        f"<caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
