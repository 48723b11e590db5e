"""Time per real token of each way to serve lengths: measured on a card, or as recorded there."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from helpers import recordings
from helpers.benchmarking import MeasurementRefused, measure
from helpers.bucketing import BucketPlan
from helpers.isolation import no_trace
from helpers.origin import Origin

RECORDING = "04_guards_and_recompiles"


@dataclass(frozen=True)
class PlanTime:
    """Microseconds per real token (padding is not counted) with the interval of that median.

    notes: what disturbed it; refused: why there is no figure (the other fields are then 0).
    """

    token_us: float = 0.0
    interval_us: tuple[float, float] = (0.0, 0.0)
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def words(self) -> str:
        """The figure, or that there is none."""
        if self.refused:
            return "not measured"
        return f"{self.token_us:.3g} ({self.interval_us[0]:.3g} to {self.interval_us[1]:.3g})"


@dataclass(frozen=True)
class PlanTimes:
    """Times by the name of a plan, where they were made, and in words what ran."""

    times: Mapping[str, PlanTime]
    origin: Origin
    what: str = ""


def time_plans(
    fn: Callable[..., Any],
    make_args: Callable[[int, int], tuple[Any, ...]],
    plans: Iterable[BucketPlan],
    rows: int = 1,
    repeats: int = 10,
    what: str = "",
    **options: Any,
) -> PlanTimes:
    """Measures all calls of each plan in a row, compiled, and divides by the real tokens in them.

    make_args: from (length, padded length) to the arguments of one call of `rows` sentences;
    options: for torch.compile. A plan that reaches the recompile limit gets no figure. Gradients
    are off; leaves no trace in the compiler.
    """
    times, device = {}, "cpu"
    for plan in plans:
        calls = [
            make_args(real, size) for real, size in zip(plan.lengths, plan.padded, strict=True)
        ]
        tokens = rows * sum(plan.lengths)
        with torch.no_grad(), no_trace(fn, *calls[0]), _limit_unsaid():
            compiled = torch.compile(fn, dynamic=plan.dynamic, **options)
            try:
                timing = measure(_all_of, compiled, calls, label=plan.name, repeats=repeats)
            except MeasurementRefused as error:
                # A file's name says nothing to a learner, and a recording must hold no path.
                reason = re.sub(r" \([^()]*:\d+\)", "", str(error))
                times[plan.name] = PlanTime(refused=reason)
                continue
        device = timing.origin.device
        per_token = [1000 * one / tokens for one in (timing.wall_ms, *timing.interval)]
        times[plan.name] = PlanTime(per_token[0], (per_token[1], per_token[2]), timing.notes)
    return PlanTimes(times, Origin.live(device), what)


@contextlib.contextmanager
def _limit_unsaid() -> Iterator[None]:
    """Keeps torch's lines about a hit limit off the screen: the refusal says the same.

    At the handlers, since `measure` learns of the limit from the logger itself.
    """
    names = ("torch", "torch._dynamo", "torch._dynamo.convert_frame")
    handlers = [one for name in names for one in logging.getLogger(name).handlers]

    def about_no_limit(record: logging.LogRecord) -> bool:
        return "hit config." not in str(record.msg)

    for one in handlers:
        one.addFilter(about_no_limit)
    try:
        yield
    finally:
        for one in handlers:
            one.removeFilter(about_no_limit)


def _all_of(compiled: Callable[..., Any], calls: list[tuple[Any, ...]]) -> Any:
    for args in calls:
        last = compiled(*args)
    return last


def keep(found: PlanTimes) -> dict[str, Any]:
    """Returns what a recording holds: each plan's figures and notes, and what ran."""
    plans = {
        name: {
            "token_us": one.token_us,
            "interval_us": list(one.interval_us),
            "notes": list(one.notes),
            "refused": one.refused,
        }
        for name, one in found.times.items()
    }
    return {"what": found.what, "plans": plans}


def recorded_times() -> PlanTimes | str:
    """Returns the times that were recorded on a card, or a sentence why there are none."""
    if not (recordings.recordings_folder() / f"{RECORDING}.json").exists():
        return "No times of a GPU have been recorded for this lesson yet."
    try:
        found = recordings.load(RECORDING)
    except recordings.RecordingError as error:
        return str(error)
    times = {
        name: PlanTime(
            one["token_us"], tuple(one["interval_us"]), tuple(one["notes"]), one["refused"]
        )
        for name, one in found.data["plans"].items()
    }
    return PlanTimes(times, found.origin, found.data["what"])
