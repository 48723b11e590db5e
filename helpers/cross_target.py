"""Private names *: lets torch trace for a card that is not here.

Python sees a card: every tensor that reaches Dynamo becomes a fake tensor on `cuda:0`, so that
`x.device`, `x.is_cuda`, `.cuda()`, autocast and torch's Python decompositions behave as they do
there. C++ sees the CPU: the autograd engine asks a driver for streams as soon as a tensor claims to
be on a card. The two never meet, because C++ asks through `prim.device`, and Python through the
attribute. Composite operators that decide by device in C++ are replaced (`composites`).

What is replaced is replaced for one thread, and put back whatever happens inside.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch._higher_order_ops import triton_kernel_wrap
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _triton

from helpers.autocasting import autocast_as_on_card
from helpers.composites import composites_as_on
from helpers.targets import Target
from helpers.told import CARD, only_elsewhere, seeing_card, set_state
from helpers.told_graphs import graph_replacements, warm_up
from helpers.told_tensors import ATTRIBUTES, metadata_handlers, tensor_replacements


@contextlib.contextmanager
def told_devices(target: Target, mixed: list[str], lenient: bool = False) -> Iterator[list[str]]:
    """Traces its body, in this thread, as on a machine whose tensors are on a `target`.

    mixed: fills with the lines that mix devices; lenient: tensors that are made without a device
    go to the card, where they would stay on the CPU. Yields what is not as on the card, one
    sentence each.
    """
    warm_up()
    with contextlib.ExitStack() as stack:
        for kind, name, answer in ATTRIBUTES:
            stack.enter_context(mock.patch.object(kind, name, answer, create=True))
        for owner, name, value in _replacements():
            stack.enter_context(mock.patch.object(owner, name, value))
        handlers = fake_tensor._DISPATCH_META_HANDLERS
        stack.enter_context(mock.patch.dict(handlers, metadata_handlers()))
        FakeTensorMode.cache_clear()
        stack.callback(FakeTensorMode.cache_clear)
        stack.enter_context(composites_as_on(target))
        not_shown = stack.enter_context(autocast_as_on_card())
        told = {"active": True, "target": target, "lenient": lenient, "mixed": mixed, "on_card": {}}
        for name, value in told.items():  # put back after: calls may be nested
            stack.enter_context(set_state(name, value))
        yield [not_shown] if not_shown else []


@contextlib.contextmanager
def told_nothing() -> Iterator[list[str]]:
    """Traces its body as on this machine, also within a call that traces for a card."""
    with set_state("active", False), set_state("target", None):
        yield []


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yields owner, name and replacement of every name that tracing asks for a device."""
    yield from tensor_replacements()
    yield from graph_replacements()
    yield from _asked_of_cuda()
    yield triton_kernel_wrap, "generate_ttir", seeing_card(triton_kernel_wrap.generate_ttir)


def _asked_of_cuda() -> Iterator[tuple[Any, str, Any]]:
    """Yields what is asked of `torch.cuda` while tracing; Inductor's questions come later."""
    cuda = torch.cuda
    yield cuda, "_lazy_init", only_elsewhere(cuda._lazy_init)
    yield cuda, "current_device", only_elsewhere(cuda.current_device, 0)
    yield cuda, "is_bf16_supported", only_elsewhere(cuda.is_bf16_supported, True)
    yield cuda, "is_available", _is_available_traced
    never = cuda.amp.common.amp_definitely_not_available
    yield cuda.amp.common, "amp_definitely_not_available", only_elsewhere(never, False)
    yield _triton, "has_triton", only_elsewhere(_triton.has_triton, True)
    if not cuda.default_generators:  # a stand-in whose state can be copied and never runs
        yield cuda, "default_generators", (_CardGenerator(),)


class _CardGenerator(torch.Generator):
    """Stands for the card's random numbers where a graph takes their state as an input."""

    device = CARD  # type: ignore[assignment]

    def clone_state(self) -> _CardGenerator:
        return _CardGenerator()


_IS_AVAILABLE = torch.cuda.is_available


def _is_available_traced() -> bool:
    # Dynamo reads this line in the learner's code; torch itself, when it runs, must not believe it.
    return torch.compiler.is_dynamo_compiling() or _IS_AVAILABLE()
