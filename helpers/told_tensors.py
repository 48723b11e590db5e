"""Private names *: fake tensors that are on the card for Python, and on the CPU for C++."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.variables import builder
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.utils._pytree import tree_map

from helpers.composites import unchecked
from helpers.told import CARD, CPU, TOLD, only_elsewhere, set_state

_PRIM_DEVICE = torch.ops.prim.device.default
_CHECKS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)


def tensor_replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yields owner, name and replacement of what makes tensors and says where they are."""
    yield FakeTensor, "__torch_dispatch__", _told_cpp(FakeTensor.__torch_dispatch__)
    yield FakeTensor, "__new__", _moved(FakeTensor.__new__)
    convert = fake_tensor.FakeTensorConverter.from_real_tensor
    yield fake_tensor.FakeTensorConverter, "from_real_tensor", _made_fake(convert)
    for mode, name in ((FakeTensorMode, "dispatch"), (FunctionalTensorMode, "__torch_dispatch__"),
                       (ProxyTorchDispatchMode, "__torch_dispatch__")):  # fmt: skip
        yield mode, name, _redirected(getattr(mode, name))
    yield fake_tensor, "init_gpu_context", only_elsewhere(fake_tensor.init_gpu_context)
    yield fake_tensor, "run_fallback_kernel", _fallback_on_cpu(fake_tensor.run_fallback_kernel)
    yield FunctionalTensor, "__new__", _noted(FunctionalTensor.__new__)
    yield torch.Tensor, "_make_wrapper_subclass", _wrapper_with_keys()
    put = torch.ops.prims.device_put.default
    yield put, "_op", _constants_stay(put._op)
    wrap = builder.wrap_to_fake_tensor_and_record
    for module in (*vars(torch._dynamo.variables).values(), torch._dynamo.output_graph):
        if getattr(module, "wrap_to_fake_tensor_and_record", None) is wrap:
            yield module, "wrap_to_fake_tensor_and_record", _wrapped_as_on_card(wrap)


def metadata_handlers() -> dict[Any, Callable[..., Any]]:
    """Returns what answers C++ when it asks a fake tensor for its device."""
    handlers = fake_tensor._DISPATCH_META_HANDLERS
    return {_PRIM_DEVICE: _device_for_cpp(handlers[_PRIM_DEVICE])}


# What Python asks; else C++ would answer it. To be set on the classes.
ATTRIBUTES = (
    (FunctionalTensor, "device", property(lambda t: torch._from_functional_tensor(t.elem).device)),
    (FunctionalTensor, "is_cuda", property(lambda tensor: tensor.device.type == "cuda")),
    (FunctionalTensor, "is_cpu", property(lambda tensor: tensor.device.type == "cpu")),
    (FakeTensor, "is_cuda", property(lambda tensor: tensor.device.type == "cuda")),
    (FakeTensor, "is_cpu", property(lambda tensor: tensor.device.type == "cpu")),
)


def _device_for_cpp(original: Callable[..., Any]) -> Callable[..., Any]:
    """C++ asks for a tensor's device through this operator; Python reads the attribute."""

    def handler(args: Any) -> Any:
        if isinstance(args[0], FunctionalTensor):
            args = (torch._from_functional_tensor(args[0].elem),)
        device = original(args)
        return CPU if TOLD.active and device.type == "cuda" else device

    return handler


