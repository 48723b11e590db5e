"""One call of a learner's function under Dynamo: what every inspection of a single call shares."""

from __future__ import annotations

import contextlib
import logging
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo

from helpers.break_events import BreakNotes
from helpers.break_listener import noting_breaks
from helpers.isolation import Inspection, no_trace, unwrap

NOTHING: Mapping[str, Any] = types.MappingProxyType({})

Backend = Callable[..., Callable[..., Any]]


@dataclass(frozen=True)
class TracedCall:
    """How the call went. result: the compiled run's, or eager's if the compiled run raised error.

    target: the callable that ran; backend: what make_backend gave; notes: where Dynamo stopped.
    """

    target: Callable[..., Any]
    inspection: Inspection
    backend: Any
    notes: BreakNotes
    result: Any
    error: Exception | None


@contextlib.contextmanager
def traced_call(
    name: str,
    fn: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    compile_options: Mapping[str, Any],
    make_backend: Callable[[Inspection, Backend | None], Backend],
) -> Iterator[TracedCall]:
    """Calls `fn` once under Dynamo and yields how it went, with Dynamo's caches still filled.

    make_backend: receives the inspection and the backend that `compile_options` names (or None).
    If the compiled run raises, `fn` runs again in eager; what eager raises reaches the caller.
    TypeError if `fn` is not callable, in the words of the function called `name`.
    """
    target = callable_target(name, fn)
    options = dict(compile_options)
    inner = named_backend(options)
    with no_trace(target, args, kwargs) as inspection:
        backend = make_backend(inspection, inner)
        compiled = torch.compile(target, backend=backend, **options)
        error = result = None
        with noting_breaks() as notes, without_remarks():
            try:
                given, named = inspection.arguments((args, dict(kwargs)))
                result = inspection.protect(compiled(*given, **named))
            except Exception as raised:  # whatever it is, eager decides whose error it is
                error = raised
        if error is not None:
            inspection.restart()
            given, named = inspection.arguments((args, dict(kwargs)))
            result = inspection.protect(target(*given, **named))
        yield TracedCall(target, inspection, backend, notes, result, error)


@contextlib.contextmanager
def without_remarks() -> Iterator[None]:
    """Keeps torch's log off the screen; what matters in it is said by the inspection."""
    log = logging.getLogger("torch")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


def callable_target(name: str, fn: Any) -> Callable[..., Any]:
    """Returns what `torch.compile` is to be given; TypeError in the words of `name` if nothing."""
    target = unwrap(fn)
    if not callable(target):
        raise TypeError(f"{name} needs a function or a module first, got {type(fn).__name__}")
    return target


def named_backend(options: dict[str, Any]) -> Backend | None:
    """Takes `backend` out of `options` and returns it as a callable, None if none is named."""
    backend = options.pop("backend", None)
    if backend is None:
        return None
    if backend == "inductor":
        mode, settings = options.pop("mode", None), options.pop("options", None)
        return torch._TorchCompileInductorWrapper(mode, settings, options.get("dynamic"))
    return torch._dynamo.lookup_backend(backend)


def device_of(*values: Any) -> str:
    """Returns where a call ran, for the stamp: the first CUDA device of the tensors, or cpu."""
    plain = [dict(value) if isinstance(value, Mapping) else value for value in values]
    leaves = torch.utils._pytree.tree_leaves(plain)
    devices = [leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)]
    cuda = [device for device in devices if device.type == "cuda"]
    return torch.cuda.get_device_name(cuda[0]) if cuda else "cpu"
