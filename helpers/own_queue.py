"""The part of the call-queue game in which a learner writes a function and builds a queue."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ipywidgets

from helpers.call_queue import GRADS, LAYOUTS, MOST_CALLS, CallCard, CallQueue, fitting
from helpers.game_rounds import OWN
from helpers.typed_function import DTYPES, Problem, explain

_STYLE = (
    "<style>.tcs-editor{flex-direction:column;align-items:flex-start}"
    ".tcs-editor textarea{font-family:var(--jp-code-font-family,monospace);font-size:13px;"
    "line-height:1.45;width:100%;color:var(--jp-content-font-color1,#1a1a1a)}"
    ".tcs-editor .widget-label{font-weight:600;width:auto}</style>"
)


class OwnQueue(ipywidgets.VBox):
    """A text area for the function, one control per part of a call, and buttons to add or clear.

    changed: called with a sentence to show, and whether the round starts again.
    """

    def __init__(self, changed: Callable[[str, bool], None]) -> None:
        self.changed = changed
        self.cards: list[CallCard] = []
        auto = ipywidgets.Layout(width="auto")
        small: dict[str, Any] = {"style": {"description_width": "initial"}}
        self.editor = ipywidgets.Textarea(
            OWN.source, description="Your function", continuous_update=False,
            layout=ipywidgets.Layout(width="100%", max_width="860px", height="110px"), **small,
        )  # fmt: skip
        self.editor.add_class("tcs-editor")
        narrow = ipywidgets.Layout(width="130px")
        sizes = {"min": 0, "max": 4096, "layout": narrow, **small}
        self.rows = ipywidgets.BoundedIntText(8, description="rows", **sizes)
        self.columns = ipywidgets.BoundedIntText(3, description="columns", **sizes)
        drop = ipywidgets.Dropdown
        self.dtype = drop(options=DTYPES, description="dtype", layout=auto, **small)
        self.layout_ = drop(options=LAYOUTS, description="layout", layout=auto, **small)
        self.grad = drop(options=GRADS, description="gradient", layout=auto, **small)
        text = ipywidgets.Layout(width="170px")
        self.scale = ipywidgets.Text("2.0", description="scale", layout=narrow, **small)
        self.kind = ipywidgets.Text("relu", description="kind", layout=text, **small)
        self.add = ipywidgets.Button(description="Add this call", layout=auto)
        self.clear = ipywidgets.Button(description="Empty the queue", layout=auto)
        row = ipywidgets.Layout(flex_flow="row wrap", grid_gap="2px 16px")
        parts = (
            self.rows,
            self.columns,
            self.dtype,
            self.layout_,
            self.grad,
            self.scale,
            self.kind,
        )
        super().__init__(
            [
                ipywidgets.HTML(_STYLE),
                self.editor,
                ipywidgets.HBox(parts, layout=row),
                ipywidgets.HBox([self.add, self.clear], layout=row),
            ]
        )
        self.editor.observe(self._new_text, names="value")
        self.add.on_click(self._add)
        self.clear.on_click(self._clear)

    def queue(self) -> CallQueue:
        """Returns the function as it is written now, and the calls added so far."""
        return replace(OWN, source=self.editor.value, cards=tuple(self.cards))

    def _card(self) -> CallCard:
        """Returns the call that the controls describe; Problem if the function cannot take it."""
        given = {"scale": _number(self.scale.value), "kind": self.kind.value}
        values = fitting(self.editor.value, given)
        shape = (self.rows.value, self.columns.value)
        return CallCard(shape, self.dtype.value, self.layout_.value, self.grad.value, values)

    def _add(self, _: Any) -> None:
        try:
            if len(self.cards) >= MOST_CALLS:
                raise Problem(f"A queue holds at most {MOST_CALLS} calls.")
            card = self._card()
            card.tensor()
        except Exception as error:
            self.changed(explain(error, self.editor.value), False)
            return
        self.cards.append(card)
        self.changed(f"Added call {len(self.cards)}: {card.label}. Choose a prediction.", False)

    def _clear(self, _: Any) -> None:
        self.cards.clear()
        self.changed("The queue is empty. Add a call first.", True)

    def _new_text(self, _: Any) -> None:
        self.cards.clear()
        self.changed("A new function: the queue is empty. Add a call first.", True)


def _number(text: str) -> Any:
    """Returns what a learner wrote for `scale`: a number, True or False; else Problem."""
    try:
        value = ast.literal_eval(text.strip())
    except (SyntaxError, ValueError):
        value = None
    if not isinstance(value, (int, float)):
        raise Problem(f"scale is a number such as 2.0 or 3; got {text!r}.")
    return value
