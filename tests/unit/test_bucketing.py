"""Buckets, plans and the picture of the trade: what is rounded, counted and shown."""

from __future__ import annotations

import re

import pytest
import torch

from helpers import bucket_lengths, bucketing_view, count_plans, sentence_lengths, usual_plans
from helpers import recordings as recordings_module
from helpers.bucketing import (
    BucketPlan,
    PlanResult,
    multiples_of,
    powers_of_two,
    quantile_buckets,
)
from helpers.bucketing_times import PlanTime, PlanTimes, keep, recorded_times, time_plans
from helpers.origin import Origin
from helpers.sentences import SentenceLoad, sentence_load


def test_each_length_goes_into_the_smallest_bucket_that_holds_it():
    assert bucket_lengths([1, 16, 17, 33, 64], [64, 16, 32]) == (16, 16, 32, 64, 64)
    assert bucket_lengths([], []) == ()


@pytest.mark.parametrize(
    ("lengths", "buckets", "words"),
    [
        ([65], [16, 64], "a length of 65 fits no bucket: the largest bucket is 64"),
        ([3], [], "there are no buckets"),
        ([0], [16], "whole numbers from 1 on; got 0"),
        ([2.5], [16], "got 2.5"),
        ([3], [-8, 16], "got -8"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(lengths, buckets, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        bucket_lengths(lengths, buckets)


def test_ways_to_make_buckets_reach_the_longest_length_and_no_further():
    assert powers_of_two([3, 33]) == (8, 16, 32, 64)
    assert powers_of_two([64]) == (8, 16, 32, 64)
    assert multiples_of(64, [128, 5]) == (64, 128)
    assert multiples_of(64, [129]) == (64, 128, 192)
    with pytest.raises(ValueError, match="at least 1"):
        multiples_of(0, [5])


def test_quantile_buckets_hold_about_equally_many():
    lengths = sentence_lengths(400)
    buckets = quantile_buckets(lengths, 4)
    padded = bucket_lengths(lengths, buckets)
    shares = [padded.count(bucket) / 400 for bucket in buckets]
    assert buckets[-1] == max(lengths) and len(buckets) == 4
    assert all(0.15 < share < 0.35 for share in shares)
    assert quantile_buckets([7, 7, 7], 4) == (7,)
    with pytest.raises(ValueError, match="count from 1 on"):
        quantile_buckets([3], 0)


def test_lengths_are_the_same_for_a_seed_and_leave_torchs_random_state_alone():
    before = torch.get_rng_state()
    one, two, other = sentence_lengths(50), sentence_lengths(50), sentence_lengths(50, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert one == two != other
    assert all(2 <= length <= 200 for length in one)


def test_waste_is_the_share_of_tokens_that_are_padding():
    plan = BucketPlan("x", (4, 12), (16, 16))
    assert plan.waste == pytest.approx(0.5)
    assert plan.sizes == (16,)
    assert BucketPlan("x", (4, 12), (4, 12)).waste == 0


def test_a_plan_that_cuts_a_sentence_off_is_refused():
    with pytest.raises(ValueError, match="shorter than the length"):
        BucketPlan("x", (4, 12), (16, 8))
    with pytest.raises(ValueError, match="one padded length for each"):
        BucketPlan("x", (4, 12), (16,))


def total(tokens):
    return (tokens != 0).sum(-1)


def padded(length, size):
    tokens = torch.zeros(1, size, dtype=torch.long)
    tokens[:, :length] = 1
    return (tokens,)


@pytest.fixture(scope="module")
def counted() -> dict[str, PlanResult]:
    lengths = (*range(10, 20), 40, 70, 100)
    results = count_plans(total, padded, usual_plans(lengths))
    return {one.plan.name: one for one in results}


def test_compilations_are_those_that_really_took_place(counted):
    fixed = counted["exact lengths, dynamic=False"]
    assert (fixed.compiles, fixed.eager_calls) == (8, 5)
    assert counted["exact lengths, automatic"].compiles == 2
    assert counted["exact lengths, dynamic=True"].compiles == 1
    for name in ("powers of two", "multiples of 64", "all to the longest"):
        one = counted[name]
        assert (one.compiles, one.eager_calls) == (len(one.plan.sizes), 0), name
    assert counted["powers of two"].recompiles == 3
    assert counted["powers of two, automatic"].compiles == 2
    assert counted["powers of two, automatic"].plan.waste == counted["powers of two"].plan.waste


def test_an_error_of_the_function_reaches_the_caller():
    def fails(tokens):
        raise ValueError("of the learner")

    with pytest.raises(ValueError, match="of the learner"):
        count_plans(fails, padded, usual_plans([3, 4])[:1])


def test_the_view_has_each_plan_in_picture_table_and_words(counted):
    view = bucketing_view(list(counted.values()), "No times here.")
    for name, one in counted.items():
        assert name in view.text and f"{one.plan.waste:.0%} padding" in view.html
        assert f"<td>{name}</td>" in view.html
    assert view.html.count("<circle") == len(counted) - 1
    assert "then eager</text>" in view.html
    assert "No times here." in view.html and "No times here." in view.text


def test_no_label_of_the_picture_lies_on_another(counted):
    html = bucketing_view(list(counted.values())).html
    found = re.findall(r'<text x="(\d+)" y="(\d+)" style="paint[^>]+>([^<]+)</text>', html)
    boxes = [(int(x), int(y), int(x) + 6 * len(label)) for x, y, label in found]
    assert len(boxes) == len(counted)
    wide = int(re.search(r'<svg[^>]* width="(\d+)"', html)[1])
    assert all(right < wide for *_, right in boxes)
    for i, one in enumerate(boxes):
        for two in boxes[i + 1 :]:
            beside = one[2] < two[0] or two[2] < one[0]
            assert beside or abs(one[1] - two[1]) >= 13, (one, two)


def test_times_stand_in_the_table_with_their_origin(counted):
    times = {"powers of two": PlanTime(1.25, (1.2, 1.3), ("the card was busy",))}
    origin = Origin("recorded", "Some Card", "2.11.0", "2026-01-01")
    view = bucketing_view(list(counted.values()), PlanTimes(times, origin, "3 calls"))
    assert "1.25 (1.2 to 1.3)" in view.html and "not recorded" in view.html
    assert "the card was busy" in view.text and "Some Card" in view.text
    assert "those of 3 calls" in view.html


def test_times_are_measured_per_real_token_and_a_hit_limit_gets_none(capfd):
    plans = usual_plans((*range(10, 20), 40))
    chosen = [plans[0], plans[-1]]
    found = time_plans(total, padded, chosen, rows=1, repeats=5, backend="eager")
    reason = found.times[chosen[0].name].refused
    assert "recompile limit" in reason and "/" not in reason
    assert found.times[chosen[0].name].words == "not measured"
    one = found.times[chosen[1].name]
    assert 0 < one.interval_us[0] <= one.token_us <= one.interval_us[1]
    assert "hit config" not in capfd.readouterr().err


def test_a_plan_past_the_limit_is_said_to_have_no_time(counted):
    times = PlanTimes({}, Origin("recorded", "Some Card", "2.11.0", "2026-01-01"))
    html = bucketing_view(list(counted.values()), times).html
    assert html.count("none: it hits the limit") == 1
    assert html.count("not recorded") == len(counted) - 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_padding_changes_no_score_as_long_as_it_is_masked(dtype):
    torch.manual_seed(0)
    load = SentenceLoad(2, 64, 4, dtype, "cpu")
    scorer = load.scorer()
    bare, filled = load.padded(20, 20), load.padded(20, 64)
    assert torch.allclose(scorer(*bare), scorer(*filled), atol=1e-2)
    assert not torch.allclose(scorer(*bare, masked=False), scorer(*filled, masked=False), atol=1e-2)


def test_a_card_gets_a_load_that_keeps_it_busy():
    small, large = sentence_load("cpu"), sentence_load("cuda")
    assert small.words == "1 sentence a call, width 32, float32"
    assert large.words == "1024 sentences a call, width 1024, bfloat16"
    assert small.padded(2, 3)[0].tolist() == [[1, 2, 0]]


def test_a_recording_gives_back_what_was_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings_module, "recordings_folder", lambda: tmp_path)
    assert recorded_times() == "No times of a GPU have been recorded for this lesson yet."
    times = {"a": PlanTime(2.0, (1.0, 3.0), ("n",)), "b": PlanTime(refused="too many")}
    kept = PlanTimes(times, Origin.live("Some Card"), "what ran")
    recordings_module.save("04_guards_and_recompiles", keep(kept), kept.origin)
    found = recorded_times()
    assert dict(found.times) == times and found.what == "what ran"
    assert found.origin.kind == "recorded" and found.origin.device == "Some Card"
