"""A second process in which code is generated for a GPU that is not here.

Pretending that there is a GPU means replacing names of torch's; in a process of its own nothing
of that reaches the learner's. It is started by `subprocess`, so a script needs no `__main__` guard;
it is in a session of its own, so Ctrl-C reaches the learner's process only, which then kills it.
It ends when its parent ends, however that happens: its end of the pipe says so.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import frames
from helpers.display import progress

# Measured on two cores: 3 to 5 s with torch's files in memory; for the progress line only.
_START_S = 4.0
_POLL_S = 0.1  # how often a wait looks whether the worker still runs


class WorkerDied(RuntimeError):
    """The worker process ended in the middle; the message says how, and what it said last."""


class _Worker:
    """One running worker process, and our ends of its pipes."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="compile-worker-"))
        theirs_in, self.to = os.pipe()
        self.back, theirs_out = os.pipe()
        for fd in (self.to, self.back):
            _widen(fd)
        self.started = time.monotonic()
        self.start_seconds: float | None = None
        try:
            with open(self.folder / "out", "ab") as out, open(self.folder / "err", "ab") as err:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "helpers.worker",
                     str(theirs_in), str(theirs_out), str(self.folder)],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=self.folder,
                    pass_fds=(theirs_in, theirs_out), start_new_session=True,
                    env=_environment(self.folder),
                )  # fmt: skip
        except BaseException:
            self.close_pipes()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def call(self, request: list[bytes], on_wait: Callable[[], object] | None) -> Any:
        """Sends one request and returns kind and content of the answer."""
        if not self.has_message() and self.start_seconds is None:
            with progress("Starting the compile worker", _START_S):
                self.become_ready(on_wait)
        else:
            self.become_ready(on_wait)
        with contextlib.suppress(BrokenPipeError):  # the wait below says how it ended
            frames.send(self.to, frames.CALL, *request)
        while True:
            kind, content = self.receive(on_wait)
            if kind not in (frames.PRINTED, frames.WARNED):
                self._forward_rest()
                return kind, content
            _forward(kind, content.decode(errors="replace"))

    def become_ready(self, on_wait: Callable[[], object] | None = None) -> None:
        """Waits until the worker has imported what it needs."""
        if self.start_seconds is None:
            _, content = self.receive(on_wait)
            self.start_seconds = float(content) - self.started

    def receive(self, on_wait: Callable[[], object] | None) -> tuple[bytes, bytearray]:
        """Returns the worker's next message; WorkerDied if there will be none."""

        def wait() -> None:
            while not self.has_message(_POLL_S):
                if on_wait is not None:
                    on_wait()
                if self._has_ended() and not self.has_message():
                    raise EOFError

        try:
            return frames.receive(self.back, wait)
        except EOFError:
            raise WorkerDied(self._last_words()) from None

    def has_message(self, seconds: float = 0.0) -> bool:
        """Says whether something (the end of the pipe too) can be read within `seconds`."""
        poll = select.poll()
        poll.register(self.back, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _has_ended(self) -> bool:
        """Looks without reaping, so that the number of the process stays its own."""
        if self.process.returncode is not None:
            return True
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, flags) is not None
        except ChildProcessError:
            return True  # somebody else in this process reaped it

    def _last_words(self) -> str:
        self.kill(remove=False)
        said = (self.folder / "err").read_text(errors="replace").strip().splitlines()
        code = self.process.returncode
        how = f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by signal {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                how += ", as when memory runs out"
        last = f"; it last said: {_telling(said)}" if said else ""
        return f"The compile worker ended {how}{last}. The next call starts a new one."

    def _forward_rest(self) -> None:
        """Forwards what was written past Python's streams, by C code or a child process."""
        for name, kind in (("out", frames.PRINTED), ("err", frames.WARNED)):
            with contextlib.suppress(OSError), open(self.folder / name, "r+b") as file:
                text = file.read().decode(errors="replace")
                file.truncate(0)  # both ends append: the worker's file has O_APPEND
                if text:
                    _forward(kind, text)

    def kill(self, remove: bool = True) -> None:
        """Ends the worker and its children at once, and takes its files away."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.close_pipes()
        if remove:
            shutil.rmtree(self.folder, ignore_errors=True)

    def close_pipes(self) -> None:
        """Closes our ends, once."""
        for fd in {self.to, self.back} - {-1}:
            os.close(fd)
        self.to = self.back = -1


_LOCK = threading.Lock()
is_worker = False  # set in the worker itself, where a call within a call is made at once
_worker: _Worker | None = None
_last_start: float | None = None


def run_in_worker(entry: str, obj: Any, on_wait: Callable[[], object] | None = None) -> Any:
    """Returns function(obj), called in the worker process; `obj` and the result are copies.

    entry: "module:function"; on_wait: called about ten times a second meanwhile, and if it raises,
    the work is given up. What the function prints is printed here. Its error is raised here, of
    the same type, with `.worker_traceback`; CannotTravel if `obj` or the result cannot leave its
    process; WorkerDied if the worker ends. An interrupt kills the worker; the next call starts one.
    """
    from helpers import travel, worker_errors
    from helpers.settings import current_settings
    from helpers.worker_modules import surroundings

    if is_worker:
        from helpers.worker_side import resolve

        return resolve(entry)(obj)
    request = [travel.pack(surroundings()), travel.pack((entry, current_settings(), obj))]
    head = len(request[0]).to_bytes(8, "little")
    with _LOCK:
        worker = _running()
        try:
            kind, content = worker.call([head, *request], on_wait)
            _note_start(worker)
        except BaseException:
            _drop()
            raise
    if kind == frames.FAILED:
        raise worker_errors.unpack_error(content)
    return travel.unpack(content, scopes=False)


def start_worker() -> None:
    """Starts the worker, if none runs, and does not wait for it: it imports torch meanwhile."""
    if is_worker or not _LOCK.acquire(blocking=False):
        return  # a call is under way: it has started one
    try:
        _running()
    finally:
        _LOCK.release()


def worker_start_seconds() -> float | None:
    """Returns what the last start took in s, None if no worker has become ready yet."""
    if _LOCK.acquire(blocking=False):
        try:
            if _worker is not None and _worker.start_seconds is None and _worker.has_message():
                _worker.become_ready()
                _note_start(_worker)
        except WorkerDied:
            _drop()
        finally:
            _LOCK.release()
    return _last_start


def stop_worker() -> None:
    """Ends the worker, if one runs, and removes its files; the next call starts a new one."""
    with _LOCK:
        _drop()


def _running() -> _Worker:
    global _worker
    if _worker is not None and _worker._has_ended():
        _drop()  # it ended between two calls
    if _worker is None:
        _worker = _Worker()
    return _worker


def _drop() -> None:
    global _worker
    gone, _worker = _worker, None
    if gone is not None:
        gone.kill()


def _note_start(worker: _Worker) -> None:
    global _last_start
    _last_start = worker.start_seconds


def _widen(pipe: int) -> None:
    """Lets a pipe hold 1 MiB (Linux's limit for users) where it can: weights travel faster."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)


def _environment(folder: Path) -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent)
    before = os.environ.get("PYTHONPATH")
    return {**os.environ, **own_environment(folder),
            "PYTHONPATH": os.pathsep.join([root, before] if before else [root])}  # fmt: skip


def own_environment(folder: Path) -> dict[str, str]:
    """Returns the variables in which the worker differs from the learner's process.

    Caches are its own: what is made for a card that is not here must not be found by a real run.
    """
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _forward(kind: bytes, text: str) -> None:
    stream = sys.stdout if kind == frames.PRINTED else sys.stderr
    stream.write(text)
    stream.flush()


def _telling(lines: list[str]) -> str:
    """Returns the line that says most: the first of a fatal error, else the last."""
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return (fatal or lines)[-1].strip().rstrip(".")


def _after_fork() -> None:
    """A forked child lets its parent's worker be: it only closes its copies of the pipes."""
    global _LOCK, _worker, _last_start
    _LOCK = threading.Lock()
    gone, _worker, _last_start = _worker, None, None
    if gone is not None:
        gone.close_pipes()
        gone.process.returncode = 0  # not this process's child: nothing to wait for


def _at_exit() -> None:
    # A thread that still waits must not keep the process from ending.
    if _LOCK.acquire(timeout=1) or _worker is not None:
        _drop()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

if __name__ == "__main__":
    from helpers.worker_side import serve

    serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
