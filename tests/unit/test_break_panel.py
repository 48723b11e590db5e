"""The panel of lesson 03: what each control does, and the samples that it offers."""

from __future__ import annotations

import pytest

from helpers import break_panel, break_view, typed_function
from helpers.break_panels import SAMPLES, repairs

TWO = """\
def rescale(x, center=True):
    y = torch.sigmoid(x)
    if center:
        y = y - y.mean()
    top = y.abs().max().item()
    if y.sum() > 0:
        y = y * 2
    return y / top
"""
NO_ITEM = TWO.replace(".item()", "")
CLEAN = NO_ITEM.replace("if y.sum() > 0:\n        y = y * 2", "y = torch.where(y.sum() > 0, y, y)")
# Of each sample: graphs, and the effect of each break.
EXPECTED = {
    "a value decides": (2, ["split"]),
    "a number out of a tensor": (2, ["split"]),
    "a mask keeps some rows": (2, ["split"]),
    "a print in between": (2, ["split"]),
    "a loop that may end early": (0, ["frame_skipped"]),
    "a break deep in a call": (5, ["split"]),
    "a guard for eager only (no break)": (1, []),
}


def test_the_panel_shows_what_the_pure_function_returns() -> None:
    panel = break_panel(TWO)
    assert panel.output.value == break_view(TWO).html
    assert "2 graph breaks, 3 graphs" in panel.output.value
    assert "Done: tensors of 4 x 16 x 8, float32." in panel.status.value


def test_a_repair_is_said_and_the_last_one_counts_as_a_view() -> None:
    panel = break_panel(TWO)
    panel.editor.value = NO_ITEM
    assert "1 break fewer: 1 instead of 2." in panel.output.value
    assert "Gone: top = y.abs().max().item()." in panel.output.value
    panel.editor.value = CLEAN
    assert "repaired: no graph break is left, where there was 1." in panel.output.value
    assert "Done" in panel.status.value
    panel.editor.value = TWO
    assert "2 breaks more: 2 instead of 0." in panel.output.value
    assert "New: top = y.abs().max().item(); if y.sum() &gt; 0:." in panel.output.value


def test_a_line_that_only_moved_is_no_new_break() -> None:
    one = break_view("def f(x):\n    y = x + 1\n    print(y.sum())\n    return y * 2").found
    two = break_view(
        "def f(x):\n    y = x + 1\n    y = y * 3\n    print(y.sum())\n    return y"
    ).found
    said = repairs(one, two)
    assert said.startswith("1 break, as before.")
    assert "New" not in said and "Gone" not in said


def test_a_switch_is_no_break() -> None:
    panel = break_panel(TWO)
    panel.switch.value = False
    assert "2 breaks, as before." in panel.output.value


@pytest.mark.parametrize("name", EXPECTED)
def test_each_sample_breaks_as_its_name_says(name: str) -> None:
    graphs, effects = EXPECTED[name]
    found = break_view(SAMPLES[name]).found
    assert [one.effect for one in found] == effects
    assert found.graphs == graphs
    assert found.changes_behaviour is None


def test_one_sample_changes_behaviour() -> None:
    view = break_view(SAMPLES["an attribute that may be missing"])
    assert isinstance(view.found.changes_behaviour, AttributeError)
    assert "behaves differently" in view.html
    assert set(SAMPLES) - set(EXPECTED) == {"an attribute that may be missing"}


def test_the_menu_loads_a_sample_and_an_edit_leaves_it() -> None:
    panel = break_panel(TWO)
    name = "a loop that may end early"
    panel.samples.value = name
    assert panel.editor.value == SAMPLES[name]
    assert "whole function skipped" in panel.output.value
    assert "What changed" not in panel.output.value  # another function: nothing to compare
    panel.editor.value = SAMPLES[name].replace("range(4)", "range(2)")
    assert panel.samples.value == "your own text"
    assert panel.editor.value == SAMPLES[name].replace("range(4)", "range(2)")
    assert "1 break, as before." in panel.output.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x):\nreturn x", "line 2: Python cannot read this"),
        ("def f(x):\n    return x + nothing", "line 2: NameError: name"),
        ("x = 3", "No function found"),
    ],
)
def test_what_is_wrong_is_said_and_the_last_good_view_stays_the_one_to_compare(
    text: str, message: str
) -> None:
    panel = break_panel(TWO)
    panel.editor.value = text
    assert message in panel.output.value and "Not captured." in panel.status.value
    panel.editor.value = NO_ITEM
    assert "1 break fewer" in panel.output.value


def test_an_endless_loop_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = break_panel(TWO)
    monkeypatch.setattr(typed_function, "TIME_LIMIT_S", 1)
    panel.editor.value = "while True: pass\ndef f(x): return x"
    assert "Stopped after 1 s" in panel.output.value


def test_what_the_function_prints_is_kept_in_the_view(capsys: pytest.CaptureFixture[str]) -> None:
    view = break_view(SAMPLES["a print in between"])
    assert "your function printed: mean" in view.html
    assert "mean" not in capsys.readouterr().out