def _told_cpp(original: Callable[..., Any]) -> classmethod:
    def dispatch(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = original.__func__(cls, func, types, args, kwargs or {})
        return CPU if func is _PRIM_DEVICE and TOLD.active and out.type == "cuda" else out

    return classmethod(dispatch)


def _moved(original: Callable[..., Any]) -> staticmethod:
    def new(cls: type, mode: Any, elem: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        if TOLD.moving and torch.device(device).type == "cpu":
            device = CARD
        return original(cls, mode, elem, device, *args, **kwargs)

    return staticmethod(new)


def _wrapped_as_on_card(original: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers that Dynamo wraps as tensors stay on the CPU, as on a machine with a card."""

    def wrap(value: Any, *args: Any, is_tensor: bool, **kwargs: Any) -> Any:
        if TOLD.active and is_tensor and isinstance(value, torch.Tensor):
            TOLD.on_card[id(value)] = value
        return original(value, *args, is_tensor=is_tensor, **kwargs)

    return wrap


def _made_fake(original: Callable[..., Any]) -> Callable[..., Any]:
    def from_real_tensor(self: Any, mode: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        moving = TOLD.active and id(tensor) in TOLD.on_card
        with set_state("moving", moving):
            out = original(self, mode, tensor, *args, **kwargs)
        if moving:
            out.fake_device = CARD  # a view was given the device of the real tensor
        if moving and out.dim() == 0:
            out.item_memo = None  # the value of a tensor on a card is not at hand
        return out

    return from_real_tensor


def _noted(original: Callable[..., Any]) -> staticmethod:
    def new(cls: type, elem: Any, mode: Any) -> Any:
        with set_state(
            "wrapper_device", TOLD.active and torch._from_functional_tensor(elem).device
        ):
            return original(cls, elem, mode)

    return staticmethod(new)


def _wrapper_with_keys() -> staticmethod:
    """A functional tensor gets the card's dispatch keys (autocast), and asks for its device."""
    original = torch.Tensor._make_wrapper_subclass

    def make(cls: type, *args: Any, **kwargs: Any) -> Any:
        device = TOLD.wrapper_device
        if not device or device.type != "cuda" or not issubclass(cls, FunctionalTensor):
            return original(cls, *args, **kwargs)
        values = list(args)
        values[6], values[10] = device, True  # device, dispatch_device
        return original(cls, *values, **kwargs)

    return staticmethod(make)


def _redirected(original: Callable[..., Any]) -> Callable[..., Any]:
    """A device that C++ took from a tensor which it believes on the CPU is the card."""

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _CHECKS and TOLD.active and unchecked():
            return True
        if TOLD.redirect:
            args, kwargs = tree_map(_card_for_cpu, (args, kwargs))
        return original(self, func, types, args, kwargs)

    return dispatch


def _card_for_cpu(value: Any) -> Any:
    return CARD if isinstance(value, torch.device) and value.type == "cpu" else value


def _constants_stay(original: Callable[..., Any]) -> Callable[..., Any]:
    """A constant that is followed by its real value cannot be put on a card that is not here."""

    def put(tensor: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        real = type(tensor) is torch.Tensor and not torch._is_functional_tensor(tensor)
        if TOLD.active and real and torch.device(device).type == "cuda":
            return tensor.clone()
        return original(tensor, device, *args, **kwargs)

    return put


def _fallback_on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """An operator without a shape function is run to learn shapes: with CPU tensors, not here."""

    def run(mode: Any, func: Any, flat_args: Any, *args: Any, **kwargs: Any) -> Any:
        fakes = [v for v in flat_args if isinstance(v, FakeTensor) and v.fake_device == CARD]
        if not TOLD.active or not fakes:
            return original(mode, func, flat_args, *args, **kwargs)
        if func in _ONLY_ON_CARDS:
            with mode:
                return _ONLY_ON_CARDS[func](*flat_args)
        for fake in fakes:
            fake.fake_device = CPU
        try:
            with set_state("moving", True):
                return original(mode, func, flat_args, *args, **kwargs)
        finally:
            for fake in fakes:
                fake.fake_device = CARD

    return run


def _gru_cell(gates: Any, _: Any, hidden: Any, *biases: Any) -> tuple[Any, Any]:
    return torch.empty_like(hidden), gates.new_empty(hidden.shape[0], 5 * hidden.shape[1])


def _gru_cell_backward(grad: Any, workspace: Any, has_bias: bool) -> tuple[Any, ...]:
    batch, units = grad.shape
    bias = grad.new_empty(3 * units) if has_bias else None
    gates = [grad.new_empty(batch, 3 * units) for _ in range(2)]
    return (*gates, torch.empty_like(grad), bias, bias if bias is None else bias.clone())


# What these operators return, in shapes: they run on cards alone (ATen/native/cuda/RNN.cu).
_ONLY_ON_CARDS: dict[Any, Callable[..., tuple[Any, ...]]] = {
    torch.ops.aten._thnn_fused_gru_cell.default: _gru_cell,
    torch.ops.aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
}
