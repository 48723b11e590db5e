"""Lesson 00 as a learner meets it: run, controls, keyboard, errors, accessibility, themes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(420)]

# A panel that looks right at first and then fails, in two ways, for the test of the tests.
BROKEN = {
    "a callback that raises": (
        "def broken(self, change=None):\n"
        "    if getattr(self, 'begun', False):\n"
        "        raise RuntimeError('a broken callback')\n"
        "    self.begun = True\n"
        "    original(self, change)"
    ),
    "a view that is not updated": (
        "def broken(self, change=None):\n"
        "    if not getattr(self, 'begun', False):\n"
        "        self.begun = True\n"
        "        original(self, change)"
    ),
}


def change_rows(page: Any, rows: int, timeout_s: float = 30) -> None:
    """Types a number of rows and insists that the view shows it."""
    from playwright.sync_api import expect

    box = page.get_by_label("rows", exact=True)
    box.fill(str(rows))
    box.press("Enter")
    facts = page.locator(".widget-html .tcs-facts")
    expect(facts).to_contain_text(f"shape (4, {rows}, 64)", timeout=timeout_s * 1000)
    expect(facts).to_contain_text("the same operations", timeout=timeout_s * 1000)


def test_the_server_asks_for_its_token(server: Any) -> None:
    assert server.answers("/api/contents") == 403
    assert server.answers("/api/contents", server.token) == 200


def test_the_lesson_runs_without_an_error(lesson: Any) -> None:
    lesson.assert_ran()
    assert lesson.page.locator(".jp-OutputArea-output svg[role=img]").count() >= 4


def test_a_control_changes_what_is_shown(lesson: Any) -> None:
    change_rows(lesson.page, 96)
    change_rows(lesson.page, 128)


def test_the_switch_brings_new_operations(lesson: Any) -> None:
    from playwright.sync_api import expect

    facts = lesson.page.locator(".widget-html .tcs-facts")
    lesson.page.get_by_label("causal", exact=True).check()
    expect(facts).to_contain_text("new: ones_like, triu, masked_fill", timeout=30_000)
    lesson.page.get_by_label("causal", exact=True).uncheck()
    expect(facts).to_contain_text("gone: ones_like, triu, masked_fill", timeout=30_000)


def test_a_new_function_by_keyboard_alone(lesson: Any) -> None:
    from playwright.sync_api import expect

    lesson.type_function("def soft_step(x):\nreturn torch.sigmoid(x) * x.tanh()")
    error = lesson.page.locator(".widget-html .tcs-error")
    expect(error).to_contain_text("line 2: Python cannot read this", timeout=30_000)
    lesson.type_function("def soft_step(x):\n    return torch.sigmoid(x) * x.tanh()")
    expect(error).to_have_count(0, timeout=30_000)
    picture = lesson.page.locator(".widget-html svg[role=img]")
    expect(picture).to_contain_text("sigmoid")
    expect(picture).to_contain_text("tanh")
    expect(picture).not_to_contain_text("softmax")


def test_enter_keeps_the_indentation_and_shift_enter_takes_the_text(lesson: Any) -> None:
    from playwright.sync_api import expect

    page, facts = lesson.page, lesson.page.locator(".widget-html .tcs-facts")
    page.get_by_label("Your function", exact=True).click()
    page.keyboard.press("Control+A")
    page.keyboard.type("def typed(x):\ny = x.exp()\nreturn y.cos()")
    page.keyboard.press("Shift+Enter")
    expect(facts).to_contain_text("new: exp, cos", timeout=30_000)
    assert page.evaluate("document.activeElement.tagName") == "TEXTAREA"
    text = page.get_by_label("Your function", exact=True).input_value()
    assert text == "def typed(x):\n    y = x.exp()\n    return y.cos()"


def test_letters_typed_on_a_control_are_no_commands_of_jupyterlab(lesson: Any) -> None:
    page = lesson.page
    cells = page.locator(".jp-Cell").count()
    for label in ("batch", "dtype", "causal"):
        control = page.get_by_label(label, exact=True)
        if control.count() and control.is_enabled():
            control.focus()
            page.keyboard.type("xxddzab")
    page.get_by_role("button", name="Show the graph").focus()
    page.keyboard.type("xxddab")
    assert page.locator(".jp-Cell").count() == cells
    page.get_by_label("batch", exact=True).select_option("4")
    page.get_by_label("dtype", exact=True).select_option("float32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x):\n    return x + nothing", "line 2: NameError: name 'nothing' is not defined"),
        ("x = 3", "No function found"),
        ("def f(x):\n    print(x.sum())\n    return x * 2", "a graph break at line 2"),
    ],
)
def test_what_is_wrong_is_said_in_the_pane(lesson: Any, text: str, message: str) -> None:
    from playwright.sync_api import expect

    lesson.type_function(text)
    notice = lesson.page.locator(".widget-html .tcs-notice").first
    expect(notice).to_contain_text(message, timeout=30_000)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_serious_accessibility_fault_in_the_outputs(lesson: Any, dark: bool) -> None:
    lesson.use_theme(dark)
    lesson.assert_accessible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_both_themes_and_a_large_zoom_show_the_whole_panel(lesson: Any, dark: bool) -> None:
    page = lesson.page
    lesson.use_theme(dark)
    for label in ("Your function", "batch", "rows", "width", "dtype"):
        page.get_by_label(label, exact=True).scroll_into_view_if_needed()
    lesson.picture(f"panel_{'dark' if dark else 'light'}")
    with lesson.at_200_percent():
        page.get_by_label("dtype", exact=True).scroll_into_view_if_needed()
        lesson.picture(f"panel_{'dark' if dark else 'light'}_200_percent")
        wide = lesson.cut_off()
    assert wide == [], "these outputs are cut off"


def test_stored_outputs_show_without_kernel_and_javascript(lesson: Any, browser: Any) -> None:
    import nbformat
    from nbconvert import HTMLExporter

    contents = lesson.contents()
    contents["metadata"].pop("widgets", None)
    page = browser.new_page(java_script_enabled=False)
    page.set_content(HTMLExporter().from_notebook_node(nbformat.from_dict(contents))[0])
    pictures = page.locator("svg[role=img]")
    assert pictures.count() >= 4
    for i in range(pictures.count()):
        assert pictures.nth(i).bounding_box()["height"] > 100
    page.close()


def test_a_notebook_that_is_not_trusted_shows_images_instead(
    lesson: Any, open_notebook: Any, server: Any
) -> None:
    contents = lesson.contents()
    contents["metadata"]["from_elsewhere"] = True  # so that no signature fits
    (server.folder / "untrusted.ipynb").write_text(json.dumps(contents), encoding="utf-8")
    notebook = open_notebook("untrusted.ipynb")
    assert notebook.page.locator(".jp-OutputArea-output svg[role=img]").count() == 0
    images = notebook.page.locator(".jp-OutputArea-output .tcs-instead img")
    assert images.count() >= 4
    for i in range(images.count()):
        assert images.nth(i).bounding_box()["height"] > 100
        assert images.nth(i).get_attribute("alt")
    assert "4 × 64 × 128 · line 2" not in notebook.page.locator(".jp-Notebook").inner_text()
    assert not lesson.page.locator(".tcs-instead img").first.is_visible()
    images.nth(1).scroll_into_view_if_needed()
    notebook.picture("not_trusted")
    notebook.page.close()


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_panel_turns_the_check_red(open_notebook: Any, server: Any, fault: str) -> None:
    import nbformat

    code = (
        "import torch\nfrom helpers.widgets import GraphPanel, graph_panel\n"
        f"original = GraphPanel._changed\n{BROKEN[fault]}\nGraphPanel._changed = broken\n"
        "graph_panel('def f(x):\\n    return torch.relu(x)', shape=(4, 128, 64))"
    )
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = nbformat.v4.new_notebook(metadata=kernel, cells=[nbformat.v4.new_code_cell(code)])
    name = f"broken_{re.sub(r'[^a-z]+', '_', fault)}.ipynb"
    (server.folder / name).write_text(nbformat.writes(book), encoding="utf-8")
    notebook = open_notebook(name)
    notebook.run_all(timeout_s=120)
    with pytest.raises(AssertionError, match="shape \\(4, 96, 64\\)"):
        change_rows(notebook.page, 96, timeout_s=6)
    notebook.page.close()
