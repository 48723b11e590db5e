"""Process-wide settings that a call may change: remembered, and put back."""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def kept_settings() -> Iterator[None]:
    """Puts, after its body, grad mode, numeric settings, warnings, logging and configs back."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        for restore in (*_torch_settings(), *_loggers(), *_configs()):
            stack.callback(restore)
        yield


def random_states() -> Iterator[Callable[[], None]]:
    """Yields a function for each generator of random numbers, which sets it back to now."""
    yield functools.partial(torch.set_rng_state, torch.get_rng_state())
    if torch.cuda.is_initialized():
        yield functools.partial(torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all())
    yield functools.partial(random.setstate, random.getstate())
    if (numpy := sys.modules.get("numpy")) is not None:
        yield functools.partial(numpy.random.set_state, numpy.random.get_state())


def _torch_settings() -> Iterator[Callable[[], None]]:
    yield functools.partial(torch._C._set_grad_enabled, torch.is_grad_enabled())
    yield functools.partial(torch.set_default_dtype, torch.get_default_dtype())
    yield functools.partial(
        torch.use_deterministic_algorithms,
        torch.are_deterministic_algorithms_enabled(),
        warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    for device in ("cpu", "cuda"):
        enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        yield functools.partial(torch.set_autocast_enabled, device, enabled)
        yield functools.partial(torch.set_autocast_dtype, device, dtype)
    yield _put_back(torch.backends.cuda.matmul, "allow_tf32")
    for name in ("allow_tf32", "benchmark", "deterministic"):
        yield _put_back(torch.backends.cudnn, name)


def _put_back(owner: Any, name: str) -> Callable[[], None]:
    """Returns what sets one attribute back, only if it changed: setting may have side effects."""
    before = getattr(owner, name)

    def restore() -> None:
        if getattr(owner, name) != before:
            setattr(owner, name, before)

    return restore


def _loggers() -> Iterator[Callable[[], None]]:
    named = [
        log for log in logging.root.manager.loggerDict.values() if isinstance(log, logging.Logger)
    ]
    for logger in (logging.root, *named):
        state = (logger.level, logger.disabled, logger.propagate, list(logger.handlers))
        yield functools.partial(_restore_logger, logger, *state)


def _restore_logger(
    logger: logging.Logger, level: int, disabled: bool, propagate: bool, handlers: list[Any]
) -> None:
    if logger.level != level:
        logger.setLevel(level)
    logger.disabled, logger.propagate = disabled, propagate
    logger.handlers[:] = handlers


def _configs() -> Iterator[Callable[[], None]]:
    for name in ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config"):
        if (config := sys.modules.get(name)) is not None:
            yield functools.partial(_restore_config, config, config.get_config_copy())


def _restore_config(config: Any, before: dict[str, Any]) -> None:
    for name, value in config.get_config_copy().items():
        if name in before and value != before[name]:
            setattr(config, name, before[name])
