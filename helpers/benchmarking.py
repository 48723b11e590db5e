"""Honest times: `measure` one callable, `compare` two measurements, refuse what would mislead.

`measure` times a callable exactly as given and compiles nothing itself. It waits for its turn on
the device, times the first call alone, warms up until nothing compiles any more, and then takes
samples. What spoils a figure raises MeasurementRefused; what may have disturbed it is a note.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import statistics
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from helpers import card, disturbances, dynamo, run_settings, timing
from helpers.accuracy import Reference, float64_run
from helpers.comparing import Comparison, compare
from helpers.environment import cpu_name
from helpers.origin import Origin
from helpers.timing import FEW_SAMPLES, MeasurementRefused, Timing
from helpers.turns import turn

__all__ = [
    "Comparison",
    "MeasurementRefused",
    "Reference",
    "Timing",
    "compare",
    "float64_run",
    "measure",
]

NOTHING: Mapping[str, Any] = types.MappingProxyType({})
LONG_S = 5.0  # from here on a progress line is shown
MOST_SAMPLES, FEWEST_SAMPLES = 1000, 3
# Two calls at least after the last compilation: mode="reduce-overhead" records a CUDA graph in the
# first of them. Short calls get more, so that caches fill and clocks rise.
WARM_CALLS, WARM_S, MOST_WARM_CALLS, MOST_COMPILING_CALLS = 2, 0.2, 20, 40
# Emptied between calls for the device time, as triton.testing.do_bench does: larger than any L2.
FLUSH_BYTES = 256 * 2**20
MOST_KEPT_BYTES = 2 * 2**30  # a larger result is not kept for the check of accuracy
LIMITS = run_settings.RecompileLimits()


def measure(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = NOTHING,
    repeats: int | None = None,
    seconds: float = 2.0,
    label: str = "",
    timeout_s: float = 1800.0,
) -> Timing:
    """Times `fn(*args, **kwargs)` as it is: the first call, then the steady median with interval.

    repeats: number of samples; without it, as many as fit into about `seconds` (3 to 1000).
    timeout_s: seconds to wait for a turn on the device, then TurnTimeout. A sample lasts from
    the call until the device is done. `fn` runs 1 + warm-up + samples times, on a card up to 100
    times more for `device_ms` (with an emptied L2 cache). An error of `fn` reaches the caller as
    it is. MeasurementRefused: it compiled between the samples, never stopped compiling or hit its
    recompile limit; a setting changed; an argument is an iterator, which the first call uses up; or
    the result is a generator or coroutine, whose code runs later. Ctrl-C during the samples returns
    those taken so far, marked in `notes`.
    """
    _check_callable(fn)
    timing.check_request(kwargs, repeats, seconds, label, timeout_s)
    run_settings.refuse_one_shot(args, kwargs)
    LIMITS.refuse_earlier(fn)
    run = _Run(fn, args, dict(kwargs), label or _name_of(fn))
    run.cards = run_settings.cards_of_call(fn, args, kwargs)
    with contextlib.ExitStack() as turns:
        run.take_turns(turns, timeout_s)
        run.first_call()
        used = run_settings.cards_of(run.outcome)
        if not set(used) <= set(run.cards):
            turns.close()  # first give back, then wait: two who hold and wait would block
            run.cards = tuple(sorted({*run.cards, *used}))
            run.take_turns(turns, timeout_s)
            run.notes.append("The first call ran before the card's turn came: only its result "
                             "showed that it uses the card.")  # fmt: skip
        run.keep_result()
        run.warm_up()
        run.sample(repeats, seconds)
        return run.finish()


def _check_callable(fn: Any) -> None:
    if not callable(fn):
        raise TypeError(
            f"measure needs something to call, and {type(fn).__name__} is not callable: write "
            "measure(f, x), not measure(f(x))."
        )


def _name_of(fn: Any) -> str:
    name = getattr(fn, "__name__", "") or type(run_settings.unwrap(fn)).__name__
    return "" if name == "<lambda>" else name


class _Run:
    """One measurement on its way: what is called, where, and what was found so far."""

    def __init__(self, fn: Callable[..., Any], args: Any, kwargs: dict[str, Any], label: str):
        self.call = functools.partial(fn, *args, **kwargs)
        self.what, self.label = (fn, args, kwargs), label
        self.cards: tuple[int, ...] = ()
        self.notes: list[str] = []
        self.samples: list[float] = []
        self.outcome: Any = None
        self.interrupted = False
        self.limits_before = len(LIMITS.hits)

    def take_turns(self, turns: contextlib.ExitStack, timeout_s: float) -> None:
        """Waits for each card in one order for all, or for the CPU; then reads the cards."""
        resources = sorted(card.read(index).uuid or f"cuda-{index}" for index in self.cards)
        for resource in resources or ["cpu"]:
            had = turns.enter_context(turn(resource, self.label, timeout_s))
            self.notes += had.notes
        self.wait_for_device()
        self.before = [disturbances.idle_state(index) for index in self.cards]
        self.settings = self.read_settings()

    def read_settings(self) -> dict[str, Any]:
        return run_settings.read_settings(*self.what, self.device_name())

    def device_name(self) -> str:
        if not self.cards:
            return cpu_name()
        names = [torch.cuda.get_device_name(index) for index in self.cards]
        return names[0] if len(names) == 1 else f"{len(names)} cards: {', '.join(names)}"

    def wait_for_device(self) -> None:
        for index in self.cards:
            torch.cuda.synchronize(index)

    def timed_call(self) -> float:
        """Calls once and returns the seconds until the device was done; keeps the outcome."""
        self.outcome = None  # freed outside of the timed part
        start = time.perf_counter()
        outcome = self.call()
        self.wait_for_device()
        seconds = time.perf_counter() - start
        self.outcome = outcome
        return seconds

    def first_call(self) -> None:
        """Times the first call; also waits for a card that only this call began to use."""
        self.wait_for_device()
        with _progress_if_long(f"first call of {self.label or 'the function'}"):
            start = time.perf_counter()
            self.outcome = self.call()
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self.first_call_s = time.perf_counter() - start
        run_settings.refuse_not_run_yet(self.outcome)

    def keep_result(self) -> None:
        tensors = run_settings.tensors_in(self.outcome)
        if any(one.is_meta for one in tensors):
            self.result = None
            self.notes.append("The result is on the meta device: nothing is computed there, only "
                              "shapes are worked out, and accuracy is not checked.")  # fmt: skip
        elif sum(one.numel() * one.element_size() for one in tensors) > MOST_KEPT_BYTES:
            self.result = None
            self.notes.append("The result is too large to be kept for a check of accuracy.")
        else:
            # Copied at once: the next call may overwrite it (CUDA graphs, in-place code).
            self.result = tuple(one.detach().to("cpu", copy=True) for one in tensors)

    def warm_up(self) -> None:
        """Calls until nothing compiles any more, or refuses if that never comes."""
        compiling, quiet, spent = 0, 0, 0.0
        with _progress_if_long(f"warming up {self.label or 'the function'}"):
            while quiet < WARM_CALLS or (spent < WARM_S and quiet < MOST_WARM_CALLS):
                count = dynamo.compilation_count()
                self.call_s = self.timed_call()
                if dynamo.compilation_count() == count:
                    quiet, spent = quiet + 1, spent + self.call_s
                    continue
                compiling, quiet, spent = compiling + 1, 0, 0.0
                if compiling >= MOST_COMPILING_CALLS:
                    raise MeasurementRefused(
                        f"Each of {compiling} warm-up calls compiled again.",
                        "Every time would be that of compiling and not of the code.",
                        "Find what changes from call to call (a number, a shape, a new function "
                        "object) and keep it fixed, or pass dynamic=True to torch.compile.",
                    )
        LIMITS.refuse_new(self.limits_before)
        if compiling > 2:
            self.notes.append(f"{compiling} warm-up calls compiled again; torch may have reached "
                              "its recompile limit and run the rest uncompiled.")  # fmt: skip

    def sample(self, repeats: int | None, seconds: float) -> None:
        """Takes the samples; Ctrl-C ends them early if there is at least one."""
        fitting = int(seconds / max(self.call_s, 1e-9))
        count = repeats or min(MOST_SAMPLES, max(FEWEST_SAMPLES, fitting))
        expected, label = count * self.call_s, f"measuring {self.label or 'the function'}"
        self.compiled_before = dynamo.compilation_count()
        self.others = disturbances.OtherPrograms()
        gc.collect()
        collecting = gc.isenabled()
        gc.disable()  # as timeit does: a collection would land in whichever sample is running
        try:
            with _progress(label, expected) if expected > LONG_S else contextlib.nullcontext():
                for _ in range(count):
                    self.samples.append(1000 * self.timed_call())
        except KeyboardInterrupt:
            if not self.samples:
                raise
            self.interrupted = True
            self.notes.append(f"Interrupted after {len(self.samples)} of {count} calls.")
        finally:
            if collecting:
                gc.enable()

    def finish(self) -> Timing:
        self.found = self.others.disturbance(2 if self.cards else torch.get_num_threads())
        device_ms = None if self.interrupted or not self.cards else self.device_time()
        self.outcome = None
        self.refuse_flaws()
        self.add_notes()
        samples = tuple(self.samples)
        return Timing(
            label=self.label, wall_ms=statistics.median(samples),
            interval=timing.median_interval(samples), device_ms=device_ms, samples=samples,
            first_call_s=self.first_call_s, spread=timing.quartile_spread(samples),
            count=len(samples), bound=None, notes=tuple(self.notes),
            settings=types.MappingProxyType(self.settings),
            origin=Origin.live(self.device_name()), result=self.result,
            disturbed=any(one.spoils for one in self.found),
        )  # fmt: skip

    def refuse_flaws(self) -> None:
        LIMITS.refuse_new(self.limits_before)
        # Not "more than before": torch.compiler.reset puts the count back to 0.
        if dynamo.compilation_count() != self.compiled_before:
            raise MeasurementRefused(
                "torch.compile compiled again between the timed calls.",
                "The median would mix the time of compiling with that of the code.",
                "Find what changed from call to call (a number, a shape, a flag) and keep it "
                "fixed, or measure each case by itself.",
            )
        changed = run_settings.differences(self.settings, self.read_settings())
        if changed:
            raise MeasurementRefused(
                f"Settings changed between the first and the last call ({'; '.join(changed)}), "
                "and they stay changed.",
                "The samples are then not of one and the same computation.",
                "Set them back now. Set everything before measuring, and let the function change "
                "none of it.",
            )

    def device_time(self) -> float:
        """Returns the median time between CUDA events in ms, the L2 cache emptied before each call.

        Calls are queued without waiting, so that the card does not wait for Python where the
        card is the slower of the two.
        """
        with torch.cuda.device(self.cards[0]):
            flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
            count = min(len(self.samples), 100)
            begin, end = (
                [torch.cuda.Event(enable_timing=True) for _ in range(count)] for _ in "ab"
            )
            for first, last in zip(begin, end, strict=True):
                flush.zero_()
                first.record()
                self.outcome = self.call()
                last.record()
            self.wait_for_device()
            pairs = zip(begin, end, strict=True)
            return statistics.median(first.elapsed_time(last) for first, last in pairs)

    def add_notes(self) -> None:
        if len(self.samples) < FEW_SAMPLES:
            many = "s" if len(self.samples) != 1 else ""
            self.notes.append(f"Only {len(self.samples)} sample{many}: the interval says little.")
        for index, before in zip(self.cards, self.before, strict=True):
            self.found += disturbances.on_card(index, before, card.read(index))
        self.notes += [one.sentence for one in self.found]


def _progress(label: str, expected_s: float | None = None) -> Any:
    from helpers.display import progress

    return progress(label, expected_s)


@contextlib.contextmanager
def _progress_if_long(label: str, after_s: float = LONG_S) -> Iterator[None]:
    """Shows a progress line from `after_s` seconds on; a shorter body leaves no line."""
    shown = contextlib.ExitStack()
    text = f"{label}, after its first {after_s:.0f} s"
    timer = threading.Timer(after_s, lambda: shown.enter_context(_progress(text)))
    timer.daemon = True
    timer.start()
    with shown:
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
