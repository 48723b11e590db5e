"""Lesson 03 as a learner meets it: run, panel by mouse and keyboard, errors, accessibility."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]
WAIT_MS = 60_000
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


def panel_of(page: Any) -> Any:
    return page.locator(".jp-OutputArea-output:has(textarea)")


def registry_of(page: Any) -> Any:
    """Returns the output with torch's list of graph breaks, in sight."""
    panel = page.locator(".jp-OutputArea-output:has(.tcs-results)")
    panel.scroll_into_view_if_needed()
    return panel


def search_for(page: Any, text: str, only: bool = False) -> list[str]:
    """Types into the search box of torch's list, key by key; returns the titles that come.

    Waits until they are there: without that, a test would read the list for fewer letters.
    """
    from playwright.sync_api import expect

    from helpers import registry_view

    page.get_by_label("Search", exact=True).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type(text)
    titles = [f"{one.gb_id} {one.title}".strip() for one in registry_view(text, only).shown()]
    panel = registry_of(page)
    expect(panel.locator("option")).to_have_count(len(titles), timeout=WAIT_MS)
    first = titles[0] if titles else "Nothing to show."
    expect(panel.locator(".tcs-chosen")).to_contain_text(first, timeout=WAIT_MS)
    return titles


def shown(page: Any, text: str) -> None:
    """Insists that the panel, and not only the static view above it, comes to show a text."""
    from playwright.sync_api import expect

    expect(panel_of(page)).to_contain_text(text, timeout=WAIT_MS)


def test_the_lesson_runs_without_an_error(lesson: Any) -> None:
    lesson.assert_ran()


def test_the_strip_and_the_cards_are_there_at_the_start(lesson: Any) -> None:
    from playwright.sync_api import expect

    panel = panel_of(lesson.page)
    shown(lesson.page, "2 graph breaks, 3 graphs")
    expect(panel.locator("svg[role=img]")).to_contain_text("graph 2")
    expect(panel.locator(".tcs-break")).to_have_count(2)
    expect(panel.locator(".tcs-break-line").first).to_contain_text("5 |     top = y.abs()")
    panel.scroll_into_view_if_needed()
    lesson.picture("breaks_light")


def test_repairs_are_said_one_by_one(lesson: Any) -> None:
    from playwright.sync_api import expect

    page = lesson.page
    text = TWO.replace(".item()", "")
    lesson.type_function(text)
    shown(page, "1 break fewer: 1 instead of 2.")
    lesson.type_function(
        text.replace(
            "if y.sum() > 0:\n        y = y * 2", "y = torch.where(y.sum() > 0, y * 2, y)"
        ),
    )
    shown(page, "repaired: no graph break is left")
    shown(page, "one graph")
    expect(panel_of(page).locator(".tcs-break")).to_have_count(0)
    lesson.picture("breaks_repaired")


def test_the_menu_loads_a_function_that_is_skipped(lesson: Any) -> None:
    page = lesson.page
    menu = page.get_by_label("load", exact=True)
    menu.select_option("a loop that may end early")
    shown(page, "whole function skipped")
    shown(page, "plain Python")
    lesson.picture("breaks_skipped")
    menu.select_option("an attribute that may be missing")
    shown(page, "behaves differently")
    lesson.picture("breaks_behaviour")


def test_a_card_opens_by_keyboard_and_shows_torchs_words(lesson: Any) -> None:
    from playwright.sync_api import expect

    page = lesson.page
    lesson.type_function(TWO)
    shown(page, "2 graph breaks, 3 graphs")
    more = panel_of(page).locator(".tcs-break summary").first
    more.focus()
    page.keyboard.press("Enter")
    expect(panel_of(page).locator(".tcs-break details").first).to_contain_text("torch says:")
    expect(panel_of(page).locator(".tcs-break details pre").first).to_be_visible()


