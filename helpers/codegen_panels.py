"""A panel in which a learner changes a function, its inputs or the GPU, and sees the code."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets

from helpers.codegen_views import CHOICES, CodegenView, codegen_view
from helpers.display import wrap
from helpers.targets import TARGETS
from helpers.typed_function import source_text
from helpers.widgets import WIDTHS, GraphPanel

__all__ = ["CodegenPanel", "codegen_panel", "codegen_view"]

# Widths around the size at which a row no longer fits one block.
_MORE_WIDTHS = (100, 1000, 1024, 1025, 4096)


class CodegenPanel(GraphPanel):
    """The controls of `GraphPanel`, and a second row: targets, stage, backward."""

    button_text = "Generate"

    def __init__(
        self, source: str, shape: Sequence[int], dtype: str, target: str, device: str
    ) -> None:
        self.first_target = target
        super().__init__(source, shape, dtype, device)

    def below(self) -> Sequence[ipywidgets.Widget]:
        """Returns the second row of controls, and the place for what was generated."""
        width = self.width_.value
        self.width_.options = sorted({*WIDTHS, *_MORE_WIDTHS, width})
        self.width_.value = width
        small = {"description_width": "initial"}
        auto = ipywidgets.Layout(width="auto")
        cards = [(one.name, key) for key, one in TARGETS.items()]
        drop = ipywidgets.Dropdown
        self.target = drop(
            options=[("this machine's GPU, else an H200", "auto"), *cards],
            value=self.first_target, description="target", style=small, layout=auto,
        )  # fmt: skip
        self.other = drop(
            options=[("nothing", ""), *cards], value="", description="compare with",
            style=small, layout=auto,
        )  # fmt: skip
        self.stage = drop(
            options=[("none", ""), *((name, name) for name in CHOICES[1:])], value="",
            description="stage of the first kernel", style=small, layout=auto,
        )  # fmt: skip
        self.backward = ipywidgets.Checkbox(
            False, description="backward too", indent=False, layout=auto
        )
        more = (self.target, self.other, self.stage, self.backward)
        for control in more:
            control.observe(self._again, names="value")
        row = ipywidgets.HBox(
            more, layout=ipywidgets.Layout(flex_flow="row wrap", grid_gap="2px 16px")
        )
        return [row, self.output]

    def look(self, *state: Any) -> CodegenView:
        """Generates for (text, shape, dtype, switch) and the second row, and shows it."""
        self._say("Working: Inductor is writing the code …")
        view = codegen_view(
            *state,
            target=self.target.value,
            other=self.other.value,
            stage=self.stage.value,
            backward=self.backward.value,
            device=self.device,
        )
        self.output.value = view.html
        self.view = view
        return view

    def _again(self, _: Any = None) -> None:
        self.shown = None  # the second row is no part of the state that GraphPanel compares
        self._changed()

    def _changed(self, _: Any = None) -> None:
        super()._changed()
        if self.view.capture is None:
            self._say("No code: the reason stands below.")

    def _say(self, text: str) -> None:
        self.status.value = wrap(f'<span role="status">{html.escape(text)}</span>')


def codegen_panel(
    source: str | Callable[..., Any],
    shape: Sequence[int] = (64, 1024),
    dtype: str = "float32",
    target: str = "auto",
    device: str = "cpu",
) -> CodegenPanel:
    """Returns a panel that shows what Inductor generates for a function that a learner edits.

    shape: (batch, rows, width) or (rows, width) of the random inputs; target: "auto", or a key of
    TARGETS. It shows what `codegen_view` returns for the same values, so a static view loses
    nothing but the controls.
    """
    return CodegenPanel(source_text(source), shape, dtype, target.lower(), device)
