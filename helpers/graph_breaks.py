"""`explain_graph_breaks`: where Dynamo stopped capturing, why, what it costs, how to mend it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from helpers.break_reading import read_breaks
from helpers.break_reports import GraphBreaks
from helpers.isolation import Inspection
from helpers.origin import Origin
from helpers.tracing import NOTHING, Backend, TracedCall, device_of, traced_call
from helpers.words import file_name


def explain_graph_breaks(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = NOTHING,
    compile_options: Mapping[str, Any] = NOTHING,
) -> GraphBreaks:
    """Calls `fn(*args, **kwargs)` once under Dynamo and returns each place where capture stopped.

    fn: function, module, bound method, or something already compiled (it is unwrapped). The call
    is compiled as `compile_options` say (`dynamic`, ...), in the grad mode and train or eval mode
    that are set; the graphs run as they are unless `backend` names another; `fullgraph` is left
    out, since it makes Dynamo treat some breaks otherwise. Leaves no trace (see `isolation`).
    `fn` runs once; a second time, in eager, if the compiled run raised, and then an error of the
    learner's own code reaches the caller as it is. TypeError if `fn` is not callable or
    `compile_options` has what `torch.compile` does not take.
    """
    options = dict(compile_options)
    strict = options.pop("fullgraph", False)
    made: list[torch.fx.GraphModule] = []

    def counting(inspection: Inspection, inner: Backend | None) -> Backend:
        def backend(graph: torch.fx.GraphModule, inputs: list[Any], **more: Any) -> Any:
            made.append(graph)
            return inner(graph, inputs, **more) if inner else graph.forward

        return backend

    with traced_call("explain_graph_breaks", fn, args, kwargs, options, counting) as call:
        breaks = read_breaks(call.notes)
        notes = [] if made or breaks or call.error else [_why_nothing(call)]
    if strict:
        notes.append(
            "fullgraph=True was left out: it stops at the first break, and reads .item() and masks "
            "differently."
        )
    if any(found.effect != "split" for found in breaks):
        notes.append(
            "What runs in eager was not searched for more breaks: after a repair, look again."
        )
    for name in dict.fromkeys(call.notes.refused_at_limit):
        notes.append(
            f"{name} was compiled so often in this one call that torch gave up and ran it in "
            "eager (the recompile limit): trace_recompiles says why."
        )
    origin = Origin.live(device_of(args, kwargs))
    return GraphBreaks(breaks, call.result, call.error, len(made), tuple(notes), origin)


def _why_nothing(call: TracedCall) -> str:
    """Returns why a call left neither a graph nor a break."""
    start = "Dynamo captured nothing: the whole call ran as ordinary Python. "
    modes = [
        mode
        for mode in _get_current_dispatch_mode_stack()
        if not (hasattr(mode, "is_infra_mode") and mode.is_infra_mode())
    ]
    forward = getattr(call.target, "forward", call.target)
    if modes:
        name = type(modes[-1]).__name__
        return (
            f"{start}While a dispatch mode is active ({name}), Dynamo compiles nothing: leave it."
        )
    if getattr(call.target, "_torchdynamo_disable", False) or getattr(
        forward, "_torchdynamo_disable", False
    ):
        return f"{start}torch.compiler.disable was put on it: take it off to have it compiled."
    if inspect.isgeneratorfunction(forward):
        return f"{start}A generator is not compiled on its own: compile what calls it."
    codes = [code.co_filename for code in call.inspection.entered]
    code = getattr(forward, "__code__", None)
    if code is not None and trace_rules.check(forward) and code.co_filename not in codes:
        return (
            f"{start}It stands in a file that Dynamo leaves alone, {file_name(code.co_filename)}."
        )
    return f"{start}It met no operation on tensors."
