"""What breaks cost: counts from generated code, times that may be refused, recorded ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from helpers import break_cost, break_costs, recordings
from helpers.origin import Origin
from helpers.timing import MeasurementRefused

pytestmark = pytest.mark.timeout(300)
STAMP = {
    "device": "NVIDIA H200", "driver": "1", "torch": "2.11.0", "triton": "3.6.0",
    "python": "3.11", "date": "2026-01-01", "helpers": "0",
}  # fmt: skip


def gate(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    z = torch.sigmoid(a) * b
    torch._dynamo.graph_break()
    return F.silu(z) + a


def gate_whole(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    z = torch.sigmoid(a) * b
    return F.silu(z) + a


def refuse(*_: object, **__: object) -> None:
    raise MeasurementRefused("It compiled again.", "That is no steady time.", "Look why.")


@pytest.fixture
def no_recording(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(recordings, "recordings_folder", lambda: tmp_path)


@pytest.fixture(scope="module")
def inputs() -> list[torch.Tensor]:
    return list(torch.randn(2, 64, 128))


@pytest.fixture(scope="module")
def costs(inputs: list[torch.Tensor]) -> break_costs.BreakCosts:
    return break_cost(gate, gate_whole, *inputs, repeats=5)


def test_a_break_costs_a_launch_and_the_way_through_memory(costs, inputs) -> None:
    size = inputs[0].nbytes
    broken, repaired = costs.broken, costs.repaired
    assert (broken.graphs, broken.launches, broken.bytes) == (2, 2, 6 * size)
    assert (repaired.graphs, repaired.launches, repaired.bytes) == (1, 1, 3 * size)
    assert "1 more graph, 1 more launch, 98.3 kB more to move" in costs.text


def test_both_forms_are_timed_on_this_machine_and_say_so(costs) -> None:
    assert [one.label for one in costs.timings] == list(break_costs.NAMES)
    assert all(one.wall_ms > 0 for one in costs.timings)
    assert "Measured here" in costs.text and "live:" in costs.text
    kept = costs.to_record()
    assert set(kept) == {*break_costs.NAMES, "inputs"}
    assert kept["inputs"] == "2 x float32 [64, 128]" and costs.text.count(kept["inputs"]) >= 2
    assert len(kept["with breaks"]["samples_ms"]) == 5


@pytest.mark.usefixtures("no_recording")
def test_on_a_cpu_it_says_what_times_cannot_show_and_judges_nothing_that_was_disturbed(
    costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing of what launches and bytes cost a GPU" in costs.text
    pair = [replace(one, disturbed=True, samples=(1.0, 1.1, 1.2)) for one in costs.timings]
    said = break_costs._verdict(pair, "inductor")
    assert said == "Measured here, but not judged: other programs used the machine meanwhile."


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda a, b: gate_whole(a, b) * 1.1, "they differ"),
        (lambda a, b: gate_whole(a, b)[:1], "they differ"),
        (lambda a, b: (gate_whole(a, b), a), "1 and 2 tensors"),
        (lambda a, b: gate_whole(a, b) > 0, "they differ"),
    ],
    ids=["values", "shape", "number", "dtype"],
)
def test_two_forms_with_different_results_are_refused(inputs, other, words) -> None:
    with pytest.raises(ValueError, match=f"two forms of one computation.*{words}"):
        break_cost(gate, other, *inputs)


def test_rounding_random_numbers_and_writing_in_place_are_no_difference(inputs) -> None:
    before = inputs[0].clone()
    break_costs._check_same(gate, lambda a, b: gate_whole(a.double(), b.double()).float(), inputs)
    break_costs._check_same(*2 * (lambda a, b: F.dropout(a, 0.5),), inputs)
    break_costs._check_same(lambda a, b: a.add_(1), lambda a, b: a + 1, inputs)
    assert torch.equal(inputs[0], before)


def test_the_same_form_twice_has_nothing_to_pay(inputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(break_costs, "measure", refuse)
    same = break_cost(gate_whole, gate_whole, *inputs)
    assert "differ in nothing" in same.text


def test_where_times_would_mislead_the_counts_stay_and_a_sentence_says_why(
    inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(break_costs, "measure", refuse)
    found = break_cost(gate, gate_whole, *inputs)
    assert found.timings == () and found.to_record() == {}
    assert "No time: It compiled again." in found.text and found.broken.launches == 2


def test_recorded_times_stand_beside_with_their_gpu(
    costs, inputs, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    stored = recordings.Recording(
        break_costs.RECORDING,
        {"gate": costs.to_record()},
        Origin("recorded", "NVIDIA H200", "2.11.0", "2026-01-01"),
        STAMP,
    )
    (tmp_path / f"{break_costs.RECORDING}.json").write_text("{}")
    monkeypatch.setattr(recordings, "recordings_folder", lambda: tmp_path)
    monkeypatch.setattr(recordings, "load", lambda name: stored)
    rows, origin = break_costs._recorded_rows("gate")
    assert [row[0] for row in rows] == list(break_costs.NAMES)
    assert all("NVIDIA H200, recorded" in row for row in rows)
    assert origin is stored.origin
    assert break_costs._recorded_rows("another") == ([], None)


@pytest.mark.usefixtures("no_recording")
def test_without_a_recording_there_is_no_row() -> None:
    assert break_costs._recorded_rows("gate") == ([], None)


def test_what_is_recorded_is_what_the_lesson_asks_for() -> None:
    import re
    import runpy

    folder = Path(__file__).resolve().parents[2] / "notebooks"
    script = runpy.run_path(str(folder / "recordings" / "record_03_graph_breaks.py"))
    text = (folder / "src" / "03_graph_breaks.py").read_text(encoding="utf-8")
    calls = re.findall(r'^(\w+) = break_cost\(.*recorded="(\w+)"\)$', text, re.MULTILINE)
    assert {name: variable for variable, name in calls} == script["TIMED"]
