"""Notes what Dynamo does during a history of calls: compilations, graphs that run, refusals."""

from __future__ import annotations

import contextlib
import re
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch._dynamo import convert_frame
from torch._dynamo.eval_frame import _debug_get_cache_entry_list
from torch.fx.experimental.symbolic_shapes import free_symbols

from helpers.break_listener import refused_at_limit
from helpers.entry_names import EntryNames
from helpers.failed_guards import Entry
from helpers.guard_texts import Failure
from helpers.guards import readable

_DROPPED = re.compile(r"invalidated because (?P<source>.+) got deallocated")
_RUN_ONLY = ("__compiled_fn", "__resume_at")


@dataclass
class Compilation:
    """One frame handed to Dynamo.

    call: index of the call; code: of the frame; failures: what differed from each earlier entry,
    newest first; dynamic: what is symbolic in its graph, as Dynamo's source; kept: a cache entry
    came of it; refused: it was turned down at `limit`; gone: earlier entries were dropped, because
    an object that they were bound to is no more; entry: its guards.
    """

    call: int
    code: types.CodeType
    function: str
    failures: tuple[tuple[Failure, ...], ...]
    before: tuple[Compilation, ...] = ()
    dynamic: set[str] = field(default_factory=set)
    graphs: list[int] = field(default_factory=list)
    kept: bool = False
    refused: bool = False
    gone: int = 0
    entry: Entry | None = None
    limit: str = ""

    @property
    def symbolic(self) -> set[str]:
        """What is no constant in this compilation: told by its graph, or by its guards."""
        if self.entry is None:
            return self.dynamic
        # A frame without a graph of its own (up to a break) has only guards; and a number can come
        # in as a symbol that the code then held to one value (a dimension, a range()).
        return (self.dynamic | self.entry.symbolic()) - self.entry.fixed()

    @property
    def promoted(self) -> set[str]:
        """What is symbolic in this compilation and was not in any earlier one of this code."""
        if not self.before:
            return set()
        return self.symbolic.difference(*[past.symbolic for past in self.before])

    @property
    def again(self) -> bool:
        """True if the code object had been compiled before."""
        return bool(self.before)


