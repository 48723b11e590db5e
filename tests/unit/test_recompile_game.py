"""The call-queue game: calls made as they are written, marks by the real counters, the panel."""

from __future__ import annotations

import re

import pytest
import torch

from helpers import outcomes_view, queue_view, recompile_game, trace_recompiles
from helpers.call_queue import MOST_CALLS, CallCard, CallQueue, build
from helpers.game_panels import CHOOSE
from helpers.game_rounds import OWN, ROUNDS
from helpers.queue_marks import mark_predictions, queue_html, score_text
from helpers.recompile_views import OUTCOMES, failed_guard, why

DOUBLE = "def double(x, scale=2.0):\n    return torch.relu(x) * scale\n"


def sizes(*rows: int, **more) -> CallQueue:
    return CallQueue("t", DOUBLE, tuple(CallCard((n, 3)) for n in rows), **more)


def outcomes(queue: CallQueue) -> list[str]:
    return [mark.outcome for mark in mark_predictions(queue, [""] * len(queue.cards))]


def test_a_card_makes_the_call_that_it_names():
    card = CallCard((2, 5), "bfloat16", "transposed", "requires grad", {"scale": 3})
    x = card.tensor()
    assert (x.shape, x.dtype, x.requires_grad) == ((5, 2), torch.bfloat16, True)
    assert x.stride() == (1, 5)
    assert card.label == "x: (5, 2) bfloat16, transposed, requires grad · scale=3"
    seen = []
    quiet = CallCard(grad="under no_grad", values={"scale": 1.5})
    quiet.call(build(DOUBLE))(lambda x, scale: seen.append((torch.is_grad_enabled(), scale)))
    assert seen == [(False, 1.5)] and torch.is_grad_enabled()
    assert "under no_grad" in quiet.label


def test_a_card_sets_attributes_of_the_model_before_its_call():
    source = (
        "class M(nn.Module):\n    v = 1\n    def forward(self, x):\n        return x * self.v\n"
    )
    model = build(source)
    CallCard(attributes={"v": 4}).call(model)(model)
    assert model.v == 4


def test_outcomes_come_from_running_the_queue():
    assert outcomes(sizes(8, 8, 3, 5)) == ["compiled", "reused", "promoted", "reused"]
    assert outcomes(sizes(3, 8, 8)) == ["compiled", "promoted", "reused"]
    assert outcomes(sizes(8, 3, options={"dynamic": False})) == ["compiled", "recompiled"]
    assert outcomes(sizes(8, 3, options={"dynamic": True})) == ["compiled", "reused"]


def test_a_prediction_is_marked_right_or_wrong_with_the_failed_guard():
    marks = mark_predictions(sizes(8, 3, 1), ["compiled", "recompiled", "recompiled"])
    assert [mark.right for mark in marks] == [True, False, True]
    assert [mark.sign for mark in marks] == ["✓ right", "✗ wrong", "✓ right"]
    assert "expected 8, actual 3" in marks[1].why
    assert score_text(marks) == "2 of 3 right"


def test_calls_without_a_prediction_do_not_count():
    marks = mark_predictions(sizes(8, 8), ["", "reused"])
    assert marks[0].sign == "" and score_text(marks) == "1 of 1 right"
    assert mark_predictions(sizes(8, 8), []) == ()
    with pytest.raises(ValueError, match="a prediction is one of"):
        mark_predictions(sizes(8), ["fast"])


def test_marking_leaves_no_trace_and_says_the_same_each_time():
    queue = sizes(8, 3, 1)
    assert len({tuple(outcomes(queue)) for _ in range(4)}) == 1


@pytest.mark.parametrize("queue", ROUNDS, ids=lambda queue: queue.title)
def test_a_round_runs_and_shows_more_than_one_kind_of_outcome(queue):
    found = outcomes(queue)
    assert set(found) <= set(OUTCOMES) and len(set(found)) > 1
    assert 5 <= len(queue.cards) <= 8
    if not queue.made:
        assert found[0] == "compiled"


def test_the_last_round_hits_the_limit_and_keeps_what_is_compiled():
    assert outcomes(ROUNDS[-1]) == ["recompiled", "eager", "reused", "eager", "eager"]


def test_all_outcomes_of_the_legend_occur_in_the_rounds():
    assert {one for queue in ROUNDS for one in outcomes(queue)} == set(OUTCOMES)


def test_a_queue_that_is_too_long_is_refused():
    with pytest.raises(Exception, match=f"at most {MOST_CALLS} calls"):
        sizes(*[8] * (MOST_CALLS + 1)).run()


def test_the_static_view_folds_the_answers_away():
    view = queue_view(1)
    asked, answers = view.html.split("What really happened", 1)
    for card in ROUNDS[0].cards:
        assert card.label in asked
    assert "<td>promoted</td>" in answers and "<td>promoted</td>" not in asked
    assert "promoted" in view.text
    with pytest.raises(ValueError, match=r"numbered 1 to \d"):
        queue_view(0)


