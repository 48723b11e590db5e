"""Turns on a shared resource: measurements on one card wait for each other, whoever runs them.

A queue in a folder that every user of the machine can use. Each process that waits or measures
holds a ticket, a small file with a lock (`filelock`) that ends with its process, however it ends;
tickets are numbered by time. One more lock, `inside`, keeps two from measuring at once, so that
a damaged queue can cost the order and never the exclusion.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock

POLL_S = 0.1
_LOCKS = ("door", "inside")


class TurnTimeout(TimeoutError):
    """Nobody let us in within the time given; the message says who was ahead and what to do."""


@dataclass(frozen=True)
class Ticket:
    """A place in the queue: process number, start of waiting (seconds since 1970), label."""

    pid: int
    since: float
    label: str

    def __str__(self) -> str:
        what = f" ({self.label})" if self.label else ""
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        return f"process {self.pid}{what}, since {since}"


@dataclass(frozen=True)
class Turn:
    """A turn that was had: seconds waited, and sentences on what went wrong with the queue."""

    waited_s: float = 0.0
    notes: tuple[str, ...] = ()


def queue_root() -> Path:
    """Returns the folder of all queues: TORCH_COMPILE_SUITE_TURNS, else in the system's own.

    TMPDIR is not asked on Linux and macOS: it may differ by user, and they must meet.
    """
    chosen = os.environ.get("TORCH_COMPILE_SUITE_TURNS")
    if chosen:
        return Path(chosen)
    shared = Path(os.sep, "tmp")
    place = shared if os.name == "posix" and shared.is_dir() else Path(tempfile.gettempdir())
    return place / "torch_compile_suite_turns"


def _open_to_all(folder: Path) -> None:
    if not folder.is_dir():
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)  # everybody adds files, nobody removes those of others
    if folder.is_symlink() or not folder.is_dir():
        raise PermissionError(f"{folder} is not a folder of its own")


def _queue_folder(resource: str) -> Path:
    """Returns the queue's folder, made whole: with both locks in it, or not at all.

    filelock accepts, in a sticky folder, locks of oneself and of the folder's owner only. So one
    user makes folder and locks together, and each user has a folder of their own for tickets.
    """
    root = queue_root()
    _open_to_all(root)
    folder = root / re.sub(r"[^A-Za-z0-9_-]", "_", resource)
    if not folder.is_dir():
        draft = Path(tempfile.mkdtemp(dir=root, prefix=".new-"))
        for name in _LOCKS:
            lock = draft / f"{name}.lock"
            lock.touch()
            lock.chmod(0o666)  # a lock must be opened for writing by whoever takes it
        draft.chmod(0o1777)
        try:
            draft.rename(folder)
        except OSError:  # somebody was faster
            shutil.rmtree(draft, ignore_errors=True)
    _open_to_all(folder)
    return folder


def _lock(path: Path) -> filelock.BaseFileLock:
    return filelock.FileLock(path, mode=0o666)


def _is_dead(lock_file: Path) -> bool:
    """Says whether a ticket's owner is gone: then nobody holds its lock."""
    probe = _lock(lock_file)
    try:
        probe.acquire(timeout=0)
    except filelock.Timeout:
        return False
    except OSError:
        return True  # unreadable or gone; if it is alive after all, `inside` still keeps us out
    probe.release()
    return True


class _Place:
    """Our place in one queue, from taking a ticket to giving it back."""

    def __init__(self, folder: Path, label: str) -> None:
        user = os.getuid() if hasattr(os, "getuid") else 0
        self.folder, self.drawer = folder, folder / f"user-{user}"
        self.door, self.inside = (_lock(folder / f"{name}.lock") for name in _LOCKS)
        self.ticket, self.info = Ticket(os.getpid(), time.time(), label), self.drawer
        self.held: filelock.BaseFileLock | None = None

    def take_ticket(self) -> None:
        self.drawer.mkdir(exist_ok=True)
        self.drawer.chmod(0o755)
        with self.door:  # behind the door, so that a later ticket never gets an earlier number
            number = f"{time.time_ns():020d}-{self.ticket.pid}-{secrets.token_hex(3)}"
            self.held = _lock(self.drawer / f"{number}.lock")
            self.held.acquire()
            self.info = self.drawer / f"{number}.json"
            self.info.write_text(json.dumps(vars(self.ticket)), encoding="utf-8")
            self.info.chmod(0o644)

    def ahead(self) -> list[Ticket]:
        """Returns the living tickets before ours, the oldest first; removes those of the dead."""
        found = []
        with self.door:
            for lock_file in sorted(self.folder.glob("user-*/*.lock"), key=lambda file: file.name):
                if lock_file.name >= self.info.with_suffix(".lock").name:
                    break
                info = lock_file.with_suffix(".json")
                if _is_dead(lock_file):
                    _remove(info, lock_file)
                else:
                    found.append(_read_ticket(info))
        return found

    def try_to_enter(self) -> bool:
        try:
            self.inside.acquire(timeout=0)
        except filelock.Timeout:
            return False
        return True

    def leave(self) -> None:
        self.inside.release()
        if self.held is not None:
            _remove(self.info, self.info.with_suffix(".lock"))
            self.held.release()


