"""What a measurement is: its samples, their median with an interval, its settings, its notes."""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.origin import Origin

CONFIDENCE = 0.95
RESAMPLES = 2000  # enough for two digits of a 95 % interval (Efron and Tibshirani, 1993, ch. 13)
SEED = 0  # of the resampling only: the same samples give the same interval
FEW_SAMPLES = 10


class MeasurementRefused(RuntimeError):
    """A figure that would mislead is not given: what happened, why that matters, what to do."""

    def __init__(self, what: str, why: str, todo: str) -> None:
        super().__init__(f"{what} {why} {todo}")
        self.what, self.why, self.todo = what, why, todo


def check_request(kwargs: Any, repeats: Any, seconds: Any, label: Any, timeout_s: Any) -> None:
    """Raises TypeError or ValueError for what `measure` cannot take, with what it takes instead."""
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise TypeError(f'kwargs is a dictionary by name, such as {{"dim": 1}}; got {kwargs!r}')
    if not isinstance(label, str):
        raise TypeError(f'label is a text, such as "compiled"; got {label!r}')
    if repeats is not None and (type(repeats) is not int or repeats < 1):
        raise ValueError(f"repeats is a whole number from 1 on, or None; got {repeats!r}")
    if not _is_number(seconds) or not 0 < seconds < math.inf:
        raise ValueError(f"seconds is a number above 0, and not infinite; got {seconds!r}")
    if not _is_number(timeout_s) or not 0 <= timeout_s <= threading.TIMEOUT_MAX:
        raise ValueError(f"timeout_s is a number of seconds from 0 on; got {timeout_s!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class Timing:
    """How long calls of one callable took, and under which conditions.

    wall_ms: median of the steady calls on the clock, each from call to finished device work;
    interval: (low, high) of that median in ms, 95 %, by bootstrap over the samples;
    device_ms: median between CUDA events on the card in ms, None without a card;
    samples: each steady call in ms; first_call_s: the first call alone, in seconds;
    spread: distance of the quartiles over the median; count: number of samples;
    bound: what limits the call, None where no evidence was taken; notes: sentences that belong to
    the figure; settings: what the call ran under; result: the first call's tensors, detached, on
    the CPU; disturbed: others used the device meanwhile, so that no comparison can count on it.
    """

    label: str
    wall_ms: float
    interval: tuple[float, float]
    device_ms: float | None
    samples: tuple[float, ...]
    first_call_s: float
    spread: float
    count: int
    bound: str | None
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    origin: Origin
    result: Any = field(default=None, repr=False, compare=False)
    disturbed: bool = False

    def summary(self) -> str:
        """Returns the figures in one sentence."""
        low, high = (number(value) for value in self.interval)
        calls = f"{self.count} call" + ("s" if self.count != 1 else "")
        text = (
            f"first call {seconds_text(self.first_call_s)}; later calls {number(self.wall_ms)} ms"
        )
        text += f" ({low} to {high}, {calls})"
        if self.device_ms is not None:
            text += f"; on the device {number(self.device_ms)} ms"
        return f"{self.label}: {text}" if self.label else text

    def __str__(self) -> str:
        return "\n".join([self.summary(), *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"<Timing {self.summary()}>"

    def _repr_html_(self) -> str:
        from helpers.display import notice_html, sentence_html

        notes = notice_html("\n".join(self.notes), "warning") if self.notes else ""
        return sentence_html(self.summary()) + notes + self.origin.html()


def number(value: float) -> str:
    """Returns a figure with three significant digits, never with an exponent."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    digits = 2
    while abs(value) * 10**digits < 100 and digits < 9:
        digits += 1
    return f"{value:.{digits - (abs(value) >= 10)}f}".rstrip("0").rstrip(".")


def seconds_text(seconds: float) -> str:
    """Returns a time in s, or in ms where it is below a tenth of a second."""
    return f"{number(seconds)} s" if seconds >= 0.1 else f"{number(1000 * seconds)} ms"


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """Returns (low, high) of the median, 95 %, by scipy's percentile bootstrap over the samples.

    It covers the scatter within this run, not what differs from run to run. One sample, or
    samples that are all equal, give that value twice.
    """
    if len(set(samples)) == 1:
        return samples[0], samples[0]
    import numpy
    from scipy.stats import bootstrap

    found = bootstrap(
        (numpy.asarray(samples),), numpy.median, confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES, method="percentile", rng=numpy.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


def quartile_spread(samples: Sequence[float]) -> float:
    """Returns the distance between the quartiles as a share of the median; 0 for one sample."""
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle if middle else 0.0
