"""Guards, bytecode, breaks and changes of a capture, as a learner reads them."""

from __future__ import annotations

import html

import pytest
import torch
from torch import nn

from helpers import bytecode_view, capture_graphs, capture_view, changes, guards_view
from helpers.bytecode_table import MARKS
from helpers.capture_views import PANES
from helpers.guards_table import GROUPS, group_guards

GATED = """\
def gated(x, scale=2.0, center=False):
    if center:
        x = x - x.mean(-1, keepdim=True)
    if x.shape[0] > 2:
        x = torch.relu(x)
    return x * scale
"""
BROKEN = "def f(x):\n    y = x.cos()\n    print(y.sum())\n    return y + 1"


class Scorer(nn.Module):
    def __init__(self, depth: int = 1) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(depth))
        self.scale = 2.0

    def forward(self, x: torch.Tensor, kind: str = "plain") -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        if self.training:
            x = nn.functional.dropout(x, 0.1)
        return x * self.scale if kind == "plain" else x


def scaled(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    y = torch.relu(x)
    return y * scale


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    return Scorer()


def test_guards_are_grouped_by_what_they_protect(scorer: Scorer) -> None:
    [graph] = capture_graphs(scorer, torch.ones(3, 8)).graphs
    values, model, rest = (group_guards(graph.guards)[group] for group in GROUPS)
    assert {guard.source for guard in values} == {"x", "kind"}
    found = {guard.words for guard in model}
    assert {"self.training is True", "self.scale equals 2.0"} <= found
    assert any("self.layers.0.weight is a float32 tensor of shape (8, 8)" in w for w in found)
    assert not any("very same object" in words or "hooks" in words for words in found)
    assert any(guard.ambient for guard in rest)
    assert len(values) + len(model) + len(rest) == len(graph.guards)


def test_the_table_of_guards_folds_the_surroundings(scorer: Scorer) -> None:
    [graph] = capture_graphs(scorer, torch.ones(3, 8)).graphs
    view = guards_view(graph)
    seen, folded = view.html.split("<details>", 1)
    assert "self.scale equals 2.0" in seen and "kind equals &#x27;plain&#x27;" in seen
    assert "the default device is as then" not in seen
    assert "the default device is as then" in folded
    assert f"may be used again while all its {len(graph.guards)} guards hold: 2 on your" in seen
    assert "self.training is True" in str(view) and "the default device is as then" in str(view)


def test_a_long_group_shows_twelve_rows_and_folds_the_rest() -> None:
    [graph] = capture_graphs(Scorer(8), torch.ones(3, 8)).graphs
    in_model = len(group_guards(graph.guards)[GROUPS[1]])
    seen, folded = guards_view(graph).html.split("<details>", 1)
    assert in_model >= 18
    assert f"{in_model - 12} more of your model and objects" in folded
    assert seen.count("<code>self.") == 12


def test_the_line_that_asked_is_told_where_torch_tells() -> None:
    [graph] = capture_graphs(scaled, torch.ones(3)).graphs
    view = guards_view(graph)
    if any(guard.lineno for guard in graph.guards):
        assert ": <code>return y * scale</code>" in view.html
    else:  # torch 2.7.1
        assert "asked for by" not in view.html


def test_bytecode_stands_side_by_side_under_its_lines() -> None:
    [graph] = capture_graphs(scaled, torch.ones(3)).graphs
    view = bytecode_view(graph)
    assert ": <code>y = torch.relu(x)</code>" in view.html
    assert "__compiled_fn</code> <b>← the graph</b>" in view.html
    assert any(f"<td>{mark}</td>" in view.html for mark in MARKS.values())
    for instruction in (*graph.bytecode_before.instructions, *graph.bytecode_after.instructions):
        assert f"<code>{html.escape(str(instruction))}</code>" in view.html
    assert "record_pregraph" not in view.html + str(view)  # how Dynamo times itself is left out
    cells = view.html.count("<code>")
    lines = len({one.lineno for one in graph.bytecode_before.instructions})
    both = len(graph.bytecode_before.instructions) + len(graph.bytecode_after.instructions)
    # A line may come more than once, never less.
    assert cells >= both + lines
    assert "which call the graph." in str(view)


def test_the_call_of_the_graph_is_not_shown_as_the_call_that_was_there() -> None:
    [graph] = capture_graphs(scaled, torch.ones(3)).graphs
    rows = [line.split("  ") for line in str(bytecode_view(graph)).splitlines()]
    calls = [row for row in rows if row[0].strip() == "CALL"]
    assert calls and not any(MARKS["="] in map(str.strip, row) for row in calls)
    [returned] = [row for row in rows if row[0].strip() == "RETURN_VALUE"]
    assert MARKS["="] in map(str.strip, returned)


def test_the_rest_of_a_broken_function_is_pointed_out() -> None:
    view = capture_view(BROKEN)
    assert "← the rest of your function" in view.panes["bytecode"]
    assert "2 graphs with 3 operations" in str(view)
    assert "a graph break at line 3, 'print(y.sum())'." in str(view)
    assert "To repair: " in str(view)
    assert str(view).count("graph break at line 3") == 1
    assert "your function printed: tensor(" in view.top


def test_a_new_shape_is_said_as_guard_and_op() -> None:
    old = capture_view(GATED, (3, 4)).capture
    found = changes(old, capture_view(GATED, (2, 4)).capture)
    assert found.sentences == (
        "op relu is gone.",
        "Guard: x is a float32 tensor of shape (3, 4), contiguous, on the CPU that requires no "
        "gradient; it became: x is a float32 tensor of shape (2, 4), contiguous, on the CPU that "
        "requires no gradient.",
        *[text for text in found.sentences if "bytecode" in text],
        "The result was shape (3, 4), float32, now it is shape (2, 4), float32.",
    )
    assert found.html.count("<li>") == len(found.sentences)
    assert all(sentence in str(found) for sentence in found.sentences)


def test_a_flag_brings_ops_and_a_guard_and_both_are_marked() -> None:
    old = capture_view(GATED, (3, 4)).capture
    view = capture_view(GATED, (3, 4), switch=True, previous=old)
    assert "ops mean, sub are new." in str(view)
    assert "Guard: center is False; it became: center is True." in str(view)
    assert view.panes["graph"].count("> new</tspan>") == 2
    assert "center is True <b>(changed; it was: center is False)</b>" in view.panes["guards"]


def test_a_new_text_brings_and_takes_guards() -> None:
    old = capture_view(GATED, (3, 4)).capture
    view = capture_view("def f(x, power=3.0):\n    return x * power", (3, 4), previous=old)
    assert "New guard: power equals 3.0." in str(view)
    assert "Gone guard: center is False." in str(view)
    assert "power equals 3.0 <b>(new)</b>" in view.panes["guards"]


def test_a_break_is_a_change_of_graphs_and_bytecode() -> None:
    old = capture_view(BROKEN.replace("    print(y.sum())\n", "")).capture
    found = capture_view(BROKEN, previous=old)
    assert "2 graphs instead of 1." in str(found)
    assert "A graph break is new: line 3, print(y.sum())." in str(found)
    assert "graph 0: it now calls the rest of your function" in str(found)
    assert "<b>(new)</b>" in found.panes["bytecode"]


def test_nothing_changed_is_said() -> None:
    one, two = (capture_view(GATED, (3, 4)).capture for _ in range(2))
    found = changes(one, two)
    assert found.sentences == ("Nothing changed in graphs, guards or bytecode.",)
    assert (found.new_ops, dict(found.guards)) == (frozenset(), {})


def test_a_model_that_changes_mode() -> None:
    model = Scorer()
    old = capture_graphs(model, torch.ones(3, 8))
    found = changes(old, capture_graphs(model.eval(), torch.ones(3, 8)))
    assert "op dropout is gone." in found.sentences
    assert "Guard: self.training is True; it became: self.training is False." in found.sentences


def test_the_whole_view_has_all_panes_and_their_text() -> None:
    view = capture_view(GATED, (3, 4))
    assert tuple(view.panes) == PANES
    assert all(pane for pane in view.panes.values())
    assert "in this order: relu, mul." in str(view)
    assert "scale equals 2.0" in str(view) and "__compiled_fn" in str(view)
    assert view.html.startswith(view.top)


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("def f(x):\n    return x +\n", "float32", "line 2: Python cannot read this"),
        ("def f(x):\n    return x + foo", "float32", "line 2: NameError: name 'foo'"),
        ("def f(x):\n    return x.mean(-1)", "int64", "line 2: RuntimeError: mean()"),
        ("x = 3", "float32", "No function found"),
    ],
)
def test_a_problem_is_said_at_the_learners_line(text: str, dtype: str, message: str) -> None:
    view = capture_view(text, (3, 4), dtype)
    assert view.capture is None
    assert message in str(view) and "<b>Error:</b>" in view.top
    assert set(view.panes.values()) == {""}


