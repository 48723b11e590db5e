"""The browser of torch's own list of graph breaks, in a cell and as a panel."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import ipywidgets
import pytest
import torch

from helpers import (
    break_registry,
    explain_graph_breaks,
    graph_break_registry,
    registry_panel,
    registry_view,
)
from helpers.break_causes import load_causes
from helpers.break_registry import SHOWN, Registry
from helpers.panel_keys import PanelKeys

FILE = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
has_list = pytest.mark.skipif(not FILE.exists(), reason="this torch brings no list")

TWO = {
    "GB0002": [
        {
            "Gb_type": "Call of <frob>",
            "Context": "call {name}",
            "Explanation": "Dynamo cannot trace frob.",
            "Hints": ["Avoid frob."],
        },
        {"Gb_type": "Data-dependent branching", "Context": "", "Explanation": "Old", "Hints": []},
    ],
    "GB0010": [{"Gb_type": "Other", "Context": "", "Explanation": "Never seen", "Hints": []}],
}


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of two entries, read from a file as torch writes it."""
    file = tmp_path / "registry.json"
    file.write_text(json.dumps(TWO))
    return _reading(file, monkeypatch)


@pytest.fixture
def none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """What a torch without a list gives."""
    return _reading(tmp_path / "there is none", monkeypatch)


def _reading(file: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setattr(break_registry, "_FILE", file)
    read = graph_break_registry.__wrapped__
    registry = read()
    monkeypatch.setattr(break_registry, "graph_break_registry", lambda: registry)
    return registry


@has_list
def test_it_is_torchs_whole_list() -> None:
    data = json.loads(FILE.read_text())
    registry = graph_break_registry()
    assert [one.gb_id for one in registry] == sorted(data)
    assert len(registry) == len(data) > 300 and registry[0].title == data["GB0000"][0]["Gb_type"]
    assert registry.missing == ""


@has_list
def test_an_id_and_a_link_are_those_of_torchs_message() -> None:
    def fn(x):
        print("here")
        return x + 1

    [found] = explain_graph_breaks(fn, torch.ones(2))
    [entry] = graph_break_registry().search(found.gb_id)
    assert entry.title == found.reason and entry.link in found.message
    assert "print" in [cause.id for cause in entry.causes]


@has_list
def test_every_cause_that_breaks_here_is_linked() -> None:
    linked = {cause.id for entry in graph_break_registry() for cause in entry.causes}
    version = torch.__version__.split("+")[0]
    assert {one.id for one in load_causes() if version in one.breaks_on} <= linked


@pytest.mark.parametrize("text", ["GB0002", "gb2", "2", " gb0002 "])
def test_an_id_finds_its_entry_alone(two: Registry, text: str) -> None:
    assert [one.gb_id for one in two.search(text)] == ["GB0002"]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", ["GB0002", "GB0010"]),
        ("FROB avoid", ["GB0002"]),
        ("frob seen", []),
        ("seen never", ["GB0010"]),
        ("torch.where", ["GB0002"]),  # a word of our repair
    ],
)
def test_all_words_must_occur_somewhere(two: Registry, text: str, ids: list[str]) -> None:
    assert [one.gb_id for one in two.search(text)] == ids


def test_the_newest_wording_is_shown_and_older_ones_link_our_causes_too(two: Registry) -> None:
    assert two[0].title == "Call of <frob>"
    assert two[0].cause.id == "branch-on-tensor" and two[1].cause is None
    assert two[0].link.endswith("/gb/gb0002.html")
    page = two[0]._repr_html_()
    assert "Call of &lt;frob&gt;" in page and "<frob>" not in page
    assert f'href="{two[0].link}"' in page and "Avoid frob." in page
    assert "It breaks:" in page and "Repaired:" in page
    assert "no repair of our own" in two[1]._repr_html_()
    assert two[0].cause.fix in str(two[0]) and two[0].link in str(two[0])


def test_the_view_counts_and_escapes(two: Registry) -> None:
    assert "2 kinds of graph break in torch" in str(two) and "1 of them with our repairs" in str(
        two
    )
    assert "first" not in two.sentence()
    assert "Call of &lt;frob&gt;" in two._repr_html_()
    found = two.search("never")
    assert found.sentence().startswith("1 kind of graph break")
    assert found.sentence().endswith("found for “never”.")
    assert "<table>" not in two.search("no such thing")._repr_html_()


