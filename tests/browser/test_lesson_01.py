"""Lesson 01 as a learner meets it: its panel by mouse and by keyboard, accessibility, themes."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SHOWN = ".widget-html .tcs-first"


def choose(page: Any, label: str, option: str) -> None:
    page.get_by_label(label, exact=True).select_option(option)


def test_the_lesson_runs_without_an_error(lesson: Any) -> None:
    lesson.assert_ran()
    assert lesson.page.locator(".jp-OutputArea-output svg[role=img]").count() >= 4


def test_the_panel_starts_with_the_view_above_it(lesson: Any) -> None:
    shown = lesson.page.locator(SHOWN)
    assert "small vision transformer, batch 8, float32" in shown.inner_text()
    assert lesson.page.locator(f"{SHOWN} svg[role=img]").count() == 1


def test_by_mouse(lesson: Any) -> None:
    from playwright.sync_api import expect

    page = lesson.page
    choose(page, "batch", "1")
    status = page.locator(".widget-html [role=status]")
    expect(status).to_contain_text("Press Run to measure: small vision transformer, batch 1")
    expect(page.locator(SHOWN)).to_contain_text("batch 8, float32")
    page.get_by_role("button", name="Run", exact=True).click()
    shown = page.locator(SHOWN)
    expect(shown).to_contain_text("small vision transformer, batch 1, float32", timeout=120_000)
    expect(shown).to_contain_text("The first compiled call takes")
    expect(status).to_contain_text("Done: small vision transformer, batch 1, float32")
    runs = page.get_by_role("table", name="Runs so far, newest first")
    here = runs.get_by_role("row").filter(has_text="This machine")
    expect(here).to_have_count(2)
    expect(here.nth(0).get_by_role("cell").nth(1)).to_have_text("1")
    expect(here.nth(1).get_by_role("cell").nth(1)).to_have_text("8")


def test_a_race_shows_its_verdict_and_folds_the_details(lesson: Any) -> None:
    from playwright.sync_api import expect

    block = lesson.page.locator(".jp-OutputArea-output .tcs-first").filter(has_text="rms_norm on")
    expect(block.get_by_text("Verdict here:")).to_be_visible()
    expect(block.locator("table")).to_be_hidden()
    block.get_by_text("Figures, accuracy and origin").click()
    expect(block.locator("table")).to_be_visible()


def test_by_keyboard_alone(lesson: Any) -> None:
    from playwright.sync_api import expect

    page = lesson.page
    page.get_by_label("model size", exact=True).focus()
    page.keyboard.press("End")  # large
    page.keyboard.press("Tab")
    page.keyboard.press("End")  # batch 64
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Run"
    page.keyboard.press("Enter")
    shown = page.locator(SHOWN)
    expect(shown).to_contain_text("large vision transformer, batch 64", timeout=120_000)
    expect(shown).not_to_contain_text("batch 1, float32")


def test_a_run_after_that_shows_figures_again(lesson: Any) -> None:
    from playwright.sync_api import expect

    page = lesson.page
    choose(page, "model size", "small")
    choose(page, "batch", "8")
    choose(page, "dtype", "bfloat16")
    page.get_by_role("button", name="Run", exact=True).click()
    shown = page.locator(SHOWN)
    expect(shown).to_contain_text("small vision transformer, batch 8, bfloat16", timeout=120_000)
    expect(shown.locator("svg[role=img] rect")).to_have_count(
        3 * shown.locator(".tcs-origin").count()
    )
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_accessibility_fault_in_the_outputs(lesson: Any, dark: bool) -> None:
    lesson.use_theme(dark)
    lesson.assert_accessible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_both_themes_and_a_large_zoom_show_the_whole_panel(lesson: Any, dark: bool) -> None:
    page, name = lesson.page, "dark" if dark else "light"
    lesson.use_theme(dark)
    page.get_by_label("model size", exact=True).scroll_into_view_if_needed()
    lesson.picture(f"first_calls_{name}_controls")
    page.locator(f"{SHOWN} table").scroll_into_view_if_needed()
    lesson.picture(f"first_calls_{name}")
    with lesson.at_200_percent():
        page.get_by_label("dtype", exact=True).scroll_into_view_if_needed()
        lesson.picture(f"first_calls_{name}_200_percent")
        wide = lesson.cut_off()
        cut = page.locator(f"{SHOWN} .tcs-heading").evaluate(
            "e => e.getBoundingClientRect().right"
            " > e.closest('.jp-OutputArea-output').getBoundingClientRect().right + 1"
        )
    assert wide == [], "these outputs are cut off"
    assert not cut, "the heading is cut off"
