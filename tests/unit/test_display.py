"""helpers.display: escaping, contrast, tables, progress, expected errors."""

from __future__ import annotations

import io
import re
import time

import pytest

from helpers import display
from helpers.display import View, expect_error, progress


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2.1, from #rrggbb."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, two: str) -> float:
    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("palette", "pages"),
    [(display.LIGHT, ["#ffffff", "#f5f5f5"]), (display.DARK, ["#111111", "#1e1e1e", "#212121"])],
    ids=["light", "dark"],
)
def test_every_text_colour_reads_on_every_ground(palette: dict, pages: list[str]) -> None:
    grounds = {*pages, palette["panel"], palette["page"]}
    texts = {name: c for name, c in palette.items() if name not in ("line", "panel", "page")}
    poor = {
        (name, ground): round(contrast(colour, ground), 2)
        for name, colour in texts.items()
        for ground in grounds
        if contrast(colour, ground) < 4.5
    }
    assert poor == {}


def test_the_contrast_formula_knows_its_extremes() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") < 4.5


@pytest.mark.parametrize(
    "made",
    [
        display.table_html(["<b>"], [["<script>x</script>"]], "<i>&"),
        display.notice_html("<script>x</script>", "warning"),
        display.code_html("x = '<script>'", "python"),
        display.heading_html("<script>"),
        display.sentence_html("<script>"),
        display.details_html("<script>", "inner"),
    ],
)
def test_text_is_escaped(made: str) -> None:
    assert "<script>" not in made
    assert "&lt;" in made


def test_a_table_in_both_forms() -> None:
    table = display.table(["name", "n"], [["a", 1], ["long name", 22]], "Things")
    assert str(table) == "Things\nname       n\n---------  --\na          1\nlong name  22"
    assert table._repr_html_().count("<tr>") == 3
    assert '<th scope="col">name</th>' in table.html
    assert "<caption>Things</caption>" in table.html
    assert len(repr(table)) < 60


def test_an_empty_table_has_its_head() -> None:
    assert display.table_text(["a", "b"], []) == "a  b\n-  -"


def test_code_is_marked_by_language_and_an_unknown_one_is_shown_plain() -> None:
    assert '<span class="k">def</span>' in display.code_html("def f(): pass", "python")
    plain = display.code_html("def f(): pass", "no such language")
    assert "def f(): pass" in plain


def test_an_unknown_kind_of_notice_is_refused() -> None:
    with pytest.raises(ValueError, match="note, ok, warning, error"):
        display.notice_html("x", "shout")


@pytest.mark.parametrize("kind", display.NOTICES)
def test_a_notice_says_its_kind_in_words(kind: str) -> None:
    assert f"<b>{display.NOTICES[kind]}:</b> hello" in display.notice_html("hello", kind)


def test_progress_leaves_one_line_where_there_is_no_terminal(capsys: pytest.CaptureFixture) -> None:
    with progress("counting", expected_s=5):
        pass
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(r"counting: done in \d+\.\d s\n", err)


def test_progress_says_when_it_was_stopped(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), progress("counting"):
        _ = 1 / 0
    assert re.fullmatch(r"counting: stopped after \d+\.\d s\n", capsys.readouterr().err)


def test_progress_counts_and_never_looks_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    line = display._ProgressLine("compiling", expected_s=10, stream=io.StringIO())
    monkeypatch.setattr(line, "started", time.perf_counter() - 4)
    assert "width:40%" in line.view().html
    assert str(line.view()) == "compiling: 4 s of about 10 s"
    monkeypatch.setattr(line, "started", time.perf_counter() - 1000)
    assert "width:95%" in line.view().html


def test_progress_in_a_notebook_updates_one_output(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[View] = []

    class Handle:
        def update(self, view: View) -> None:
            shown.append(view)

    def fake_display(view: View, display_id: bool) -> Handle:
        assert display_id
        shown.append(view)
        return Handle()

    pytest.importorskip("IPython")
    monkeypatch.setattr("IPython.display.display", fake_display)
    monkeypatch.setattr(display, "_in_notebook", lambda: True)
    with progress("compiling"):
        time.sleep(0.7)  # longer than one tick
    assert len(shown) >= 3
    assert str(shown[-1]).startswith("compiling: done in")


def test_an_expected_error_is_printed(capsys: pytest.CaptureFixture) -> None:
    with expect_error("ValueError"):
        raise ValueError("first line\nsecond line")
    assert capsys.readouterr().out == "ValueError: first line\n"


def test_a_base_class_is_enough(capsys: pytest.CaptureFixture) -> None:
    with expect_error("LookupError"):
        raise KeyError("x")
    assert capsys.readouterr().out == "KeyError: 'x'\n"


def test_no_error_and_another_error_both_fail() -> None:
    with (
        pytest.raises(AssertionError, match="expected the error ValueError"),
        expect_error("ValueError"),
    ):
        pass
    with pytest.raises(KeyError), expect_error("ValueError"):
        raise KeyError("x")
