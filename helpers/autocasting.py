"""Autocast's casts as on a card, while torch traces for a card that is not here.

ATen's kernels for the key `AutocastCUDA` ask every tensor `is_cuda()`. C++ is told "cpu" while we
trace, and they would cast nothing. For that time the operators on CUDA's autocast lists get kernels
in Python that follow the same policies. The lists are read from the header of the installed torch
(ATen/autocast_mode.h, the `AT_FORALL_` macros), so they are those of its version. Uses private
names of torch (`py_kernels` and `_dispatch_cache` of operators, guards of `torch._C`).

Casts of weights are not remembered within a region: torch itself switches that memory off while
it makes a graph (`disable_autocast_cache` in torch/fx/experimental/proxy_tensor.py).
`binary_cross_entropy`, which autocast refuses, keeps ATen's kernel: it asks no tensor anything.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
AUTOCAST = DispatchKey.AutocastCUDA
FLOAT, DOUBLE = torch.float32, torch.float64
Kernel = Callable[..., Any]
# The policies by the macro that lists their operators.
POLICIES = {
    "AT_FORALL_LOWER_PRECISION_FP": "lower_precision_fp",
    "AT_FORALL_FP32": "fp32",
    "AT_FORALL_FP32_SET_OPT_DTYPE": "fp32_set_opt_dtype",
    "AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE": "fp32_append_dtype",
    "AT_FORALL_PROMOTE": "promote",
}
# Registered beside the lists, in ATen/autocast_mode.cpp.
BESIDE_THE_LISTS = {
    "aten::cudnn_convolution": "lower_precision_fp",
    "aten::cudnn_convolution_transpose": "lower_precision_fp",
    "aten::linalg_matrix_sqrth": "fp32",
}
NOT_SHOWN = (
    "Autocast's casts on a card are not shown: the file that lists its operators, "
    "ATen/autocast_mode.h, {problem} in the installed torch."
)


# -- the lists


def _header() -> Path:
    return Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def read_lists(text: str) -> dict[str, str]:
    """Return the policy by operator name ("aten::mm"), from the header's text.

    Raises ValueError, with the macro's name, when a list is not there.
    """
    found = dict(BESIDE_THE_LISTS)
    joined = text.replace("\\\n", " ")
    for macro, policy in POLICIES.items():
        body = re.search(rf"^#define {macro}\(_\)(.*)$", joined, re.MULTILINE)
        names = _names(body.group(1)) if body else []
        if not names:
            raise ValueError(macro)
        found.update(dict.fromkeys(names, policy))
    return found


def _names(body: str) -> list[str]:
    """Return the names in a list: `_(pow, Scalar)`, or with the name in quotes and signatures."""
    quoted = re.findall(r'_\(\s*ADD_NS\(\w+\)\s*,\s*"([\w.]+)"', body)
    plain = re.findall(r"_\(\s*(\w+)\s*(?:,\s*(\w+)\s*)?\)", body)
    names = quoted or [f"{name}.{overload}" if overload else name for name, overload in plain]
    return [f"aten::{name}" for name in names]


def operator_named(name: str) -> Any:
    """Return the operator of a name like "aten::pow.Scalar", or None where torch has none."""
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(aten, packet, None), overload or "default", None)


@functools.cache
def KERNELS() -> dict[Any, Kernel]:
    """Return the kernels in Python by operator. OSError without header, ValueError without list."""
    kernels = {}
    for name, policy in read_lists(_header().read_text(encoding="utf-8")).items():
        operator = operator_named(name)
        if operator is not None:
            kernels[operator] = _MAKERS[policy](operator)
    return kernels


# -- the policies (struct WrapFunction_ in the header)


def _on_card(tensor: Any) -> bool:
    """is_autocast_eligible: as Python sees the tensor's device."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.device.type == "cuda"
        and tensor.is_floating_point()
    )


def _eligible(tensor: Any) -> bool:
    """is_eligible: float64 is left alone."""
    return _on_card(tensor) and tensor.dtype != DOUBLE


def _cast(dtype: torch.dtype, value: Any) -> Any:
    """cached_cast, without its cache."""
    if isinstance(value, (list, tuple)):
        return [_cast(dtype, one) for one in value]
    return aten.to.dtype(value, dtype) if _eligible(value) and value.dtype != dtype else value


def _without_autocast() -> Any:
    """Excludes the one key that ATen's kernels exclude."""
    return torch._C._ExcludeDispatchKeyGuard(DispatchKeySet(AUTOCAST))


