"""Packs things so that they can travel to another process, or to the card, and come out the same.

What is defined in a notebook, a script or a typed text travels by value, with the globals that it
names; what the other process can import travels by name. Tensors that share memory still do.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import io
import linecache
import marshal
import os
import pickle
import socket
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import cloudpickle
import torch

from helpers.travel_classes import Scope, class_reduced, forget_scopes, make_scope, unpacking
from helpers.travel_kinds import check_operators, operators_named, reduce_kind

_HEADER = 8  # bytes that say how long the part about the body is
_ALIGN = 64  # where each storage starts, in bytes: any copy of it is then a fast one
_PACKING = threading.RLock()  # cloudpickle's list of modules that travel by value is process-wide

_LINES_ARRIVED: set[str] = set()

_KINDS: tuple[tuple[Any, str], ...] = (
    (type(threading.Lock()), "a lock"),
    (type(threading.RLock()), "a lock"),
    ((threading.Condition, threading.Event, threading.Semaphore), "a lock"),
    (threading.Thread, "a thread"),
    (io.IOBase, "an open file"),
    (socket.socket, "a socket"),
    (types.GeneratorType, "a generator"),
    ((types.CoroutineType, types.AsyncGeneratorType), "a coroutine"),
    ((types.FrameType, types.TracebackType), "a stack frame"),
    (weakref.ReferenceType, "a weak reference"),
)


def _after_fork() -> None:
    global _PACKING
    _PACKING = threading.RLock()  # another thread of the parent's may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


__all__ = ["CannotTravel", "forget_scopes", "importable", "pack", "unpack"]


class CannotTravel(Exception):
    """Something exists in this process only; the message names it in one sentence."""


def pack(obj: Any, home: bool = False) -> bytes:
    """Returns `obj` as bytes for `unpack`, here or in a process that runs the same Python.

    Tensors arrive on the CPU, as leaves that require grad if they did, with their `.grad`.
    home: it goes to the process from which what arrived here came, which knows its own classes.
    Raises CannotTravel for open files, locks, generators, sockets and what holds one.
    """
    body = io.BytesIO()
    packer = _Packer(body, home)
    with _PACKING:
        try:
            packer.dump(obj)
        except CannotTravel:
            raise
        except Exception as error:
            raise CannotTravel(packer.explain(error)) from error
        finally:
            for module in packer.by_value:
                cloudpickle.unregister_pickle_by_value(module)
    return packer.assemble(body.getbuffer())


def unpack(data: Any, device: str | None = None, scopes: bool = True) -> Any:
    """Returns what `pack` was given. data: bytes or any buffer.

    device: where every tensor goes, such as "cuda"; None: to the CPU. With a device it is a copy
    through and through: its classes are new ones too, so that their methods see the copied
    globals. Without, an object comes back as one of the class that once left this process.
    scopes: Dynamo can find the globals of functions that arrive, until `forget_scopes`.
    Raises what an import raises that the object needs.
    """
    view = memoryview(data)
    length = int.from_bytes(view[:_HEADER], "little")
    header = pickle.loads(view[_HEADER : _HEADER + length])
    _put_lines(header["lines"])
    start = _HEADER + length
    body = view[start : start + header["body"]]
    storages = [_storage(view, start + offset, size, device) for offset, size in header["storages"]]
    with torch.inference_mode(False), unpacking(device is not None, scopes), _unwarned():
        obj = _Unpacker(io.BytesIO(body), storages).load()
    check_operators(header["operators"])  # now, as an import above may have registered one
    return obj


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """torch warns when it puts a sparse tensor together, which is not the learner's doing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse invariant checks")
        yield


