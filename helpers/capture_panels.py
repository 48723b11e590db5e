"""A panel in which a learner changes a function or its inputs and sees what Dynamo makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from helpers.capture_views import PANES, CaptureView, capture_view
from helpers.display import heading_html, wrap
from helpers.typed_function import source_text
from helpers.widgets import GraphPanel


class CapturePanel(GraphPanel):
    """The controls of `GraphPanel`; below, what changed, and the panes that are ticked.

    Check boxes and no radio buttons: JupyterLab takes the arrow keys that those need.
    """

    button_text = "Capture it"

    def below(self) -> Sequence[ipywidgets.Widget]:
        """Returns facts and changes, one check box per pane, and the panes."""
        self.view: CaptureView | None = None
        auto = ipywidgets.Layout(width="auto")
        self.boxes = {
            name: ipywidgets.Checkbox(
                name != "bytecode", description=name, indent=False, layout=auto
            )
            for name in PANES
        }
        for box in self.boxes.values():
            box.observe(self._turn, names="value")
        row = ipywidgets.HBox(
            [ipywidgets.HTML(wrap("Show:")), *self.boxes.values()],
            layout=ipywidgets.Layout(flex_flow="row wrap", grid_gap="2px 16px"),
        )
        self.pane = ipywidgets.HTML()
        return [self.output, row, self.pane]

    def look(self, *state: Any) -> CaptureView:
        """Captures (text, shape, dtype, switch), compared with the last good capture."""
        self.view = capture_view(*state, device=self.device, previous=self.capture)
        self.output.value = self.view.top
        self._turn()
        return self.view

    def _turn(self, _: Any = None) -> None:
        """Shows the ticked panes of the view that is there; nothing is captured again."""
        if self.view is None:
            return
        chosen = [name for name, box in self.boxes.items() if box.value and self.view.panes[name]]
        parts = [heading_html(name.capitalize()) + self.view.panes[name] for name in chosen]
        stamp = self.view.capture.origin.html() if self.view.capture else ""
        self.pane.value = "".join([*parts, stamp])


def capture_panel(
    source: str | Callable[..., Any],
    shape: Sequence[int] = (4, 16, 8),
    dtype: str = "float32",
    device: str = "cpu",
) -> CapturePanel:
    """Returns a panel that shows graph, guards and bytecode of a function that a learner edits.

    `shape`: (batch, rows, width) or (rows, width) of the random inputs. The panel shows what
    `capture_view` returns for the same values, so a static view loses nothing but the controls.
    """
    return CapturePanel(source_text(source), shape, dtype, device)