def test_the_flag_and_the_batch_change_by_keyboard(lesson: Any) -> None:
    page = lesson.page
    lesson.type_function(TWO)
    page.get_by_label("center", exact=True).focus()
    page.keyboard.press("Space")
    shown(page, "2 breaks, as before.")
    page.get_by_label("batch", exact=True).select_option("2")
    shown(page, "Done: tensors of 2 x 16 x 8, float32.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x):\nreturn x", "line 2: Python cannot read this"),
        ("def f(x):\n    return x + nothing", "line 2: NameError: name 'nothing' is not defined"),
    ],
)
def test_what_is_wrong_is_said_in_the_pane(lesson: Any, text: str, message: str) -> None:
    lesson.type_function(text)
    shown(lesson.page, message)
    shown(lesson.page, "Not captured.")


def test_torchs_list_is_searched_by_typing_and_nothing_moves(lesson: Any) -> None:
    from playwright.sync_api import expect

    page = lesson.page
    panel, places, found = registry_of(page), [], []
    for text in ("item", "GB0059", "zzqq"):
        found.append(search_for(page, text))
        places.append(panel.bounding_box())
    assert "item" in found[0][0] and found[2] == []
    expect(panel.get_by_role("status")).to_have_text(
        "Nothing found: try fewer words, or other ones."
    )
    assert places == places[:1] * 3


def test_a_kind_is_chosen_by_keyboard_and_shows_torchs_words_and_our_repair(lesson: Any) -> None:
    from playwright.sync_api import expect

    page = lesson.page
    panel, cells = registry_of(page), page.locator(".jp-Cell").count()
    search_for(page, "tensor")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")  # only those with our repairs
    titles = search_for(page, "tensor", only=True)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SELECT"
    page.keyboard.press("ArrowDown")
    chosen = panel.locator(".tcs-chosen")
    expect(chosen.locator(".tcs-heading")).to_have_text(titles[1], timeout=WAIT_MS)
    expect(chosen).to_contain_text("Repair:")
    expect(chosen.locator("details[open]")).to_contain_text("Repaired:")
    for key in ("x", "d", "d", "b"):  # to JupyterLab: cut, delete, a new cell
        page.keyboard.press(key)
    assert page.locator(".jp-Cell").count() == cells
    assert page.evaluate("document.activeElement.tagName") == "SELECT"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_accessibility_fault_in_the_outputs(lesson: Any, dark: bool) -> None:
    page = lesson.page
    lesson.use_theme(dark)
    lesson.type_function(TWO)
    shown(page, "2 graph breaks, 3 graphs")
    panel_of(page).scroll_into_view_if_needed()
    lesson.picture(f"breaks_{'dark' if dark else 'light'}_panel")
    page.get_by_label("only those with our repairs").check()
    search_for(page, "item", only=True)
    registry_of(page).locator("details").evaluate_all(
        "all => all.forEach(one => { one.open = true })"
    )
    lesson.picture(f"registry_{'dark' if dark else 'light'}")
    lesson.assert_accessible()


def test_nothing_is_cut_off_at_a_large_zoom(lesson: Any) -> None:
    page = lesson.page
    with lesson.at_200_percent():
        page.get_by_label("batch", exact=True).scroll_into_view_if_needed()
        lesson.picture("breaks_200_percent")
        registry = registry_of(page)
        inside = registry.bounding_box()["x"] + registry.bounding_box()["width"]
        parts = [registry.locator(one) for one in ("input[type=text]", "select", ".tcs-chosen")]
        ends = [one.bounding_box()["x"] + one.bounding_box()["width"] for one in parts]
        lesson.picture("registry_200_percent")
        wide = lesson.cut_off()
        panel = panel_of(page)
        edge = panel.bounding_box()["x"] + panel.bounding_box()["width"]
        boxes = [one.bounding_box() for one in panel.locator("p").all() if one.is_visible()]
        beyond = [box for box in boxes if box["x"] + box["width"] > edge + 1]
    assert wide == [], "these outputs are cut off"
    assert max(ends) <= inside + 1, "the list of torch's breaks runs past the edge"
    assert boxes and beyond == [], "these words run past the edge"