def _remove(*files: Path) -> None:
    for file in files:
        with contextlib.suppress(OSError):  # another user's, say; without its owner it counts not
            file.unlink()


def _read_ticket(info: Path) -> Ticket:
    try:
        return Ticket(**json.loads(info.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return Ticket(0, info.stat().st_mtime if info.exists() else time.time(), "no details")


def _queue_text(resource: str, ahead: list[Ticket]) -> str:
    if not ahead:
        return f"waiting for {resource}: next in line, the one before is just leaving"
    others = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
    return f"waiting for {resource}: ahead of us is {ahead[0]}{others}"


def _wait(place: _Place, resource: str, timeout_s: float) -> None:
    """Waits until we are first and inside; shows the queue, and says anew when it changes."""
    from helpers.display import progress

    until = time.monotonic() + timeout_s
    ahead = place.ahead()
    while ahead or not place.try_to_enter():
        shown = ahead
        with progress(_queue_text(resource, shown)):
            while True:
                if time.monotonic() > until:
                    raise TurnTimeout(_timeout_text(resource, ahead, timeout_s))
                time.sleep(POLL_S)
                ahead = place.ahead()
                if ahead != shown:
                    break
                if not ahead and place.try_to_enter():
                    return


def _timeout_text(resource: str, ahead: list[Ticket], timeout_s: float) -> str:
    who = "; ".join(map(str, ahead)) or "a process that left no ticket"
    return (
        f"Waited {timeout_s:.0f} s for a turn on {resource}, and others still have it: {who}. "
        "Two measurements at once would spoil both. Wait until they are through, stop them if "
        "they are yours (an idle notebook kernel, say), or wait longer with a larger timeout."
    )


class _Registry(threading.local):
    """The turns that this thread has, so that a turn within a turn does not wait for itself."""

    def __init__(self) -> None:
        self.had: dict[tuple[int, str], int] = {}


_OURS = _Registry()
_THREADS: dict[str, threading.Lock] = {}


@contextlib.contextmanager
def turn(resource: str, label: str = "", timeout_s: float = 1800.0) -> Iterator[Turn]:
    """Waits for a turn on `resource` and keeps it for the body of the `with` statement.

    resource: a card's UUID, or "cpu"; label: what is measured, shown to those who wait;
    timeout_s: seconds, then TurnTimeout. Entering again inside the body costs nothing. A process
    that dies gives its turn back. If the shared folder cannot be used, the turn is had without
    waiting and `.notes` say so.
    """
    key = (os.getpid(), resource)
    if key in _OURS.had:
        yield Turn()
        return
    started = time.monotonic()
    guard = _THREADS.setdefault(resource, threading.Lock())
    if not guard.acquire(timeout=timeout_s):
        raise TurnTimeout(_timeout_text(resource, [], timeout_s))
    place, notes = None, ()
    try:
        try:
            place = _Place(_queue_folder(resource), label)
            place.take_ticket()
        except OSError as error:
            notes = (_no_queue(place, error),)
            place = None
        if place is not None:
            _wait(place, resource, timeout_s - (time.monotonic() - started))
        _OURS.had[key] = 1
        yield Turn(time.monotonic() - started, notes)
    finally:
        _OURS.had.pop(key, None)
        if place is not None:
            place.leave()
        guard.release()


def _no_queue(place: _Place | None, error: OSError) -> str:
    if place is not None:
        place.leave()
    text = (
        "Measured without queueing, so another measurement may have run at the same time: the "
        f"shared folder of turns cannot be used ({error.strerror or error})."
    )
    print(text, file=sys.stderr)
    return text
