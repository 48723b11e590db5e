"""Lesson 04 as a learner meets it: run, the game by mouse and keyboard, errors, accessibility."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(420)]
WAIT_MS = 30_000
PANEL = ".jp-OutputArea-output:has(button:text-is('Run this call'))"


def shown(page: Any, text: str) -> None:
    """Insists that the panel, and not only the static view above it, comes to show a text."""
    from playwright.sync_api import expect

    expect(page.locator(PANEL)).to_contain_text(text, timeout=WAIT_MS)


def choose(page: Any, label: str, value: str) -> None:
    page.locator(PANEL).get_by_label(label, exact=True).select_option(value)


def press(page: Any, name: str) -> None:
    page.locator(PANEL).get_by_role("button", name=name).click()


def play(page: Any, number: int, prediction: str, sentence: str) -> None:
    """Predicts the next call, runs it by mouse, and insists on what the panel then says."""
    choose(page, "Your prediction", prediction)
    press(page, "Run this call")
    shown(page, f"Call {number}: {sentence}")


def test_the_lesson_runs_without_an_error(lesson: Any) -> None:
    lesson.assert_ran()


def test_a_round_is_played_by_mouse_and_marked_by_what_really_happens(lesson: Any) -> None:
    page = lesson.page
    choose(page, "Round", "1 Sizes")
    press(page, "Start this round again")
    press(page, "Run this call")
    shown(page, "Choose a prediction for call 1 first.")
    play(page, 1, "compiled", "✓ right. You said compiled.")
    play(page, 2, "reused", "✓ right. You said reused.")
    play(page, 3, "recompiled", "✗ wrong. You said recompiled; it was promoted.")
    shown(page, "expected 8, actual 3")
    play(page, 4, "reused", "✓ right.")
    play(page, 5, "reused", "✗ wrong. You said reused; it was recompiled.")
    lesson.picture("game_light")
    play(page, 6, "reused", "✓ right.")
    shown(page, "All calls have run: 4 of 6 right. Choose another round.")


def test_a_round_is_played_by_keyboard_alone(lesson: Any) -> None:
    page = lesson.page
    choose(page, "Round", "6 The limit")
    shown(page, "Seven calls were made already")
    page.locator(PANEL).get_by_label("Your prediction", exact=True).focus()
    for number, letters, mark in (
        (1, "e", "✗ wrong. You said eager; it was recompiled."),
        (2, "e", "✓ right. You said eager."),
        (3, "reu", "✓ right. You said reused."),
    ):
        page.keyboard.type(letters)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        shown(page, f"Call {number}: {mark}")
        page.keyboard.press("Shift+Tab")
    shown(page, "So far 2 of 3 right.")
    kinds = [cell["cell_type"] for cell in lesson.contents()["cells"]]
    assert kinds.count("code") > 40  # no key was taken for a shortcut that cuts the cell


def test_a_learner_builds_a_queue(lesson: Any) -> None:
    page = lesson.page
    choose(page, "Round", "Your own queue")
    shown(page, "Add a call first.")
    panel = page.locator(PANEL)
    press(page, "Add this call")
    shown(page, "Added call 1: x: (8, 3) float32 · scale=2.0 · kind='relu'.")
    choose(page, "gradient", "under no_grad")
    choose(page, "layout", "transposed")
    press(page, "Add this call")
    shown(page, "Added call 2: x: (3, 8) float32, transposed")
    play(page, 1, "compiled", "✓ right.")
    play(page, 2, "reused", "✗ wrong. You said reused; it was")
    shown(page, "another setting of grad mode")
    panel.scroll_into_view_if_needed()
    lesson.picture("game_own_light")
    text = panel.get_by_label("scale", exact=True)
    text.fill("fast")
    press(page, "Add this call")
    shown(page, "scale is a number such as 2.0 or 3; got 'fast'.")
    text.fill("2.0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x):\nreturn x", "line 2: Python cannot read this"),
        ("def f(x):\n    return x + nothing", "line 2: NameError: name 'nothing' is not defined"),
    ],
)
def test_what_is_wrong_with_the_function_is_said(lesson: Any, text: str, message: str) -> None:
    page = lesson.page
    choose(page, "Round", "Your own queue")
    editor = page.locator(PANEL).get_by_label("Your function", exact=True)
    editor.fill(text)
    editor.blur()
    shown(page, "A new function: the queue is empty.")
    press(page, "Add this call")
    if "NameError" in message:
        shown(page, "Added call 1")
        choose(page, "Your prediction", "compiled")
        press(page, "Run this call")
    shown(page, message)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_accessibility_fault_in_the_outputs(lesson: Any, dark: bool) -> None:
    page = lesson.page
    lesson.use_theme(dark)
    choose(page, "Round", "2 A number and a word")
    press(page, "Start this round again")
    play(page, 1, "compiled", "✓ right.")
    play(page, 2, "reused", "✗ wrong.")
    page.locator(PANEL).scroll_into_view_if_needed()
    lesson.picture(f"game_{'dark' if dark else 'light'}")
    picture = page.get_by_label("picture: compilations and padding")
    picture.scroll_into_view_if_needed()
    lesson.picture(f"bucketing_{'dark' if dark else 'light'}")
    lesson.assert_accessible()


def test_nothing_is_cut_off_at_a_large_zoom(lesson: Any) -> None:
    page = lesson.page
    with lesson.at_200_percent():
        for name in ("3 What the call does not show", "Your own queue"):
            choose(page, "Round", name)
            page.locator(PANEL).get_by_label("Your prediction").scroll_into_view_if_needed()
            lesson.picture(f"game_200_percent_{name[:1]}")
            assert lesson.cut_off() == []
