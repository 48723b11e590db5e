"""What Dynamo captures of a function: FX graphs, and the real result."""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch._dynamo
from torch._dynamo import convert_frame
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch._guards import CompileContext

from helpers.break_events import TORCH_FOLDER, original_name
from helpers.break_reading import read_breaks
from helpers.break_reports import GraphBreak
from helpers.bytecode import Bytecode, read_bytecode
from helpers.guards import Guard, read_guards
from helpers.isolation import Inspection
from helpers.origin import Origin
from helpers.tracing import NOTHING, device_of, traced_call
from helpers.words import counted, error_line, file_name

_STACK_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


@dataclass(frozen=True)
class Op:
    """One node of an FX graph.

    kind: placeholder, get_attr, call_function, call_method, call_module or output; target: the
    documented name of what is called; inputs: names of the nodes it uses; shape and dtype of its
    value (None if it is no tensor); filename, lineno, source_line: the learner's line that it
    comes from (empty, 0, empty where there is none).
    """

    name: str
    kind: str
    target: str
    inputs: tuple[str, ...] = ()
    shape: tuple[int | str, ...] | None = None
    dtype: str | None = None
    filename: str = ""
    lineno: int = 0
    source_line: str = ""


@dataclass(frozen=True)
class Graph:
    """One FX graph as Dynamo hands it to a backend.

    code: its Python text; ops: its nodes in order; function: the Python function in whose frame
    it was captured; index: its place among the graphs of this call, from 0; guards: what must hold
    for it to be used again; bytecode_before, bytecode_after: of its frame, as Python compiled it
    and as Dynamo rewrote it (guards and the latter empty if the frame was not kept).
    """

    code: str = field(repr=False)
    ops: tuple[Op, ...] = field(repr=False)
    function: str
    index: int
    guards: tuple[Guard, ...] = field(repr=False, default=())
    bytecode_before: Bytecode = field(repr=False, default=Bytecode("", "", ()))
    bytecode_after: Bytecode = field(repr=False, default=Bytecode("", "", ()))

    @property
    def calls(self) -> tuple[Op, ...]:
        """The nodes that compute something: no placeholder, attribute or output."""
        return tuple(op for op in self.ops if op.kind.startswith("call_"))

    def __str__(self) -> str:
        operations = counted(len(self.calls), "operation")
        return f"graph {self.index} of {self.function}, {operations}\n{self.code}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers import display, pictures

        code = display.code_html(self.code, "python")
        return pictures.graph_svg(self) + display.details_html("Its code", code)


