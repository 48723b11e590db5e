"""Errors that cross a process border: same type, same words, and where they were raised."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from helpers import travel

_LIBRARIES = tuple(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib"))
_OURS = str(Path(__file__).resolve().parent)


class Frame(NamedTuple):
    """One line of a traceback: file, line number, function, text of the line."""

    filename: str
    lineno: int
    name: str
    line: str


class WorkerError(Exception):
    """Stands for an error whose own type cannot travel; the message starts with its name."""


def pack_error(error: BaseException) -> bytes:
    """Returns an error, with its traceback as text, as bytes for `unpack_error`."""
    frames = [Frame(f.filename, f.lineno or 0, f.name, f.line or "")
              for f in traceback.extract_tb(error.__traceback__)]  # fmt: skip
    text = "".join(traceback.format_exception(error))
    return travel.pack((_portable(error), text, frames), home=True)


def unpack_error(data: bytes | bytearray) -> BaseException:
    """Returns the error, ready to be raised: `.worker_traceback` is the text of its traceback,
    `.worker_frames` its lines as a tuple of Frame. A note names the learner's own line.
    """
    (build, cause), text, frames = travel.unpack(data, scopes=False)
    error = _rebuilt(*build)
    if cause is not None:
        error.__cause__ = _rebuilt(*cause)
    error.worker_traceback, error.worker_frames = text, tuple(frames)
    own = [frame for frame in frames if _is_learners(frame.filename)]
    if own:
        last = own[-1]
        line = last.line or linecache.getline(last.filename, last.lineno).strip()
        error.add_note(f"raised in {last.name}, {last.filename}, line {last.lineno}: {line}")
    return error


def _is_learners(filename: str) -> bool:
    inside = (*_LIBRARIES, _OURS, "<frozen ")
    return not filename.startswith(inside)


def _portable(error: BaseException) -> tuple[Any, Any]:
    cause = error.__cause__
    return _recipe(error), None if cause is None else _recipe(cause)


def _recipe(error: BaseException) -> tuple[Any, ...]:
    """Returns what `_rebuilt` needs, tried out here: an error that cannot be told must not come."""
    plain = {name: value for name, value in error.__dict__.items() if _travels(value)}
    for candidate in (
        (type(error), error.args, plain),
        (type(error), (str(error),), plain),
        (type(error), (str(error),), {}),
    ):
        try:
            copy = _rebuilt(*travel.unpack(travel.pack(candidate), scopes=False))
            if str(copy) == str(error):
                return candidate
        except Exception:  # whatever a foreign __new__ or __str__ raises, the next may do
            continue
    return WorkerError, (f"{type(error).__name__}: {error}",), {}


def _rebuilt(cls: type[BaseException], args: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Makes an error without its `__init__`, which may want something else than `.args`."""
    if cls.__init__ in (BaseException.__init__, Exception.__init__) or cls.__module__ == "builtins":
        error = cls(*args)
    else:
        error = cls.__new__(cls, *args)
        error.args = args
    error.__dict__.update(attributes)
    return error


def _travels(value: Any) -> bool:
    try:
        travel.pack(value)
    except travel.CannotTravel:
        return False
    return True
