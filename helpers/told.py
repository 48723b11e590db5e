"""What is told to the thread that traces for a card that is not here; others see torch as it is."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from helpers.pretended_driver import pretended_driver
from helpers.targets import Target

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)


class _Told(threading.local):
    """What is told to the thread that traces; other threads see torch as it is."""

    active = False  # this thread traces for a card
    on_card: dict[int, torch.Tensor]  # real tensors that stand for tensors on the card, by id
    moving = False  # one of them is being made fake
    redirect = False  # a CPU device that C++ asks for means the card
    wrapper_device: torch.device | None = None  # of the functional tensor being made
    target: Target | None = None  # the card that Inductor sees
    lenient = False  # tensors that the learner makes without a device go to the card
    mixed: list[str]  # lines that put a CPU tensor beside one of the card


TOLD = _Told()


@contextlib.contextmanager
def set_state(name: str, value: Any) -> Iterator[None]:
    """Sets one field of what is told to this thread, for the body."""
    before = getattr(TOLD, name, None)
    setattr(TOLD, name, value)
    try:
        yield
    finally:
        setattr(TOLD, name, before)


@contextlib.contextmanager
def inductor_sees_card() -> Iterator[None]:
    """Runs Inductor's own work: it is told of the card, and of every device as it is."""
    if TOLD.target is None:
        yield
        return
    with set_state("redirect", False), pretended_driver(TOLD.target):
        yield


def seeing_card(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `original`, run as Inductor's own work."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with inductor_sees_card():
            return original(*args, **kwargs)

    return call


def only_elsewhere(original: Callable[..., Any], here: Any = None) -> Callable[..., Any]:
    """Returns `original` for other threads; the one that traces gets `here` instead."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return here if TOLD.active else original(*args, **kwargs)

    if hasattr(original, "cache_clear"):  # what it remembers must go when the card changes
        call.cache_clear = original.cache_clear  # type: ignore[attr-defined]
    return call