@dataclass(frozen=True)
class Capture:
    """What one call gave: the FX graphs in the order of their capture, and the real result.

    breaks: where capture stopped in between; changes_behaviour: the error that the compiled run
    raised although eager ran (the result is then eager's), else None.
    """

    graphs: tuple[Graph, ...]
    result: Any = field(repr=False)
    origin: Origin
    breaks: tuple[GraphBreak, ...] = ()
    changes_behaviour: Exception | None = None

    def summary(self) -> str:
        """Returns one sentence: how many graphs and operations."""
        operations = sum(len(graph.calls) for graph in self.graphs)
        if not self.graphs:
            text = "Dynamo captured no graph: the whole call runs as ordinary Python."
        else:
            text = f"{counted(len(self.graphs), 'graph')}, {counted(operations, 'operation')}."
        if self.changes_behaviour is not None:
            text += f" The compiled run stopped with {error_line(self.changes_behaviour)}"
            text += " Eager runs; the result shown is eager's."
        return text

    def __str__(self) -> str:
        return "\n\n".join([self.summary(), *map(str, self.graphs), self.origin.text()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers import display

        parts = [display.sentence_html(self.summary())]
        parts += [graph._repr_html_() for graph in self.graphs]
        return "".join([*parts, self.origin.html()])


def capture_graphs(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = NOTHING,
    compile_options: Mapping[str, Any] = NOTHING,
) -> Capture:
    """Calls `fn(*args, **kwargs)` once under Dynamo and returns the FX graphs and the real result.

    fn: function, module, bound method, or something already compiled (it is unwrapped). The
    graphs run as they are; Inductor runs only if `compile_options` names it. Leaves no trace (see
    `isolation`). `fn` runs once; a second time, in eager, if the compiled run raised, and then
    an error of the learner's own code reaches the caller as it is. TypeError if `fn` is not
    callable or `compile_options` has what `torch.compile` does not take.
    """
    with traced_call("capture_graphs", fn, args, kwargs, compile_options, _Recorder) as call:
        graphs = call.backend.graphs_with_frames()
        breaks = read_breaks(call.notes)
    origin = Origin.live(device_of(args, kwargs))
    return Capture(graphs, call.result, origin, breaks, call.error)


def compilation_count() -> int:
    """Returns how many compilations Dynamo has begun in this process since its last reset.

    Inspections do not count: they put the count back.
    """
    return sum(convert_frame.FRAME_COMPILE_COUNTER.values())


class _Recorder:
    """A backend that notes each graph and passes it on: to `inner`, or back to run as it is."""

    def __init__(self, inspection: Inspection, inner: Callable[..., Any] | None) -> None:
        self._graphs: list[Graph] = []
        self._frames: list[tuple[types.CodeType, str]] = []  # of each graph: code, compile id
        self._inspection = inspection
        self._inner = inner

    def __call__(
        self, gm: torch.fx.GraphModule, example_inputs: list[Any], **kwargs: Any
    ) -> Callable[..., Any]:
        code = self._inspection.entered[-1]
        ops = tuple(_op(node) for node in gm.graph.nodes)
        name = original_name(code.co_name)
        self._graphs.append(Graph(_readable_code(gm), ops, name, len(self._graphs)))
        self._frames.append((code, str(CompileContext.current_compile_id())))
        return self._inner(gm, example_inputs) if self._inner else gm.forward

    def graphs_with_frames(self) -> tuple[Graph, ...]:
        """Returns the graphs with the guards and the bytecode of the frame each came from."""
        complete = []
        for graph, (code, compile_id) in zip(self._graphs, self._frames, strict=True):
            facts: dict[str, Any] = {"bytecode_before": read_bytecode(code)}
            for entry in _debug_get_cache_entry_list(code):
                if str(entry.compile_id) == compile_id:
                    facts["guards"] = read_guards(entry.guard_manager)
                    facts["bytecode_after"] = read_bytecode(entry.code)
            complete.append(replace(graph, **facts))
        return tuple(complete)


def _readable_code(gm: torch.fx.GraphModule) -> str:
    """Returns the graph's Python text, with file names instead of machine paths."""
    text = gm.print_readable(print_output=False)
    return re.sub(r"# File: (\S+?):(\d+)", lambda m: f"# {file_name(m[1])}:{m[2]}", text)


def _op(node: torch.fx.Node) -> Op:
    value = node.meta.get("example_value", node.meta.get("val"))
    is_tensor = isinstance(value, torch.Tensor)
    shape = tuple(n if isinstance(n, int) else str(n) for n in value.shape) if is_tensor else None
    dtype = str(value.dtype).removeprefix("torch.") if is_tensor else None
    inputs = tuple(dict.fromkeys(inner.name for inner in node.all_input_nodes))
    location = _learners_line(node.meta.get("stack_trace") or "")
    return Op(node.name, node.op, _target(node), inputs, shape, dtype, *location)


def _target(node: torch.fx.Node) -> str:
    if node.op == "call_method":
        return f"torch.Tensor.{node.target}"
    if node.op != "call_function":
        return str(node.target)
    name = getattr(node.target, "__name__", str(node.target))
    if getattr(operator, name, None) is node.target:
        return f"operator.{name}"
    documented = torch.overrides.resolve_name(node.target)
    return documented or f"{getattr(node.target, '__module__', '')}.{name}".lstrip(".")


def _learners_line(stack_trace: str) -> tuple[str, int, str]:
    """Returns file, line and text of the innermost line outside torch of a stack trace."""
    lines = stack_trace.splitlines()
    found = ("", 0, "")
    for i, line in enumerate(lines):
        match = _STACK_LINE.search(line)
        if match and not match["file"].startswith(TORCH_FOLDER):
            below = lines[i + 1].strip() if i + 1 < len(lines) else ""
            found = (match["file"], int(match["line"]), below)
    return found
