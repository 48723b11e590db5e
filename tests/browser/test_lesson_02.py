"""Lesson 02 as a learner meets it: run, panel by mouse and keyboard, errors, accessibility."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(420)]
WAIT_MS = 30_000


def shown(page: Any, text: str) -> None:
    """Insists that the panel, and not only the static view above it, comes to show a text."""
    from playwright.sync_api import expect

    panel = page.locator(".jp-OutputArea-output:has(textarea)")
    expect(panel).to_contain_text(text, timeout=WAIT_MS)


def look_at(page: Any, *panes: str) -> None:
    """Ticks these panes of the panel, and no other."""
    for name in ("graph", "guards", "bytecode"):
        page.get_by_label(name, exact=True).set_checked(name in panes)


def test_the_lesson_runs_without_an_error(lesson: Any) -> None:
    lesson.assert_ran()


def test_the_panes_change_by_mouse(lesson: Any) -> None:
    from playwright.sync_api import expect

    page = lesson.page
    picture = page.locator(".jp-OutputArea-output:has(textarea) svg[role=img]")
    expect(picture).to_contain_text("relu")
    look_at(page, "guards")
    shown(page, "x is a float32 tensor of shape (4, 16, 8)")
    expect(picture).to_have_count(0)
    lesson.picture("capture_guards_light")
    look_at(page, "bytecode")
    shown(page, "← the graph")
    lesson.picture("capture_bytecode_light")
    look_at(page, "graph")
    expect(picture).to_contain_text("relu")
    lesson.picture("capture_graph_light")


def test_shape_and_dtype_change_guards_and_graph_by_mouse(lesson: Any) -> None:
    page = lesson.page
    look_at(page, "guards")
    page.get_by_label("batch", exact=True).select_option("2")
    shown(page, "op relu is gone.")
    shown(page, "it became: x is a float32 tensor of shape (2, 16, 8)")
    shown(page, "(changed; it was: x is a float32 tensor of shape (4, 16, 8)")
    lesson.picture("capture_changed_light")
    page.get_by_label("dtype", exact=True).select_option("bfloat16")
    shown(page, "it became: x is a bfloat16 tensor of shape (2, 16, 8)")
    page.get_by_label("dtype", exact=True).select_option("float32")
    page.get_by_label("batch", exact=True).select_option("4")
    shown(page, "op relu is new.")


def test_rows_and_flag_change_by_keyboard(lesson: Any) -> None:
    page = lesson.page
    rows = page.get_by_label("rows", exact=True)
    rows.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("24")
    page.keyboard.press("Enter")
    shown(page, "it became: x is a float32 tensor of shape (4, 24, 8)")
    page.get_by_label("center", exact=True).focus()
    page.keyboard.press("Space")
    shown(page, "Guard: center is False; it became: center is True.")
    shown(page, "ops mean, sub are new.")
    page.get_by_label("guards", exact=True).focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.get_by_label("bytecode", exact=True).is_checked()
    shown(page, "BINARY_OP *")
    page.get_by_label("center", exact=True).focus()
    page.keyboard.press("Space")
    shown(page, "it became: center is False.")


def test_a_new_text_changes_graph_guards_and_bytecode(lesson: Any) -> None:
    page = lesson.page
    look_at(page, "guards")
    lesson.type_function("def wave(x, speed=0.5):\n    y = torch.cos(x)\n    return y - speed")
    shown(page, "ops cos, sub are new.")
    shown(page, "New guard: speed equals 0.5.")
    shown(page, "Gone guard: center is False.")
    look_at(page, "bytecode")
    shown(page, "line 2: y = torch.cos(x)")
    look_at(page, "graph")
    shown(page, "in this order: cos, sub.")


def test_a_break_is_said_with_its_line(lesson: Any) -> None:
    page = lesson.page
    lesson.type_function("def f(x):\n    y = torch.cos(x)\n    print(y.sum())\n    return y + 1")
    shown(page, "2 graphs instead of 1.")
    shown(page, "A graph break is new: line 3, print(y.sum()).")
    lesson.picture("capture_break_light")
    look_at(page, "bytecode")
    shown(page, "← the rest of your function")
    look_at(page, "graph")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x):\nreturn x", "line 2: Python cannot read this"),
        ("def f(x):\n    return x + nothing", "line 2: NameError: name 'nothing' is not defined"),
        ("x = 3", "No function found"),
    ],
)
def test_what_is_wrong_is_said_in_the_pane(lesson: Any, text: str, message: str) -> None:
    lesson.type_function(text)
    shown(lesson.page, message)
    shown(lesson.page, "Not captured.")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_accessibility_fault_in_the_outputs(lesson: Any, dark: bool) -> None:
    page = lesson.page
    lesson.use_theme(dark)
    lesson.type_function("def g(x, narrow=False):\n    return x if narrow else torch.relu(x)")
    look_at(page, "graph", "guards", "bytecode")
    for text in ("Graph 0, captured from g", "narrow is False", "Bytecode of g"):
        shown(page, text)
    for pane in ("Guards", "Bytecode"):
        heading = page.locator(f".tcs-heading:text-is('{pane}')").last
        heading.evaluate("e => e.scrollIntoView()")
        lesson.picture(f"capture_{pane}_{'dark' if dark else 'light'}")
    lesson.assert_accessible()


def test_nothing_is_cut_off_at_a_large_zoom(lesson: Any) -> None:
    page = lesson.page
    with lesson.at_200_percent():
        look_at(page, "guards", "bytecode")
        page.get_by_label("bytecode", exact=True).scroll_into_view_if_needed()
        lesson.picture("capture_200_percent")
        wide = lesson.cut_off()
        panel = page.locator(".jp-OutputArea-output:has(textarea)")
        edge = panel.bounding_box()["x"] + panel.bounding_box()["width"]
        words = panel.locator("p, li").all()
        boxes = [one.bounding_box() for one in words if one.is_visible()]
        beyond = [box for box in boxes if box["x"] + box["width"] > edge + 1]
    assert wide == [], "these outputs are cut off"
    assert boxes and beyond == [], "these words run past the edge"
