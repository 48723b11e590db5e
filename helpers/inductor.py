"""The code that Inductor generates for a call: for this machine, or for a GPU that is not here."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._inductor import config

from helpers.generated import STAGES, GeneratedCode, Request
from helpers.isolation import no_trace, unwrap
from helpers.targets import Target, find_target
from helpers.tracing import NOTHING
from helpers.travel import CannotTravel
from helpers.usable_gpu import why_no_gpu
from helpers.worker import run_in_worker

DEFAULT_TARGET = "h200"  # the card that recordings come from


@torch.compiler.disable  # a call inside a compiled function is a graph break, and not looked into
def generated_code(
    fn: Callable[..., Any],
    *args: Any,
    target: str = "auto",
    stages: Sequence[str] = ("triton",),
    backward: bool | None = None,
    kwargs: Mapping[str, Any] = NOTHING,
    compile_options: Mapping[str, Any] = NOTHING,
) -> GeneratedCode:
    """Returns the code that Inductor generates for `fn(*args, **kwargs)`, and the real result.

    target: "auto" (this machine's GPU, else "h200"), "live" (this machine's GPU), "cpu" (C++), or
    a key of `TARGETS`; stages: of triton, ttir, ttgir, llir, ptx, sass, for each kernel;
    backward: None traces it if an output requires grad, True insists, False never; the loss is
    the sum of the floating-point outputs that require grad, outside the compiled function.
    compile_options: what `torch.compile` takes. `fn` runs once, on copies where it can travel to
    the worker process, and leaves no trace; where it cannot travel, a note says so, and no other
    thread may compile meanwhile. ValueError for an unknown target or stage, TypeError
    if `fn` cannot be called, `CannotGenerate` where there is no code; errors of `fn` come out.
    """
    function = unwrap(fn)
    if not callable(function):
        raise TypeError(f"generated_code needs a function or a module, got {type(fn).__name__}.")
    wanted = _checked_stages(stages)
    card = _chosen(target)
    for name, given in (("kwargs", kwargs), ("compile_options", compile_options)):
        if not isinstance(given, Mapping):
            raise TypeError(f"{name} holds values by name, as a dict; got {type(given).__name__}.")
    options, rest = _inductor_settings(dict(compile_options))
    if card == "live":
        from helpers.live_code import live_code

        return live_code(
            Request(function, args, dict(kwargs), None, options, rest, backward, wanted)
        )
    return _elsewhere(Request(function, args, dict(kwargs), card, options, rest, backward, wanted))


def _checked_stages(stages: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(stages, Iterable):
        raise TypeError(f"stages holds names of stages; got {type(stages).__name__}.")
    wanted = (stages,) if isinstance(stages, str) else tuple(stages)
    for stage in wanted:
        if stage not in STAGES:
            raise ValueError(f"There is no stage {stage!r}: choose from {', '.join(STAGES)}.")
    return wanted


def _chosen(target: str) -> Target | str | None:
    """Returns a `Target`, None for the CPU, or "live" for this machine's GPU."""
    name = str(target).lower()
    if name in ("auto", "live"):
        none = why_no_gpu()
        if none is None:
            return "live"
        if name == "live":
            raise RuntimeError(
                f'target="live" needs an NVIDIA card, and here there is {none.note.rstrip(".")}; '
                f'target="auto" generates the code of another card without it.'
            )
        return find_target(DEFAULT_TARGET)
    return None if name == "cpu" else find_target(name)


def _inductor_settings(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns Inductor's settings that mode and options stand for, and what else was given."""
    backend = options.pop("backend", "inductor")
    if backend != "inductor":
        raise ValueError(f"generated_code shows what Inductor writes; the backend was {backend!r}.")
    mode, settings = options.pop("mode", None), options.pop("options", None)
    known = set(inspect.signature(torch.compile).parameters) - {"model", "disable"}
    for name in options:
        if name not in known:
            raise TypeError(f"torch.compile takes no {name!r}: compile_options has a wrong name.")
    _check_names(mode, settings)
    try:
        wrapper = torch._TorchCompileInductorWrapper(mode, settings, options.get("dynamic"))
    except RuntimeError as error:  # a value of the wrong type
        raise ValueError(f"compile_options: {error}".rstrip(".") + ".") from None
    return dict(wrapper.config), options


def _check_names(mode: str | None, settings: Mapping[str, Any] | None) -> None:
    """Raises ValueError for what torch.compile refuses; for a wrong name it lists all 300."""
    if mode is not None and settings is not None:
        raise ValueError("torch.compile takes either a mode or options, and not both.")
    modes = tuple(torch._inductor.list_mode_options())
    if mode is not None and mode not in modes:
        raise ValueError(f"There is no mode {mode!r}: choose from {', '.join(modes)}.")
    known = [name.replace("-", "_") for name in config.get_config_copy()]
    for name in settings or ():
        if str(name).replace("-", "_") not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"Inductor has no option {name!r}{hint}")


def _elsewhere(request: Request) -> GeneratedCode:
    """Generates in the worker; what cannot travel there is done here, on its own."""
    try:
        return run_in_worker("helpers.cross_generation:generate", request)
    except CannotTravel as reason:
        why = str(reason).rstrip(".")
    from helpers.cross_generation import generate

    with no_trace(request.fn, request.args, request.kwargs) as inspection:
        given, named = inspection.arguments((request.args, request.kwargs))
        made = generate(replace(request, args=given, kwargs=named))
        result = inspection.protect(made.result)
    note = f"Generated in this process: {why}. Meanwhile, no other thread may compile."
    return replace(made, result=result, notes=(*made.notes, note))
