"""A panel in which a learner changes a function and sees where Dynamo breaks its graph."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets

from helpers.break_reports import GraphBreak, GraphBreaks
from helpers.break_views import breaks_html, breaks_text
from helpers.display import View, notice_html, wrap
from helpers.graph_breaks import explain_graph_breaks
from helpers.typed_function import (
    TooLong,
    define_with_inputs,
    explain,
    running,
    source_text,
)
from helpers.views import problem_view
from helpers.widgets import GraphPanel
from helpers.words import counted

# What the menu offers: a name for what is in it, and a function of one tensor. Each has another
# kind of cause or effect; the last two look like breaks and are none.
SAMPLES: Mapping[str, str] = {
    "a value decides": """\
def f(x):
    y = torch.relu(x)
    if y.sum() > 0:
        y = y * 2
    return y + 1
""",
    "a number out of a tensor": """\
def f(x):
    top = x.abs().max().item()
    return x / top + 1
""",
    "a mask keeps some rows": """\
def f(x):
    kept = x[x > 0]
    return kept.mean() * 2
""",
    "a print in between": """\
def f(x):
    y = torch.sigmoid(x)
    print("mean", y.mean())
    return y * x
""",
    "a loop that may end early": """\
def f(x):
    y = torch.tanh(x)
    for _ in range(4):
        y = torch.tanh(y + x)
        if y.abs().max() < 0.1:
            break
    return y * 2
""",
    "an attribute that may be missing": """\
def f(x):
    y = x.sin()
    try:
        y = y.label
    except AttributeError:
        y = y * 2
    return y.cos()
""",
    "a break deep in a call": """\
def log(y):
    print("largest", y.max())
    return y

def block(y):
    return log(torch.relu(y)) + 1

def f(x):
    y = block(torch.sin(x))
    return block(y).mean()
""",
    "a guard for eager only (no break)": """\
def f(x):
    if not torch.compiler.is_compiling():
        print("eager", x.mean())
    return torch.relu(x) * 2
