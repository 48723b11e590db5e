"""Breaks to look at: the strip, the cards, and the same as plain text."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import torch

from helpers.break_reports import GraphBreak, GraphBreaks
from helpers.break_strip import EFFECTS, Piece, strip_pieces, strip_sentence, strip_svg
from helpers.break_views import breaks_html, breaks_text, card_html, inline_html, place_text
from helpers.graph_breaks import explain_graph_breaks
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
    assert f"<p>line {line} of test_break_views.py, in branch</p>" in html
    assert re.search(rf"tcs-break-line\">▶ *{line} \| +if y.sum\(\) &gt; 0:", html)
    assert f"{line - 1} |" in html and f"{line + 1} |" in html
    assert f"   line {line} of test_break_views.py, in branch: if y.sum() > 0:" in text
    assert f"1. {seen[0].title} (split in two)" in text
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
    assert titles == ["compiled", "✂ line 4 (3×)", "compiled"]
    assert "5 graphs" in strip_sentence(seen) and "cuts every function" in strip_sentence(seen)


def test_the_rest_is_pythons_after_a_break_that_cannot_be_resumed() -> None:
    pieces = strip_pieces(found(replace(ONE, effect="rest_eager"), graphs=1))
    assert kinds(pieces) == ["graph", "cut", "python"]
    assert pieces[-1].detail == "rest of block"


def test_a_skipped_function_has_no_graph_before_it() -> None:
    pieces = strip_pieces(found(replace(ONE, effect="frame_skipped"), graphs=0))
    assert kinds(pieces) == ["cut", "python"]
    assert pieces[-1].detail == "all of block"


def test_the_function_that_pays_is_named_and_its_caller_goes_on() -> None:
    path = (("forward", "block", "log"),)
    one = replace(ONE, call_paths=path, function="block", effect="frame_skipped")
    pieces = strip_pieces(found(one, graphs=2))
    assert kinds(pieces) == ["graph", "cut", "python", "graph"]
    assert pieces[2].detail == "all of block"
    whole = replace(ONE, lineno=9, function="forward", effect="frame_skipped")
    assert kinds(strip_pieces(found(one, whole, graphs=0))) == ["cut", "python"] * 2
    assert kinds(strip_pieces(found(replace(one, function="forward"), graphs=2))) == [
        "cut", "python"]  # fmt: skip


def test_no_piece_is_called_compiled_where_there_is_no_graph() -> None:
    assert kinds(strip_pieces(found(ONE, graphs=0))) == ["cut"]
    seen = found(ONE, replace(ONE, lineno=5), graphs=2)
    assert "1 of the 3 stretches computes nothing with tensors, and so has no" in strip_sentence(
        seen
    )


def test_the_strip_ends_where_the_compiled_run_stopped() -> None:
    pieces = strip_pieces(found(ONE, graphs=1, error=AttributeError("no label")))
    assert kinds(pieces) == ["graph", "cut", "python"]
    assert (pieces[-1].title, pieces[-1].detail) == ("stops here", "AttributeError")


def test_lines_are_listed_by_effect_and_with_their_file_where_there_are_several() -> None:
    three = [replace(ONE, lineno=n) for n in (4, 6, 9)]
    last = replace(ONE, filename="other.py", effect="frame_skipped")
    assert "lines 4, 6 and 9 (split in two)." in strip_sentence(found(*three, graphs=4))
    sentence = strip_sentence(found(*three, last, graphs=4))
    assert "lines 4, 6 and 9 of model.py (split in two), line 4 of other.py (whole" in sentence


def test_no_break_is_one_piece() -> None:
    assert kinds(strip_pieces(found(graphs=1))) == ["graph"]
    assert kinds(strip_pieces(found(graphs=0))) == ["python"]
    assert strip_sentence(found(graphs=1)) == "No graph break; 1 graph."


@pytest.mark.parametrize("effect", EFFECTS)
def test_every_effect_is_said_in_words(effect: str) -> None:
    card = card_html(replace(ONE, effect=effect), 1)
    _, words, more = EFFECTS[effect]
    assert f"{words}</span>" in card and more in card
    named = replace(ONE, effect=effect, function="`block`").effect_words
    assert inline_html(named) in card and "<code>block</code>" in card


def test_a_card_has_reason_repair_change_paths_and_torchs_own_words() -> None:
    card = card_html(ONE, 2)
    for part in (
        "<b>2. A branch on a tensor&#x27;s value</b>",
        "<p>line 4 of model.py, in block</p>",
        "<b>Why:</b> The value is known only",
        "torch calls it: Data-dependent branching (GB0170)",
        "Use torch.where.",
        "forward → block",
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


def test_files_of_a_notebook_are_named_as_the_cell_and_folders_are_left_out() -> None:
    file = "/tmp/ipykernel_7/3132012392.py"
    fix = "your code leads to it at 3132012392.py, line 6: opt.step()."
    one = replace(ONE, filename="/env/torch/optim/sgd.py", in_framework=True, fix=fix)
    card = card_html(replace(one, entry=(file, 6, "opt.step()")), 1)
    assert "leads to it at the cell, line 6" in card
    assert "3132012392" not in card and "/env" not in card
    notes = replace(found(ONE), notes=("It stands in /env/torch/functional.py.",))
    for shown in (breaks_html(notes), breaks_text(notes)):
        assert "It stands in functional.py." in shown and "/env" not in shown


def test_what_an_earlier_card_has_explained_is_folded() -> None:
    again = replace(ONE, lineno=9)
    page = breaks_html(found(ONE, replace(ONE, lineno=6, fix="Another."), again, graphs=4))
    assert page.count("Why, and the repair: as in 1 above") == 1
    assert page.count("Use torch.where.") == 2  # the words are there, behind the title


def test_a_break_that_is_met_more_than_once_says_so() -> None:
    assert "in block; Dynamo met it 3 times</p>" in card_html(replace(ONE, count=3), 1)
    assert "Dynamo met it" not in card_html(ONE, 1)


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
