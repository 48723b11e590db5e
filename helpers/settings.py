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
    for name in ("benchmark", "deterministic"):
        yield _put_back(torch.backends.cudnn, name)
    yield from _float32_precision()
    yield _changed_only(torch.get_num_threads, torch.set_num_threads)
    yield _changed_only(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly)
    yield _changed_only(_default_device, _set_default_device)


def _default_device() -> Any:
    """Returns the default device that was set, None where none was (torch has no public word)."""
    return torch.utils._device.CURRENT_DEVICE


def _set_default_device(device: Any) -> None:
    torch.set_default_device(device)
    context = torch._GLOBAL_DEVICE_CONTEXT
    if device is None and getattr(context, "device_context", 0) is None:
        del context.device_context  # torch 2.7 cannot say the default device while this is None


def _float32_precision() -> Iterator[Callable[[], None]]:
    """Yields what puts TF32 back, through the interface in use: torch refuses to mix the two."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if not hasattr(matmul, "fp32_precision"):
        yield _put_back(matmul, "allow_tf32")
        yield _put_back(cudnn, "allow_tf32")
    else:
        mkldnn = torch.backends.mkldnn
        # Parts before the whole, so that the whole is put back first: it may set its parts.
        for owner in (cudnn.conv, cudnn.rnn, mkldnn.matmul, matmul, cudnn, mkldnn, torch.backends):
            yield _put_back(owner, "fp32_precision")
    # Last, so that it is put back first: it sets the values above too.
    yield _changed_only(_matmul_precision, _set_matmul_precision)


def _matmul_precision() -> str | None:
    """Returns "highest", "high" or "medium", None where the newer interface says something else."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def _set_matmul_precision(precision: str | None) -> None:
    if precision is not None:
        torch.set_float32_matmul_precision(precision)


def _changed_only(get: Callable[[], Any], put: Callable[[Any], Any]) -> Callable[[], None]:
    """Returns what sets a value back, only if it changed: setting may have side effects."""
    before = get()

    def restore() -> None:
        if get() != before:
            put(before)

    return restore


def _put_back(owner: Any, name: str) -> Callable[[], None]:
    return _changed_only(lambda: getattr(owner, name), lambda value: setattr(owner, name, value))


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