class _Packer(cloudpickle.Pickler):
    """cloudpickle's pickler; keeps storages, lines of source and what it looked at last."""

    def __init__(self, file: Any, home: bool) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.storages: dict[int, tuple[int, torch.UntypedStorage]] = {}
        self.lines: dict[str, list[str]] = {}
        self.operators: set[tuple[str, str]] = set()
        self.by_value: list[types.ModuleType] = []
        self._functions: list[types.FunctionType] = []
        self._importable: dict[str, bool] = {}
        self._last: Any = None
        self._home = home

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, torch.storage.TypedStorage):
            untyped, dtype = obj._untyped_storage, obj.dtype
        elif isinstance(obj, torch.UntypedStorage):
            untyped, dtype = obj, None
        else:
            return None
        # _cdata is the storage itself: several Python objects may stand for one.
        index, _ = self.storages.setdefault(untyped._cdata, (len(self.storages), untyped))
        return index, dtype

    def reducer_override(self, obj: Any) -> Any:
        self._last = obj
        self._register(obj)
        if obj is sys.stdout or obj is sys.stderr:
            return getattr, (sys, "stdout" if obj is sys.stdout else "stderr")
        if isinstance(obj, io.IOBase) and not isinstance(obj, (io.BytesIO, io.StringIO)):
            raise CannotTravel(self.explain(None))  # cloudpickle would send what the file holds
        if isinstance(obj, types.CodeType):
            # Whole, with the name of its file: cloudpickle would write "<dynamic-code>" instead.
            self.operators |= operators_named(obj)
            return marshal.loads, (marshal.dumps(obj),)
        special = reduce_kind(obj)
        if special is not NotImplemented:
            return special
        if isinstance(obj, types.FunctionType):
            self.globals_ref.setdefault(id(obj.__globals__), Scope())
        reduced = super().reducer_override(obj)
        if isinstance(obj, types.FunctionType) and reduced is not NotImplemented:
            self._functions.append(obj)
            self._keep_lines(obj)
            # cloudpickle overlooks what the body of a class inside the function names.
            for name in _named_in_classes(obj.__code__):
                if name in obj.__globals__:
                    reduced[2][1]["__globals__"].setdefault(name, obj.__globals__[name])
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
            return class_reduced(obj, reduced, self._home)
        return (make_scope, (dict(obj),)) if type(obj) is Scope else reduced

    def _register(self, obj: Any) -> None:
        """Makes a module travel by value if the other process could not import it."""
        if not isinstance(obj, (type, types.FunctionType, types.ModuleType)):
            return
        own = obj.__name__ if isinstance(obj, types.ModuleType) else obj.__module__
        top = own.partition(".")[0] if isinstance(own, str) else ""
        if not isinstance(sys.modules.get(top), types.ModuleType) or top == "__main__":
            return  # cloudpickle knows that these travel by value
        if top not in self._importable:
            self._importable[top] = importable(top)
            if not self._importable[top]:
                cloudpickle.register_pickle_by_value(sys.modules[top])
                self.by_value.append(sys.modules[top])

    def _keep_lines(self, function: types.FunctionType) -> None:
        name = function.__code__.co_filename
        if name not in self.lines and not os.path.isfile(name):
            lines = linecache.getlines(name, function.__globals__)
            if lines:
                self.lines[name] = lines

    def explain(self, error: Exception | None) -> str:
        """Returns the sentence about the object that was looked at last."""
        obj = self._last
        kind = next((words for types_, words in _KINDS if isinstance(obj, types_)), "")
        words = kind or f"an object of type {type(obj).__module__}.{type(obj).__qualname__}"
        where = next((text for text in self._holders(obj)), "")
        said = "" if kind or error is None else (str(error).strip().splitlines() or [""])[0]
        reason = "it exists in this process only" if not said else f"Python says: {said}"
        return f"{words[0].upper()}{words[1:]}{where} cannot travel to another process: {reason}"

    def _holders(self, obj: Any) -> Iterator[str]:
        for function in reversed(self._functions):
            cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            named = [(name, _content(cell)) for name, cell in cells]
            named += [(n, function.__globals__.get(n)) for n in function.__code__.co_names]
            for name, value in named:
                if value is obj:
                    yield f" (the variable {name!r} in {function.__qualname__})"

    def assemble(self, body: memoryview) -> bytes:
        """Returns header, body and the bytes of the storages in one piece."""
        parts: list[Any] = [body]
        places, end = [], body.nbytes
        for _, untyped in self.storages.values():
            start = -(-end // _ALIGN) * _ALIGN
            on_cpu = untyped if untyped.device.type == "cpu" else untyped.cpu()
            parts += [bytes(start - end), _bytes_of(on_cpu)]
            places.append((start, on_cpu.nbytes()))
            end = start + on_cpu.nbytes()
        header = {"lines": self.lines, "operators": self.operators}
        told = pickle.dumps({**header, "body": body.nbytes, "storages": places})
        return b"".join([len(told).to_bytes(_HEADER, "little"), told, *parts])


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: Any, storages: list[torch.UntypedStorage]) -> None:
        super().__init__(file)
        self._storages = storages

    def persistent_load(self, pid: tuple[int, torch.dtype | None]) -> Any:
        index, dtype = pid
        untyped = self._storages[index]
        if dtype is None:
            return untyped
        return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def _put_lines(lines: dict[str, list[str]]) -> None:
    for name, text in lines.items():
        if name not in linecache.cache or name in _LINES_ARRIVED:
            _LINES_ARRIVED.add(name)
            # No time of change: the lines belong to no file, and must not be looked for.
            linecache.cache[name] = (sum(map(len, text)), None, text, name)


def _storage(view: memoryview, start: int, size: int, device: str | None) -> torch.UntypedStorage:
    storage = torch.UntypedStorage(size, device="cpu")
    if size:
        _bytes_of(storage)[:] = view[start : start + size]
    if device is None or torch.device(device).type == "cpu":
        return storage
    return torch.empty(0, dtype=torch.uint8).set_(storage).to(device).untyped_storage()


def _bytes_of(storage: torch.UntypedStorage) -> memoryview:
    size = storage.nbytes()
    if not size:
        return memoryview(b"")
    return memoryview((ctypes.c_char * size).from_address(storage.data_ptr())).cast("B")


def _named_in_classes(code: types.CodeType) -> Iterator[str]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            if not const.co_flags & inspect.CO_OPTIMIZED:
                yield from const.co_names
            yield from _named_in_classes(const)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not set yet


def importable(name: str) -> bool:
    """Says whether a process with this `sys.path` finds the top-level module `name`, and it is
    the one that was imported here.
    """
    module = sys.modules.get(name)
    for finder in sys.meta_path:
        spec = finder.find_spec(name, None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            file = getattr(module, "__file__", None)
            same = file is None or not spec.has_location or _same(file, spec.origin)
            return same
    return False


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
