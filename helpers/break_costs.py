"""What graph breaks cost: launches, bytes and time of a call with them and of one without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from helpers import recordings
from helpers.benchmarking import measure
from helpers.byte_views import size_text
from helpers.comparing import compare
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
from helpers.timing import MeasurementRefused, Timing

RECORDING = "03_graph_breaks"
NAMES = ("with breaks", "without breaks")
_COLUMNS = ("", "graphs", "launches", "bytes moved")
_TIMES = ("", "time of a call", "measured on", "compiled by")
# What compiles for the times: without a card Inductor would take a minute to write C++ that the
# lesson does not look at. Passed through, what remains is what each break itself costs the host.
_BACKENDS = {"cuda": "inductor", "cpu": "eager"}
_IN_WORDS = {
    "inductor": "Inductor",
    "eager": "nothing: the graphs run as they are, so the difference is the host's work alone",
}


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
    refused: why there is no time, else empty.
    """

    broken: Form | None = None
    repaired: Form | None = None
    timings: tuple[Timing, ...] = ()
    refused: str = ""

    def to_record(self) -> dict[str, Any]:
        """Returns the times as a recording keeps them, empty if they were refused."""
        return dict(zip(NAMES, map(keep, self.timings), strict=False))


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
    repeats: samples of each. Each form runs about as often as `measure`
    says; nothing is left in the compiler. Where times would mislead, a sentence says why.
    """
    with torch.no_grad():
        pair = [_count(fn, args, name) for fn, name in zip((broken, repaired), NAMES, strict=True)]
        forms, codes = [form for form, _ in pair], [code for _, code in pair]
        timings, verdict, refused = _time(broken, repaired, args, repeats)
    said = _difference(*forms)
    rows = [(one.name, one.graphs, one.launches, size_text(one.bytes)) for one in forms]
    timed = [_time_row(one) for one in timings]
    more, stored = _recorded_rows(recorded) if recorded else ([], None)
    parts = [sentence_html(said), table_html(_COLUMNS, rows), codes[0].origin.html()]
    texts = [said, table_text(_COLUMNS, rows), codes[0].origin.text()]
    if timed or more:
        parts.append(table_html(_TIMES, [*timed, *more]))
        texts.append(table_text(_TIMES, [*timed, *more]))
    origins = [timings[0].origin] if timings else []
    origins += [stored] if stored else []
    for sentence in filter(None, (verdict, refused)):
        parts.append(notice_html(sentence, "note") if sentence is refused
                     else sentence_html(sentence))  # fmt: skip
        texts.append(sentence)
    parts += [one.html() for one in origins]
    texts += [one.text() for one in origins]
    html = wrap(*map(unstyled, parts))
    return BreakCosts(html, "\n".join(texts), *forms, tuple(timings), refused)


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
        return timings, f"Measured here: {compare(*timings).summary()}", ""
    except MeasurementRefused as error:
        return [], "", f"No time: {error}"


def _on_card(fn: Any, args: Sequence[Any]) -> bool:
    leaves = torch.utils._pytree.tree_leaves(args)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if isinstance(fn, torch.nn.Module):
        tensors += fn.parameters()
    return any(one.is_cuda for one in tensors)


def _time_row(one: Timing) -> tuple[str, ...]:
    device = one.origin.device or "this machine"
    backend = _BACKENDS["cuda" if one.device_ms is not None else "cpu"]
    return one.label, time_text(one.wall_ms), device, _IN_WORDS[backend]


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
        (label, time_text(entry[label]["wall_ms"]), f"{found.origin.device}, recorded", "Inductor")
        for label in NAMES
        if label in entry
    ]
    return rows, found.origin if rows else None
