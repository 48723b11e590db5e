"""The one mechanism by which an inspection leaves no trace.

Dynamo keeps what it compiled with the code object of each frame it entered, looks there before it
compiles again, and refuses to compile a code object for which it already has too much. So:

- every function whose code Dynamo has compiled before gets, for the time of the inspection, a
  fresh copy of its code object. What the learner compiled stays where it is, untouched;
- every code object that Dynamo meets for the first time is forgotten afterwards;
- Dynamo's process-wide tables (counters, frame numbers, shapes seen, warnings given) are set
  aside, so that each inspection starts from the same state, and put back afterwards;
- values (`snapshot`) and settings (`settings`) are as before.

While an inspection runs, other threads must not compile: they would see the fresh code objects.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import threading
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch._dynamo
from torch._C._dynamo.eval_frame import reset_code
from torch._dynamo import (
    convert_frame,
    eval_frame,
    pgo,
    resume_execution,
    symbolic_convert,
    trace_rules,
)  # fmt: skip
from torch._dynamo import utils as dynamo_utils
from torch.utils._pytree import tree_leaves, tree_map

from helpers.settings import kept_settings, random_states
from helpers.snapshot import Snapshot

_ONE_AT_A_TIME = threading.RLock()
_COPIES = itertools.count()

# Tables that are emptied for an inspection and get their old content back: owner, name.
_TABLES = (
    (dynamo_utils, "counters"),
    (dynamo_utils, "guard_failures"),
    (dynamo_utils, "graph_break_reasons"),
    (dynamo_utils, "compilation_time_metrics"),
    (dynamo_utils, "cumulative_time_spent_ns"),
    (dynamo_utils, "_compilation_metrics"),
    (dynamo_utils, "warn_once_cache"),
    (convert_frame, "FRAME_COMPILE_COUNTER"),
    (eval_frame, "cached_backends"),
    (pgo, "_KNOWN_DYNAMIC_SOURCES"),
)
# Single values, and what an inspection starts from: owner, name, value at the start.
_VALUES = (
    (convert_frame, "FRAME_COUNTER", 0),
    (pgo, "_CODE_STATE", None),
    (pgo, "_INIT_CODE_STATE", None),
    (pgo, "_LOGGED_DYNAMIC_ALLOWLIST", False),
    (dynamo_utils, "curr_frame", 0),
)


def unwrap(fn: Any) -> Any:
    """Returns the callable that `torch.compile` was given, or `fn` itself if it is not compiled."""
    seen = set()
    while id(fn) not in seen:
        seen.add(id(fn))
        if isinstance(fn, torch._dynamo.OptimizedModule):
            fn = fn._orig_mod
        elif not isinstance(fn, (types.MethodType, torch.nn.Module)):
            fn = getattr(fn, "_torchdynamo_orig_callable", fn)
    return fn


class Inspection:
    """What the body of `no_trace` may use: `protect`, `restart` and the frames Dynamo met."""

    def __init__(self, fn: Any, values: tuple[Any, ...]) -> None:
        self._snapshot = Snapshot(fn, values, *reached_by_name(fn))
        self._random_states = list(random_states())
        self.entered: list[types.CodeType] = []  # code objects handed to Dynamo, in order

    def arguments(self, values: Any) -> Any:
        """Returns arguments to call with: tensors that autograd computed come as linked copies.

        An in-place operation on such a tensor changes its place in the autograd graph, and that
        cannot be put back.
        """
        computed = [
            leaf
            for leaf in tree_leaves(values)
            if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None
        ]
        if not computed:
            return values  # the very same containers
        copies = {id(leaf): leaf.clone() for leaf in computed}
        return tree_map(lambda leaf: copies.get(id(leaf), leaf), values)

    def protect(self, result: Any) -> Any:
        """Returns `result`, with copies of tensors that share memory with what is put back."""
        return self._snapshot.protect(result)

    def restart(self) -> None:
        """Puts values and random numbers back to where they were, for a second run."""
        self._snapshot.restore()
        for restore in self._random_states:
            restore()


@contextlib.contextmanager
def no_trace(fn: Any, *values: Any) -> Iterator[Inspection]:
    """Runs its body so that afterwards compiler, values and settings are as before.

    fn: the callable that the body will call (unwrapped); values: its arguments. Modules and
    tensors that `fn` reaches by closure or by a global name are put back too. What `fn` changes
    elsewhere (other globals, files, an optimizer it closes over) is not undone. What leaves the
    body must go through the yielded inspection's `protect`.
    """
    with _ONE_AT_A_TIME, contextlib.ExitStack() as stack:
        stack.enter_context(kept_settings())
        inspection = Inspection(fn, values)
        stack.callback(inspection.restart)
        stack.enter_context(_dynamo_tables())
        stack.enter_context(_fresh_code_objects(inspection.entered))
        stack.enter_context(_compiling_allowed(fn))
        yield inspection


def reached_by_name(fn: Any) -> list[Any]:
    """Returns modules and tensors that `fn` and the learner's functions it names can reach."""
    found: list[Any] = []
    seen: set[int] = set()
    todo = [fn, fn.forward if isinstance(fn, torch.nn.Module) else type(fn).__call__]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (torch.nn.Module, torch.Tensor)):
            found.append(value)
        elif isinstance(value, functools.partial):
            todo += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.MethodType):
            todo += [value.__func__, value.__self__]
        elif isinstance(value, types.FunctionType):
            todo += named_by(value)
    return found


