"""The panel of lesson 02: what each control does to graph, guards and bytecode."""

from __future__ import annotations

import ipywidgets
import pytest

from helpers import capture_panels, capture_view, typed_function
from helpers.capture_panels import capture_panel
from helpers.capture_views import CaptureView

GATED = """\
def gated(x, scale=2.0, center=False):
    if center:
        x = x - x.mean(-1, keepdim=True)
    if x.shape[0] > 2:
        x = torch.relu(x)
    return x * scale
"""


def test_the_panel_shows_what_the_pure_function_returns() -> None:
    panel = capture_panel(GATED, (4, 16, 8))
    view = capture_view(GATED, (4, 16, 8))
    assert panel.output.value == view.top
    assert view.panes["graph"] in panel.pane.value
    assert view.panes["guards"] in panel.pane.value
    assert view.panes["bytecode"] not in panel.pane.value
    assert "Done: tensors of 4 x 16 x 8, float32." in panel.status.value


def test_a_box_shows_its_pane_without_a_new_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = capture_panel(GATED, (4, 16, 8))
    monkeypatch.setattr(capture_panels, "capture_view", None)  # a call would fail
    panel.boxes["bytecode"].value = True
    panel.boxes["graph"].value = panel.boxes["guards"].value = False
    assert "← the graph" in panel.pane.value and "<svg" not in panel.pane.value
    assert "scale equals 2.0" not in panel.pane.value


def test_every_control_changes_what_is_shown() -> None:
    panel = capture_panel(GATED, (4, 16, 8))
    panel.rows.value = 24
    assert "it became: x is a float32 tensor of shape (4, 24, 8)" in panel.output.value
    panel.batch.value = "2"
    assert "op relu is gone." in panel.output.value
    panel.width_.value = 32
    assert "shape (2, 24, 32)" in panel.pane.value
    panel.dtype.value = "bfloat16"
    assert "it became: x is a bfloat16 tensor" in panel.output.value
    panel.switch.value = True
    assert "Guard: center is False; it became: center is True." in panel.output.value
    panel.editor.value = "def f(x):\n    return torch.cos(x)"
    assert "op cos is new." in panel.output.value
    assert "in this order: cos." in panel.pane.value
    assert "Gone guard: scale equals 2.0." in panel.output.value


def test_the_ticked_panes_stay_when_the_view_changes() -> None:
    panel = capture_panel(GATED, (4, 16, 8))
    panel.boxes["bytecode"].value = True
    panel.boxes["graph"].value = False
    panel.editor.value = "def f(x):\n    return torch.cos(x)"
    assert "Bytecode of f" in panel.pane.value and "<svg" not in panel.pane.value


def test_an_error_empties_the_panes_and_the_next_text_compares_with_the_last_good_one() -> None:
    panel = capture_panel(GATED, (4, 16, 8))
    panel.editor.value = "def gated(x):\n    return torch.relu(x"
    assert "line 2: Python cannot read this" in panel.output.value
    assert panel.pane.value == ""
    assert "Not captured" in panel.status.value
    panel.editor.value = GATED.replace("x * scale", "x * scale + 1")
    assert "op add is new." in panel.output.value


def test_an_endless_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = capture_panel(GATED, (4, 16, 8))
    monkeypatch.setattr(typed_function, "TIME_LIMIT_S", 1)
    panel.editor.value = "while True: pass\ndef f(x): return x"
    assert "Stopped after 1 s." in panel.output.value


def test_working_is_shown_before_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = capture_panel(GATED, (4, 16, 8))
    seen: list[str] = []

    def watched(*args: object, **kwargs: object) -> CaptureView:
        seen.append(panel.status.value)
        return capture_view(*args, **kwargs)

    monkeypatch.setattr(capture_panels, "capture_view", watched)
    panel.rows.value = 32
    panel.button.click()  # nothing changed since: not captured again
    assert len(seen) == 1 and "Working" in seen[0]


def test_controls_have_names_and_no_output_widget_hides_errors() -> None:
    panel = capture_panel(GATED, (4, 16, 8))
    named = [panel.editor, panel.batch, panel.rows, panel.width_, panel.dtype, panel.switch]
    assert all(control.description for control in [*named, *panel.boxes.values(), panel.button])
    assert not any(isinstance(widget, ipywidgets.Output) for widget in panel.children)
