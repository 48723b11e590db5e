"""Process-wide settings that a call may change: remembered, and put back."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import operator
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._device

_CONFIGS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")


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
    for name in _CONFIGS:
        if (config := sys.modules.get(name)) is not None:
            yield functools.partial(_restore_config, config, config.get_config_copy())


def _restore_config(config: Any, before: dict[str, Any]) -> None:
    for name, value in config.get_config_copy().items():
        if name in before and value != before[name]:
            setattr(config, name, before[name])


# What sets the value that `current_settings` read under the same name: getter and setter.
_PLAIN: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "num_threads": (torch.get_num_threads, torch.set_num_threads),
    "autocast_cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "anomaly": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "flash_sdp": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "math_sdp": (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    "mem_efficient_sdp": (
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
    ),
    "cudnn_sdp": (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
}
# Attributes that decide which kernels are chosen, by the path to their owner below torch.backends.
_ATTRIBUTES = (
    "cudnn.enabled", "cudnn.benchmark", "cudnn.deterministic", "mkldnn.enabled",
    "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "cuda.matmul.allow_bf16_reduced_precision_reduction",
)  # fmt: skip
# How much the compiler does at once is each process's own affair.
_OWN_CONFIG = ("compile_threads", "worker_start_method", "quiesce_async_compile_pool")


def current_settings() -> dict[str, Any]:
    """Returns what decides, in this thread, how a function is compiled and what it computes.

    Grad and inference mode, autocast, default dtype and device, float32 precision, determinism,
    attention back ends, threads, random states, and what was changed in torch's three configs.
    Values are plain data and tensors. "left_out": names of config values that cannot be packed.
    """
    configs, left_out = _changed_configs()
    numpy = sys.modules.get("numpy")
    return {
        "inference_mode": torch.is_inference_mode_enabled(),
        "grad": torch.is_grad_enabled(),
        "plain": {name: get() for name, (get, _) in _PLAIN.items()},
        "device": None if _default_device() is None else str(_default_device()),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "autocast": {
            device: (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in ("cpu", "cuda")
        },
        "attributes": {path: _get_path(path) for path in (*_ATTRIBUTES, *_precision_paths())},
        "matmul_precision": _matmul_precision(),
        "random": (
            torch.get_rng_state(),
            random.getstate(),
            numpy.random.get_state() if numpy is not None else None,
        ),
        "configs": configs,
        "left_out": left_out,
    }


def apply_settings(settings: dict[str, Any]) -> None:
    """Makes this thread's settings those that `current_settings` read, maybe elsewhere."""
    _set_inference_mode(settings["inference_mode"])
    torch._C._set_grad_enabled(settings["grad"])
    for name, value in settings["plain"].items():
        get, put = _PLAIN[name]
        if get() != value:
            put(value)
    if str(_default_device()) != str(settings["device"]):
        _set_default_device(settings["device"])
    enabled, warn_only = settings["deterministic"]
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    for device, (enabled, dtype) in settings["autocast"].items():
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    # The whole first: it may set its parts, which the attributes then put right.
    if settings["matmul_precision"] != _matmul_precision():
        _set_matmul_precision(settings["matmul_precision"])
    for path, value in settings["attributes"].items():
        if _get_path(path) != value:
            _set_path(path, value)
    for name, values in settings["configs"].items():
        config = importlib.import_module(name)
        for key, value in values.items():
            setattr(config, key, value)
    torch_state, python_state, numpy_state = settings["random"]
    torch.set_rng_state(torch_state)
    random.setstate(python_state)
    if numpy_state is not None:
        importlib.import_module("numpy").random.set_state(numpy_state)


_INFERENCE: list[Any] = []  # the guard that holds an inference mode which apply_settings set


def leave_inference_mode() -> None:
    """Leaves an inference mode that `apply_settings` entered, if any."""
    while _INFERENCE:
        _INFERENCE.pop().__exit__(None, None, None)


def _set_inference_mode(wanted: bool) -> None:
    if torch.is_inference_mode_enabled() != wanted:
        leave_inference_mode()
    if torch.is_inference_mode_enabled() != wanted:
        guard = torch.inference_mode(wanted)
        guard.__enter__()
        _INFERENCE.append(guard)


def _precision_paths() -> tuple[str, ...]:
    """Names where float32 precision is said: the whole before its parts."""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        return "cuda.matmul.allow_tf32", "cudnn.allow_tf32"
    owners = (
        "",
        "mkldnn.",
        "cudnn.",
        "cuda.matmul.",
        "mkldnn.matmul.",
        "cudnn.rnn.",
        "cudnn.conv.",
    )
    return tuple(f"{owner}fp32_precision" for owner in owners)


def _get_path(path: str) -> Any:
    return operator.attrgetter(path)(torch.backends)


def _set_path(path: str, value: Any) -> None:
    owner, _, name = path.rpartition(".")
    setattr(operator.attrgetter(owner)(torch.backends) if owner else torch.backends, name, value)


def _changed_configs() -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Returns by config what differs from its default, and the names of what cannot be packed."""
    from helpers.travel import CannotTravel, pack

    changed: dict[str, dict[str, Any]] = {}
    left_out = []
    for name in _CONFIGS:
        if (config := sys.modules.get(name)) is None:
            continue
        values = changed[name] = {}
        for key, value in config._get_dict(ignored_keys=_OWN_CONFIG, skip_default=True).items():
            try:
                if not isinstance(value, (bool, int, float, str, type(None))):
                    pack(value)
                values[key] = value
            except CannotTravel:
                left_out.append(f"{name}.{key}")
    return changed, left_out
