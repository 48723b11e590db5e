"""Generates Inductor's code for a request, without a card: the part that the worker runs.

(Private names of Inductor *.) Real values come from Dynamo's graphs, run on the CPU.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import itertools
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch._dynamo.exc import SkipFrame
from torch._functorch import aot_autograd

from helpers.break_events import BreakNotes
from helpers.break_listener import noting_breaks
from helpers.break_reading import read_breaks
from helpers.cross_target import told_devices, told_nothing
from helpers.generated import CannotGenerate, GeneratedCode, Kernel, OutputCode, Request
from helpers.lowering import Lowering
from helpers.measured_choices import nothing_timed
from helpers.origin import Origin
from helpers.output_code import CompileAll, as_graphs, read_all
from helpers.targets import Target
from helpers.told import inductor_sees_card, set_state
from helpers.told_graphs import on_cpu
from helpers.tracing import without_remarks
from helpers.triton_stages import KernelStages, compile_kernel
from helpers.vector_isa import remember_vector_isa

# How Dynamo hands on what an operator said when it was tried with fake tensors.
_INNER = re.compile(r"got (?P<kind>\w+)\((?P<quote>[\"'])(?P<said>.*?)(?P=quote)\)", re.DOTALL)
NO_GRAD = (
    "backward=True, but no output of the call requires grad: let a parameter or an argument "
    "require it, and do not call under torch.no_grad()."
)
NO_GRAPH = (
    "There is no code to show: Dynamo captured no tensor operation in this call. Give the function "
    "tensors; capture_graphs shows what Dynamo makes of it."
)


@dataclass(frozen=True)
class _Traced:
    """What one trace gave: modules in order, the call's result, what is missing, and notes."""

    codes: tuple[OutputCode, ...]
    result: Any
    unavailable: Mapping[str, str]
    notes: tuple[str, ...]


