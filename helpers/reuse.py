"""Would a call be served by what a history compiled? Its guards are tried on the call's values."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._dynamo import convert_frame

from helpers.failed_guards import Entry
from helpers.isolation import named_by, no_trace

_Key = tuple[str, int, str, bytes]


class _Seen(BaseException):
    """Ends a call as soon as its first frame was looked at; no Exception, so nothing stops it."""


class History:
    """What a report keeps of its history: the guards of each compiled frame, and its function."""

    def __init__(self, fn: Any, watch: Any, options: dict[str, Any]) -> None:
        self.fn = fn
        self.options = {k: v for k, v in options.items() if k in ("dynamic", "fullgraph")}
        self._in_words = watch.names
        self._entries: dict[_Key, list[Entry]] = {}
        for compilation in watch.compilations:
            if compilation.kept:
                self._entries.setdefault(_key(compilation.code), []).append(compilation.entry)
        # Dynamo's guards look up names that it puts into the modules' globals; they go at the end.
        self._names = watch.names_put()

    def failure(self, code: types.CodeType, f_locals: dict[str, Any]) -> str | None:
        """Returns why no entry serves a frame with these local variables, None if one does."""
        entries = self._entries.get(_key(code))
        if not entries:
            return f"{self._in_words.function(code)} was not compiled in this history"
        with self._names_back():
            if any(entry.matches(f_locals) for entry in entries):
                return None
            failed = [entry.failures(f_locals) for entry in reversed(entries)]
        if not all(failed):
            return None
        return self._in_words.failure(min(failed, key=len)[0], code).text

    @contextlib.contextmanager
    def _names_back(self) -> Iterator[None]:
        put = []
        for scope, names in self._names:
            for name in names.keys() - scope.keys():
                scope[name] = names[name]
                put.append((scope, name))
        try:
            yield
        finally:
            for scope, name in put:
                scope.pop(name, None)


def would_reuse(report: Any, call: Any) -> bool:
    """Returns True if `call` would now be served by what the history of `report` compiled.

    report: from trace_recompiles; call: a tuple of arguments, or a callable that receives a
    stand-in for the compiled object (it is run in eager, and what it changes in the function, its
    arguments and what the callable itself holds is put back). Nothing is compiled. The frame that
    is entered first is judged: behind a graph break, a later part may still compile again. Grad
    mode and other surroundings count as they are now. A callable that enters no compiled code
    gives False. TypeError for anything else.
    """
    return first_failure(report, call) is None


def first_failure(report: Any, call: Any) -> str | None:
    """Returns the guard that keeps `call` from being reused, None if it would be reused."""
    from helpers.recompile_report import RecompileReport
    from helpers.recompiles import check_entry

    if not isinstance(report, RecompileReport):
        raise TypeError(
            f"would_reuse needs the report that trace_recompiles gave, got {type(report).__name__}"
        )
    check_entry(call, "the call")
    history = report._history
    if isinstance(call, tuple):
        with no_trace(history.fn, *call):
            return _judged(history, call, {})
    stand_in = _StandIn(history)
    held = named_by(call) if isinstance(call, types.FunctionType) else [call]
    with no_trace(history.fn, *held):
        call(stand_in)
    if not stand_in._verdicts:
        return "the call does not enter the compiled function"
    return next((verdict for verdict in stand_in._verdicts if verdict is not None), None)


def _judged(history: History, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Hands the call's first frame to Dynamo's door, looks at it there, and ends the call."""
    verdicts: list[str | None] = []

    def looking(converter: Any, frame: Any, *rest: Any, **more: Any) -> Any:
        verdicts.append(history.failure(frame.f_code, dict(frame.f_locals)))
        raise _Seen

    compiled = torch.compile(history.fn, backend=_no_backend, **history.options)
    with (
        mock.patch.object(convert_frame.ConvertFrameAssert, "__call__", looking),
        contextlib.suppress(_Seen),
    ):
        compiled(*args, **kwargs)
    return verdicts[0] if verdicts else "the call does not enter the compiled function"


def _no_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    return gm.forward


class _StandIn:
    """Judges each call, then makes it in eager; its attributes are those of the function."""

    _history: History
    _verdicts: list[str | None]

    def __init__(self, history: History) -> None:
        vars(self).update(_history=history, _verdicts=[])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._verdicts.append(_judged(self._history, args, kwargs))
        return self._history.fn(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        fn = self._history.fn
        return fn if name == "_orig_mod" else getattr(fn, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._history.fn, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._history.fn, name)


def _key(code: types.CodeType) -> _Key:
    """Returns what a code object and its copies have in common."""
    return code.co_filename, code.co_firstlineno, code.co_qualname, code.co_code
