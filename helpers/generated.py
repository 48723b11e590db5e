"""What Inductor generated: kernels, wrappers, calls of libraries, and how they are said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.origin import Origin
from helpers.targets import Target

# The stages of a Triton kernel, from its source down to machine code.
STAGES = ("triton", "ttir", "ttgir", "llir", "ptx", "sass")
PHASES = ("inference", "forward", "backward")


class CannotGenerate(RuntimeError):
    """No code can be generated for a call; the message says why, and what to do."""


@dataclass(frozen=True)
class Kernel:
    """One kernel that Inductor wrote.

    name: as in the wrapper; source: the whole text handed to Triton (for the CPU: the C++ text);
    graph_index: its graph's place in `GeneratedCode.graphs`; phase: inference, forward or
    backward; kind: pointwise, reduction, persistent_reduction, template, foreach, user, cpp, ...;
    ops: the ATen operations fused in it, as "aten.add"; stages: text by stage name (triton, and
    of ttir, ttgir, llir, ptx, sass those asked for), made for `config`; config: the launch
    configuration that ran when live, else the first candidate; configs: all candidates.
    """

    name: str
    source: str = field(repr=False)
    graph_index: int
    phase: str
    kind: str = ""
    ops: tuple[str, ...] = ()
    stages: Mapping[str, str] = field(repr=False, default_factory=dict)
    config: str = ""
    configs: tuple[str, ...] = field(repr=False, default=())

    @property
    def body(self) -> str:
        """The function alone: from its decorator `@triton.jit` (or the C++ signature) on."""
        _, mark, rest = self.source.partition("@triton.jit")
        return (mark + rest).strip() if mark else self.source.strip()


@dataclass(frozen=True)
class GeneratedGraph:
    """The module that Inductor wrote for one graph.

    wrapper: its whole Python text, which launches the kernels in order; phase as in `Kernel`;
    capture_index: the place, from 0, of the graph of Dynamo's that it belongs to;
    library_calls: what it calls of libraries, in order, as "extern_kernels.mm".
    """

    wrapper: str = field(repr=False)
    phase: str
    capture_index: int
    library_calls: tuple[str, ...] = ()


@dataclass(frozen=True)
class GeneratedCode:
    """What one call gave: the code of every graph, and the real result.

    target: "cpu", a key of `TARGETS`, or the name of this machine's card when live; kernels, graphs
    in order, forward before backward; library_calls of all graphs in order; result: what the
    call returned (None, with a reason in `unavailable["result"]`, where it could not be computed
    here); unavailable: stage (or "result", "times", "autotuning", "cudagraphs") to the reason in
    one sentence; notes: what else to know, one sentence each.
    """

    origin: Origin
    target: str
    kernels: tuple[Kernel, ...]
    graphs: tuple[GeneratedGraph, ...]
    library_calls: tuple[str, ...]
    result: Any = field(repr=False, default=None)
    unavailable: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        from helpers.generated_views import code_text

        return code_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers.generated_views import code_html

        return code_html(self)


@dataclass(frozen=True)
class OutputCode:
    """The module that Inductor wrote for one graph: text, phase, and Dynamo's graph it is of."""

    text: str = field(repr=False)
    phase: str
    capture_index: int


@dataclass(frozen=True)
class Request:
    """What to generate: a call, for which target (None: C++ for this CPU), and how.

    options: Inductor's settings; compile_options: what else `torch.compile` takes (dynamic,
    fullgraph); backward and stages as in `generated_code`.
    """

    fn: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    target: Target | None
    options: Mapping[str, Any]
    compile_options: Mapping[str, Any]
    backward: bool | None
    stages: tuple[str, ...]
