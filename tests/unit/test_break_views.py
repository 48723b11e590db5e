"""Breaks to look at: the strip, the cards, and the same as plain text."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch

from helpers.break_strip import EFFECTS, Piece, strip_pieces, strip_sentence, strip_svg
from helpers.break_views import breaks_html, breaks_text, card_html, place_text
from helpers.graph_breaks import GraphBreak, GraphBreaks, explain_graph_breaks
from helpers.origin import Origin

ONE = GraphBreak(
    reason="Data-dependent branching",
    gb_id="GB0170",
    filename="model.py",
    lineno=4,
    source_line="if y.sum() > 0:",
    effect="split",
    explanation="The value is known only when the code runs.",
    fix="Use torch.where.",
    call_paths=(("forward", "block"),),
    count=1,
    in_framework=False,
    title="A branch on a tensor's value",
    change="y = torch.where(y.sum() > 0, y * 2, y)",
    message="Data-dependent branching\n  Explanation: whole text",
)


def found(*breaks: GraphBreak, graphs: int = 2, error: Exception | None = None) -> GraphBreaks:
    return GraphBreaks(breaks, None, error, graphs, (), Origin("live", "cpu", "2", "today"))


def branch(x: torch.Tensor) -> torch.Tensor:
    y = torch.relu(x)
    if y.sum() > 0:
        y = y * 2
    return y + 1


def kinds(pieces: tuple[Piece, ...]) -> list[str]:
    return [one.kind for one in pieces]


def test_a_real_break_is_shown_with_its_line_marked() -> None:
    seen = explain_graph_breaks(branch, torch.ones(3))
    html, text = breaks_html(seen), breaks_text(seen)
    line = branch.__code__.co_firstlineno + 2
    assert f"line {line} of test_break_views.py, in branch" in html
    assert re.search(rf"tcs-break-line\">▶ *{line} \| +if y.sum\(\) &gt; 0:", html)
    assert f"{line - 1} |" in html and f"{line + 1} |" in html
    assert f"1. line {line} of test_break_views.py, in branch (split in two): if y.sum" in text
    assert seen._repr_html_() == html


def test_a_split_has_numbered_graphs_on_both_sides() -> None:
    assert strip_pieces(found(ONE)) == (
        Piece("graph", "graph 0", "before"),
        Piece("cut", "✂ line 4", "if y.sum() > 0:"),
        Piece("graph", "graph 1", "after"),
    )


def test_stretches_are_not_numbered_where_callers_were_cut_too() -> None:
    seen = found(replace(ONE, count=3), graphs=5)
    titles = [one.title for one in strip_pieces(seen)]
    assert titles == ["compiled", "✂ line 4", "compiled"]
    assert "5 graphs" in strip_sentence(seen) and "cuts every function" in strip_sentence(seen)


def test_the_rest_is_pythons_after_a_break_that_cannot_be_resumed() -> None:
    pieces = strip_pieces(found(replace(ONE, effect="rest_eager"), graphs=1))
    assert kinds(pieces) == ["graph", "cut", "python"]
    assert pieces[-1].detail == "rest of block"


def test_a_skipped_function_has_no_graph_before_it() -> None:
    pieces = strip_pieces(found(replace(ONE, effect="frame_skipped"), graphs=0))
    assert kinds(pieces) == ["cut", "python"]
    assert pieces[-1].detail == "all of block"


def test_no_break_is_one_piece() -> None:
    assert kinds(strip_pieces(found(graphs=1))) == ["graph"]
    assert kinds(strip_pieces(found(graphs=0))) == ["python"]
    assert strip_sentence(found(graphs=1)) == "No graph break; 1 graph."


@pytest.mark.parametrize("effect", EFFECTS)
def test_every_effect_is_said_in_words(effect: str) -> None:
    card = card_html(replace(ONE, effect=effect), 1)
    _, words, costs = EFFECTS[effect]
    assert f"{words}</span>" in card and costs in card


def test_a_card_has_reason_repair_change_paths_and_torchs_own_words() -> None:
    card = card_html(ONE, 2)
    for part in (
        "2. line 4 of model.py, in block",
        "A branch on a tensor&#x27;s value. The value is known only",
        "Use torch.where.",
        "forward → block",
        "GB0170",
        "Explanation: whole text",
    ):
        assert part in card
    assert "torch" in re.search(r"smallest change:(.*?)<details", card, re.DOTALL)[1]


def test_a_change_in_words_shows_its_code_as_code() -> None:
    card = card_html(replace(ONE, change="write `a < b` instead"), 1)
    assert "change:</b> write <code>a &lt; b</code> instead</p>" in card


def test_what_a_learner_wrote_cannot_become_markup() -> None:
    card = card_html(replace(ONE, source_line="<script>x</script>", fix="<b>no</b>"), 1)
    assert "<script>" not in card and "<b>no</b>" not in card


def test_torchs_words_come_without_folders() -> None:
    said = 'File "/one/two/model.py", line 3\n  File "/tmp/ipykernel_7/12.py", line 1, or a/b.py'
    card = card_html(replace(ONE, message=said, fix="see /one/two/model.py:3"), 1)
    assert "/one" not in card and "ipykernel" not in card
    assert "File &quot;model.py&quot;, line 3" in card and "see model.py:3" in card
    assert "File &quot;cell&quot;, line 1, or a/b.py" in card


def test_a_break_in_torchs_code_names_the_line_that_leads_there() -> None:
    entry = ("own.py", 9, "y = F.interesting(x)")
    card = card_html(replace(ONE, in_framework=True, entry=entry), 1)
    assert "torch&#x27;s own code" in card and "line 9 of own.py" in card
    assert "y = F.interesting(x)" in card
    assert "own.py" not in card_html(replace(ONE, entry=entry), 1)


def test_a_change_of_behaviour_is_loud() -> None:
    seen = found(ONE, error=AttributeError("no label\nmore"))
    for shown in (breaks_html(seen), breaks_text(seen)):
        assert "behaves differently" in shown and "AttributeError: no label." in shown
    assert "behaves differently" not in breaks_html(found(ONE))


def test_the_strip_is_a_picture_with_words_and_goes_on_in_a_second_row() -> None:
    many = tuple(replace(ONE, lineno=n) for n in range(1, 13))
    seen = found(*many, graphs=13)
    pieces, sentence = strip_pieces(seen), strip_sentence(seen)
    svg = strip_svg(pieces, sentence)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img" and root.get("aria-label") == sentence
    boxes = root.findall(".//{*}rect")
    assert len(boxes) == len(pieces) == 25
    width = float(root.get("width"))
    assert max(float(b.get("x")) + float(b.get("width")) for b in boxes) <= width < 1100
    assert len({b.get("y") for b in boxes}) == 4


def test_a_very_long_call_has_words_and_no_picture() -> None:
    many = tuple(replace(ONE, lineno=n) for n in range(1, 31))
    html = breaks_html(found(*many, graphs=31))
    assert "<svg" not in html and "30 graph breaks, 31 graphs" in html


def test_places_are_named_as_a_person_would() -> None:
    assert place_text("/somewhere/ipykernel_12/34.py", 3) == "line 3 of the cell"
    assert place_text("<your_function>", 3) == "line 3 of your text"
    assert place_text("/somewhere/model.py", 3) == "line 3 of model.py"
