"""What every advice on a recompilation is made of: how values and places are called."""

from __future__ import annotations

import re
import types
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo

from helpers.guard_texts import Failure
from helpers.guards import BEFORE_BREAK

_SHOWN = 60  # characters of a value in a sentence


@dataclass(frozen=True)
class Advice:
    """Plain words on one thing that differs: reason, fix, will_repeat (see Recompile)."""

    reason: str
    fix: str
    will_repeat: bool


@dataclass(frozen=True)
class Setting:
    """What else is known of a compilation.

    code: of the frame; dynamic: what is symbolic in the new graph, as Dynamo's sources; options:
    what torch.compile was given.
    """

    code: types.CodeType
    dynamic: Collection[str] = ()
    options: dict[str, Any] = field(default_factory=dict)


def shown(value: Any) -> str:
    """Returns a value as a short text."""
    if isinstance(value, torch.Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    if isinstance(value, torch.nn.Module):
        return f"a {type(value).__name__}"
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        text = ", ".join(shown(member) for member in value)
        text = f"[{text}]" if isinstance(value, list) else f"({text})"
        return _cut(text)
    if isinstance(value, (types.FunctionType, type)):
        return f"the {'class' if isinstance(value, type) else 'function'} {value.__name__}"
    return _cut(re.sub(r" at 0x[0-9a-f]+", "", repr(value)))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _root(failure: Failure) -> str:
    match = re.match(r"""[LG]\[['"]([^'"]+)['"]\]""", failure.raw)
    return match[1] if match else failure.source


def place(failure: Failure, setting: Setting) -> str:
    """Returns what kind of thing a guard protects: "argument", "attribute", ..."""
    if ".param_groups" in failure.raw:
        return "setting of the optimizer"
    if failure.owner == "class":
        return "class attribute"
    if BEFORE_BREAK in failure.source:
        return "value"
    if re.search(r"\.\w+$", failure.source):
        return "attribute"
    if failure.source.endswith("]"):
        return "member"
    if failure.raw.startswith("G["):
        return "global variable"
    if "__closure__" in failure.raw or _root(failure) in setting.code.co_freevars:
        return "variable of the enclosing function"
    return "argument"


def rows(number: Any) -> str:
    return f"{number} row" + ("" if number == 1 else "s")


def zero_or_one(reason: str, failure: Failure, what: str) -> Advice:
    return Advice(
        f"{reason} Sizes 0 and 1 are special: each is always compiled separately, even when the "
        "size is dynamic.",
        f"Avoid it: drop_last=True, or pad {failure.source or 'it'} so that {what} is at least 2. "
        "Otherwise accept one more graph for it: it happens once.",
        False,
    )


def first_up(text: str) -> str:
    return text[:1].upper() + text[1:]
