"""Lesson 01: eager, first and later calls, measured here and recorded on a GPU, side by side."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from helpers import recordings
from helpers.accuracy import float64_run
from helpers.benchmarking import measure
from helpers.comparing import FAR, compare, is_far, ratio_interval, run_to_run_share
from helpers.display import (
    View,
    art_html,
    details_html,
    heading_html,
    notice_html,
    sentence_html,
    table_html,
    table_text,
    wrap,
)
from helpers.isolation import no_trace
from helpers.models import VisionTransformer
from helpers.origin import Origin
from helpers.timing import Timing, number, seconds_text

RECORDING = "01_first_compile"
# Settings of VisionTransformer: tiny, in between, and ViT-S/16 (Touvron et al. 2020, table 1: 12
# blocks) with half of its blocks, so that the widest one still compiles in seconds.
SIZES: Mapping[str, Mapping[str, int]] = {
    "small": {"size": 32, "patch": 8, "width": 64, "depth": 2},
    "medium": {"size": 64, "patch": 8, "width": 192, "depth": 4},
    "large": {"size": 224, "patch": 16, "width": 384, "depth": 6, "heads": 6},
}
BATCHES = (1, 8, 64)
DTYPES = ("float32", "bfloat16")
# Above this a call takes more than about a second on two CPU cores, and nine of them are needed.
MOST_CPU_OPERATIONS = {"float32": 4e10, "bfloat16": 1e10}
ROWS = ("eager, each call", "compiled, first call", "compiled, later calls")


@dataclass(frozen=True)
class Case:
    """One choice of model size (key of SIZES), batch and dtype; ValueError for another one."""

    size: str = "small"
    batch: int = 8
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("size", self.size, tuple(SIZES)),
            ("batch", self.batch, BATCHES),
            ("dtype", self.dtype, DTYPES),
        ):
            if value not in known:
                raise ValueError(f"{name} is one of {', '.join(map(str, known))}; got {value!r}")

    @property
    def key(self) -> str:
        """How the recording calls it."""
        return f"{self.size}/{self.batch}/{self.dtype}"

    def __str__(self) -> str:
        return f"{self.size} vision transformer, batch {self.batch}, {self.dtype}"

    def operations(self) -> float:
        """Returns the multiplications and additions of one call in its linear layers."""
        plan = SIZES[self.size]
        tokens = (plan["size"] // plan["patch"]) ** 2 + 1
        # Per token and block: qkv 3, output 1, MLP 8 matrices of width x width, 2 operations each.
        return 24.0 * self.batch * tokens * plan["width"] ** 2 * plan["depth"]

    def make(self, device: str) -> tuple[VisionTransformer, torch.Tensor]:
        """Returns the model in eval mode and random images, both on `device`."""
        dtype, plan = getattr(torch, self.dtype), SIZES[self.size]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = VisionTransformer(**plan).eval().to(device, dtype)
            images = torch.randn(self.batch, 3, plan["size"], plan["size"])
        return model, images.to(device, dtype)


@dataclass(frozen=True)
class Figures:
    """Milliseconds of an eager call, the first compiled call and a later one; where from."""

    eager_ms: float
    first_ms: float
    later_ms: float
    origin: Origin
    notes: tuple[str, ...] = ()
    disturbed: bool = False
    far: bool = False  # so far apart that a disturbance can hardly be the reason

    def values(self) -> tuple[float, float, float]:
        return self.eager_ms, self.first_ms, self.later_ms

    def words(self) -> str:
        """Returns the figures, and what they mean, in sentences."""
        eager, first, later = (time_text(value) for value in self.values())
        times = max(1, round(self.first_ms / self.later_ms))
        return (
            f"An eager call takes {eager}, a later compiled call {later}. The first compiled "
            f"call takes {first}, as long as {times:,} later ones. {self.pay_back()}"
        )

    def pay_back(self) -> str:
        """Says after how many calls compiling has paid for itself, if it ever does."""
        if self.disturbed:
            return self._roughly()
        share = run_to_run_share(min(self.eager_ms, self.later_ms))
        if max(self.eager_ms, self.later_ms) <= (1 + share) * min(self.eager_ms, self.later_ms):
            return f"No difference shown: two runs of the same code may differ by {share:.0%}."
        calls = pay_back_calls(*self.values())
        if calls is None:
            return "Compiling never pays back: later calls are slower than eager ones."
        return f"Compiling has paid back after {calls:,} calls."

    def _roughly(self) -> str:
        """Says what figures are still good for that other programs have disturbed."""
        others = "Other programs used the machine meanwhile"
        if not self.far:
            return f"{others}: don't count on a difference."
        calls = pay_back_calls(*self.values())
        found = (
            "compiling never pays back here"
            if calls is None
            else f"compiling has paid back after about {calls:,} calls"
        )
        return (
            f"{others}, but a factor of more than {number(FAR)} shows through: {found}. Measure "
            "again before relying on it."
        )


def time_text(milliseconds: float) -> str:
    """Returns a time in s, ms or µs, with three digits."""
    if milliseconds < 0.1:
        return f"{number(1000 * milliseconds)} µs"
    return seconds_text(milliseconds / 1000)


def pay_back_calls(eager_ms: float, first_ms: float, later_ms: float) -> int | None:
    """Returns from which call on the compiled total is no longer than the eager one, else None."""
    if later_ms >= eager_ms:
        return None
    return max(1, math.ceil((first_ms - later_ms) / (eager_ms - later_ms)))


def time_both(fn: Any, args: Sequence[Any], **options: Any) -> tuple[Timing, Timing]:
    """Measures `fn` as it is and compiled anew; leaves no trace in the compiler."""
    with torch.no_grad():
        eager = measure(fn, *args, label="eager", **options)
        with no_trace(fn, *args):
            compiled = measure(torch.compile(fn), *args, label="compiled", **options)
    return eager, compiled


def measure_case(case: Case, device: str, **options: Any) -> tuple[Timing, Timing]:
    """Measures a case eager and compiled; `options` go to `measure`."""
    model, images = case.make(device)
    return time_both(model, (images,), **options)


def _figures(eager: Timing, compiled: Timing) -> Figures:
    notes = tuple(dict.fromkeys((*eager.notes, *compiled.notes)))
    first = 1000 * compiled.first_call_s
    disturbed = eager.disturbed or compiled.disturbed
    far = is_far(eager, compiled, ratio_interval(eager, compiled))
    return Figures(eager.wall_ms, first, compiled.wall_ms, compiled.origin, notes, disturbed, far)


def live_figures(case: Case, device: str) -> Figures | str:
    """Measures a case here; a sentence instead where it would take minutes on a CPU."""
    if device == "cpu" and case.operations() > MOST_CPU_OPERATIONS[case.dtype]:
        return (
            f"Not measured here: on a CPU each call of the {case} would take seconds. Choose a "
            "smaller model or batch."
        )
    long = device == "cpu" and case.operations() > MOST_CPU_OPERATIONS[case.dtype] / 20
    return _figures(*measure_case(case, device, repeats=10 if long else 50))


def keep(timing: Timing) -> dict[str, Any]:
    """Returns what a recording holds of a timing: figures, all samples in ms, notes."""
    return {
        "wall_ms": timing.wall_ms,
        "interval_ms": list(timing.interval),
        "device_ms": timing.device_ms,
        "first_call_s": timing.first_call_s,
        "samples_ms": list(timing.samples),
        "notes": list(timing.notes),
        "disturbed": timing.disturbed,
    }


def _recording() -> recordings.Recording | str:
    if not (recordings.recordings_folder() / f"{RECORDING}.json").exists():
        return "no figures of a GPU have been recorded for this lesson yet."
    try:
        return recordings.load(RECORDING)
    except recordings.RecordingError as error:
        return str(error)


def recorded_figures(*way: str) -> Figures | str:
    """Returns figures from the recording, such as ("grid", "small/8/float32"), or why not."""
    found = _recording()
    if isinstance(found, str):
        return found
    entry = found.data
    for name in way:
        entry = entry.get(name, {})
    if not entry:
        return f"This case was not recorded: {' '.join(way[1:])}."
    eager, compiled = entry["eager"], entry["compiled"]
    first = 1000 * compiled["first_call_s"]
    notes = tuple(dict.fromkeys((*eager["notes"], *compiled["notes"])))
    disturbed = eager["disturbed"] or compiled["disturbed"]
    return Figures(eager["wall_ms"], first, compiled["wall_ms"], found.origin, notes, disturbed)


@dataclass(frozen=True, repr=False)
class CallsView(View):
    """A View of first and later calls; rows: its figures as cells under RUN_COLUMNS."""

    rows: tuple[tuple[str, ...], ...] = ()


RUN_COLUMNS = ("model", "batch", "dtype", "where", "eager", "first", "later", "eager / later")


def run_rows(case: Case, sources: Mapping[str, Figures | str]) -> tuple[tuple[str, ...], ...]:
    """Returns one row of cells for each set of figures; those that are missing have no row."""
    rows = []
    for name, one in sources.items():
        if isinstance(one, Figures):
            where = f"{name}, disturbed" if one.disturbed else name
            times = (time_text(value) for value in one.values())
            ratio = number(one.eager_ms / one.later_ms)
            rows.append((case.size, str(case.batch), case.dtype, where, *times, ratio))
    return tuple(rows)


def first_calls_view(
    size: str = "small", batch: int = 8, dtype: str = "float32", device: str = "cpu"
) -> CallsView:
    """Shows eager, first and later calls of a vision transformer: here, and recorded on a GPU.

    size: a key of SIZES; batch: one of BATCHES; dtype: one of DTYPES. A picture on a logarithmic
    scale, a table, sentences. It runs the model about a hundred times and compiles it
    once, without a trace. An error on the way is shown in words.
    """
    try:
        case = Case(size, batch, dtype)
        live = live_figures(case, device)
    except Exception as error:  # a compiler that is missing, memory that is full, a long queue
        text = _in_words(error)
        return CallsView(wrap(notice_html(text, "error")), f"Error: {text}")
    sources = {"This machine": live, "Recorded": recorded_figures("grid", case.key)}
    shown = show_figures(str(case), sources)
    return CallsView(shown.html, shown.text, run_rows(case, sources))


def _in_words(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    advice = ""
    if "compiler" in first.lower() or "g++" in first:
        advice = " preflight() says how to get a C++ compiler."
    elif isinstance(error, torch.OutOfMemoryError):
        advice = " Choose a smaller model or batch."
    return f"{type(error).__name__}: {first}{advice}"


def show_figures(
    title: str, sources: Mapping[str, Figures | str], verdict: str = "", more: Sequence[str] = ()
) -> View:
    """Shows one or more sets of figures: picture, table, words, origin; or why one is missing.

    verdict: a sentence that comes first; with one, `more` sentences, the table and where the
    figures come from are folded below.
    """
    shown = {name: one for name, one in sources.items() if isinstance(one, Figures)}
    said = {name: one if isinstance(one, str) else one.words() for name, one in sources.items()}
    parts, texts = [heading_html(title)], [title]
    if verdict:
        parts.append(wrap(f"<div><strong>{html.escape(verdict)}</strong></div>"))
        texts.append(verdict)
    if shown:
        words = "; ".join(f"{name}: {said[name]}" for name in shown)
        parts.append(
            art_html(_bars(title, shown), f"picture: times of {title}", f"{title}. {words}")
        )
    for name, text in said.items():
        line = f"{name}: {text}"
        parts.append(sentence_html(line) if name in shown else notice_html(line, "note"))
        texts.append(line)
    notes = tuple(dict.fromkeys(note for one in shown.values() for note in one.notes))
    parts += [notice_html("\n".join(notes), "warning")] if notes else []
    inner, details = _figures_in_full(shown, more)
    parts.append(details_html("Figures, accuracy and origin", inner) if verdict else inner)
    whole = f'<div class="tcs-first">{"".join(parts)}</div>'
    return View(wrap(whole), "\n".join([*texts, *notes, *details]))


def _figures_in_full(shown: Mapping[str, Figures], more: Sequence[str]) -> tuple[str, list[str]]:
    """Returns sentences, scale, table and origins as HTML and as lines of text."""
    parts, texts = [sentence_html(one) for one in more], list(more)
    if shown:
        columns = ("", *(f"{name}: {one.origin.device}" for name, one in shown.items()))
        cells = [[time_text(value) for value in one.values()] for one in shown.values()]
        rows = list(zip(ROWS, *cells, strict=True))
        scale = (
            "Scale: logarithmic. Each grid line stands for ten times the time of the one before. "
            "A live first call is shorter where an earlier run left its code on disk; a recorded "
            "one found an empty cache."
        )
        parts += [sentence_html(scale), table_html(columns, rows)]
        texts.append(table_text(columns, rows))
    parts += [one.origin.html() for one in shown.values()]
    texts += [one.origin.text() for one in shown.values()]
    return "".join(parts), texts


_COLOURS = ("--tcs-soft", "--tcs-warn", "--tcs-good")
_LEFT, _WIDE, _ROW = 170, 430, 24


def _bars(title: str, shown: Mapping[str, Figures]) -> str:
    """Returns the bars as SVG on a logarithmic scale, with one grid line for each power of ten."""
    values = [value for one in shown.values() for value in one.values()]
    low = math.floor(math.log10(min(values)) - 0.2)
    high = max(low + 1, math.ceil(math.log10(max(values))))
    step, top = _WIDE / (high - low), 4
    body = []
    for name, one in shown.items():
        head = html.escape(f"{name}: {one.origin.device}")
        body.append(f'<text x="0" y="{top + 15}" font-weight="600">{head}</text>')
        top += _ROW
        for label, value, colour in zip(ROWS, one.values(), _COLOURS, strict=True):
            long = (math.log10(value) - low) * step
            body.append(
                f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{label}</text>'
                f'<rect x="{_LEFT}" y="{top + 3}" width="{long:.1f}" height="16" rx="2" '
                f'style="fill:var({colour})"/>'
                f'<text x="{_LEFT + long + 6:.1f}" y="{top + 15}" font-weight="600">'
                f"{time_text(value)}</text>"
            )
            top += _ROW
        top += 8
    grid = [
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{top}" style="stroke:var(--tcs-line)"/>'
        f'<text x="{x:.1f}" y="{top + 16}" text-anchor="middle" font-size="11">{label}</text>'
        for x, label in (
            (_LEFT + (power - low) * step, time_text(10.0**power)) for power in range(low, high + 1)
        )
    ]
    wide, tall = _LEFT + _WIDE + 80, top + 24
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {wide} {tall}" '
        f'width="{wide}" height="{tall}" font-family="system-ui,sans-serif" font-size="13" '
        f'style="fill:var(--tcs-ink)"><title>{html.escape(title)}</title>'
        f"{''.join(grid)}{''.join(body)}</svg>"
    )


@dataclass(frozen=True, repr=False)
class Race(View):
    """What `race` shows, and both of its Timings for sums of your own."""

    eager: Timing
    compiled: Timing


def race(fn: Callable[..., Any], *args: Any, recorded: str = "", repeats: int = 50) -> Race:
    """Measures `fn(*args)` eager and compiled and shows verdict, accuracy and pay-back.

    recorded: name of the race that the recording holds beside it. repeats: samples of each.
    Compiles anew each time, without a trace. MeasurementRefused where it would mislead.
    """
    eager, compiled = time_both(fn, args, repeats=repeats)
    with torch.no_grad():
        found = compare(eager, compiled, float64_run(fn, *args))
    shapes = ", ".join(
        " x ".join(map(str, one.shape)) for one in args if isinstance(one, torch.Tensor)
    )
    title = getattr(fn, "__name__", type(fn).__name__) + (f" on {shapes}" if shapes else "")
    sources: dict[str, Figures | str] = {"This machine": _figures(eager, compiled)}
    more = [f"Measured here: {found.summary()}", found.accuracy]
    if recorded:
        sources["Recorded"] = recorded_figures("races", recorded)
        loaded = _recording()
        if isinstance(sources["Recorded"], Figures) and not isinstance(loaded, str):
            more.append(f"The recorded race is {loaded.data['races'][recorded]['what']}.")
    shown = show_figures(title, sources, f"Verdict here: {found.verdict}.", more)
    return Race(shown.html, shown.text, eager, compiled)


def without_waiting_view() -> View:
    """Shows what a clock says on a GPU when nobody waits for the work: from the recording."""
    found = _recording()
    if isinstance(found, str):
        return View(notice_html(found), found)
    entry = found.data["no_sync"]
    without, waited = (statistics.median(entry[f"{name}_ms"]) for name in ("without", "with"))
    text = (
        f"{entry['what']}: the clock says {time_text(without)} without synchronize, and "
        f"{time_text(waited)} with it. The first figure is {number(waited / without)} times too "
        "small: it is the time to ask for the work, not the time to do it."
    )
    return View(sentence_html(text) + found.origin.html(), f"{text}\n{found.origin.text()}")
