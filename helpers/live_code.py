"""Inductor's code for this machine's GPU, as it compiles and runs a call. (Private names *.)"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch._inductor import config
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.virtualized import V
from torch.utils._pytree import tree_leaves, tree_map

from helpers.cross_generation import NO_GRAD, NO_GRAPH, quiet
from helpers.generated import CannotGenerate, GeneratedCode, OutputCode, Request
from helpers.isolation import no_trace
from helpers.lowering import phase_of
from helpers.origin import Origin
from helpers.output_code import as_graphs, read_all
from helpers.targets import TARGETS, Target
from helpers.travel import CannotTravel, pack, unpack
from helpers.triton_stages import KernelStages, config_text
from helpers.worker import run_in_worker

_AOT_NUMBER = re.compile(r"^# AOT ID: \[?'?(\d+)", re.MULTILINE)


def live_code(request: Request) -> GeneratedCode:
    """Compiles the call for this machine's GPU, runs it, and returns code and real result.

    Inputs on the CPU are copied to the card, with all that the function holds. Errors of the
    learner's own code come out as they are.
    """
    request, notes = _on_the_card(request)
    codes: list[OutputCode] = []
    chosen: dict[str, str] = {}
    with no_trace(request.fn, request.args, request.kwargs) as inspection:
        given, named = inspection.arguments((request.args, request.kwargs))
        compiled = torch.compile(request.fn, backend=_inductor(request), **request.compile_options)
        with quiet(), _collected(codes, chosen), config.patch(force_disable_caches=True):
            result = compiled(*given, **named)
            _backward(result, request.backward)
            torch.cuda.synchronize()
        result = inspection.protect(tree_map(_detached, result))
    if not codes:
        raise CannotGenerate(NO_GRAPH)
    if request.backward is False:
        codes = [code for code in codes if code.phase != "backward"]
    card = torch.cuda.get_device_name()
    kernels, unavailable = read_all(codes, request.stages, _stages_here, chosen)
    graphs = as_graphs(codes)
    calls = tuple(call for graph in graphs for call in graph.library_calls)
    return GeneratedCode(
        Origin.live(card), card, kernels, graphs, calls, result, unavailable, tuple(notes)
    )


def _on_the_card(request: Request) -> tuple[Request, list[str]]:
    """Returns the request with everything on the card; what is there already is taken as it is."""
    tensors = [v for v in tree_leaves((request.args, dict(request.kwargs))) if _is_tensor(v)]
    if tensors and all(tensor.is_cuda for tensor in tensors):
        return request, []
    try:
        moved = unpack(pack((request.fn, request.args, dict(request.kwargs))), device="cuda")
    except CannotTravel as reason:
        given = tree_map(_to_card, (request.args, dict(request.kwargs)))
        moved, note = (request.fn, *given), f"Only the arguments were copied to the card: {reason}"
        return replace(request, fn=moved[0], args=moved[1], kwargs=moved[2]), [note]
    fn, args, kwargs = moved
    note = "Computed on copies of function and inputs, on the card."
    return replace(request, fn=fn, args=args, kwargs=kwargs), [note]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _to_card(value: Any) -> Any:
    if not _is_tensor(value):
        return value
    return value.detach().cuda().requires_grad_(value.requires_grad)


def _detached(value: Any) -> Any:
    return value.detach() if _is_tensor(value) else value


def _inductor(request: Request) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx

    return lambda gm, inputs: compile_fx(gm, inputs, config_patches=dict(request.options))


def _backward(result: Any, wanted: bool | None) -> None:
    """Runs the backward of the sum of the floating-point outputs that require grad."""
    outputs = [v for v in tree_leaves(result) if _is_tensor(v) and v.requires_grad]
    outputs = [value for value in outputs if value.is_floating_point()]
    if wanted and not outputs:
        raise ValueError(NO_GRAD)
    if outputs and wanted is not False:
        sum(value.sum() for value in outputs).backward()


@contextlib.contextmanager
def _collected(codes: list[OutputCode], chosen: dict[str, str]) -> Iterator[None]:
    """Collects what Inductor writes, and the candidate that each kernel settled on when it ran."""
    run = CachingAutotuner.run
    numbers: dict[str, int] = {}

    def save(text: str) -> None:
        codes.append(OutputCode(text, phase_of(V.graph), graph_number(text, numbers)))

    def ran(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        out = run(tuner, *args, **kwargs)
        if len(tuner.launchers) == 1:
            name = tuner.inductor_meta.get("kernel_name", "")
            chosen[name] = config_text(tuner.launchers[0].config)
        return out

    with (
        mock.patch.object(GraphLowering, "save_output_code", staticmethod(save)),
        mock.patch.object(CachingAutotuner, "run", ran),
    ):
        yield


def graph_number(text: str, numbers: dict[str, int]) -> int:
    """Returns the place, from 0, of the graph of Dynamo's that an output code belongs to.

    numbers: the places given so far by AOTAutograd's number, which forward and backward share;
    the backward of the last graph is compiled first, so the order of the texts says nothing.
    """
    found = _AOT_NUMBER.search(text)
    return numbers.setdefault(found[1] if found else f"text {len(numbers)}", len(numbers))


def _stages_here(kernels: list[tuple[str, str]], stages: tuple[str, ...]) -> list[KernelStages]:
    """Compiles the kernels for this card, each for the configuration that ran, in the worker."""
    return run_in_worker("helpers.cross_generation:compile_all", (kernels, stages, this_card()))


def this_card() -> Target:
    """Returns this machine's card as a target, from what torch says of it."""
    here = torch.cuda.get_device_properties(0)
    known = [one for one in TARGETS.values() if one.name == here.name]
    if known:
        return known[0]
    nearest = min(
        TARGETS.values(), key=lambda one: abs(one.compute_capability - here.major * 10 - here.minor)
    )
    return replace(
        nearest,
        key="this_card",
        name=here.name,
        capability=(here.major, here.minor),
        multi_processor_count=here.multi_processor_count,
        max_threads_per_multi_processor=here.max_threads_per_multi_processor,
        shared_memory_per_block_optin=here.shared_memory_per_block_optin,
        shared_memory_per_multiprocessor=here.shared_memory_per_multiprocessor,
        l2_cache_size=here.L2_cache_size,
        total_memory=here.total_memory,
        sources={"card": "torch.cuda.get_device_properties(0) of this machine"},
    )