def test_the_queue_shows_marks_for_what_ran_and_nothing_for_the_rest():
    queue = sizes(8, 8)
    html = queue_html(queue, mark_predictions(queue, ["compiled"]))
    assert html.count("✓\u00a0right") == 1 and "← next" in html
    assert "1 of 2 calls have run" in html


def test_reports_side_by_side_have_one_row_per_call():
    calls = [(torch.ones(n, 3),) for n in (8, 5)]
    reports = {
        str(value): trace_recompiles(build(DOUBLE), calls, compile_options={"dynamic": value})
        for value in (True, False)
    }
    view = outcomes_view(reports, ["8 rows", "5 rows"])
    assert re.search(r"5 rows +reused +recompiled", view.text)
    assert re.search(r"in all +1 +2", view.text)
    assert failed_guard(reports["True"], 1) == ""
    assert why(reports["False"], 1)
    with pytest.raises(ValueError, match="1 names for reports"):
        outcomes_view(reports, ["8 rows"])


def say(game, prediction: str) -> str:
    game.prediction.value = prediction
    game.button.click()
    return game.status.value


def test_the_panel_wants_a_prediction_and_marks_it():
    game = recompile_game()
    game.button.click()
    assert "Choose a prediction for call 1 first." in game.status.value
    assert "✓ right. You said compiled." in say(game, "compiled")
    assert game.prediction.value == CHOOSE
    assert "✗ wrong. You said eager; it was reused." in say(game, "eager")
    assert "So far 1 of 2 right." in game.status.value
    for _ in ROUNDS[0].cards[2:]:
        said = say(game, "reused")
    assert f"All calls have run: {score_text(game.marks)}" in said
    assert "All calls have run" in say(game, "reused")


def test_another_round_starts_with_nothing_said():
    game = recompile_game(2)
    say(game, "compiled")
    game.again.click()
    assert game.marks == () and "✓" not in game.table.value
    game.round.value = ROUNDS[-1].title
    assert "Seven calls were made already" in game.table.value
    assert "it was recompiled" in say(game, "eager")
    with pytest.raises(ValueError, match="rounds are numbered"):
        recompile_game(99)


@pytest.fixture
def own():
    game = recompile_game()
    game.round.value = OWN.title
    return game


def test_an_own_queue_is_built_call_by_call(own):
    assert own.own.layout.display == ""
    assert "Add a call first." in say(own, "compiled")
    own.own.rows.value, own.own.scale.value = 4, "3"
    own.own.add.click()
    assert "x: (4, 3) float32 · scale=3 · kind=&#x27;relu&#x27;" in own.status.value
    own.own.rows.value = 0
    own.own.add.click()
    assert "✓ right" in say(own, "compiled")
    assert len(own.queue.cards) == 2
    own.own.add.click()
    assert own.marks[0].outcome == "compiled"  # what ran stays when a call is added
    own.own.clear.click()
    assert own.queue.cards == () and own.marks == ()


def test_what_the_function_does_not_take_is_left_out(own):
    own.own.editor.value = "def f(x):\n    return x + 1\n"
    own.own.add.click()
    assert own.queue.cards[0].values == {}
    assert "✓ right" in say(own, "compiled")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x):\nreturn x", "line 2: Python cannot read this"),
        ("x = 3", "No function found"),
    ],
)
def test_a_text_with_a_problem_is_said_when_a_call_is_added(own, text, message):
    own.own.editor.value = text
    own.own.add.click()
    assert message in own.status.value and own.queue.cards == ()


def test_an_error_of_the_function_is_said_and_the_queue_stays(own):
    own.own.editor.value = "def f(x):\n    return x + nothing\n"
    own.own.add.click()
    said = say(own, "compiled")
    assert "it stopped with an error. line 2: NameError" in said
    assert "no prediction marked yet" in said and "0 of 0" not in said
    assert len(own.queue.cards) == 1


@pytest.mark.parametrize(
    "source",
    [
        "@torch.no_grad()\ndef f(x):\n    return torch.sin(x)\n",
        "W = 2.0\ndef g(x):\n    return x * W\n@torch.no_grad()\ndef f(x):\n    return g(x)\n",
        "class M(nn.Module):\n    @torch.no_grad()\n"
        "    def forward(self, x):\n        return x + 1\n",
    ],
)
def test_a_function_under_a_decorator_is_compiled_like_any_other(source):
    queue = CallQueue("t", source, tuple(CallCard((n, 3)) for n in (8, 5, 4)))
    assert outcomes(queue) == ["compiled", "promoted", "reused"]


def test_a_function_keeps_its_name_as_it_is_written(own):
    refine = next(queue for queue in ROUNDS if "def refine" in queue.source)
    reasons = [mark.why for mark in mark_predictions(refine, [""] * len(refine.cards))]
    assert any("refine is at its recompile limit" in reason for reason in reasons)
    assert not any("Refine" in reason for reason in reasons)


def test_a_scale_that_is_no_number_is_refused(own):
    own.own.scale.value = "__import__('os')"
    own.own.add.click()
    assert "scale is a number such as 2.0 or 3" in own.status.value and own.queue.cards == ()
