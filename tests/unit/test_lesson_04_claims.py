"""What lesson 04 tells in words without running it there: the same on every torch, or by name."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from helpers import capture_view, trace_recompiles, typed_function
from helpers.call_queue import CallCard
from helpers.game_rounds import OWN
from helpers.queue_marks import mark_predictions

x = torch.randn(8, 3)


def outcomes(fn, values) -> list[str]:
    return [call.outcome for call in trace_recompiles(fn, [(x, one) for one in values]).calls]


@pytest.mark.parametrize(
    ("fn", "values"),
    [
        (lambda x, size: x.unfold(0, size, 1), (2, 3, 4)),
        (lambda x, axis: x.softmax(axis), (0, 1, -1)),
        (lambda x, count: torch.cat([x] * count), (2, 3, 4)),
        (lambda x, share: F.dropout(x, share), (0.1, 0.2, 0.3)),
    ],
    ids=["window", "axis", "repeat count", "probability"],
)
def test_a_number_that_an_operation_must_know_costs_a_graph_per_value(fn, values):
    assert outcomes(fn, values) == ["compiled", "recompiled", "recompiled"]


def test_the_end_of_a_slice_is_opened():
    assert outcomes(lambda x, n: x[:n], (2, 3, 4)) == ["compiled", "promoted", "reused"]


def played(cards) -> list[str]:
    queue = type(OWN)(OWN.title, OWN.source, tuple(cards))
    return [mark.outcome for mark in mark_predictions(queue, [""] * len(queue.cards))]


def test_the_answers_to_what_is_tried_in_the_own_queue():
    sizes = [played(CallCard((n, 3)) for n in order) for order in ((1, 2, 3), (2, 1, 3))]
    assert sizes == [["compiled", "promoted", "reused"], ["compiled", "recompiled", "promoted"]]
    scales = (2.0, 3.0, 1.0, 0.0, 1, float("nan"))
    assert played(CallCard(values={"scale": one}) for one in scales) == [
        "compiled", "promoted", "reused", "reused", "recompiled", "recompiled",
    ]  # fmt: skip
    words = played(CallCard(values={"kind": one}) for one in "abcdefghi")
    assert words == ["compiled", *["recompiled"] * 7, "eager"]


class Counting(nn.Module):
    """The model of question 3."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2


class Growing(nn.Module):
    """A list that is longer after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(1)
        return x * 2


def test_a_model_that_counts_its_calls_fills_the_limit_except_in_2_7():
    found = [call.outcome for call in trace_recompiles(Counting(), [(x,)] * 10).calls]
    if torch.__version__.startswith("2.7."):
        assert found == ["compiled", "promoted", *["reused"] * 8]
    else:
        assert found == ["compiled", *["recompiled"] * 7, "eager", "eager"]


def test_a_list_that_grows_compiles_at_every_call():
    found = [call.outcome for call in trace_recompiles(Growing(), [(x,)] * 4).calls]
    assert found == ["compiled", *["recompiled"] * 3]


def test_each_text_is_a_module_that_dynamo_can_import_and_old_ones_go():
    source = "@torch.no_grad()\ndef f(x):\n    return torch.{}(x)\n"
    for name in ("sin", "cos"):  # the second text must not be given the first one's names
        assert name in str(capture_view(source.format(name)))
    first = typed_function.define(source.format("sin"))
    assert sys.modules[first.__module__].f is first
    for _ in range(typed_function.MOST_MODULES):
        typed_function.define(source.format("sin"))
    assert first.__module__ not in sys.modules
    ours = [name for name in sys.modules if name.startswith("your_function_")]
    assert len(ours) == typed_function.MOST_MODULES
    assert torch.equal(first(x), x.sin())
