"""What a capture holds, to look at: graph, guards, bytecode, breaks, and what changed."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.break_reports import GraphBreak
from helpers.bytecode_table import bytecode_view, is_own_name
from helpers.display import View, code_html, details_html, notice_html, wrap
from helpers.dynamo import Capture, Graph
from helpers.guards import Guard
from helpers.guards_table import GROUPS, Marks, group_guards, guards_view
from helpers.pictures import graph_picture, graph_svg
from helpers.typed_function import TooLong, explain, source_text
from helpers.views import (
    capture_typed,
    describe,
    facts_html,
    facts_text,
    op_changes,
    op_table,
    problem_view,
)
from helpers.words import counted

__all__ = [
    "CaptureView",
    "Changes",
    "breaks_html",
    "bytecode_view",
    "capture_view",
    "changes",
    "guards_view",
]
PANES = ("graph", "guards", "bytecode")


@dataclass(frozen=True, repr=False)
class Changes(View):
    """What differs between two captures, one sentence each, and what to mark in the later one.

    new_ops: (graph index, op name); guards: those that are new, to the words they had before.
    """

    sentences: tuple[str, ...] = ()
    new_ops: frozenset[tuple[int, str]] = frozenset()
    guards: Marks = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class CaptureView(View):
    """What capture_view shows: `top` and the `panes` by name; capture is None for a problem."""

    capture: Capture | None = None
    top: str = ""
    panes: Mapping[str, str] = field(default_factory=dict)


def break_text(found: GraphBreak) -> str:
    """Returns where capture stopped, why, and what would repair it."""
    return (
        f"a graph break at line {found.lineno}, {found.source_line!r}. {found.reason}. "
        f"{found.explanation.rstrip('.')}. To repair: {found.fix}"
    )


def breaks_html(capture: Capture) -> str:
    """Returns one notice per graph break, empty if there is none."""
    return "".join(notice_html(break_text(found), "warning") for found in capture.breaks)


def changes(old: Capture, new: Capture) -> Changes:
    """Returns what differs between two captures: graphs, operations, guards, bytecode, result."""
    sentences = []
    if len(old.graphs) != len(new.graphs):
        sentences.append(f"{counted(len(new.graphs), 'graph')} instead of {len(old.graphs)}.")
    known = {(found.lineno, found.source_line) for found in old.breaks}
    sentences += [
        f"A graph break is new: line {found.lineno}, {found.source_line}."
        for found in new.breaks
        if (found.lineno, found.source_line) not in known
    ]
    added, gone = op_changes(old, new)
    sentences += _each("op", [label for *_, label in added], "new")
    sentences += _each("op", gone, "gone")
    told, guards = _guard_changes(old, new)
    sentences += told
    same = True
    for one, two in zip(old.graphs, new.graphs, strict=False):
        sentences += _bytecode_changes(one, two)
        same = same and str(one.bytecode_after) == str(two.bytecode_after)
    before, now = describe(old.result), describe(new.result)
    if before != now:
        sentences.append(f"The result was {before}, now it is {now}.")
    nothing = "Nothing changed in graphs, guards or bytecode."
    said = tuple(sentences) or (nothing if same else "Nothing changed in graphs or guards.",)
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in said)
    return Changes(
        wrap(f"<b>What changed:</b><ul>{items}</ul>"),
        "\n".join(("What changed:", *(f"- {sentence}" for sentence in said))),
        said,
        frozenset((index, name) for index, name, _ in added),
        guards,
    )


def _each(noun: str, labels: Sequence[str], word: str) -> list[str]:
    times = [f"{one} ({n} times)" if n > 1 else one for one, n in Counter(labels).items()]
    if not times:
        return []
    return [f"{noun if len(times) == 1 else noun + 's'} {', '.join(times)} "
            f"{'is' if len(times) == 1 else 'are'} {word}."]  # fmt: skip


def _bytecode_changes(old: Graph, new: Graph) -> list[str]:
    """Says which instructions on the learner's own names are new or gone; else nothing.

    What only packs, and what Dynamo names itself, says nothing to a learner.
    """
    had, has = (
        Counter(
            str(one)
            for one in graph.bytecode_after.instructions
            if one.name.endswith(("_FAST", "_GLOBAL", "_DEREF")) and is_own_name(one.argument)
        )
        for graph in (old, new)
    )
    where = f"In the rewritten bytecode of graph {new.index}: "
    parts = _each("instruction", list((has - had).elements()), "new")
    parts += _each("instruction", list((had - has).elements()), "gone")
    if "__resume_at" in str(new.bytecode_after) and "__resume_at" not in str(old.bytecode_after):
        parts.append("it now calls the rest of your function, as a function of its own.")
    return [where + part for part in parts]


def _all_guards(capture: Capture) -> dict[tuple[str, str], Guard]:
    return {(g.source, g.words): g for graph in capture.graphs for g in graph.guards}


def _guard_changes(old: Capture, new: Capture) -> tuple[list[str], dict[tuple[int, str, str], str]]:
    """Pairs the guards of each source; returns sentences, and marks for the later graphs.

    Over all graphs: after a graph break, a guard may only have moved to another graph.
    """
    graphs = (*old.graphs, *new.graphs)
    hidden = {(g.source, g.words) for one in graphs for g in group_guards(one.guards)[GROUPS[2]]}
    had, has = _all_guards(old), _all_guards(new)
    lost = [guard for key, guard in had.items() if key not in has]
    was_of: dict[tuple[str, str], str] = {}
    sentences = []
    for key, guard in has.items():
        if key in had:
            continue
        mates = [one for one in lost if one.source == guard.source and guard.source]
        match = next((one for one in mates if one.kind == guard.kind), next(iter(mates), None))
        if match is not None:
            lost.remove(match)
        was_of[key] = was = match.words if match is not None else ""
        if key not in hidden:
            sentences.append(
                f"Guard: {was}; it became: {guard.words}." if was else f"New guard: {guard.words}."
            )
    sentences += [
        f"Gone guard: {guard.words}." for guard in lost if (guard.source, guard.words) not in hidden
    ]
    marks = {
        (graph.index, guard.source, guard.words): was_of[guard.source, guard.words]
        for graph in new.graphs
        for guard in graph.guards
        if (guard.source, guard.words) in was_of
    }
    return sentences, marks


def capture_view(
    source: str | Callable[..., Any],
    shape: Sequence[int] = (4, 16, 8),
    dtype: str = "float32",
    switch: bool | None = None,
    device: str = "cpu",
    previous: Capture | None = None,
) -> CaptureView:
    """Captures the last function in `source` and returns its graph, guards and bytecode.

    Arguments, and what happens for a text with a problem, as in `graph_view`.
    """
    text = ""
    try:
        text = source_text(source)
        seen = capture_typed(text, shape, dtype, switch, device)
    except (Exception, SystemExit, KeyboardInterrupt, TooLong) as error:
        found = problem_view(explain(error, text))
        return CaptureView(found.html, found.text, None, found.html, dict.fromkeys(PANES, ""))
    capture = seen.capture
    changed = changes(previous, capture) if previous is not None else None
    facts, notices = facts_text(capture), seen.notices()
    if capture.breaks:  # said better below than in the message of the first try
        notices = [(kind, words) for kind, words in notices if kind != "warning"]
    top = facts_html([facts]) + (changed.html if changed else "") + breaks_html(capture)
    top += "".join(notice_html(words, kind) for kind, words in notices)
    panes = _panes(capture, changed, previous)
    whole = "".join(
        panes["graph"] if name == "graph" else details_html(name.capitalize(), pane)
        for name, pane in panes.items()
    )
    texts = [facts, *([str(changed)] if changed else []), *_texts(capture, changed)]
    texts += [f"{kind}: {words}" for kind, words in notices]
    text, end = "\n".join([*texts, capture.origin.text()]), capture.origin.html()
    return CaptureView(top + whole + end, text, capture, top, panes)


def _texts(capture: Capture, changed: Changes | None) -> list[str]:
    """Returns breaks, and graph by graph what the panes hold, as plain text."""
    marks = changed.guards if changed else {}
    texts = [break_text(found) for found in capture.breaks]
    for graph in capture.graphs:
        views = (graph_picture(graph), guards_view(graph, marks), bytecode_view(graph))
        texts += map(str, views)
    return texts


def _panes(capture: Capture, changed: Changes | None, previous: Capture | None) -> dict[str, str]:
    new = changed.new_ops if changed else frozenset()
    marks = changed.guards if changed else {}
    old = dict(enumerate(previous.graphs)) if previous is not None else {}
    parts: dict[str, list[str]] = {name: [] for name in PANES}
    for graph in capture.graphs:
        names = {name for index, name in new if index == graph.index}
        parts["graph"] += [
            graph_svg(graph, names),
            details_html(f"Operations of graph {graph.index}", op_table(graph)),
            details_html(f"Code of graph {graph.index}", code_html(graph.code, "python")),
        ]
        parts["guards"].append(guards_view(graph, marks).html)
        parts["bytecode"].append(bytecode_view(graph, old.get(graph.index)).html)
    return {name: "".join(found) for name, found in parts.items()}
