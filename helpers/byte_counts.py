"""Counted bytes: of a buffer, of a kernel or library call, of a graph, of a call as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helpers.origin import Origin

LIBRARY = "library"  # the kind of what is no kernel of Inductor's
USES = ("read", "written", "both")


@dataclass(frozen=True)
class BufferBytes:
    """What one launch, or one graph, moves of one buffer, in bytes.

    name: as in the wrapper; shape (None: only the run knows) and dtype ("" unknown, 4 bytes each)
    as the wrapper gives them; is_at_most: which elements are touched depends on data, so that this
    is the most that they can be; note: what else to know, or empty.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    read: int = 0
    written: int = 0
    is_at_most: bool = False
    note: str = ""

    @property
    def total(self) -> int:
        """Bytes read and bytes written."""
        return self.read + self.written

    @property
    def bytes(self) -> int:
        """The same as `total`."""
        return self.total

    @property
    def use(self) -> str:
        """One of USES."""
        return "both" if self.read and self.written else "written" if self.written else "read"


@dataclass(frozen=True)
class KernelBytes:
    """What one launch of a kernel, or one library call, moves at least.

    kind: as of the `Kernel`, or "library"; notes: what the figures leave out, in words.
    """

    name: str
    graph_index: int
    phase: str
    kind: str
    buffers: tuple[BufferBytes, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def read(self) -> int:
        """Bytes that come from memory."""
        return sum(one.read for one in self.buffers)

    @property
    def written(self) -> int:
        """Bytes that go to memory."""
        return sum(one.written for one in self.buffers)

    @property
    def total(self) -> int:
        """Both together."""
        return self.read + self.written

    @property
    def is_library_call(self) -> bool:
        """Whether it is a call of a library, whose kernels are not seen."""
        return self.kind == LIBRARY

    @property
    def is_at_most(self) -> bool:
        """Whether some of it is an upper bound, since it depends on data."""
        return any(one.is_at_most for one in self.buffers)


@dataclass(frozen=True)
class GraphBytes:
    """What one graph moves: `read` of its inputs and `written` of its outputs, each once, is the
    least that any fusion could reach; `moved` is what its kernels and library calls move together.
    buffers: those inputs and outputs.
    """

    index: int
    phase: str
    moved: int
    buffers: tuple[BufferBytes, ...] = ()

    @property
    def read(self) -> int:
        """Bytes of inputs that the graph reads."""
        return sum(one.read for one in self.buffers)

    @property
    def written(self) -> int:
        """Bytes of outputs, and of inputs that it changes."""
        return sum(one.written for one in self.buffers)

    @property
    def least(self) -> int:
        """Inputs and outputs once."""
        return self.read + self.written


@dataclass(frozen=True)
class ByteCount:
    """Bytes that must move between memory and chip, for one call of a function.

    kernels: launches and library calls of all graphs, in order; graphs; target as of the
    `GeneratedCode`; origin: where the code was made; notes: what else to know, one sentence each.
    """

    target: str
    origin: Origin
    kernels: tuple[KernelBytes, ...]
    graphs: tuple[GraphBytes, ...]
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """What all kernels and library calls move together, in bytes."""
        return sum(one.total for one in self.kernels)

    @property
    def least(self) -> int:
        """What all graphs would move if each were a single kernel, in bytes."""
        return sum(one.least for one in self.graphs)

    def of(self, name: str, graph_index: int | None = None) -> tuple[KernelBytes, ...]:
        """Returns the launches of the kernel (or library call) of that name, in order.

        graph_index: only in that graph; None: in all.
        """
        return tuple(
            one
            for one in self.kernels
            if one.name == name and graph_index in (None, one.graph_index)
        )

    def __str__(self) -> str:
        from helpers.byte_views import count_text

        return count_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers.byte_views import count_html

        return count_html(self)


@dataclass(frozen=True)
class Prediction:
    """How long moving the counted bytes takes at full memory bandwidth: a floor, not a forecast.

    ms: milliseconds for `bytes`; bandwidth in bytes/s, from the target's data sheet; kernels:
    (name, ms) of each launch; `float()` of it is `ms`.
    """

    ms: float
    bytes: int
    bandwidth: float
    origin: Origin
    kernels: tuple[tuple[str, float], ...] = ()

    def __float__(self) -> float:
        return self.ms

    def __str__(self) -> str:
        from helpers.byte_views import prediction_text

        return prediction_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers.byte_views import prediction_html

        return prediction_html(self)
