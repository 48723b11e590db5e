"""ATen's composite operators that ask for the device in C++, as CUDA tensors would take them apart.

While torch traces for a card that is not here, C++ is told "cpu" and Python "cuda". Composite
operators that decide by device in C++ get kernels in Python for that time. Which ones: those
whose operators differed between fake CPU and fake CUDA tensors, over 200 functions, forward and
with gradients. Uses private names of torch (`py_kernels` and `_dispatch_cache` of operators).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C import DispatchKey

from helpers.attention import HasCapability, attention_for, attention_math

aten = torch.ops.aten
COMPOSITE = DispatchKey.CompositeImplicitAutograd
Kernel = Callable[..., Any]


# -- conversions: nothing to do gives the very same tensor


def _converted(
    tensor: torch.Tensor,
    dtype: torch.dtype | None,
    device: Any,
    non_blocking: bool,
    copy: bool,
    memory_format: torch.memory_format | None,
    layout: torch.layout | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    if not isinstance(tensor, torch.Tensor):  # constants are folded with plain numbers, too
        tensor = torch.scalar_tensor(tensor)
    device = _with_index(torch.device(device)) if device is not None else None
    same = (
        (dtype is None or tensor.dtype == dtype)
        and (device is None or tensor.device == device)
        and (layout is None or tensor.layout == layout)
        and memory_format in (None, torch.preserve_format)
        and not copy
        and not pin_memory
    )
    if same or (not copy and _laid_out(tensor, dtype, device, layout, memory_format)):
        return tensor
    asked = {
        "dtype": dtype,
        "layout": layout,
        "device": device,
        "pin_memory": pin_memory,
        "memory_format": memory_format,
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    return aten._to_copy.default(tensor, non_blocking=non_blocking, **asked)


def _with_index(device: torch.device) -> torch.device:
    """Return the device with the number that a bare "cuda" means: the one card there is."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", 0)
    return device


def _laid_out(tensor: torch.Tensor, dtype: Any, device: Any, layout: Any, wanted: Any) -> bool:
    """Return whether the tensor already is what was asked for, memory format included."""
    if wanted in (None, torch.preserve_format):
        return False
    kept = (dtype in (None, tensor.dtype), device in (None, tensor.device), layout is None)
    return all(kept) and tensor.is_contiguous(memory_format=wanted)


def _to_device(self, device, dtype, non_blocking=False, copy=False, memory_format=None):
    return _converted(self, dtype, device, non_blocking, copy, memory_format)


def _to_dtype(self, dtype, non_blocking=False, copy=False, memory_format=None):
    return _converted(self, dtype, None, non_blocking, copy, memory_format)


def _to_dtype_layout(
    self,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=None,
    non_blocking=False,
    copy=False,
    memory_format=None,
):
    return _converted(*(self, dtype, device, non_blocking, copy, memory_format, layout, pin_memory))


def _to_other(self, other, non_blocking=False, copy=False, memory_format=None):
    return _converted(self, other.dtype, other.device, non_blocking, copy, memory_format)


def _type_as(self, other):
    return _converted(self, other.dtype, other.device, False, False, None)


# -- softmax, which on a card reads fp16 and writes fp32 in one go


def _softmax_for(operator: Any) -> Kernel:
    def softmax(self, dim, dtype=None):
        both = self.dtype == torch.float16 and dtype == torch.float32
        if both and self.device.type == "cuda":
            return operator(self, dim, True)
        converted = self if dtype is None else self.to(dtype)
        return operator(converted, dim, False)

    return softmax


# -- cells of recurrent networks, whose gates are one kernel on a card


def _lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    if input.device.type != "cuda":
        arguments = (input, hx, w_ih, w_hh, b_ih, b_hh)
        return aten.lstm_cell.default._op_dk(COMPOSITE, *arguments)
    hidden, cell = hx
    from_input = aten.matmul.default(input, w_ih.t())
    from_hidden = aten.matmul.default(hidden, w_hh.t())
    out = aten._thnn_fused_lstm_cell.default(from_input, from_hidden, cell, b_ih, b_hh)
    return out[0], out[1]


def _gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    if input.device.type != "cuda":
        return aten.gru_cell.default._op_dk(COMPOSITE, input, hx, w_ih, w_hh, b_ih, b_hh)
    from_input = aten.matmul.default(input, w_ih.t())
    from_hidden = aten.matmul.default(hx, w_hh.t())
    return aten._thnn_fused_gru_cell.default(from_input, from_hidden, hx, b_ih, b_hh)[0]


# -- quantiles, whose q is read and checked on the CPU only (ATen/native/Sorting.cpp)

_UNCHECKED = threading.local()


def unchecked() -> bool:
    """Returns whether a check of values is under way in this thread that a card does not make."""
    return getattr(_UNCHECKED, "now", False)


def _without_check(operator: Any) -> Kernel:
    def quantile(self, *args, **kwargs):
        _UNCHECKED.now = self.device.type == "cuda"
        try:
            return operator._op_dk(COMPOSITE, self, *args, **kwargs)
        finally:
            _UNCHECKED.now = False

    return quantile


def KERNELS(target: HasCapability) -> dict[Any, Kernel]:
    """Return the kernels in Python by operator, for a card with that `capability`."""
    return {
        aten.scaled_dot_product_attention.default: attention_for(target),
        aten._scaled_dot_product_attention_math.default: attention_math,
        aten.softmax.int: _softmax_for(aten._softmax.default),
        aten.log_softmax.int: _softmax_for(aten._log_softmax.default),
        aten.to.device: _to_device,
        aten.to.dtype: _to_dtype,
        aten.to.dtype_layout: _to_dtype_layout,
        aten.to.other: _to_other,
        aten.type_as.default: _type_as,
        aten.lstm_cell.default: _lstm_cell,
        aten.gru_cell.default: _gru_cell,
        **{
            operator: _without_check(operator)
            for packet in (aten.quantile, aten.nanquantile)
            for operator in (packet.default, packet.scalar)
        },
    }


@contextlib.contextmanager
def composites_as_on(target: HasCapability) -> Iterator[None]:
    """Takes composite operators apart as that card would, for the body; then all is as before.

    The operators are the process's: a second thread that traces meanwhile gets these kernels too
    (they leave tensors alone that do not say they are on a card).
    """
    kernels = KERNELS(target)
    before = {operator: operator.py_kernels.get(COMPOSITE) for operator in kernels}
    try:
        for operator, kernel in kernels.items():
            operator.py_kernels[COMPOSITE] = kernel
            operator._dispatch_cache.clear()
        yield
    finally:
        for operator, kernel in before.items():
            if kernel is None:
                operator.py_kernels.pop(COMPOSITE, None)
            else:
                operator.py_kernels[COMPOSITE] = kernel
            operator._dispatch_cache.clear()
