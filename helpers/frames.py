"""Messages over a pipe: one byte that says the kind, eight for the length, then the content.

Standard library only. No deadlines: whoever reads decides how long to wait for a first byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable

READY = b"R"  # the worker can work; content: when, on the system-wide monotonic clock
CALL = b"C"  # surroundings, and the packed call
PRINTED = b"O"  # text for the learner's sys.stdout
WARNED = b"E"  # text for the learner's sys.stderr
RESULT = b"A"  # the packed result
FAILED = b"X"  # the packed error
_LENGTH = 8
_AT_ONCE = 1 << 20  # bytes for one system call


def send(fd: int, kind: bytes, *parts: bytes | memoryview) -> None:
    """Writes one message, its content in parts. Raises BrokenPipeError if nobody reads."""
    length = sum(memoryview(part).nbytes for part in parts)
    for part in (kind + length.to_bytes(_LENGTH, "little"), *parts):
        view = memoryview(part).cast("B")
        while view:
            view = view[os.write(fd, view[:_AT_ONCE]) :]


def receive(fd: int, wait: Callable[[], None] = lambda: None) -> tuple[bytes, bytearray]:
    """Returns kind and content of the next message; EOFError if the other end is closed.

    wait: called before each read; it may block until there is something to read, or raise.
    """
    head = _read(fd, 1 + _LENGTH, wait)
    return bytes(head[:1]), _read(fd, int.from_bytes(head[1:], "little"), wait)


def _read(fd: int, size: int, wait: Callable[[], None]) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        wait()
        count = os.readv(fd, [view[:_AT_ONCE]])
        if not count:
            raise EOFError
        view = view[count:]
    return data