class Watch:
    """What happened so far; a backend that passes graphs on is `backend`."""

    def __init__(self, fn: Callable[..., Any], inner: Callable[..., Any] | None) -> None:
        self.names = EntryNames(fn)
        self.call = -1
        self.compilations: list[Compilation] = []
        self.ran: list[list[int]] = []  # of each call, the graphs that ran
        self.graphs: list[int] = []  # of each call, the number of graphs handed over
        self.eager_limited: list[list[str]] = []  # of each call, functions at a limit run eagerly
        self.scopes: dict[int, tuple[dict[str, Any], set[str]]] = {}
        self._inner = inner
        self._stack: list[Compilation] = []
        self._known: dict[types.CodeType, list[Compilation]] = {}
        self._total = 0

    def begin(self) -> None:
        """Starts the next call."""
        self.call += 1
        self.ran.append([])
        self.graphs.append(0)
        self.eager_limited.append([])

    def backend(self, gm: torch.fx.GraphModule, example_inputs: list[Any], **kwargs: Any) -> Any:
        """Passes a graph to the named backend or back, wrapped so that each run is noted."""
        number, self._total = self._total, self._total + 1
        self.graphs[self.call] += 1
        if self._stack:
            self._stack[-1].graphs.append(number)
            self._stack[-1].dynamic |= symbolic_inputs(gm)
        run = self._inner(gm, example_inputs, **kwargs) if self._inner else gm.forward

        def noting(*args: Any) -> Any:
            self.ran[self.call].append(number)
            return run(*args)

        if getattr(run, "_boxed_call", False):
            noting._boxed_call = True  # type: ignore[attr-defined]
        return noting

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Notes, while its body runs, each frame that is handed to Dynamo."""
        original = convert_frame.ConvertFrameAssert.__call__

        def noting(converter: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            if self.call < 0:
                return original(converter, frame, *args, **kwargs)
            compilation = self._met(frame)
            self._stack.append(compilation)
            try:
                result = original(converter, frame, *args, **kwargs)
            except BaseException as error:
                compilation.refused = refused_at_limit(error)
                if compilation.refused:
                    compilation.limit = _limit_name(error)
                    self.eager_limited[self.call].append(compilation.function)
                raise
            finally:
                self._stack.pop()
            self._converted(compilation, result)
            return result

        with mock.patch.object(convert_frame.ConvertFrameAssert, "__call__", noting):
            yield

    @contextlib.contextmanager
    def seeing_eager(self) -> Iterator[None]:
        """Notes functions at a limit whose own code runs; costs nothing before a limit is hit."""
        limited = {c.code: c.function for c in self.compilations if c.refused}
        if not limited:
            yield
            return
        before = sys.getprofile()

        def noting(frame: types.FrameType, event: str, arg: Any) -> None:
            if event == "call" and frame.f_code in limited:
                self.eager_limited[self.call].append(limited[frame.f_code])
            if before is not None:
                before(frame, event, arg)

        sys.setprofile(noting)
        try:
            yield
        finally:
            sys.setprofile(before)

    def names_put(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Returns, of each module's globals, the names that Dynamo has put there by now."""
        found = []
        for scope, names in self.scopes.values():
            new = {n for n in scope if n not in names and n.startswith("_")}
            # Guards never look at graphs and continuations; those would be kept alive for nothing.
            found.append((scope, {n: scope[n] for n in new if not n.startswith(_RUN_ONLY)}))
        return found

    def _met(self, frame: Any) -> Compilation:
        code = frame.f_code
        scope = frame.f_globals
        if id(scope) not in self.scopes:
            self.scopes[id(scope)] = (scope, set(scope))
        earlier = self._known.get(code, [])
        alive = {id(entry.guard_manager) for entry in _debug_get_cache_entry_list(code)}
        failures, gone, memo = [], 0, {}
        for past in reversed(earlier):
            if id(past.entry.guard_manager) in alive:
                found = past.entry.failures(frame.f_locals, memo)
                failures.append(tuple(self.names.failure(f, code) for f in found))
            else:
                gone += 1
                failures.append(_gone(code))
        function = self.names.function(code)
        before = tuple(reversed(earlier))
        noted = Compilation(self.call, code, function, tuple(failures), before, gone=gone)
        self.compilations.append(noted)
        return noted

    def _converted(self, compilation: Compilation, result: Any) -> None:
        guarded = getattr(result, "guarded_code", None)
        if guarded is None:
            return
        compilation.kept = True
        compilation.entry = Entry(guarded.guard_manager)
        self._known.setdefault(compilation.code, []).append(compilation)


def symbolic_inputs(gm: torch.fx.GraphModule) -> set[str]:
    """Returns what came into a graph as a symbol and not as a constant, as Dynamo's sources."""
    found = set()
    for node in gm.graph.nodes:
        grapharg = node.meta.get("grapharg") if node.op == "placeholder" else None
        source = getattr(grapharg, "source", None)
        if source is None:
            continue
        name = source.name() if callable(source.name) else source.name
        value = node.meta.get("example_value")
        if isinstance(value, torch.Tensor):
            sizes = enumerate(value.shape) if value.layout == torch.strided else ()
            found |= {f"{name}.size()[{i}]" for i, size in sizes if free_symbols(size)}
            if getattr(grapharg, "pass_arg_as_tensor", False):  # a Python number
                found.add(name)
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            found.add(name)
    return found


def _gone(code: types.CodeType) -> tuple[Failure, ...]:
    """Returns what to say of an entry that Dynamo dropped: an object it was bound to is gone."""
    for entry in _debug_get_cache_entry_list(code):
        reason = getattr(entry.guard_manager, "invalidation_reason", "")
        if match := _DROPPED.search(reason):
            source = readable(match["source"])
            return (Failure("gone", source, f"{source} no longer exists", raw=match["source"]),)
    return (Failure("gone", "", "an object that this entry was bound to no longer exists"),)


def _limit_name(error: BaseException) -> str:
    told = f"{error} {error.__cause__ or ''}"
    accumulated = "accumulated_recompile_limit" in told
    return "accumulated_recompile_limit" if accumulated else "recompile_limit"
