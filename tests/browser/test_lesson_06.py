"""Lesson 06 as a learner meets it: run, panel by mouse and keyboard, errors, accessibility."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
WAIT_MS = 60_000
DEFAULT = """\
def scaled(x, r, norm=True):
    if norm:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return F.silu(x) + r
"""


def panel_of(page: Any) -> Any:
    return page.locator(".jp-OutputArea-output:has(textarea)")


def shown(page: Any, text: str) -> None:
    """Insists that the panel, and not only the static view above it, comes to show a text."""
    from playwright.sync_api import expect

    expect(panel_of(page)).to_contain_text(text, timeout=WAIT_MS)


def gone(page: Any, text: str) -> None:
    """Insists that the panel comes to show a text no longer."""
    from playwright.sync_api import expect

    expect(panel_of(page)).not_to_contain_text(text, timeout=WAIT_MS)


def test_the_lesson_runs_without_an_error(lesson: Any) -> None:
    lesson.assert_ran()


def test_the_panel_starts_with_what_the_static_view_shows(lesson: Any) -> None:
    shown(lesson.page, "1 launch, 1 of generated kernels and 0 of library calls.")
    shown(lesson.page, "persistent reduction")
    shown(lesson.page, "6.29 MB must move for 1 kernel launch in 1 graph")
    panel_of(lesson.page).evaluate("e => e.scrollIntoView()")
    lesson.picture("codegen_start_light")


def test_shape_and_dtype_change_the_kernel_by_mouse(lesson: Any) -> None:
    page = lesson.page
    page.get_by_label("width", exact=True).select_option("1025")
    shown(page, "for r0_offset in")
    page.get_by_label("width", exact=True).select_option("1024")
    gone(page, "for r0_offset in")
    page.get_by_label("dtype", exact=True).select_option("bfloat16")
    shown(page, "xmask, other=0.0).to(tl.float32)")
    shown(page, "3.15 MB must move")
    page.get_by_label("dtype", exact=True).select_option("float32")
    gone(page, "other=0.0).to(tl.float32)")


def test_targets_and_stage_change_by_mouse(lesson: Any) -> None:
    page = lesson.page
    page.get_by_label("target", exact=True).select_option(label="NVIDIA H200")
    page.get_by_label("compare with", exact=True).select_option(label="NVIDIA A100-SXM4-80GB")
    shown(page, "Difference: h200 beside a100")
    shown(page, "only the header differs")
    page.get_by_label("stage of the first kernel", exact=True).select_option("ptx")
    shown(page, "First kernel: ptx")
    shown(page, "loads from global memory")
    panel_of(page).locator(".tcs-heading").first.evaluate("e => e.scrollIntoView()")
    lesson.picture("codegen_ptx_light")
    page.get_by_label("stage of the first kernel", exact=True).select_option("none")
    page.get_by_label("compare with", exact=True).select_option("nothing")
    gone(page, "Difference:")


def test_rows_flag_and_backward_change_by_keyboard(lesson: Any) -> None:
    page = lesson.page
    rows = page.get_by_label("rows", exact=True)
    rows.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("640")
    page.keyboard.press("Enter")
    shown(page, "xnumel = 640")
    page.get_by_label("norm", exact=True).focus()
    page.keyboard.press("Space")
    gone(page, "persistent reduction")
    page.get_by_label("backward too", exact=True).focus()
    page.keyboard.press("Space")
    shown(page, "Graph 1 (backward)")
    page.keyboard.press("Space")
    gone(page, "Graph 1 (backward)")


def test_a_new_text_is_generated(lesson: Any) -> None:
    page = lesson.page
    lesson.type_function("def f(x, y):\n    return torch.relu(x @ y.T)")
    shown(page, "extern_kernels.mm")
    shown(page, "2 launches, 1 of generated kernels and 1 of library calls.")


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
    shown(lesson.page, "No code: the reason stands below.")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_accessibility_fault_in_the_outputs(lesson: Any, dark: bool) -> None:
    page = lesson.page
    lesson.use_theme(dark)
    lesson.type_function(DEFAULT)
    page.get_by_label("compare with", exact=True).select_option(label="NVIDIA A100-SXM4-80GB")
    page.get_by_label("stage of the first kernel", exact=True).select_option("ptx")
    for text in ("Difference:", "First kernel: ptx", "Kernels, library calls and wrapper"):
        shown(page, text)
    heading = panel_of(page).locator(".tcs-heading").first
    heading.evaluate("e => e.scrollIntoView()")
    theme = "dark" if dark else "light"
    lesson.picture(f"codegen_panel_{theme}")
    for name, words in (("kernel", "which program am I?"), ("launches", "launches, ")):
        page.locator(
            f".jp-OutputArea-output:has-text('{words}')"
        ).first.scroll_into_view_if_needed()
        lesson.picture(f"codegen_{name}_{theme}")
    lesson.assert_accessible()


def test_nothing_is_cut_off_at_a_large_zoom(lesson: Any) -> None:
    page = lesson.page
    with lesson.at_200_percent():
        notes = page.locator(".tcs-lines > div").first
        notes.scroll_into_view_if_needed()
        lesson.picture("codegen_kernel_200_percent")
        code, said = notes.locator("code").bounding_box(), notes.locator("span").last.bounding_box()
        page.get_by_label("target", exact=True).scroll_into_view_if_needed()
        lesson.picture("codegen_panel_200_percent")
        wide = lesson.cut_off()
        panel = panel_of(page)
        edge = panel.bounding_box()["x"] + panel.bounding_box()["width"]
        boxes = [one.bounding_box() for one in panel.locator("p, li").all() if one.is_visible()]
        beyond = [box for box in boxes if box["x"] + box["width"] > edge + 1]
    assert wide == [], "these outputs are cut off"
    assert boxes and beyond == [], "these words run past the edge"
    assert said["y"] >= code["y"] + code["height"] - 1, "the note stands below its line"
