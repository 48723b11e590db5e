"""What runs inside the worker process: it waits for calls, makes them, and sends what came out."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import io
import os
import queue
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import frames, worker
from helpers.worker_modules import (
    apply_surroundings,
    forget_changed_modules,
    keep_modules,
    note_modules,
)

_WRITING = threading.Lock()


class _Stream(io.TextIOBase):
    """Stands in for sys.stdout and sys.stderr: sends what is printed, in order, to the parent."""

    def __init__(self, to: int, kind: bytes) -> None:
        self._to, self._kind = to, kind
        self.calling = False

    def write(self, text: str) -> int:
        if not self.calling:  # said between calls: kept in the file, for the case of a death
            os.write(1 if self._kind == frames.PRINTED else 2, text.encode(errors="replace"))
        elif text:
            send(self._to, self._kind, text.encode(errors="replace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1 if self._kind == frames.PRINTED else 2

    @property
    def encoding(self) -> str:
        return "utf-8"


def send(to: int, kind: bytes, *parts: Any) -> None:
    """Sends one message whole, whichever thread calls."""
    with _WRITING:
        frames.send(to, kind, *parts)


def serve(source: int, to: int, folder: Path) -> None:
    """Answers calls that come from the file descriptor `source` on `to`, until the parent ends.

    folder: the worker's own; it goes when the worker does.
    """
    worker.is_worker = True
    faulthandler.enable(all_threads=False)  # a crash says where, and its first line what
    for fd in (source, to):
        os.set_inheritable(fd, False)
    calls: queue.Queue[bytearray] = queue.Queue()
    threading.Thread(target=_listen, args=(source, calls, folder), daemon=True).start()
    streams = _Stream(to, frames.PRINTED), _Stream(to, frames.WARNED)
    sys.stdout, sys.stderr = streams
    os.register_at_fork(after_in_child=lambda: _leave_pipes(streams, source, to))
    _preload()
    keep_modules()
    gc.freeze()  # what was just imported stays: looking through it after each call takes 0.2 s
    send(to, frames.READY, repr(time.monotonic()).encode())
    while True:
        request: bytearray | None = calls.get()
        for stream in streams:
            stream.calling = True
        kind, content = _answer(request, folder)
        for stream in streams:
            stream.calling = False
        send(to, kind, content)
        request = content = None
        _tidy()


def _listen(source: int, calls: queue.Queue[bytearray], folder: Path) -> None:
    """Reads calls; at the end of the pipe the parent is gone, and all of this process goes too."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            calls.put(frames.receive(source)[1])
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)  # its children too; the group is our own


def _leave_pipes(streams: tuple[_Stream, ...], *pipes: int) -> None:
    """A child that the learner's function forks must neither write nor hold our messages."""
    for stream in streams:
        stream.calling = False
    for fd in pipes:
        os.close(fd)


def _preload() -> None:
    """Imports what generating code takes, and asks nothing about a GPU."""
    import torch
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401

    import helpers.settings
    import helpers.travel
    import helpers.worker_errors  # noqa: F401


def _answer(request: bytearray, folder: Path) -> tuple[bytes, bytes]:
    from helpers import settings, travel, worker_errors

    try:
        with settings.kept_settings():
            try:
                return frames.RESULT, travel.pack(_call(request, folder), home=True)
            finally:
                note_modules()
                settings.leave_inference_mode()
    except BaseException as error:
        return frames.FAILED, worker_errors.pack_error(error)


def _call(request: bytearray, folder: Path) -> Any:
    from helpers import settings, travel

    view = memoryview(request)
    middle = 8 + int.from_bytes(view[:8], "little")
    apply_surroundings(travel.unpack(view[8:middle]), worker.own_environment(folder))
    forget_changed_modules()
    try:
        entry, wanted, obj = travel.unpack(view[middle:])
    except Exception as error:
        raise travel.CannotTravel(
            f"This could not be put together in the worker: {type(error).__name__}: {error}"
        ) from error
    function = resolve(entry)
    settings.apply_settings(wanted)
    return function(obj)


def resolve(entry: str) -> Callable[[Any], Any]:
    """Returns the function that "module:function" names."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


def _tidy() -> None:
    """Lets go of what the call brought, while the parent already has its answer."""
    import torch

    from helpers import travel

    torch._dynamo.reset()
    travel.forget_scopes()
    gc.collect()