def test_a_function_without_tensor_operations() -> None:
    view = capture_view("def f(x):\n    return 3", (3, 4))
    assert "0 graphs with 0 operations" in view.top
    assert "Nothing here is an operation on tensors" in view.top


def test_what_a_learner_writes_is_escaped() -> None:
    view = capture_view("def f(x, name='<b>bold</b>'):\n    return x * len(name)", (3, 4))
    assert "<b>bold</b>" not in view.html


def test_a_guard_that_only_moved_to_another_graph_is_not_said_to_be_gone() -> None:
    old = capture_view(BROKEN.replace("    print(y.sum())\n", "").replace("(x)", "(x, n=2.5)", 1)
                       .replace("y + 1", "y * n")).capture  # fmt: skip
    text = "def f(x, n=2.5):\n    y = x.cos()\n    print(y.sum())\n    return y * n"
    new = capture_view(text, previous=old)
    moved = [g.words for graph in new.capture.graphs for g in graph.guards]
    assert "n equals 2.5" in moved
    assert "Gone guard: n equals 2.5" not in str(new)
    assert "New guard: n equals 2.5" not in str(new)


def test_a_transposed_input_is_another_guard() -> None:
    square = torch.ones(8, 8)
    found = changes(capture_graphs(scaled, square), capture_graphs(scaled, square.t()))
    assert any(
        "shape (8, 8), contiguous," in text and "shape (8, 8), strides (1, 8)," in text
        for text in found.sentences
    )


