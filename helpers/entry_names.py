"""Names in guards as the learner knows them, where torch puts a frame of its own around a call.

For a module of a library, a callable object or a module with hooks, the frame that is compiled is
torch's wrapper `inner(*args, **kwargs)`; its guards speak of args[0] and fn.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._dynamo import external_utils

from helpers.guard_texts import Failure

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_\d+$")
_NUMBERED = re.compile(r"(?<=[A-Za-z_\]])\.(\d+)\b")


class EntryNames:
    """What the parameters of one function are called, and the function itself."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        called = fn.forward if isinstance(fn, torch.nn.Module) else fn
        self._function = getattr(called, "__name__", type(fn).__name__)
        self._parameters: list[str] = []
        with contextlib.suppress(TypeError, ValueError):  # a builtin without a signature
            self._parameters = [
                name
                for name, parameter in inspect.signature(called).parameters.items()
                if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            ]

    def function(self, code: types.CodeType) -> str:
        """Returns the name of the function that a frame belongs to."""
        return self._function if _is_wrapper(code) else _RESUMED.sub(r"\g<name>", code.co_name)

    def failure(self, failure: Failure, code: types.CodeType) -> Failure:
        """Returns `failure` in the learner's names."""
        if not _is_wrapper(code):
            return _with_words(failure, lambda text: _NUMBERED.sub(r"[\1]", text))
        if failure.what == "length" and failure.raw in ("L['args']", "L['kwargs']"):
            return replace(failure, what="calling", source=self._function)
        return _with_words(failure, self._renamed)

    def _renamed(self, text: str) -> str:
        text = re.sub(r"\bargs\[(\d+)\]", lambda m: self._parameter(int(m[1]), m[0]), text)
        text = re.sub(r"\bkwargs\['(\w+)'\]", r"\1", text)
        text = re.sub(r"\bfn(\.__self__)?\b(?=\.|$)", "self", text)
        return _NUMBERED.sub(r"[\1]", text)

    def _parameter(self, index: int, text: str) -> str:
        return self._parameters[index] if index < len(self._parameters) else text


def _is_wrapper(code: types.CodeType) -> bool:
    return code.co_filename == external_utils.__file__


def _with_words(failure: Failure, renamed: Callable[[str], str]) -> Failure:
    actual = failure.actual
    if failure.what == "relation" and isinstance(actual, dict):
        actual = {renamed(name): value for name, value in actual.items()}
    expected = renamed(failure.expected) if failure.what == "relation" else failure.expected
    source, text = renamed(failure.source), renamed(failure.text)
    return replace(failure, source=source, text=text, actual=actual, expected=expected)
