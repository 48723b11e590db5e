"""Counted bytes, to look at: a sentence, the launches, the graphs, each buffer, what to know."""

from __future__ import annotations

from helpers.byte_counts import LIBRARY, BufferBytes, ByteCount, KernelBytes, Prediction
from helpers.display import details_html, notice_html, sentence_html, table_html, table_text, wrap
from helpers.generated_views import unstyled
from helpers.words import counted

_LAUNCHES = ("launch", "graph", "kind", "read", "written", "together")
_GRAPHS = ("graph", "phase", "inputs read once", "outputs written once", "least", "moved")
_BUFFERS = ("launch", "buffer", "shape", "dtype", "read", "written", "note")
_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
AT_MOST = "at most"


def size_text(number: int) -> str:
    """Returns a number of bytes in words: exact below 1000, else three digits of kB, MB or GB."""
    for unit, name in _UNITS:
        if number >= unit:
            return f"{number / unit:.{max(0, 3 - len(str(number // unit)))}f} {name}"
    return f"{number} B"


def summary(count: ByteCount) -> str:
    """Returns one sentence: what is moved, by how many launches, and the least of any fusion."""
    library = sum(one.is_library_call for one in count.kernels)
    own = len(count.kernels) - library
    bound = f"{AT_MOST} " if any(one.is_at_most for one in count.kernels) else ""
    launches = "1 kernel launch" if own == 1 else f"{own} kernel launches"
    text = f"{bound}{size_text(count.total)} must move for {launches}"
    text += f" and {counted(library, 'library call')}" if library else ""
    text += f" in {counted(len(count.graphs), 'graph')}; inputs and outputs once"
    text = f"{text} are {size_text(count.least)}, the least that any fusion could move."
    return text[0].upper() + text[1:]


def count_html(count: ByteCount) -> str:
    """Returns the count as HTML."""
    parts = [sentence_html(summary(count))]
    parts += [notice_html(note) for note in _notes(count)]
    parts.append(table_html(_LAUNCHES, _launch_rows(count)))
    parts.append(table_html(_GRAPHS, _graph_rows(count)))
    parts.append(details_html("Each buffer", table_html(_BUFFERS, _buffer_rows(count))))
    return wrap(*map(unstyled, parts), count.origin.html())


def count_text(count: ByteCount) -> str:
    """Returns the same as plain text."""
    tables = (
        (_LAUNCHES, _launch_rows(count)),
        (_GRAPHS, _graph_rows(count)),
        (_BUFFERS, _buffer_rows(count)),
    )
    parts = [summary(count), *(f"Note: {note}" for note in _notes(count))]
    parts += [table_text(*one) for one in tables]
    return "\n".join([*parts, count.origin.text()])


def prediction_text(prediction: Prediction) -> str:
    """Returns the prediction as one sentence, and one line for each launch."""
    rows = [(name, f"{ms:.4g}") for name, ms in prediction.kernels]
    parts = [_prediction(prediction), table_text(("launch", "ms"), rows)]
    return "\n".join([*parts, prediction.origin.text()])


def prediction_html(prediction: Prediction) -> str:
    """Returns the same as HTML."""
    rows = [(name, f"{ms:.4g}") for name, ms in prediction.kernels]
    parts = [sentence_html(_prediction(prediction)), table_html(("launch", "ms"), rows)]
    return wrap(*map(unstyled, parts), prediction.origin.html())


def _prediction(prediction: Prediction) -> str:
    speed = f"{prediction.bandwidth / 1e9:,.0f} GB/s"
    return (
        f"At least {prediction.ms:.4g} ms: {size_text(prediction.bytes)} at {speed}, the memory "
        f"bandwidth of {prediction.origin.device}."
    )


def _notes(count: ByteCount) -> list[str]:
    """Returns all that must be known, each sentence once."""
    return list(dict.fromkeys([*count.notes, *(n for one in count.kernels for n in one.notes)]))


def _launch_rows(count: ByteCount) -> list[tuple[str, ...]]:
    return [
        (one.name, f"{one.graph_index} ({one.phase})", _kind(one), *_sizes(one))
        for one in count.kernels
    ]


def _kind(one: KernelBytes) -> str:
    return "library call" if one.kind == LIBRARY else one.kind.replace("_", " ")


def _sizes(one: KernelBytes | BufferBytes) -> tuple[str, str, str]:
    bound = f"{AT_MOST} " if one.is_at_most else ""
    read, written, total = (size_text(n) for n in (one.read, one.written, one.total))
    return read, written, bound + total


def _graph_rows(count: ByteCount) -> list[tuple[str, ...]]:
    return [
        (
            str(one.index),
            one.phase,
            *(size_text(n) for n in (one.read, one.written, one.least, one.moved)),
        )
        for one in count.graphs
    ]


def _buffer_rows(count: ByteCount) -> list[tuple[str, ...]]:
    rows = []
    for one in count.kernels:
        for buffer in one.buffers:
            shape = "unknown" if buffer.shape is None else " × ".join(map(str, buffer.shape))
            notes = [AT_MOST] if buffer.is_at_most else []
            note = "; ".join([*notes, *([buffer.note] if buffer.note else [])])
            read, written, _ = _sizes(buffer)
            dtype = buffer.dtype or "not said"
            rows.append((one.name, buffer.name, shape or "one number", dtype, read, written, note))
    return rows