""",
}
_OWN = "your own text"


@dataclass(frozen=True, repr=False)
class BreakView(View):
    """What break_view shows; found is None where the text has a problem."""

    found: GraphBreaks | None = None

    @property
    def capture(self) -> tuple[GraphBreaks, ...]:
        """What a panel keeps to compare the next view with; empty where there is a problem."""
        return () if self.found is None else (self.found,)


def break_view(
    source: str | Callable[..., Any],
    shape: Sequence[int] = (4, 16, 8),
    dtype: str = "float32",
    switch: bool | None = None,
    device: str = "cpu",
    previous: GraphBreaks | None = None,
) -> BreakView:
    """Explains the graph breaks of the last function in `source`, called with random tensors.

    Arguments, and what happens for a text with a problem, as in `graph_view`; against `previous`,
    what changed is said in a sentence. The function runs as `explain_graph_breaks` says.
    """
    text = ""
    try:
        text = source_text(source)
        with running() as printed:
            fn, tensors, switches = define_with_inputs(text, shape, dtype, switch, device)
            found = explain_graph_breaks(fn, kwargs={**tensors, **switches})
    except (Exception, SystemExit, KeyboardInterrupt, TooLong) as error:
        problem = problem_view(explain(error, text))
        return BreakView(problem.html, problem.text)
    words = repairs(previous, found) if previous is not None else ""
    parts, texts = [], []
    if words:
        parts.append(f'<p style="margin:2px 0"><b>What changed:</b> {html.escape(words)}</p>')
        texts.append(f"What changed: {words}")
    said = printed.getvalue().strip()
    if said:
        told = f"your function printed: {said[:200]}"
        parts.append(notice_html(told))
        texts.append(f"Note: {told}")
    whole = wrap(*parts, breaks_html(found))
    return BreakView(whole, "\n".join([*texts, breaks_text(found)]), found)


def repairs(old: GraphBreaks, new: GraphBreaks) -> str:
    """Returns in words which breaks are gone, which are new, and what became of the graphs."""
    had, has = [_key(one) for one in old], [_key(one) for one in new]
    gone = [one for one in old if _key(one) not in has]
    added = [one for one in new if _key(one) not in had]
    fewer = len(old) - len(new)
    if not had and not has:
        first = "still no graph break."
    elif not has:
        first = f"repaired: no graph break is left, where there {_were(len(old))}."
    elif fewer:
        way = "fewer" if fewer > 0 else "more"
        first = f"{counted(abs(fewer), 'break')} {way}: {len(new)} instead of {len(old)}."
    else:
        first = f"{counted(len(new), 'break')}, as before."
    parts = [first]
    if gone and has:
        parts.append("Gone: " + "; ".join(one.source_line for one in gone) + ".")
    if added:
        parts.append("New: " + "; ".join(one.source_line for one in added) + ".")
    if old.graphs != new.graphs:
        parts.append(f"Graphs: {old.graphs} before, {new.graphs} now.")
    if old.changes_behaviour is not None and new.changes_behaviour is None:
        parts.append("The compiled code no longer behaves differently.")
    return " ".join(parts)


def _key(one: GraphBreak) -> tuple[str, str]:
    """A break stays the same when lines above it come or go."""
    return one.reason, one.source_line


def _were(number: int) -> str:
    return f"was {number}" if number == 1 else f"were {number}"


class BreakPanel(GraphPanel):
    """Left the controls of `GraphPanel` under a menu of samples; right what `break_view` shows."""

    button_text = "Find the breaks"

    def __init__(self, source: str, shape: Sequence[int], dtype: str, device: str) -> None:
        super().__init__(source, shape, dtype, device)
        self.samples = ipywidgets.Dropdown(
            options=[_OWN, *SAMPLES], value=_OWN, description="load",
            style={"description_width": "initial"}, layout=ipywidgets.Layout(width="auto"),
        )  # fmt: skip
        self.samples.observe(self._load, names="value")
        self.editor.observe(self._edited, names="value")
        self.editor.layout.height = "220px"
        style, editor, row, status, *below, keys = self.children
        # Side by side where there is room, one below the other where there is not.
        left = ipywidgets.VBox(
            [self.samples, editor, row, status],
            layout=ipywidgets.Layout(flex="1 1 310px", min_width="0"),
        )
        right = ipywidgets.VBox(below, layout=ipywidgets.Layout(flex="2 1 460px", min_width="0"))
        both = ipywidgets.HBox(
            [left, right], layout=ipywidgets.Layout(flex_flow="row wrap", grid_gap="4px 20px")
        )
        self.children = (style, both, keys)

    def look(self, *state: Any) -> BreakView:
        """Finds the breaks for (text, shape, dtype, switch), compared with the last good view."""
        previous = self.capture[0] if self.capture else None
        view = break_view(*state, device=self.device, previous=previous)
        self.output.value = view.html
        return view

    def _load(self, _: Any = None) -> None:
        """Puts the chosen sample into the editor; what is compared starts anew."""
        if self.samples.value != _OWN:
            self.capture = None
            self.editor.value = SAMPLES[self.samples.value]

    def _edited(self, _: Any = None) -> None:
        """Shows in the menu that the text is the learner's own again."""
        if self.editor.value != SAMPLES.get(self.samples.value):
            self.samples.value = _OWN


def break_panel(
    source: str | Callable[..., Any],
    shape: Sequence[int] = (4, 16, 8),
    dtype: str = "float32",
    device: str = "cpu",
) -> BreakPanel:
    """Returns a panel that shows the graph breaks of a function that a learner edits.

    `shape`: (batch, rows, width) or (rows, width) of the random inputs. The panel shows what
    `break_view` returns for the same values, so a static view loses nothing but the controls.
    """
    return BreakPanel(source_text(source), shape, dtype, device)
