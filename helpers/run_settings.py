"""The settings under which a function runs: what must be equal before two times are compared."""

from __future__ import annotations

import functools
import itertools
import logging
import types
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from helpers.dynamo import compilation_count
from helpers.isolation import unwrap
from helpers.timing import MeasurementRefused

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


def refuse_one_shot(args: Any, kwargs: Mapping[str, Any]) -> None:
    """Raises MeasurementRefused for an argument that one call uses up.

    That is an iterator: a generator, map, zip, open file. itertools.count and cycle never end.
    """
    named = [(f"argument {place}", value) for place, value in enumerate(args, start=1)]
    named += [(f"argument {name}", value) for name, value in kwargs.items()]
    endless = (itertools.count, itertools.cycle)
    for name, value in named:
        if isinstance(value, Iterator) and not isinstance(value, endless):
            raise MeasurementRefused(
                f"The first call uses up {name}, a {type(value).__name__}.",
                "The later calls would find it empty, and their times be those of doing nothing.",
                "Pass a list, such as list(...), or make the iterator inside the function.",
            )


def refuse_not_run_yet(result: Any) -> None:
    """Raises MeasurementRefused if a call gave a generator or coroutine: its code runs later."""
    if not isinstance(result, (Iterator, AsyncIterator, Awaitable)):
        return
    getattr(result, "close", lambda: None)()  # else Python warns later that it was never awaited
    raise MeasurementRefused(
        f"The function returned a {type(result).__name__}, whose code has not run yet.",
        "The time would be that of making it and not of its work.",
        "Measure a function that does the work, such as lambda: list(f(x)), or for a coroutine "
        "lambda: asyncio.run(f(x)).",
    )


def compiled_parts(fn: Any) -> list[Any]:
    """Returns what torch.compile was given of a callable and of the functions that it reaches."""
    values = [fn, *reached(fn)]
    for value in values[1:]:
        values += reached(value) if isinstance(unwrap(value), types.FunctionType) else ()
    return [unwrap(value) for value in values if unwrap(value) is not value]


class RecompileLimits(logging.Filter):
    """Notes which functions hit their recompile limit, from the warning that Dynamo logs once.

    From then on a call that needs new code runs uncompiled and says nothing, until a reset.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hits: list[tuple[str, int]] = []  # (function and line, compilations by then)
        logging.getLogger("torch._dynamo.convert_frame").addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Lets every record pass."""
        if "hit config." in str(record.msg) and isinstance(record.args, tuple):
            self.hits.append((str(record.args[2]), compilation_count()))
        return True

    def refuse_earlier(self, fn: Any) -> None:
        """Raises MeasurementRefused if `fn` reaches what hit the limit since the last reset."""
        count = compilation_count()  # torch.compiler.reset puts it back to 0
        self.hits = [hit for hit in self.hits if hit[1] <= count]
        reached_names = [name for part in compiled_parts(fn) for name in _log_names(part)]
        self._refuse(name for name, _ in self.hits if name in reached_names)

    def refuse_new(self, before: int) -> None:
        """Raises MeasurementRefused if there are more than `before` hits now."""
        self._refuse(name for name, _ in self.hits[before:])

    def _refuse(self, names: Iterator[str]) -> None:
        for name in names:
            raise MeasurementRefused(
                f"The compiled function {name} hit its recompile limit and runs uncompiled now.",
                "The time would be that of ordinary Python under the name of compiled code.",
                "Keep fixed what changes from call to call (a number, a shape), call "
                "reset_compiler() and measure again, or pass dynamic=True to torch.compile.",
            )


def _log_names(part: Any) -> list[str]:
    """Returns the words by which Dynamo's warning names a function, or a module's forward."""
    fn = part.forward if isinstance(part, torch.nn.Module) else part
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return [f"'{code.co_name}' ({code.co_filename}:{code.co_firstlineno})"] if code else []


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
