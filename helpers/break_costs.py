"""What graph breaks cost: launches, bytes and time of a call with them and of one without."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from helpers import recordings
from helpers.benchmarking import measure
from helpers.byte_views import size_text
from helpers.comparing import NO_DIFFERENCE, compare
from helpers.display import View, notice_html, sentence_html, table_html, table_text, wrap
from helpers.dynamo import capture_graphs
from helpers.first_compile import keep, time_text
from helpers.generated import GeneratedCode
from helpers.generated_views import unstyled
from helpers.inductor import generated_code
from helpers.isolation import no_trace
from helpers.launches import read_launches
from helpers.origin import Origin
from helpers.roofline import count_bytes_of
from helpers.run_settings import tensors_in
from helpers.timing import MeasurementRefused, Timing

RECORDING = "03_graph_breaks"
NAMES = ("with breaks", "without breaks")
_COLUMNS = ("", "graphs", "launches", "bytes moved")
_TIMES = ("", "time of a call", "inputs", "measured on", "graphs run")
# What compiles for the times: without a card Inductor would take a minute to write C++ that the
# lesson does not look at. Passed through, what remains is what each break itself costs the host.
_BACKENDS = {"cuda": "inductor", "cpu": "eager"}
_IN_WORDS = {"inductor": "compiled by Inductor", "eager": "uncompiled"}
_ON_A_CPU = (
    "On a CPU the graphs run uncompiled here. So the two times show only what breaks cost the host "
    "(its way between graphs), and nothing of what launches and bytes cost a GPU."
)
_DISTURBED = "Measured here, but not judged: other programs used the machine meanwhile."
# Two forms of one computation differ by rounding, far below this share of the largest value;
# another computation is nearly always above it.
_SAME = 1e-2


@dataclass(frozen=True)
class Form:
    """One of the two forms: graphs as captured, launches of all graphs, bytes that they move."""

    name: str
    graphs: int
    launches: int
    bytes: int


@dataclass(frozen=True, repr=False)
class BreakCosts(View):
    """What `break_cost` shows. broken, repaired: counts; timings: both, () if refused;
    refused: why there is no time, else empty; inputs: dtypes and shapes of the call, in words.
    """

    broken: Form | None = None
    repaired: Form | None = None
    timings: tuple[Timing, ...] = ()
    refused: str = ""
    inputs: str = ""

    def to_record(self) -> dict[str, Any]:
        """Returns the times and inputs as a recording keeps them, empty if they were refused."""
        times = dict(zip(NAMES, map(keep, self.timings), strict=False))
        return {**times, "inputs": self.inputs} if times else {}


def break_cost(
    broken: Callable[..., Any],
    repaired: Callable[..., Any],
    *args: Any,
    recorded: str = "",
    repeats: int = 200,
) -> BreakCosts:
    """Counts graphs, launches and bytes of both forms for the same call, and times both.

    Launches and bytes are read from the code generated for this machine's GPU, else for an H200.
    Times: compiled by Inductor on a GPU; on a CPU with the graphs passed through, which leaves
    what breaks cost the host. recorded: name under which times of a GPU may have been recorded.
    repeats: samples of each. Each form runs about as often as `measure` says; nothing is left in
    the compiler. Where times would mislead, a sentence says why. ValueError if the two forms
    return something else for this call: then one is no repair of the other.
    """
    with torch.no_grad():
        _check_same(broken, repaired, args)
        pair = [_count(fn, args, name) for fn, name in zip((broken, repaired), NAMES, strict=True)]
        forms, code = [form for form, _ in pair], pair[0][1]
        timings, verdict, refused = _time(broken, repaired, args, repeats)
    said, inputs = _difference(*forms), _inputs(args)
    rows = [(one.name, one.graphs, one.launches, size_text(one.bytes)) for one in forms]
    parts = [sentence_html(said), table_html(_COLUMNS, rows), code.origin.html()]
    texts = [said, table_text(_COLUMNS, rows), code.origin.text()]
    more, stored = _recorded_rows(recorded) if recorded else ([], None)
    timed = [*(_time_row(one, inputs) for one in timings), *more]
    if timed:
        parts.append(table_html(_TIMES, timed))
        texts.append(table_text(_TIMES, timed))
    for sentence in filter(None, (verdict, refused)):
        as_html = notice_html(sentence, "note") if sentence is refused else sentence_html(sentence)
        parts.append(as_html)
        texts.append(sentence)
    origins = [one for one in (timings[0].origin if timings else None, stored) if one]
    html = wrap(*map(unstyled, [*parts, *(one.html() for one in origins)]))
    text = "\n".join([*texts, *(one.text() for one in origins)])
    return BreakCosts(html, text, *forms, tuple(timings), refused, inputs)


def _check_same(fn: Callable[..., Any], other: Callable[..., Any], args: Sequence[Any]) -> None:
    """Raises ValueError if two functions, in plain Python, return different results."""
    results = []
    cards = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    for one in (fn, other):
        with torch.random.fork_rng(devices=cards), no_trace(one, *args):
            torch.manual_seed(0)
            results.append(copy.deepcopy(tensors_in(one(*copy.deepcopy(args)))))
    for index, (ours, theirs) in enumerate(zip(*results, strict=False)):
        same_kind = (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        if not (same_kind and _close(ours, theirs)):
            what = f"tensor {index} of the result differs" if len(results[0]) > 1 else "they differ"
            break
    else:
        if len(results[0]) == len(results[1]):
            return
        what = f"they return {len(results[0])} and {len(results[1])} tensors"
    raise ValueError(
        f"break_cost compares two forms of one computation, but for this call {what}. A repair "
        "that changes the result is none, and its time says nothing: compare both in plain Python."
    )


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.is_floating_point():
        return torch.equal(one, other)
    scale = other.abs().nan_to_num().max().item() if other.numel() else 0.0
    return torch.allclose(one, other, rtol=_SAME, atol=_SAME * scale, equal_nan=True)


def _inputs(args: Sequence[Any]) -> str:
    """Returns dtypes and shapes of the tensors of a call: `2 x float32 [8, 8]`."""
    kinds = [f"{str(one.dtype).removeprefix('torch.')} {list(one.shape)}" for one in
             tensors_in(args)]  # fmt: skip
    counts = [(kinds.count(kind), kind) for kind in dict.fromkeys(kinds)]
    return ", ".join(f"{count} x {kind}" if count > 1 else kind for count, kind in counts)


def _count(fn: Callable[..., Any], args: Sequence[Any], name: str) -> tuple[Form, GeneratedCode]:
    graphs = len(capture_graphs(fn, *args).graphs)
    code = generated_code(fn, *args, backward=False)
    launches = sum(len(read_launches(code, index)) for index in range(len(code.graphs)))
    return Form(name, graphs, launches, count_bytes_of(code).total), code


def _difference(broken: Form, repaired: Form) -> str:
    """Says in one sentence what the breaks add."""
    graphs = broken.graphs - repaired.graphs
    launches, moved = broken.launches - repaired.launches, broken.bytes - repaired.bytes
    parts = []
    if graphs:
        parts.append(_more(graphs, "graph", "graphs"))
    if launches:
        parts.append(_more(launches, "launch", "launches"))
    if moved:
        parts.append(f"{size_text(abs(moved))} {'more' if moved > 0 else 'less'} to move")
    if not parts:
        return "In the compiled part the two forms differ in nothing that is counted here."
    text = f"With breaks, one call has {', '.join(parts)}."
    return text + " Work that a break leaves to Python is launched too, and is not counted here."


def _more(number: int, one: str, many: str) -> str:
    way = "more" if number > 0 else "fewer"
    return f"{abs(number)} {way} {one if abs(number) == 1 else many}"


def _time(
    broken: Callable[..., Any],
    repaired: Callable[..., Any],
    args: Sequence[Any],
    repeats: int,
) -> tuple[list[Timing], str, str]:
    """Measures both; returns timings, verdict in words, and why there is none."""
    backend = _BACKENDS["cuda" if _on_card(broken, args) else "cpu"]
    timings = []
    try:
        for fn, name in zip((broken, repaired), NAMES, strict=True):
            with no_trace(fn, *args):
                compiled = torch.compile(fn, backend=backend)
                timings.append(measure(compiled, *args, label=name, repeats=repeats))
        return timings, _verdict(timings, backend), ""
    except MeasurementRefused as error:
        return [], "", f"No time: {error}"


def _verdict(timings: Sequence[Timing], backend: str) -> str:
    """Returns what the two times say, and on a CPU what they cannot say."""
    found = compare(*timings)
    unclear = found.verdict == NO_DIFFERENCE and any(one.disturbed for one in timings)
    said = _DISTURBED if unclear else f"Measured here: {found.summary()}"
    return f"{said} {_ON_A_CPU}" if backend == "eager" else said


def _on_card(fn: Any, args: Sequence[Any]) -> bool:
    leaves = torch.utils._pytree.tree_leaves(args)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if isinstance(fn, torch.nn.Module):
        tensors += fn.parameters()
    return any(one.is_cuda for one in tensors)


def _time_row(one: Timing, inputs: str) -> tuple[str, ...]:
    device = one.origin.device or "this machine"
    backend = _BACKENDS["cuda" if one.device_ms is not None else "cpu"]
    return one.label, time_text(one.wall_ms), inputs, device, _IN_WORDS[backend]


def _recorded_rows(name: str) -> tuple[list[tuple[str, ...]], Origin | None]:
    """Returns rows of the times recorded on a GPU under `name`, none if there are none."""
    if not (recordings.recordings_folder() / f"{RECORDING}.json").exists():
        return [], None
    try:
        found = recordings.load(RECORDING)
    except recordings.RecordingError:
        return [], None
    entry = found.data.get(name, {})
    rows = [
        (
            label,
            time_text(entry[label]["wall_ms"]),
            entry.get("inputs", ""),
            f"{found.origin.device}, recorded",
            _IN_WORDS["inductor"],
        )
        for label in NAMES
        if label in entry
    ]
    return rows, found.origin if rows else None
