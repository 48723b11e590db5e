"""What Dynamo makes of a text that a learner typed, as one view, for panels and for cells."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from helpers.display import View, code_html, details_html, notice_html, table_html, wrap
from helpers.dynamo import Capture, Graph, capture_graphs
from helpers.pictures import graph_picture, graph_svg, short_name
from helpers.typed_function import (
    FILENAME,
    TooLong,
    define_with_inputs,
    explain,
    running,
    source_text,
)
from helpers.words import counted


@dataclass(frozen=True, repr=False)
class GraphView(View):
    """What graph_view shows; `capture` is None where the text has a problem."""

    capture: Capture | None = field(default=None)


def graph_view(
    source: str | Callable[..., Any],
    shape: Sequence[int] = (2, 16, 64),
    dtype: str = "float32",
    switch: bool | None = None,
    device: str = "cpu",
    previous: Capture | None = None,
) -> GraphView:
    """Captures the last function in `source` and returns picture, operations, code and result.

    `source`: the text, or a function whose text is then taken; torch, math and F are there for it.
    Each argument without a default gets a random tensor of `shape` and `dtype` on `device`;
    `switch` sets the first argument whose default is True or False. Against `previous`, what
    changed is said in words. The function runs once, or three times if it has a graph break.
    Never raises for what the text does: the view then says what is wrong, and in which line.
    """
    text = ""
    try:
        text = source_text(source)
        seen = capture_typed(text, shape, dtype, switch, device)
    except (Exception, SystemExit, KeyboardInterrupt, TooLong) as error:
        return problem_view(explain(error, text))
    return _view(seen, previous)


@dataclass(frozen=True)
class TypedCapture:
    """What the last function in `text` gave: `stop` is why one graph was not enough (else None),
    `printed` what the function wrote.
    """

    text: str
    capture: Capture
    stop: Exception | None
    printed: str

    def notices(self) -> list[tuple[str, str]]:
        """Returns what the learner should know beside the graphs, as (kind, text)."""
        found = [("warning", _break_text(self.stop, self.text))] if self.stop is not None else []
        if not self.capture.graphs:
            found.append(
                ("note", "Nothing here is an operation on tensors that Dynamo could keep.")
            )
        if self.printed:
            found.append(("note", f"your function printed: {self.printed.strip()[:300]}"))
        return found


def capture_typed(
    text: str, shape: Sequence[int], dtype: str, switch: bool | None = None, device: str = "cpu"
) -> TypedCapture:
    """Captures the last function in `text` as `graph_view` describes; raises what the text raises.

    An endless run ends in TooLong, `sys.exit` in SystemExit: catch these too.
    """
    with running() as printed:
        fn, tensors, switches = define_with_inputs(text, shape, dtype, switch, device)
        given = {**tensors, **switches}
        whole = capture_graphs(fn, kwargs=given, compile_options={"fullgraph": True})
        stop = whole.changes_behaviour
        if stop is not None:
            printed.seek(0)
            printed.truncate()
            whole = capture_graphs(fn, kwargs=given)
    return TypedCapture(text, whole, stop, printed.getvalue())


def problem_view(text: str) -> GraphView:
    """Returns the view of an error that `explain` has put into words."""
    parts = text.partition("\n")
    body = f"<pre>{html.escape(parts[2])}</pre>" if parts[2] else ""
    return GraphView(wrap(notice_html(parts[0], "error"), body), f"Error: {text}")


def _view(seen: TypedCapture, previous: Capture | None) -> GraphView:
    """Puts the parts together: what came out, what changed, breaks, then graph by graph."""
    capture, notices = seen.capture, seen.notices()
    facts = [facts_text(capture)]
    new: set[tuple[int, str]] = set()
    if previous is not None:
        words, new = changes(previous, capture)
        facts.append(words)
    graphs = [
        graph_svg(graph, {name for index, name in new if index == graph.index})
        + details_html(f"Operations of graph {graph.index}", op_table(graph))
        + details_html(f"Code of graph {graph.index}", code_html(graph.code, "python"))
        for graph in capture.graphs
    ]
    texts = [f"{kind}: {text}" for kind, text in notices]
    texts += [str(graph_picture(graph)) for graph in capture.graphs]
    return GraphView(
        facts_html(facts)
        + "".join(notice_html(text, kind) for kind, text in notices)
        + "".join(graphs)
        + capture.origin.html(),
        "\n".join([*facts, *texts, capture.origin.text()]),
        capture,
    )


def facts_text(capture: Capture) -> str:
    """Returns one sentence: graphs, operations, and what the call returned."""
    calls = sum(len(graph.calls) for graph in capture.graphs)
    return (
        f"{counted(len(capture.graphs), 'graph')} with {counted(calls, 'operation')}; "
        f"the real result: {describe(capture.result)}."
    )


def facts_html(facts: Sequence[str]) -> str:
    """Returns the sentences above a view, one paragraph each."""
    lines = "".join(f'<p style="margin:2px 0">{html.escape(fact)}</p>' for fact in facts)
    return wrap(f'<div class="tcs-facts">{lines}</div>')


def op_changes(before: Capture, after: Capture) -> tuple[list[tuple[int, str, str]], list[str]]:
    """Returns the new ops, as (graph index, op name, label), and the labels of those gone."""
    old, new = _operations(before), _operations(after)
    left, added = Counter(old), []
    for index, op in ((graph.index, op) for graph in after.graphs for op in graph.calls):
        label = short_name(op)
        if left[label]:
            left[label] -= 1
        else:
            added.append((index, op.name, label))
    return added, list((Counter(old) - Counter(new)).elements())


def changes(before: Capture, after: Capture) -> tuple[str, set[tuple[int, str]]]:
    """Returns in words what differs, and which ops are new, as (graph index, op name)."""
    added, gone = op_changes(before, after)
    parts = []
    if added:
        parts.append(f"new: {', '.join(label for *_, label in added)}")
    if gone:
        parts.append(f"gone: {', '.join(gone)}")
    if len(before.graphs) != len(after.graphs):
        parts.append(f"{len(before.graphs)} → {counted(len(after.graphs), 'graph')}")
    one, two = describe(before.result), describe(after.result)
    if one != two:
        parts.append(f"the result was {one}, now {two}")
    if not added and not gone:
        parts.insert(0, "the same operations")
    words = "Since the last view: " + "; ".join(parts) + "."
    return words, {(index, name) for index, name, _ in added}


def _operations(capture: Capture) -> list[str]:
    return [short_name(op) for graph in capture.graphs for op in graph.calls]


def _break_text(stop: Exception, source: str) -> str:
    """Says why one graph was not enough, at the learner's line, from Dynamo's own message."""
    text = str(stop)
    reason = next((line.strip() for line in text.splitlines() if line.strip()), type(stop).__name__)
    lines = re.findall(rf'File "{re.escape(FILENAME)}", line (\d+)', text)
    rows = source.splitlines()
    where = ""
    if lines and int(lines[-1]) <= len(rows):
        where = f" at line {lines[-1]}, {rows[int(lines[-1]) - 1].strip()!r}"
    return f"a graph break{where}. Dynamo says: {reason}. Python runs that part itself."


def describe(value: Any) -> str:
    """Returns what a value is, in words: shape and dtype of a tensor, else its type."""
    if isinstance(value, torch.Tensor):
        return f"shape {tuple(value.shape)}, {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__} of {len(value)}: " + "; ".join(map(describe, value[:4]))
    return f"a value of type {type(value).__name__}" if value is not None else "None"


def op_table(graph: Graph) -> str:
    """Returns the table of a graph's nodes, as HTML."""
    rows = [
        (op.name, op.target, ", ".join(op.inputs), op.shape or "", op.dtype or "", op.lineno or "")
        for op in graph.ops
    ]
    return table_html(("name", "calls", "uses", "shape", "dtype", "line"), rows)
