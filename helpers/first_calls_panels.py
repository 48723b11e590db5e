"""The panel of lesson 01: model size, batch and dtype chosen, eager and compiled calls timed."""

from __future__ import annotations

import html
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ipywidgets

from helpers import first_compile
from helpers.display import View, table_html, wrap
from helpers.panel_keys import PanelKeys

# Without it the content is never narrower than the picture, and a small window cuts its text off.
_NARROWS = "<style>.tcs-narrows .widget-html-content{min-width:0}</style>"


class FirstCallsPanel(ipywidgets.VBox):
    """Three lists and a button above; below, what `first_calls_view` returns, and all runs."""

    def __init__(self, start: View | None, device: str) -> None:
        self.device = device
        self.runs: list[tuple[str, ...]] = []  # rows under RUN_COLUMNS, the newest run first
        look = {"style": {"description_width": "initial"}}
        look["layout"] = ipywidgets.Layout(width="auto")
        drop = ipywidgets.Dropdown
        self.size = drop(
            options=tuple(first_compile.SIZES), value="small", description="model size", **look
        )
        self.batch = drop(options=first_compile.BATCHES, value=8, description="batch", **look)
        self.dtype = drop(
            options=first_compile.DTYPES, value="float32", description="dtype", **look
        )
        self.button = ipywidgets.Button(description="Run")
        self.status, self.output, self.table = (ipywidgets.HTML() for _ in range(3))
        row = ipywidgets.HBox(
            (self.size, self.batch, self.dtype, self.button),
            layout=ipywidgets.Layout(flex_flow="row wrap", grid_gap="2px 16px"),
        )
        for one in (self.output, self.table):
            one.add_class("tcs-narrows")
        shown = (row, self.status, self.output, self.table)
        super().__init__([ipywidgets.HTML(_NARROWS), *shown, PanelKeys()])
        for control in (self.size, self.batch, self.dtype):
            control.observe(self._chosen, names="value")
        self.button.on_click(self._run)
        if start:
            self._show(start)
        self._say("Choose, then press Run.")

    def _case(self) -> first_compile.Case:
        return first_compile.Case(self.size.value, self.batch.value, self.dtype.value)

    def _chosen(self, _: Any) -> None:
        self._say(f"Press Run to measure: {self._case()}. Below is still the run before.")

    def _run(self, _: Any) -> None:
        case = self._case()
        self.button.disabled = True
        try:
            with self._waiting(f"Working: compiling and timing the {case}"):
                view = first_compile.first_calls_view(
                    case.size, case.batch, case.dtype, self.device
                )
            self._show(view)
            self._say(f"Done: {case}.")
        finally:
            self.button.disabled = False

    def _show(self, view: View) -> None:
        """Shows a run, and puts its figures on top of the table of the runs so far."""
        self.output.value = view.html
        self.runs[:0] = view.rows if isinstance(view, first_compile.CallsView) else ()
        if self.runs:
            self.table.value = table_html(
                first_compile.RUN_COLUMNS, self.runs, "Runs so far, newest first"
            )

    def _say(self, text: str) -> None:
        self.status.value = wrap(f'<span role="status">{html.escape(text)}</span>')

    @contextmanager
    def _waiting(self, text: str) -> Iterator[None]:
        """Shows the seconds so far; once a second only, so as not to disturb what is timed."""
        over = threading.Event()

        def tick() -> None:
            seconds = 0
            while not over.wait(1.0):
                seconds += 1
                self._say(f"{text} … {seconds} s")

        self._say(f"{text} …")
        thread = threading.Thread(target=tick, name="first-calls", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def first_calls_panel(start: View | None = None, device: str = "cpu") -> FirstCallsPanel:
    """Returns a panel in which a learner chooses model size, batch and dtype, and runs them.

    start: what it shows before the first run, such as a `first_calls_view`; device: where it runs.
    """
    return FirstCallsPanel(start, device)
