"""The bytes that must move, beside the kernels and library calls of generated code."""

from __future__ import annotations

from dataclasses import dataclass

from helpers.byte_counts import LIBRARY, ByteCount, KernelBytes
from helpers.byte_views import AT_MOST, size_text, summary
from helpers.generated import GeneratedCode
from helpers.generated_views import Table, kernel_rows
from helpers.roofline import count_bytes_of

# Bytes right after the name: what comes last is out of sight where the table is wider than a page.
_COLUMNS = ("launch", "read", "written", "must move", "phase", "kind", "operations fused in it",
            "configurations")  # fmt: skip


@dataclass(frozen=True)
class BytesBeside:
    """What must move for one code: a sentence, what to know about it, and a row per launch.

    table: None where nothing could be counted; the sentence then says why. total: the same in
    short, such as "at most 8.39 MB", or empty.
    """

    sentence: str
    notes: tuple[str, ...] = ()
    table: Table | None = None
    total: str = ""


def bytes_beside(code: GeneratedCode) -> BytesBeside:
    """Returns the bytes that the launches of a code must move, counted without compiling again.

    Never raises: a text that cannot be counted must not hide the code itself.
    """
    try:
        count = count_bytes_of(code)
    except Exception as error:
        return BytesBeside(f"Bytes are not counted here: {type(error).__name__}: {error}")
    notes = tuple(dict.fromkeys(note for one in count.kernels for note in one.notes))
    bound = f"{AT_MOST} " if any(one.is_at_most for one in count.kernels) else ""
    table = (_COLUMNS, _rows(code, count))
    return BytesBeside(summary(count), notes, table, bound + size_text(count.total))


def _rows(code: GeneratedCode, count: ByteCount) -> list[tuple[str, ...]]:
    """Returns a row per launch, in order; then the kernels that no wrapper seems to launch."""
    known = {
        (kernel.name, kernel.graph_index): row
        for kernel, row in zip(code.kernels, kernel_rows(code.kernels), strict=True)
    }
    rows = []
    for one in count.kernels:
        kind = "library call" if one.kind == LIBRARY else one.kind.replace("_", " ")
        _, _, _, *more = known.get((one.name, one.graph_index), ("", "", "", "", ""))
        rows.append((one.name, *_sizes(one), one.phase, kind, *more))
    launched = {(one.name, one.graph_index) for one in count.kernels}
    for key, (name, *rest) in known.items():
        rows += [] if key in launched else [(name, "", "", "not counted", *rest)]
    return rows


def _sizes(one: KernelBytes) -> tuple[str, ...]:
    bound = f"{AT_MOST} " if one.is_at_most else ""
    found = (size_text(one.read), size_text(one.written), bound + size_text(one.total))
    # A space that does not break: a narrow column must not part a number from its unit.
    return tuple(text.replace(" ", "\xa0") for text in found)
