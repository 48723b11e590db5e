"""A function that a learner typed as text: found, given random inputs, its errors explained."""

from __future__ import annotations

import ast
import collections
import contextlib
import inspect
import io
import itertools
import linecache
import math
import signal
import sys
import textwrap
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# What Dynamo and tracebacks call the text. The brackets say that it is no file.
FILENAME = "<your_function>"
DTYPES = ("float32", "bfloat16", "float16", "float64", "int64")
TIME_LIMIT_S = 60
# Texts whose modules stay importable: more than any panel has in use at once.
MOST_MODULES = 32
_NUMBERS = itertools.count(1)
_REGISTERED: collections.deque[str] = collections.deque()


class Problem(Exception):
    """Something in the learner's text or choice; `str()` is the message to show."""


class TooLong(BaseException):
    """Raised by the alarm; no Exception, so that nothing on the way swallows it."""


@dataclass(frozen=True)
class Typed:
    """The last function in a text; its switches are the arguments with default True or False.

    defaults: the default of each switch.
    """

    name: str
    switches: tuple[str, ...]
    defaults: tuple[bool, ...] = ()


def source_text(source: str | Callable[..., Any]) -> str:
    """Returns a text as it is, and of a function the text it was written in (else Problem)."""
    if isinstance(source, str):
        return source
    try:
        return textwrap.dedent(inspect.getsource(source))
    except (OSError, TypeError):
        raise Problem(
            "The source of this function cannot be found; give its text instead."
        ) from None


def read_function(source: str) -> Typed:
    """Returns the last function defined at the top of `source`; Problem if it cannot be read."""
    try:
        tree = ast.parse(source, FILENAME)
    except (SyntaxError, ValueError) as error:
        raise Problem(explain(error, source)) from None
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if not found:
        raise Problem("No function found in the text. Write one that starts with: def name(x):")
    arguments = found[-1].args
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    switches = {
        argument.arg: default.value
        for argument, default in pairs
        if isinstance(default, ast.Constant) and isinstance(default.value, bool)
    }
    return Typed(found[-1].name, tuple(switches), tuple(switches.values()))


def define(source: str) -> Callable[..., Any]:
    """Runs `source` in a fresh namespace (torch, F and math are there) and returns its function."""
    name = read_function(source).name
    return run_text(source, FILENAME, torch=torch, math=math, F=torch.nn.functional)[name]


def run_text(source: str, filename: str, **names: Any) -> dict[str, Any]:
    """Runs a text as a module of its own in which `names` are known, and returns its namespace.

    filename: what tracebacks and Dynamo call the text, in angle brackets. What the text raises
    reaches the caller.
    """
    # Registered, so that tracebacks and Dynamo can show the lines.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    # Dynamo imports the module of a function that it inlines (as under a decorator), and keeps
    # what it found under that name for ever: so each text has a name of its own.
    module = types.ModuleType(f"your_function_{next(_NUMBERS)}")
    vars(module).update(names)
    sys.modules[module.__name__] = module
    _REGISTERED.append(module.__name__)
    if len(_REGISTERED) > MOST_MODULES:
        sys.modules.pop(_REGISTERED.popleft(), None)
    exec(compile(source, filename, "exec"), vars(module))
    return vars(module)


def make_inputs(
    fn: Callable[..., Any], shape: Sequence[int], dtype: str, device: str = "cpu"
) -> dict[str, torch.Tensor]:
    """Returns one random tensor for each argument without a default, by argument name.

    `dtype`: one of DTYPES. The same numbers each time; the random state of torch stays as it is.
    """
    if dtype not in DTYPES:
        raise Problem(f"Unknown dtype {dtype!r}; choose one of {', '.join(DTYPES)}.")
    if any(size < 1 for size in shape):
        raise Problem(f"Each size must be 1 or more; the shape is {tuple(shape)}.")
    dice = torch.Generator().manual_seed(0)
    kind = getattr(torch, dtype)
    tensors = {}
    for name, argument in inspect.signature(fn).parameters.items():
        if argument.default is argument.empty and argument.kind.name[:3] != "VAR":
            if kind.is_floating_point:
                value = torch.randn(*shape, generator=dice).to(device, kind)
            else:
                value = torch.randint(0, 10, tuple(shape), generator=dice).to(device, kind)
            tensors[name] = value
    return tensors


def define_with_inputs(
    text: str, shape: Sequence[int], dtype: str, switch: bool | None = None, device: str = "cpu"
) -> tuple[Callable[..., Any], dict[str, torch.Tensor], dict[str, bool]]:
    """Returns the function of a text, its random tensors, and its first switch set to `switch`.

    Both by argument name; no switch where the function has none or `switch` is None.
    """
    fn = define(text)
    tensors, switches = make_inputs(fn, shape, dtype, device), read_function(text).switches
    return fn, tensors, {switches[0]: switch} if switch is not None and switches else {}


def explain(error: BaseException, source: str) -> str:
    """Returns an error in the learner's terms: their line, its text, what is wrong."""
    if isinstance(error, Problem):
        return str(error)
    if isinstance(error, TooLong):
        return f"Stopped after {TIME_LIMIT_S} s. Is there a loop that never ends, or a huge shape?"
    if isinstance(error, KeyboardInterrupt):
        return "Stopped, because you interrupted the kernel."
    if isinstance(error, SyntaxError) and error.filename == FILENAME:
        return _at(error.lineno, f"Python cannot read this: {error.msg}.", source)
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == FILENAME]
    text = "\n".join(str(error).strip().splitlines()[:4])
    words = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return _at(lines[-1] if lines else None, words, source)


def _at(line: int | None, words: str, source: str) -> str:
    rows = source.splitlines()
    if not line or line > len(rows):
        return words
    return f"line {line}: {words}\n{line:>4} | {rows[line - 1]}"


@contextlib.contextmanager
def running() -> Iterator[io.StringIO]:
    """Runs a learner's function: what it prints is collected, and it is stopped at TIME_LIMIT_S.

    The limit needs the main thread and a POSIX system; elsewhere there is none.
    """
    printed = io.StringIO()
    timed = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop) if timed else None
    if timed:
        signal.setitimer(signal.ITIMER_REAL, TIME_LIMIT_S)
    try:
        with contextlib.redirect_stdout(printed):
            yield printed
    finally:
        if timed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