def _cast_all(operator: Any, dtype: torch.dtype, args: Any, kwargs: Any) -> Any:
    """Calls with every tensor cast; lists of optional tensors (indices) are passed on as they are.

    The last argument is cast first: so does the compiled C++, and kernels follow that order.
    """
    arguments = operator._schema.arguments
    given = dict(zip((argument.name for argument in arguments), args, strict=False)) | kwargs
    for argument in reversed(arguments):
        if argument.name in given and not _of_optionals(argument):
            given[argument.name] = _cast(dtype, given[argument.name])
    return operator(**given)


def _of_optionals(argument: Any) -> bool:
    return str(argument.type) == "List[Optional[Tensor]]"


def _lower_precision_fp(operator: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            return _cast_all(operator, torch.get_autocast_dtype("cuda"), args, kwargs)

    return kernel


def _fp32(operator: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            return _cast_all(operator, FLOAT, args, kwargs)

    return kernel


def _fp32_set_opt_dtype(operator: Any) -> Kernel:
    names = [argument.name for argument in operator._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            given = dict(zip(names, args, strict=False)) | kwargs
            if _eligible(given[names[0]]) and given.get("dtype") is None:
                given["dtype"] = FLOAT
            return operator(**given)

    return kernel


def _fp32_append_dtype(operator: Any) -> Kernel:
    """Calls the overload that takes a dtype, too: of norm, the only operator on this list."""
    overload = operator._overloadname
    name = "ScalarOpt_dtype" if overload == "Scalar" else f"{overload}_dtype"
    typed = getattr(operator.overloadpacket, name)
    arguments = operator._schema.arguments

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            given = {a.name: a.default_value for a in arguments if a.has_default_value()}
            given |= dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
            first = given[arguments[0].name]
            return typed(**given, dtype=FLOAT if _eligible(first) else first.dtype)

    return kernel


def _promote(operator: Any) -> Kernel:
    arguments = operator._schema.arguments
    # In order: the first tensors decide whether a third dtype is an error.
    asked = [a.name for a in arguments if str(a.type) in ("Tensor", "List[Tensor]")]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with _without_autocast():
            given = dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
            widest = torch.get_autocast_dtype("cuda")
            for tensor in tree_leaves([given.get(name) for name in asked]):
                widest = _prioritized(widest, tensor)
            return _cast_all(operator, widest, args, kwargs)

    return kernel


def _prioritized(widest: torch.dtype, tensor: Any) -> torch.dtype:
    """prioritize: float32 before the lower precision; optional tensors are not asked."""
    if widest == DOUBLE:
        raise RuntimeError("promote type is double in at::autocast::prioritize")
    if not _eligible(tensor):
        return widest
    if FLOAT in (widest, tensor.dtype):
        return FLOAT
    if widest == tensor.dtype == torch.get_autocast_dtype("cuda"):
        return widest
    raise RuntimeError("Unexpected floating ScalarType in at::autocast::prioritize")


_MAKERS = {
    "lower_precision_fp": _lower_precision_fp,
    "fp32": _fp32,
    "fp32_set_opt_dtype": _fp32_set_opt_dtype,
    "fp32_append_dtype": _fp32_append_dtype,
    "promote": _promote,
}


@contextlib.contextmanager
def autocast_as_on_card() -> Iterator[str]:
    """Casts as autocast does on a card, for the body; then all is as before.

    Yields a sentence where the lists cannot be read (nothing is cast then), else an empty string.
    The operators are the process's: a second thread that traces meanwhile gets these kernels too
    (they leave tensors alone that do not say they are on a card).
    """
    kernels, problem = {}, ""
    try:
        kernels = KERNELS()
    except OSError:
        problem = NOT_SHOWN.format(problem="is missing or unreadable")
    except ValueError as error:
        problem = NOT_SHOWN.format(problem=f"has no {error}")
    before = {operator: operator.py_kernels.get(AUTOCAST) for operator in kernels}
    try:
        for operator, kernel in kernels.items():
            operator.py_kernels[AUTOCAST] = kernel
            operator._dispatch_cache.clear()
        yield problem
    finally:
        for operator, kernel in before.items():
            if kernel is None:
                operator.py_kernels.pop(AUTOCAST, None)
            else:
                operator.py_kernels[AUTOCAST] = kernel
            operator._dispatch_cache.clear()