def test_a_change_of_the_learners_list_is_marked_and_never_folded() -> None:
    seen: list[int] = []

    def remembers(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        seen.append(x.shape[0])
        return y * 2

    view = bytecode_view(capture_graphs(remembers, torch.ones(3)).graphs[0])
    assert "The new bytecode itself changes seen." in str(view)
    at = view.html.index("<b>← changes seen</b>")
    assert view.html.index("← the graph") < at
    before = view.html[:at]
    assert "<code>LOAD_CONST 3</code>" in before.split("</details>")[-1]  # what is written
    assert before.count("<details>") == before.count("</details>")


class Counts(nn.Module):
    steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return x * 2


TABLE: dict[str, int] = {}


def notes(x: torch.Tensor) -> torch.Tensor:
    TABLE["rows"] = x.shape[0]
    return x * 2


@pytest.mark.parametrize(
    ("function", "name"), [(Counts(), "self.steps"), (notes, "TABLE"), (scaled, "")]
)
def test_a_change_of_an_attribute_or_a_dict_is_marked(function: object, name: str) -> None:
    [graph] = capture_graphs(function, torch.ones(3)).graphs
    view = bytecode_view(graph)
    told = [line for line in str(view).splitlines() if "itself changes" in line]
    assert told == ([f"The new bytecode itself changes {name}."] if name else [])
    assert view.html.count("<b>← changes") == len(told)


def test_what_dynamo_stores_for_itself_at_a_break_is_not_said_to_be_the_learners() -> None:
    text = "def f(x, key=3):\n    y = x * 2\n    print(1)\n    return y + key"
    assert "itself changes" not in str(capture_view(text))
