"""Panels with controls. A panel calls one pure function and shows its HTML; it holds no logic."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from helpers.display import wrap
from helpers.panel_keys import PanelKeys
from helpers.typed_function import DTYPES, Problem, read_function, source_text
from helpers.views import GraphView, graph_view

__all__ = ["GraphPanel", "graph_panel", "graph_view"]

BATCHES = ("1", "2", "4", "8", "no batch")
WIDTHS = (8, 16, 32, 64, 128)


class GraphPanel(ipywidgets.VBox):
    """A text area and controls above; below, what `graph_view` returns for them.

    Another panel on the same controls overrides `look` (what is shown) and `below` (where).
    """

    button_text = "Show the graph"

    def __init__(self, source: str, shape: Sequence[int], dtype: str, device: str) -> None:
        self.device, self.capture, self.shown, self.switch_is = device, None, None, None
        wide = ipywidgets.Layout(width="100%", max_width="860px", height="190px")
        small = {"description_width": "initial"}
        batch = str(shape[0]) if len(shape) == 3 else BATCHES[-1]
        widths = sorted({*WIDTHS, shape[-1]})
        batches = BATCHES if batch in BATCHES else (batch, *BATCHES)
        drop, auto = ipywidgets.Dropdown, ipywidgets.Layout(width="auto")
        self.editor = ipywidgets.Textarea(
            source, description="Your function", continuous_update=False, layout=wide, style=small
        )
        self.editor.add_class("tcs-editor")
        self.batch = drop(
            options=batches, value=batch, description="batch", style=small, layout=auto
        )
        self.rows = ipywidgets.BoundedIntText(
            shape[-2], min=1, max=4096, description="rows", style=small,
            layout=ipywidgets.Layout(width="120px"),
        )  # fmt: skip
        self.width_ = drop(
            options=widths, value=shape[-1], description="width", style=small, layout=auto
        )
        self.dtype = drop(
            options=DTYPES, value=dtype, description="dtype", style=small, layout=auto
        )
        self.switch = ipywidgets.Checkbox(False, indent=False, layout=auto)
        self.button = ipywidgets.Button(description=self.button_text, button_style="")
        self.status, self.output = ipywidgets.HTML(), ipywidgets.HTML()
        controls = (self.batch, self.rows, self.width_, self.dtype, self.switch, self.button)
        row = ipywidgets.HBox(
            controls, layout=ipywidgets.Layout(flex_flow="row wrap", grid_gap="2px 16px")
        )
        super().__init__(
            [
                ipywidgets.HTML(_EDITOR_STYLE),
                self.editor,
                row,
                self.status,
                *self.below(),
                PanelKeys(),
            ]
        )
        self.add_class("tcs-controls")
        for control in (self.editor, *controls[:-1]):
            control.observe(self._changed, names="value")
        self.button.on_click(self._changed)
        self._changed()

    def below(self) -> Sequence[ipywidgets.Widget]:
        """Returns the widgets under the controls; called once, before anything is shown."""
        return [self.output]

    def look(self, *state: Any) -> GraphView:
        """Shows the view for (text, shape, dtype, switch), and returns it."""
        view = graph_view(*state, device=self.device, previous=self.capture)
        self.output.value = view.html
        return view

    def _changed(self, _: Any = None) -> None:
        """Shows the view for the present state; an unchanged state is not captured again."""
        batch = [] if self.batch.value == BATCHES[-1] else [int(self.batch.value)]
        shape = (*batch, self.rows.value, self.width_.value)
        self._name_switch()
        switch = self.switch.value if not self.switch.disabled else None
        state = (self.editor.value, shape, self.dtype.value, switch)
        if state == self.shown:
            return
        self.shown = state
        self.status.value = _status("Working: Dynamo is reading your function …")
        view = self.look(*state)
        self.capture = view.capture or self.capture
        tensors = " x ".join(map(str, shape))
        self.status.value = _status(
            f"Done: tensors of {tensors}, {self.dtype.value}." if view.capture else "Not captured."
        )

    def _name_switch(self) -> None:
        """Gives the check box the name of the function's on/off argument, if there is one."""
        try:
            typed = read_function(self.editor.value)
        except Problem:
            return
        found = (typed.switches[0], typed.defaults[0]) if typed.switches else ("", False)
        if found == self.switch_is:
            return
        self.switch_is = found  # a new argument, or a new default: start from that
        self.switch.disabled = not found[0]
        self.switch.description, self.switch.value = found[0] or "no on/off argument", found[1]


# min-width: else a wide table would stretch the pane, and the words beside it, past the edge.
_EDITOR_STYLE = (
    "<style>.tcs-controls .widget-html-content{min-width:0}"
    ".tcs-editor{flex-direction:column;align-items:flex-start}"
    ".tcs-editor textarea{font-family:var(--jp-code-font-family,monospace);font-size:13px;"
    "line-height:1.45;width:100%;color:var(--jp-content-font-color1,#1a1a1a)}"
    ".tcs-editor .widget-label{font-weight:600;width:auto}</style>"
)


def _status(text: str) -> str:
    return wrap(f'<span role="status">{html.escape(text)}</span>')


def graph_panel(
    source: str | Callable[..., Any],
    shape: Sequence[int] = (2, 16, 64),
    dtype: str = "float32",
    device: str = "cpu",
) -> GraphPanel:
    """Returns a panel in which a learner changes function, shape, dtype and one switch.

    `shape`: (batch, rows, width) or (rows, width) of the random inputs. The panel shows what
    `graph_view` returns for the same values, so a static view loses nothing but the controls.
    """
    return GraphPanel(source_text(source), shape, dtype, device)