def generate(request: Request) -> GeneratedCode:
    """Generates the code of one call. An error of the learner's own code comes out as it is."""
    remember_vector_isa()  # for C++: also a call for a card may compute something on the CPU
    with quiet():
        traced = _traced(request)
    kernels, missing = read_all(traced.codes, request.stages, _compiler(request.target))
    unavailable = {**_not_without_card(request, kernels), **traced.unavailable, **missing}
    graphs = as_graphs(traced.codes)
    calls = tuple(call for graph in graphs for call in graph.library_calls)
    key = request.target.key if request.target else "cpu"
    origin = _origin(request.target)
    return GeneratedCode(
        origin, key, kernels, graphs, calls, traced.result, unavailable, traced.notes
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps torch's remarks for developers off the screen; what matters is said in notes."""
    with without_remarks(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _origin(target: Target | None) -> Origin:
    if target is None:
        return Origin.live("cpu")
    today = datetime.date.today().isoformat()
    return Origin("cross-target", target.name, torch.__version__, today, f"Triton {_triton()}")


def _triton() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _compiler(target: Target | None) -> CompileAll | None:
    if target is None:
        return None
    return lambda kernels, stages: compile_all((kernels, stages, target))


def compile_all(job: tuple[list[tuple[str, str]], tuple[str, ...], Target]) -> list[KernelStages]:
    """Returns the stages of kernels (text, and configuration or "" for the first) on a target."""
    kernels, stages, target = job
    done: dict[tuple[str, str], KernelStages] = {}
    for source, wanted in kernels:
        if (source, wanted) not in done:
            place = 0
            if wanted:
                candidates = compile_kernel(source, target, ()).configs
                place = candidates.index(wanted) if wanted in candidates else 0
            done[source, wanted] = compile_kernel(source, target, stages, place)
    return [done[one] for one in kernels]


def _not_without_card(request: Request, kernels: Sequence[Kernel]) -> dict[str, str]:
    """Returns what no machine without the card can say, each with its reason."""
    if request.target is None:
        return {}
    said = {"times": f"Nothing is timed: no {request.target.name} is here."}
    if any(len(kernel.configs) > 1 for kernel in kernels) or request.options.get("max_autotune"):
        said["autotuning"] = (
            "Which candidate is fastest is measured on the card: the first one is shown, and "
            "libraries' calls where Inductor would time templates against them."
        )
    if request.options.get("triton.cudagraphs"):
        said["cudagraphs"] = "CUDA graphs are recorded on a running card; the kernels are shown."
    return said


def _traced(request: Request) -> _Traced:
    mixed: list[str] = []
    try:
        answer = _trace(request, mixed, lenient=False)
        if not mixed:
            return answer
    except Exception as error:
        if not mixed:
            raise _in_terms_of_the_learner(error, request) from error
    try:
        answer = _trace(request, [], lenient=True)
    except Exception as error:
        raise _in_terms_of_the_learner(error, request) from error
    note = (
        "On a card this call would stop: a tensor that is made without a device stays on the "
        f"CPU and meets one of the card ({mixed[0]}). Shown is the code with device=x.device."
    )
    return replace(answer, notes=(note, *answer.notes))


def _trace(request: Request, mixed: list[str], lenient: bool) -> _Traced:
    """Traces and lowers once; adds to `mixed` the lines that mix devices."""
    values = _Values()
    told = told_devices(request.target, mixed, lenient) if request.target else told_nothing()
    lowering = _Lowering(request, values)
    numbers = mock.patch.object(aot_autograd, "AOT_COUNTER", itertools.count())  # in the text
    with told as not_as_there, nothing_timed() as by_rule, numbers, noting_breaks() as stops:
        compiled = torch.compile(request.fn, backend=lowering, **request.compile_options)
        result = compiled(*request.args, **request.kwargs)
        if not lowering.graphs:
            raise CannotGenerate(lowering.refused or _why_no_graph(stops))
        if request.backward and not lowering.has_backward:
            raise ValueError(NO_GRAD)
        if request.backward is not False:
            lowering.backward()
    codes = lowering.codes
    if request.backward is False:
        codes = [code for code in codes if code.phase != "backward"]
    if values.reason:
        result = None
    unavailable = {"result": values.reason} if values.reason else {}
    if by_rule and request.target:
        unavailable["padding"] = (
            "Whether a matmul of odd sizes is padded is measured on the card; here a rule decides "
            f"that was fitted to an H200: {'; '.join(dict.fromkeys(by_rule))}."
        )
    notes = (*lowering.notes, *not_as_there)
    return _Traced(tuple(codes), _detached(result), unavailable, notes)


class _Lowering(Lowering):
    """For a card: redirects what C++ asks for; notes what Inductor passes over."""

    def __init__(self, request: Request, values: _Values) -> None:
        super().__init__(request.options, inductor_sees_card, values.of)
        self._told, self._request = request.target is not None, request
        self.notes: list[str] = []
        self.refused = ""  # why Inductor left a graph to eager, "" if it did not

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        complex_numbers = any(
            isinstance(value := node.meta.get("example_value"), torch.Tensor) and value.is_complex()
            for node in gm.graph.nodes
        )
        if complex_numbers and not self.notes:
            self.notes.append(
                "The call computes with complex numbers: Inductor writes no kernels for those and "
                "calls ATen's operators instead."
            )
        with set_state("redirect", self._told):
            try:
                return super().__call__(gm, inputs)
            except SkipFrame as reason:  # torch 2.7 then runs the whole frame in eager, unsaid
                self.refused = _no_code(reason, self._request)
                raise


class _Values:
    """Runs Dynamo's graphs on the CPU; reason: why values could not be had, empty if they could."""

    def __init__(self) -> None:
        self.reason = ""

    def of(self, gm: torch.fx.GraphModule) -> Callable[..., Any]:
        graph = on_cpu(gm)
        kernel = any("triton_kernel_wrapper" in str(node.target) for node in gm.graph.nodes)

        def run(*inputs: Any) -> Any:
            if kernel:
                self.reason = "The call runs a Triton kernel of its own, which needs the card."
                return _empty_outputs(graph)
            try:
                return graph(*inputs)
            except NotImplementedError as error:
                self.reason = f"The CPU cannot run this call: {_first_line(error)}"
                return _empty_outputs(graph)

        return run


def _empty_outputs(graph: torch.fx.GraphModule) -> Any:
    """Returns zeros of the right shapes: what follows a graph needs tensors to go on."""
    [outputs] = [node.args[0] for node in graph.graph.nodes if node.op == "output"]

    def zeros(node: Any) -> Any:
        fake = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else node
        if not isinstance(fake, torch.Tensor):
            return getattr(getattr(fake, "node", None), "hint", fake)
        sizes = [int(getattr(getattr(n, "node", n), "hint", n)) for n in fake.shape]
        return torch.zeros(sizes, dtype=fake.dtype)

    return torch.fx.node.map_aggregate(outputs, zeros)


def _detached(result: Any) -> Any:
    """Returns the result without its autograd graph, which cannot leave the process."""
    return torch.utils._pytree.tree_map(
        lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, result
    )


def _why_no_graph(stops: BreakNotes) -> str:
    """Returns that there is no code, with the first place at which Dynamo gave up."""
    found = read_breaks(stops)
    if not found:
        return NO_GRAPH
    first = found[0]
    where = "" if first.in_framework else f" at line {first.lineno}, {first.source_line!r}"
    return f"{NO_GRAPH} It stopped{where}: {first.title.rstrip('.')}. {first.explanation}"


def _first_line(error: Exception) -> str:
    """Returns what an error says first, past the compiler's own headings, as a sentence."""
    text = str(error)
    if found := _INNER.search(text):
        text = found["said"].encode().decode("unicode_escape")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("backend=")]
    first = re.sub(r"^(SkipFrame|RuntimeError|Unsupported|InductorError): ", "", (said or [""])[0])
    first = re.split(r"(?<=[.!?])\s", first, maxsplit=1)[0] or type(error).__name__
    return first if first.endswith((".", "!", "?")) else f"{first}."


def _in_terms_of_the_learner(error: Exception, request: Request) -> Exception:
    """Returns the learner's own error if plain Python raises one too, else why there is no code."""
    if isinstance(error, CannotGenerate) or str(error) == NO_GRAD:
        return error
    try:
        request.fn(*request.args, **request.kwargs)
    except Exception as own:
        if "NVIDIA" not in str(own) and "CUDA" not in str(own):
            return own
        return CannotGenerate(
            "The function needs the card itself, outside of what torch.compile captures, and none "
            f"is here: {_first_line(own)} Move modules, and wait for the card, outside of it."
        )
    return CannotGenerate(_no_code(error, request))


def _no_code(error: Exception, request: Request) -> str:
    where = f" for {request.target.name}" if request.target else ""
    return (
        f"torch.compile makes no code of this call{where}: {_first_line(error)} "
        "The function itself runs; what stops is the compiler."
    )