def test_only_the_first_are_shown_and_it_is_said(two: Registry) -> None:
    many = Registry(two.entries * SHOWN)
    assert many.sentence().endswith(f"; the first {SHOWN} are shown.")
    assert many._repr_html_().count("<tr>") == SHOWN + 1


def test_without_a_list_it_says_so_and_shows_our_own_causes(none: Registry) -> None:
    assert len(none) == 0 and none.missing.endswith("brings no list of its graph breaks.")
    assert len(none.shown()) == len(load_causes())
    assert str(none).startswith(none.missing) and none.missing in none._repr_html_()
    found = none.search("torch.nan_to_num")
    assert [one.cause.id for one in found.shown()] == ["check-for-nan"]
    assert found.shown()[0].gb_id == found.shown()[0].link == ""
    assert none.search("no such thing").shown() == ()


def test_the_static_view_can_leave_out_what_has_no_repair(two: Registry) -> None:
    assert [one.gb_id for one in registry_view(only_with_repairs=True)] == ["GB0002"]
    assert [one.gb_id for one in registry_view("other")] == ["GB0010"]
    assert len(registry_view("other", only_with_repairs=True)) == 0


def test_the_panel_lists_what_the_view_finds_and_shows_the_first(two: Registry) -> None:
    panel = registry_panel()
    assert [name for name, _ in panel.results.options] == [
        "GB0002 Call of <frob> (with our repair)",
        "GB0010 Other",
    ]
    assert two[0]._repr_html_() in panel.pane.value
    assert "2 kinds in torch" in panel.status.value and "1 with our repairs" in panel.status.value
    panel.results.value = 1
    assert two[1]._repr_html_() in panel.pane.value


def test_a_chosen_entry_stays_chosen_while_the_search_still_finds_it(two: Registry) -> None:
    panel = registry_panel()
    panel.results.value = 1
    panel.search.value = "other"
    assert panel.chosen == two[1] and panel.results.options == (("GB0010 Other", 0),)
    panel.search.value = ""
    assert panel.chosen == two[1] and panel.results.value == 1
    panel.only.value = True
    assert panel.chosen == two[0] and len(panel.results.options) == 1


def test_a_search_that_finds_nothing_empties_the_panel(two: Registry) -> None:
    panel = registry_panel("no such thing")
    assert panel.chosen is None and panel.results.options == ()
    assert "Nothing found" in panel.status.value and "Nothing to show" in panel.pane.value
    panel.search.value = "frob"
    assert panel.chosen == two[0]


def test_the_panel_without_a_list_shows_our_own_causes(none: Registry) -> None:
    panel = registry_panel("torch.nan_to_num")
    assert [name for name, _ in panel.results.options] == ["A check for NaN or infinity"]
    assert "brings no list" in panel.status.value and "Repaired:" in panel.pane.value


def test_what_only_came_first_while_typing_does_not_stay_chosen(two: Registry) -> None:
    panel = registry_panel("seen")
    assert panel.chosen == two[1]
    panel.search.value = "e"  # both have it; the learner picked neither
    assert panel.chosen == two[0]


@has_list
def test_the_best_match_comes_first() -> None:
    ids = [one.gb_id for one in registry_view("item")]
    assert "Tensor.item()" in registry_view("item")[0].title
    assert sorted(ids) == [one.gb_id for one in graph_break_registry().search("item")]


def test_a_hint_that_is_cut_in_two_is_whole_again_and_code_is_code(two: Registry) -> None:
    hints = ("Avoid `{fn}`.", "If you log (`print`),", "you can do so", "later.")
    page = replace(two[0], hints=hints, explanation="")._repr_html_()
    assert "<li>If you log (<code>print</code>), you can do so later.</li>" in page
    assert "says:</b> no explanation." in page and "{braces}" in page
    assert "{braces}" not in two[1]._repr_html_()
    assert 'target="_blank"' in page  # JupyterLab itself stays open


def test_controls_have_names_and_keys_stay_in_the_panel(two: Registry) -> None:
    panel = registry_panel()
    assert all(one.description for one in (panel.search, panel.only, panel.results))
    assert isinstance(panel.children[-1], PanelKeys)
    assert isinstance(panel, ipywidgets.VBox) and "tcs-controls" in panel._dom_classes
