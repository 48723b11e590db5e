"""Why a history of calls ran no compiled graph, as far as that can be told, in plain words."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch._dynamo
from torch._dynamo import convert_frame
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

if TYPE_CHECKING:
    from helpers.recompile_events import Watch
    from helpers.recompile_report import Call

_NONE_RAN = "No compiled graph ran in any of these calls."


class PastCalls:
    """Notes what leads past Dynamo: other methods of a compiled module, active dispatch modes."""

    def __init__(self) -> None:
        self.methods: dict[str, None] = {}  # names, in order
        self.modes: dict[str, None] = {}

    @contextlib.contextmanager
    def noting_methods(self) -> Iterator[None]:
        """Notes, while a callable runs, which methods it takes from the compiled module."""
        cls = torch._dynamo.OptimizedModule
        original = cls.__getattr__

        def noting(module: Any, name: str) -> Any:
            value = original(module, name)
            own = isinstance(value, types.MethodType) and not hasattr(torch.nn.Module, name)
            if own and value.__self__ is module._orig_mod:
                self.methods.setdefault(name)
            return value

        with mock.patch.object(cls, "__getattr__", noting):
            yield

    @contextlib.contextmanager
    def noting_modes(self) -> Iterator[None]:
        """Notes the dispatch modes under which frames were handed to Dynamo, which then skips."""
        original = convert_frame.CatchErrorsWrapper.__call__

        def noting(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            for mode in _get_current_dispatch_mode_stack():
                if not (hasattr(mode, "is_infra_mode") and mode.is_infra_mode()):
                    self.modes.setdefault(type(mode).__name__)
            return original(wrapper, *args, **kwargs)

        with mock.patch.object(convert_frame.CatchErrorsWrapper, "__call__", noting):
            yield


def notes_on(calls: Sequence[Call], watch: Watch, past: PastCalls) -> tuple[str, ...]:
    """Returns what else is to be known of the history, a sentence or two each."""
    if not calls or all(call.error for call in calls):
        return ()
    nothing = not any(call.ran for call in calls)
    start = f"{_NONE_RAN} " if nothing else ""
    missed = any(call.outcome == "eager" and not call.ran and not call.error for call in calls)
    if past.methods and missed:
        return (start + _other_method(list(past.methods)),)
    if past.modes and missed:
        return (
            f"{start}While a dispatch mode is active ({', '.join(past.modes)}), Dynamo compiles "
            "nothing: leave it.",
        )
    if not nothing or any(watch.eager_limited):
        return ()
    functions = dict.fromkeys(compilation.function for compilation in watch.compilations)
    if functions:
        return (
            f"{start}Dynamo looked at {', '.join(functions)} and captured no operation: "
            "explain_graph_breaks says where it stopped.",
        )
    return (
        f"{start}No frame reached Dynamo: what was called is a library's or a builtin function, a "
        "generator, under torch.compiler.disable, or not the compiled object.",
    )


def _other_method(names: list[str]) -> str:
    many = len(names) > 1
    called = f"{', '.join(names)} {'are other methods' if many else 'is another method'}"
    return (
        f"{called} than forward: the compiled module hands {'them' if many else 'it'} on to the "
        "original one, so Python runs it, and the forward inside too. Compile the method "
        f"(model.{names[0]} = torch.compile(model.{names[0]})), or call model.compile(), which "
        f"compiles forward in place, also where {names[0]} calls it."
    )