def named_by(function: types.FunctionType) -> list[Any]:
    """Returns what a function holds by closure or decoration, and by its globals if it is no
    library's; lists, tuples and dicts are opened.
    """
    values = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    values += [function.__wrapped__] if hasattr(function, "__wrapped__") else []
    if not trace_rules.check(function):
        names = {name for code in _nested_codes(function.__code__) for name in code.co_names}
        values += [function.__globals__[name] for name in names if name in function.__globals__]
    for container in [value for value in values if isinstance(value, (list, tuple))]:
        values += container
    for container in [value for value in values if type(value) is dict]:
        values += container.values()
    return values


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018, raises ValueError while the variable is unset
    except ValueError:
        return False
    return True


def _nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _nested_codes(const)


@contextlib.contextmanager
def _compiling_allowed(fn: Any) -> Iterator[None]:
    """Compiles although the learner has switched it off, or compiled the module in place."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance("default"))
        stack.enter_context(torch._dynamo.config.patch(disable=False))
        if isinstance(fn, torch.nn.Module) and fn._compiled_call_impl is not None:
            stack.enter_context(mock.patch.object(fn, "_compiled_call_impl", None))
        yield


@contextlib.contextmanager
def _dynamo_tables() -> Iterator[None]:
    tables = [getattr(owner, name) for owner, name in _TABLES if hasattr(owner, name)]
    saved = [table.copy() for table in tables]
    values = [(owner, name, start) for owner, name, start in _VALUES if hasattr(owner, name)]
    before = [getattr(owner, name) for owner, name, _ in values]
    trackers = (convert_frame.input_codes, convert_frame.output_codes)
    seen = [list(tracker.seen) for tracker in trackers]
    for table in tables:
        table.clear()
    for owner, name, start in values:
        setattr(owner, name, start)
    try:
        yield
    finally:
        for table, content in zip(tables, saved, strict=True):
            table.clear()
            # A Counter's update() adds, a list has extend(); all keep the table itself.
            (table.extend if hasattr(table, "extend") else table.update)(content)
        for (owner, name, _), value in zip(values, before, strict=True):
            setattr(owner, name, value)
        for tracker, references in zip(trackers, seen, strict=True):
            tracker.seen[:] = [reference for reference in references if reference() is not None]
            tracker.seen_ids.clear()
            tracker.seen_ids.update(id(reference()) for reference in tracker.seen)


@contextlib.contextmanager
def _fresh_code_objects(entered: list[types.CodeType]) -> Iterator[None]:
    known = {id(code): code for code in _codes_seen() if not trace_rules.check(code)}
    swapped = _swap(known)
    try:
        with _globals_cleaned(), _recorded(entered):
            yield
    finally:
        for function, original in swapped:
            function.__code__ = original
        for code in (*entered, *_codes_seen()):
            if id(code) not in known:
                _forget(code)


def _codes_seen() -> list[types.CodeType]:
    trackers = (convert_frame.input_codes, convert_frame.output_codes)
    return [code for t in trackers for ref in t.seen if (code := ref()) is not None]


def _swap(
    known: dict[int, types.CodeType],
) -> list[tuple[types.FunctionType, types.CodeType]]:
    """Gives each function that uses a code object of `known` a copy of it; returns what to undo."""
    if not known:
        return []
    # A function that makes others when it runs holds their code; only files with such are read.
    files = {code.co_filename for code in known.values() if "<locals>" in code.co_qualname}
    copies: dict[int, types.CodeType] = {}
    swapped = []
    for function in gc.get_objects():
        if type(function) is not types.FunctionType:
            continue
        code = function.__code__
        if id(code) in known or (
            code.co_filename in files and any(id(c) in known for c in _nested_codes(code))
        ):
            swapped.append((function, code))
            function.__code__ = copies.setdefault(id(code), _copy_code(code))
    return swapped


def _copy_code(code: types.CodeType) -> types.CodeType:
    """Returns a copy that is not equal to the original.

    Code objects compare by content, and Dynamo remembers the instructions of each code object it
    read: for an equal copy it would take the original's, with the original's inner functions.
    """
    consts = [_copy_code(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return code.replace(co_consts=(*consts, f"copy {next(_COPIES)}"))


@contextlib.contextmanager
def _recorded(entered: list[types.CodeType]) -> Iterator[None]:
    """Notes each code object that is handed to Dynamo; older versions list only some of them."""
    original = convert_frame.CatchErrorsWrapper.__call__

    def noting(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        entered.append(frame.f_code)
        return original(self, frame, *args, **kwargs)

    with mock.patch.object(convert_frame.CatchErrorsWrapper, "__call__", noting):
        yield


def _forget(code: types.CodeType) -> None:
    """Drops all that Dynamo keeps for a code object."""
    reset_code(code)
    for table in (resume_execution.ContinueExecutionCache.cache, dynamo_utils.orig_code_map):
        if code in table:
            table._remove_id(id(code))


@contextlib.contextmanager
def _globals_cleaned() -> Iterator[None]:
    """Removes the names that Dynamo puts into the globals of the learner's modules."""
    manager, hook = dynamo_utils.CleanupManager.instance, dynamo_utils.CleanupHook
    before = set(manager.values)
    put: list[tuple[dict[str, Any], str]] = []
    imports: dict[int, tuple[dict[str, Any], set[str]]] = {}
    create = hook.create

    def noting(scope: dict[str, Any], name: str, value: Any) -> Any:
        put.append((scope, name))
        return create(scope, name, value)

    def noting_imports(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = self.output.global_scope
        if id(scope) not in imports:
            imports[id(scope)] = (scope, set(scope))
        return import_source(self, *args, **kwargs)

    translator = symbolic_convert.InstructionTranslatorBase
    import_source = translator.import_source
    try:
        with (
            mock.patch.object(hook, "create", staticmethod(noting)),
            mock.patch.object(translator, "import_source", noting_imports),
        ):
            yield
    finally:
        for idx in set(manager.values) - before:
            manager._remove_id(idx)
        for scope, name in put:  # what was put in for a frame that was then not compiled
            scope.pop(name, None)
        for scope, names in imports.values():
            for name in set(scope) - names:
                if name.startswith("__import_"):
                    del scope[name]
