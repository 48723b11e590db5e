"""The settings under which a function runs: what must be equal before two times are compared."""

from __future__ import annotations

import functools
import types
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from helpers.isolation import unwrap

_DEPTH = 6  # of lists in dictionaries in lists ...; deeper nesting is not looked into


def tensors_in(value: Any, depth: int = _DEPTH) -> list[torch.Tensor]:
    """Returns the tensors in a value: alone, or in nested lists, tuples, sets, dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth == 0 or isinstance(value, (str, bytes)):
        return []
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (Sequence, set, frozenset)):
        return []
    return [tensor for item in value for tensor in tensors_in(item, depth - 1)]


def reached(fn: Any) -> Iterator[Any]:
    """Yields what a callable works with beside its arguments: itself if it is a module, the object
    of a bound method, what a partial holds, its closure, and the globals it names.
    """
    fn = unwrap(fn)
    if isinstance(fn, torch.nn.Module):
        yield fn
    elif isinstance(fn, functools.partial):
        yield from (*fn.args, *fn.keywords.values())
        yield from reached(fn.func)
    elif isinstance(fn, types.MethodType):
        yield fn.__self__
        yield from reached(fn.__func__)
    elif isinstance(fn, types.FunctionType):
        yield from (cell.cell_contents for cell in fn.__closure__ or () if _is_filled(cell))
        names = fn.__code__.co_names
        yield from (fn.__globals__[name] for name in names if name in fn.__globals__)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def modules_of(fn: Any, args: Any, kwargs: Any) -> list[torch.nn.Module]:
    """Returns the modules that a call works with, each once, in the order of finding."""
    found: dict[int, torch.nn.Module] = {}
    for value in (*reached(fn), *args, *kwargs.values()):
        # A function that is called by name or closure may hold the model in turn.
        inner = reached(value) if isinstance(unwrap(value), types.FunctionType) else ()
        for module in (unwrap(value), *map(unwrap, inner)):
            if isinstance(module, torch.nn.Module):
                found[id(module)] = module
    return list(found.values())


def cards_of(*values: Any, modules: Sequence[torch.nn.Module] = ()) -> tuple[int, ...]:
    """Returns the numbers of the CUDA devices that values and module parameters are on, sorted."""
    tensors = [tensor for value in values for tensor in tensors_in(value)]
    for module in modules:
        tensors += [*module.parameters(), *module.buffers()]
    return tuple(sorted({tensor.device.index or 0 for tensor in tensors if tensor.is_cuda}))


def cards_of_call(fn: Any, args: Any, kwargs: Any) -> tuple[int, ...]:
    """Returns the numbers of the CUDA devices that a call is seen to use before it is made."""
    values = [
        value for value in reached(fn) if isinstance(value, (torch.Tensor, list, tuple, dict))
    ]
    return cards_of(args, kwargs, values, modules=modules_of(fn, args, kwargs))


def read_settings(fn: Any, args: Any, kwargs: Any, device: str) -> dict[str, Any]:
    """Returns name and value of each setting, now. `device`: the device's name, taken as it is.

    Values are plain (texts, numbers, tuples), so that they compare and can be saved.
    """
    tensors = tensors_in((args, kwargs))
    modules = modules_of(fn, args, kwargs)
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return {
        "device": device,
        "dtypes": tuple(_short(tensor.dtype) for tensor in tensors),
        "shapes": tuple(tuple(tensor.shape) for tensor in tensors),
        "memory layout (strides)": tuple(_strides(tensor) for tensor in tensors),
        "inputs that require grad": tuple(tensor.requires_grad for tensor in tensors),
        "dtypes of parameters": tuple(sorted({_short(one.dtype) for one in parameters})),
        "layout of parameters": _digest(_strides(one) for one in parameters),
        "train or eval": tuple(_training(module) for module in modules),
        **_torch_settings(),
    }


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | str:
    return tuple(tensor.stride()) if tensor.layout == torch.strided else str(tensor.layout)


def _digest(values: Iterator[Any]) -> str:
    # A model has hundreds of them: enough to see that they differ.
    return f"{zlib.crc32(repr(list(values)).encode()):08x}"


def _training(module: torch.nn.Module) -> str:
    flags = [part.training for part in module.modules()]
    if all(flags):
        return "train"
    return f"{sum(flags)} of {len(flags)} parts in train" if any(flags) else "eval"


def _ask(question: Callable[[], Any]) -> Any:
    """Returns the answer; from torch 2.9 on, asking for a setting under its old name may raise."""
    try:
        return question()
    except (RuntimeError, AttributeError):
        return "not told by this torch"


def _tf32(backend: Any) -> Any:
    # 2.9 replaced allow_tf32 by fp32_precision; reading the old name after writing the new raises.
    if hasattr(backend, "fp32_precision"):
        return _ask(lambda: backend.fp32_precision)
    return _ask(lambda: backend.allow_tf32)


def _torch_settings() -> dict[str, Any]:
    """Returns torch's own switches that change what a call computes or how long it takes."""
    cudnn = torch.backends.cudnn
    autocast = [
        _short(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else "off"
        for kind in ("cpu", "cuda")
    ]
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "autocast (cpu, cuda)": tuple(autocast),
        "TF32 in matrix products": _tf32(torch.backends.cuda.matmul),
        "TF32 in convolutions": _tf32(getattr(cudnn, "conv", cudnn)),
        "matrix product precision": _ask(torch.get_float32_matmul_precision),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn.benchmark": cudnn.benchmark,
        "threads": torch.get_num_threads(),
    }


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Returns one text for each setting that differs: its name and both values."""
    names = [*first, *(name for name in second if name not in first)]
    return [
        f"{name}: {first.get(name, 'not known')} and {second.get(name, 'not known')}"
        for name in names
        if first.get(name) != second.get(name)
    ]
