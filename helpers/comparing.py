"""Two measurements against each other: same settings, same results, and an honest ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from helpers.accuracy import ERROR_FACTOR, check_accuracy
from helpers.run_settings import differences
from helpers.timing import CONFIDENCE, RESAMPLES, SEED, MeasurementRefused, Timing, number

NO_DIFFERENCE = "no difference shown"
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

    verdict: the finding in words; why: what it rests on; accuracy: what was checked, or why it was
    not, in a sentence; notes: those of both timings.
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
        return f"{self.verdict} (ratio {number(self.ratio)}, {low} to {high}). {self.why}"

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
    one function may), or where others used the device during one of the two.
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
    interval = _ratio_interval(baseline, candidate)
    if run_to_run is None:
        run_to_run = run_to_run_share(min(baseline.wall_ms, candidate.wall_ms))
    verdict, why = _verdict(baseline, candidate, interval, run_to_run)
    notes = tuple(dict.fromkeys((*baseline.notes, *candidate.notes)))
    return Comparison(baseline, candidate, ratio, interval, verdict, why, accuracy, notes)


def _ratio_interval(baseline: Timing, candidate: Timing) -> tuple[float, float]:
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


def _verdict(
    baseline: Timing, candidate: Timing, interval: tuple[float, float], allowed: float
) -> tuple[str, str]:
    """Returns the verdict, and in a sentence what it rests on."""
    for one in (baseline, candidate):
        if one.disturbed:
            return NO_DIFFERENCE, f"Others used the machine while {one.label or 'one'} ran."
    if min(baseline.count, candidate.count) < FEWEST_SAMPLES:
        return NO_DIFFERENCE, f"Fewer than {FEWEST_SAMPLES} samples of one of them."
    first, second = baseline.interval, candidate.interval
    overlap = first[0] <= second[1] and second[0] <= first[1]
    if overlap or interval[0] <= 1 <= interval[1]:
        return (
            NO_DIFFERENCE,
            "The intervals of the two medians overlap, or that of the ratio holds 1.",
        )
    ratio = baseline.wall_ms / candidate.wall_ms
    if 1 / (1 + allowed) <= ratio <= 1 + allowed:
        return NO_DIFFERENCE, (
            f"Two measurements of one and the same function may differ by {allowed:.0%}."
        )
    rests = f"The intervals are apart, by more than the {allowed:.0%} that two runs may differ by."
    names = (candidate.label or "the candidate", baseline.label or "the baseline")
    if ratio > 1:
        return f"{names[0]} is {number(ratio)} times as fast as {names[1]}", rests
    return (
        f"{names[0]} is slower than {names[1]}: it takes {number(1 / ratio)} times as long",
        rests,
    )
