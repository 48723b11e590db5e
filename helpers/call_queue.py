"""A function and a queue of calls, each written as data, so that a game can show and run them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from helpers.typed_function import Problem, define, run_text

if TYPE_CHECKING:
    from helpers.recompiles import RecompileReport

LAYOUTS = ("as it is", "transposed")
GRADS = ("as usual", "under no_grad", "requires grad")
MOST_CALLS = 24  # each press runs the whole queue again, so a long one would become slow


@dataclass(frozen=True)
class CallCard:
    """One call: the tensor `x`, the grad mode, further arguments, and attributes set before it.

    shape and dtype of x before `layout` (one of LAYOUTS; transposed needs two dimensions);
    grad: one of GRADS; values: keyword arguments; attributes: set on the model before the call.
    """

    shape: tuple[int, ...] = (8, 3)
    dtype: str = "float32"
    layout: str = "as it is"
    grad: str = "as usual"
    values: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The call in a few words, such as "x: (3, 8), transposed · under no_grad"."""
        flipped = self.layout == "transposed"
        words = [f"x: {tuple(reversed(self.shape)) if flipped else self.shape} {self.dtype}"]
        words[0] += ", transposed" if flipped else ""
        words[0] += ", requires grad" if self.grad == "requires grad" else ""
        words += [f"{name}={value!r}" for name, value in self.values.items()]
        words += [f"after model.{name} = {value!r}" for name, value in self.attributes.items()]
        words += ["under no_grad"] if self.grad == "under no_grad" else []
        return " · ".join(words)

    def tensor(self, device: str = "cpu") -> torch.Tensor:
        """Returns x; the same numbers each time, and torch's random state stays as it is."""
        kind, dice = getattr(torch, self.dtype), torch.Generator().manual_seed(0)
        x = torch.randn(*self.shape, generator=dice).mul(3).to(device, kind)
        x = x.t() if self.layout == "transposed" else x
        return x.requires_grad_() if self.grad == "requires grad" else x

    def call(self, target: Callable[..., Any], device: str = "cpu") -> Callable[[Any], Any]:
        """Returns an entry of `calls` for `trace_recompiles`: it receives the compiled `target`."""
        x = self.tensor(device)
        quiet = torch.no_grad if self.grad == "under no_grad" else contextlib.nullcontext

        def run(compiled: Callable[..., Any]) -> Any:
            for name, value in self.attributes.items():
                setattr(target, name, value)
            with quiet():
                return compiled(x, **self.values)

        return run


@dataclass(frozen=True)
class CallQueue:
    """A round: its source text, the calls to foresee, and calls that were `made` before them.

    options: what torch.compile gets besides; hint: one sentence before the round.
    """

    title: str
    source: str
    cards: tuple[CallCard, ...]
    made: tuple[CallCard, ...] = ()
    made_text: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""

    def run(self, count: int | None = None, device: str = "cpu") -> RecompileReport:
        """Runs the first `count` cards (None: all) on a new copy, and returns what happened.

        The report's calls are those of `made` and then the cards. Problem if the text cannot be
        read or a card does not fit the function.
        """
        from helpers.recompiles import trace_recompiles

        cards = (*self.made, *self.cards[:count])
        if len(cards) > MOST_CALLS:
            raise Problem(f"A queue holds at most {MOST_CALLS} calls.")
        target = build(self.source)
        calls = [card.call(target, device) for card in cards]
        return trace_recompiles(target, calls, compile_options=dict(self.options))


def build(source: str) -> Callable[..., Any]:
    """Runs a text and returns its function, or an instance of its nn.Module; else Problem."""
    if "nn.Module" not in source:
        return define(source)
    names = run_text(source, "<model of the game>", torch=torch, nn=nn)
    models = [one for one in names.values() if inspect.isclass(one) and issubclass(one, nn.Module)]
    return models[-1]()


def fitting(source: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of `values` that the function in a text takes as arguments."""
    parameters: Sequence[str] = list(inspect.signature(build(source)).parameters)
    return {name: value for name, value in values.items() if name in parameters}
