"""Two measurements against each other: same settings, same results, and an honest ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from helpers.accuracy import ERROR_FACTOR, check_accuracy
from helpers.run_settings import differences
from helpers.timing import CONFIDENCE, RESAMPLES, SEED, MeasurementRefused, Timing, number

NO_DIFFERENCE = "no difference shown"
# Where a second program shares the core, a call takes about twice as long; at worst (threads that
# wait for each other on busy cores) a hundred times. See is_far for what guards against that.
FAR = 2.0
FEWEST_SAMPLES = 3  # fewer have an interval that means nothing, however narrow it is
# (milliseconds, share): for calls shorter than that, what two measurements of one function may
# differ by. Measured on an H200 and its 16 cores with torch 2.11.0: five GPU functions (4 to 320 us
# on the device) and two on the CPU, each 14 times in a row for 0.4 s. Medians of neighbours were
# apart by up to 13 % for calls of 0.1 ms and more, by up to 34 % for shorter ones (one pair by
# 56 %). The bootstrap intervals of 78 of the 91 pairs did not overlap: they cover one run only.
RUN_TO_RUN = ((0.1, 0.40), (math.inf, 0.15))


@dataclass(frozen=True)
class Comparison:
    """Two timings and their ratio: how many times as fast the candidate is, with its interval.

    ratio: the baseline's median time divided by the candidate's, without a unit; above 1 the
    candidate is the faster one; verdict: the finding in words; why: what it rests on; accuracy:
    what was checked, or why it was not, in a sentence; notes: those of both timings.
    """

    baseline: Timing
    candidate: Timing
    ratio: float
    interval: tuple[float, float]
    verdict: str
    why: str
    accuracy: str
    notes: tuple[str, ...]

    def summary(self) -> str:
        """Returns verdict, ratio, interval, and what the verdict rests on."""
        low, high = (number(value) for value in self.interval)
        candidate, baseline = _names(self.baseline, self.candidate)
        return (
            f"{self.verdict} (time of {baseline} / time of {candidate} = {number(self.ratio)}, "
            f"{low} to {high}). {self.why}"
        )

    def __str__(self) -> str:
        lines = [self.summary(), self.accuracy, str(self.baseline), str(self.candidate)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Comparison {self.summary()}>"

    def _repr_html_(self) -> str:
        from helpers.display import sentence_html

        sentences = sentence_html(self.summary()) + sentence_html(self.accuracy)
        return sentences + self.baseline._repr_html_() + self.candidate._repr_html_()


def compare(
    baseline: Timing,
    candidate: Timing,
    reference: Any = None,
    error_factor: float = ERROR_FACTOR,
    run_to_run: float | None = None,
) -> Comparison:
    """Compares two timings; raises MeasurementRefused where the comparison would mislead.

    reference: what `float64_run` returned, or a result in float64 itself. With one, the
    candidate's first result may be `error_factor` times as far from it as the baseline's, plus
    one rounding step of its dtype. The verdict is "no difference shown" where the intervals of
    the two medians overlap, where that of the ratio (bootstrap over both samples) holds 1, where
    the medians differ by less than `run_to_run` (a share; None: RUN_TO_RUN, as two measurements of
    one function may), or where others used the device during one of the two. Only where that is
    all that stands against it, and the two are far apart (`is_far`), the verdict says about how
    large the difference is, and to measure again.
    """
    differing = differences(baseline.settings, candidate.settings)
    if differing:
        raise MeasurementRefused(
            f"The two measurements ran under different settings ({'; '.join(differing)}).",
            "Their ratio would show the settings and not what was changed in the code.",
            "Measure both under the same settings.",
        )
    accuracy = check_accuracy(baseline, candidate, reference, error_factor)
    ratio = baseline.wall_ms / candidate.wall_ms
    interval = ratio_interval(baseline, candidate)
    if run_to_run is None:
        run_to_run = run_to_run_share(min(baseline.wall_ms, candidate.wall_ms))
    verdict, why = _verdict(baseline, candidate, interval, run_to_run)
    notes = tuple(dict.fromkeys((*baseline.notes, *candidate.notes)))
    return Comparison(baseline, candidate, ratio, interval, verdict, why, accuracy, notes)


def ratio_interval(baseline: Timing, candidate: Timing) -> tuple[float, float]:
    """Returns the 95 % interval of the ratio of medians, by bootstrap over both samples."""
    if len(set(baseline.samples)) == len(set(candidate.samples)) == 1:
        ratio = baseline.wall_ms / candidate.wall_ms
        return ratio, ratio
    import numpy
    from scipy.stats import bootstrap

    def ratio_of_medians(first: Any, second: Any, axis: int = -1) -> Any:
        return numpy.median(first, axis=axis) / numpy.median(second, axis=axis)

    samples = tuple(numpy.asarray(one.samples) for one in (baseline, candidate))
    found = bootstrap(
        samples, ratio_of_medians, confidence_level=CONFIDENCE, n_resamples=RESAMPLES,
        method="percentile", vectorized=True, rng=numpy.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


def run_to_run_share(milliseconds: float) -> float:
    """Returns by what share the medians of two measurements of one function may differ."""
    return next(share for limit, share in RUN_TO_RUN if milliseconds < limit)


def is_far(baseline: Timing, candidate: Timing, interval: tuple[float, float]) -> bool:
    """Returns whether two timings differ by so much that other programs can hardly be the reason.

    The whole interval of the ratio lies beyond a factor of FAR. And as others only ever add time,
    even the fastest call of the slower one is beyond FAR times the median of the faster one.
    """
    if not (interval[0] > FAR or interval[1] < 1 / FAR):
        return False
    faster, slower = sorted((baseline, candidate), key=lambda one: one.wall_ms)
    return min(slower.samples) > FAR * faster.wall_ms


def _names(baseline: Timing, candidate: Timing) -> tuple[str, str]:
    return candidate.label or "the candidate", baseline.label or "the baseline"


def _verdict(
    baseline: Timing, candidate: Timing, interval: tuple[float, float], allowed: float
) -> tuple[str, str]:
    """Returns the verdict, and in a sentence what it rests on."""
    against = _against(baseline, candidate, interval, allowed)
    for one in (baseline, candidate):
        if one.disturbed:
            others = f"Others used the machine while {one.label or 'one'} ran."
            if against or not is_far(baseline, candidate, interval):
                return NO_DIFFERENCE, others
            return (
                f"{_finding(baseline, candidate, 'about ')}, but other programs were running: "
                "measure again before relying on it",
                f"{others} But even the fastest call of the slower one is beyond a factor of "
                f"{number(FAR)}.",
            )
    if against:
        return NO_DIFFERENCE, against
    rests = f"The intervals are apart, by more than the {allowed:.0%} that two runs may differ by."
    return _finding(baseline, candidate), rests


def _against(
    baseline: Timing, candidate: Timing, interval: tuple[float, float], allowed: float
) -> str:
    """Returns what the samples themselves say against a difference; empty where nothing does."""
    if min(baseline.count, candidate.count) < FEWEST_SAMPLES:
        return f"Fewer than {FEWEST_SAMPLES} samples of one of them."
    first, second = baseline.interval, candidate.interval
    overlap = first[0] <= second[1] and second[0] <= first[1]
    if overlap or interval[0] <= 1 <= interval[1]:
        return "The intervals of the two medians overlap, or that of the ratio holds 1."
    ratio = baseline.wall_ms / candidate.wall_ms
    if 1 / (1 + allowed) <= ratio <= 1 + allowed:
        return f"Two measurements of one and the same function may differ by {allowed:.0%}."
    return ""


def _finding(baseline: Timing, candidate: Timing, about: str = "") -> str:
    """Returns which of the two is faster and how many times; about: put before the figure."""
    candidate_name, baseline_name = _names(baseline, candidate)
    ratio = baseline.wall_ms / candidate.wall_ms
    if ratio > 1:
        return f"{candidate_name} is {about}{number(ratio)} times as fast as {baseline_name}"
    return (
        f"{candidate_name} is slower than {baseline_name}: it takes {about}{number(1 / ratio)} "
        "times as long"
    )
