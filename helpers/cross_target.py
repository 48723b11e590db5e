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
import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch._dynamo
import torch._inductor.compile_fx as compile_fx_module
from torch._dynamo.variables import builder
from torch._higher_order_ops import triton_kernel_wrap
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.fx.experimental.symbolic_shapes import PropagateUnbackedSymInts
from torch.utils import _triton
from torch.utils._pytree import tree_leaves, tree_map

from helpers.autocasting import autocast_as_on_card
from helpers.composites import composites_as_on, unchecked
from helpers.pretended_driver import pretended_driver
from helpers.targets import Target

CPU, CARD = torch.device("cpu"), torch.device("cuda", 0)
_PRIM_DEVICE = torch.ops.prim.device.default
_READ_VALUE = torch.ops.aten._local_scalar_dense.default
_MIXED = ("two different devices", "same device")  # what torch says of a CPU tensor beside a card's


class _State(threading.local):
    """What is told to the thread that traces; other threads see torch as it is."""

    active = False  # this thread traces for a card
    on_card: dict[int, torch.Tensor]  # real tensors that stand for tensors on the card, by id
    moving = False  # one of them is being made fake
    redirect = False  # a CPU device that C++ asks for means the card
    wrapper_device: torch.device | None = None  # of the functional tensor being made
    target: Target | None = None  # the card that Inductor sees
    lenient = False  # tensors that the learner makes without a device go to the card
    mixed: list[str]  # lines that put a CPU tensor beside one of the card


_STATE = _State()


@contextlib.contextmanager
def set_state(name: str, value: Any) -> Iterator[None]:
    """Sets one field of what is told to this thread, for the body."""
    before = getattr(_STATE, name)
    setattr(_STATE, name, value)
    try:
        yield
    finally:
        setattr(_STATE, name, before)


@contextlib.contextmanager
def told_devices(target: Target, lenient: bool = False) -> Iterator[list[str]]:
    """Traces its body, in this thread, as on a machine whose tensors are on a `target`.

    Yields a list that fills with the lines that mix devices, as they would on the card; `lenient`
    puts tensors that are made without a device on the card instead.
    """
    _warm_up()
    _STATE.mixed, _STATE.on_card = [], {}
    with contextlib.ExitStack() as stack:
        for kind, name, answer in _ATTRIBUTES:  # else C++ would answer Python, too
            stack.enter_context(mock.patch.object(kind, name, answer, create=True))
        for owner, name, value in _replacements():
            stack.enter_context(mock.patch.object(owner, name, value))
        handlers = fake_tensor._DISPATCH_META_HANDLERS
        stack.enter_context(
            mock.patch.dict(handlers, {_PRIM_DEVICE: _device_for_cpp(handlers[_PRIM_DEVICE])})
        )
        FakeTensorMode.cache_clear()
        stack.callback(FakeTensorMode.cache_clear)
        stack.enter_context(composites_as_on(target))
        stack.enter_context(autocast_as_on_card())
        stack.enter_context(set_state("active", True))
        stack.enter_context(set_state("target", target))
        stack.enter_context(set_state("lenient", lenient))
        yield _STATE.mixed


def _warm_up() -> None:
    """Lets Inductor trace its patterns once, before anything is told: on fakes of the CPU."""
    for module in (joint_graph, post_grad):
        module.lazy_init()


def _patterns_of_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """The patterns are the same for every device, and a card's cannot be traced here."""
    return lambda device=None: original() if _STATE.active else original(device)


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yields owner, name and replacement of every name that tracing asks for a device."""
    yield FakeTensor, "__torch_dispatch__", _told_cpp(FakeTensor.__torch_dispatch__)
    yield FakeTensor, "__new__", _moved(FakeTensor.__new__)
    convert = fake_tensor.FakeTensorConverter.from_real_tensor
    yield fake_tensor.FakeTensorConverter, "from_real_tensor", _made_fake(convert)
    for mode, name in ((FakeTensorMode, "dispatch"), (FunctionalTensorMode, "__torch_dispatch__"),
                       (ProxyTorchDispatchMode, "__torch_dispatch__")):  # fmt: skip
        yield mode, name, _redirected(getattr(mode, name))
    yield fake_tensor, "init_gpu_context", _only_elsewhere(fake_tensor.init_gpu_context)
    yield fake_tensor, "run_fallback_kernel", _fallback_on_cpu(fake_tensor.run_fallback_kernel)
    yield from _asked_of_cuda()
    identify = triton_kernel_wrap.identify_mutated_tensors
    yield triton_kernel_wrap, "identify_mutated_tensors", _seeing_card(identify)
    yield FunctionalTensor, "__new__", _noted(FunctionalTensor.__new__)
    yield torch.Tensor, "_make_wrapper_subclass", _wrapper_with_keys()
    wrap = builder.wrap_to_fake_tensor_and_record
    for module in (*vars(torch._dynamo.variables).values(), torch._dynamo.output_graph):
        if getattr(module, "wrap_to_fake_tensor_and_record", None) is wrap:
            yield module, "wrap_to_fake_tensor_and_record", _wrapped_as_on_card(wrap)
    for passes in (joint_graph, post_grad):
        yield passes, "lazy_init", _patterns_of_cpu(passes.lazy_init)
    yield torch._dynamo.utils, "run_node", _dynamo_node(torch._dynamo.utils.run_node)
    yield PropagateUnbackedSymInts, "run_node", _aot_node(PropagateUnbackedSymInts.run_node)
    yield (
        compile_fx_module,
        "_recursive_joint_graph_passes",
        _folding_on_cpu(compile_fx_module._recursive_joint_graph_passes),
    )


def _asked_of_cuda() -> Iterator[tuple[Any, str, Any]]:
    """Yields what is asked of `torch.cuda` while tracing; Inductor's questions come later."""
    cuda = torch.cuda
    yield cuda, "_lazy_init", _only_elsewhere(cuda._lazy_init)
    yield cuda, "current_device", _only_elsewhere(cuda.current_device, 0)
    yield cuda, "is_bf16_supported", _only_elsewhere(cuda.is_bf16_supported, True)
    yield cuda, "is_available", _is_available_traced
    never = cuda.amp.common.amp_definitely_not_available
    yield cuda.amp.common, "amp_definitely_not_available", _only_elsewhere(never, False)
    yield _triton, "has_triton", _only_elsewhere(_triton.has_triton, True)
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


def _seeing_card(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with inductor_sees_card():
            return original(*args, **kwargs)

    return call


def _fallback_on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """An operator without a shape function is run to learn shapes: with CPU tensors, not here."""

    def run(mode: Any, func: Any, flat_args: Any, *args: Any, **kwargs: Any) -> Any:
        fakes = [v for v in flat_args if isinstance(v, FakeTensor) and v.fake_device == CARD]
        if not _STATE.active or not fakes:
            return original(mode, func, flat_args, *args, **kwargs)
        for fake in fakes:
            fake.fake_device = CPU
        try:
            with set_state("moving", True):
                return original(mode, func, flat_args, *args, **kwargs)
        finally:
            for fake in fakes:
                fake.fake_device = CARD

    return run


_ATTRIBUTES = (
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
        return CPU if _STATE.active and device.type == "cuda" else device

    return handler


def _told_cpp(original: Callable[..., Any]) -> classmethod:
    def dispatch(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = original.__func__(cls, func, types, args, kwargs or {})
        return CPU if func is _PRIM_DEVICE and _STATE.active and out.type == "cuda" else out

    return classmethod(dispatch)


def _moved(original: Callable[..., Any]) -> staticmethod:
    def new(cls: type, mode: Any, elem: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        if _STATE.moving and torch.device(device).type == "cpu":
            device = CARD
        return original(cls, mode, elem, device, *args, **kwargs)

    return staticmethod(new)


def _wrapped_as_on_card(original: Callable[..., Any]) -> Callable[..., Any]:
    """Numbers that Dynamo wraps as tensors stay on the CPU, as on a machine with a card."""

    def wrap(value: Any, *args: Any, is_tensor: bool, **kwargs: Any) -> Any:
        if _STATE.active and is_tensor and isinstance(value, torch.Tensor):
            _STATE.on_card[id(value)] = value
        return original(value, *args, is_tensor=is_tensor, **kwargs)

    return wrap


def _made_fake(original: Callable[..., Any]) -> Callable[..., Any]:
    def from_real_tensor(self: Any, mode: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        moving = _STATE.active and id(tensor) in _STATE.on_card
        with set_state("moving", moving):
            out = original(self, mode, tensor, *args, **kwargs)
        if moving and out.dim() == 0:
            out.item_memo = None  # the value of a tensor on a card is not at hand
        return out

    return from_real_tensor


def _noted(original: Callable[..., Any]) -> staticmethod:
    def new(cls: type, elem: Any, mode: Any) -> Any:
        with set_state(
            "wrapper_device", _STATE.active and torch._from_functional_tensor(elem).device
        ):
            return original(cls, elem, mode)

    return staticmethod(new)


def _wrapper_with_keys() -> staticmethod:
    """A functional tensor gets the card's dispatch keys (autocast), and asks for its device."""
    original = torch.Tensor._make_wrapper_subclass

    def make(cls: type, *args: Any, **kwargs: Any) -> Any:
        device = _STATE.wrapper_device
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
        if func is _READ_VALUE and _STATE.active and unchecked():
            return True
        if _STATE.redirect:
            args, kwargs = tree_map(_card_for_cpu, (args, kwargs))
        return original(self, func, types, args, kwargs)

    return dispatch


def _card_for_cpu(value: Any) -> Any:
    return CARD if isinstance(value, torch.device) and value.type == "cpu" else value


def _only_elsewhere(original: Callable[..., Any], here: Any = None) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return here if _STATE.active else original(*args, **kwargs)

    if hasattr(original, "cache_clear"):  # what it remembers must go when the card changes
        call.cache_clear = original.cache_clear  # type: ignore[attr-defined]
    return call


def _dynamo_node(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_node(tracer: Any, node: Any, args: Any, kwargs: Any, module: Any) -> Any:
        stays = not _STATE.active or _stays_on_cpu(node)
        try:
            with set_state("redirect", not stays):
                return original(tracer, node, args, kwargs, module)
        except Exception as error:
            if _STATE.active and any(words in str(error) for words in _MIXED):
                _STATE.mixed.append(node.stack_trace or str(node))
            raise

    return run_node


def _aot_node(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_node(self: Any, node: Any) -> Any:
        if not _STATE.redirect:
            return original(self, node)
        with set_state("redirect", not _stays_on_cpu(node)):
            return original(self, node)

    return run_node


def _stays_on_cpu(node: torch.fx.Node) -> bool:
    """True for what the learner puts on the CPU: by name, or by making it without a device."""
    if node.op == "call_method" and node.target == "cpu":
        return True
    named = [v for v in (*node.args, *node.kwargs.values()) if isinstance(v, (torch.device, str))]
    if any(str(value) == "cpu" for value in named):
        return True
    makes = node.op == "call_function" and not any(
        isinstance(inner.meta.get("example_value"), torch.Tensor) for inner in node.all_input_nodes
    )
    return makes and "device" not in node.kwargs and not _STATE.lenient


def _folding_on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Constants are folded by computing them: on the CPU, and then they are the card's again."""

    def passes(gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        if not _STATE.active:
            return original(gm, *args, **kwargs)
        old = set(gm.graph.nodes)
        theirs = {node for node in old if _names_device(node, CPU)}
        _rename_device(gm, CARD, CPU, theirs)
        with inductor_sees_card():
            out = original(gm, *args, **kwargs)
        result = gm if out is None else out
        _rename_device(result, CPU, CARD, theirs)
        for node in set(result.graph.nodes) - old:  # made by the passes: random numbers, say
            node.meta["val"] = tree_map(_fake_on_card, node.meta.get("val"))
        return out

    return passes


@contextlib.contextmanager
def inductor_sees_card() -> Iterator[None]:
    """Runs Inductor's own work: it is told of the card, and of every device as it is."""
    if _STATE.target is None:
        yield
        return
    with set_state("redirect", False), pretended_driver(_STATE.target):
        yield


def _names_device(node: torch.fx.Node, device: torch.device) -> bool:
    return any(
        isinstance(value, torch.device) and value == device
        for value in tree_leaves((node.args, dict(node.kwargs)))
    )


def _rename_device(
    gm: torch.fx.GraphModule, old: torch.device, new: torch.device, but: set[torch.fx.Node]
) -> None:
    def rename(value: Any) -> Any:
        return new if isinstance(value, torch.device) and value == old else value

    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node not in but:
                    node.args = tree_map(rename, node.args)
                    node.kwargs = tree_map(rename, dict(node.kwargs))
            module.recompile()


def _fake_on_card(value: Any) -> Any:
    if not isinstance(value, FakeTensor) or value.device != CPU:
        return value
    with value.fake_mode:
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=CARD)


def on_cpu(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Returns a copy of Dynamo's graph that runs on the CPU, for the real values."""
    graph = copy.deepcopy(gm.graph)
    for node in graph.nodes:
        if node.op == "call_method" and node.target == "cuda":
            node.target, node.args, node.kwargs = "cpu", node.args[:1], {}
        node.args = tree_map(_cpu_for_card, node.args)
        node.kwargs = tree_map(_cpu_for_card, dict(node.kwargs))
    moved = torch.fx.GraphModule(gm, graph)
    for name, child in list(moved.named_children()):
        if isinstance(child, torch.fx.GraphModule):
            setattr(moved, name, on_cpu(child))
    return moved


def _cpu_for_card(value: Any) -> Any:
    if isinstance(value, (str, torch.device)) and str(value).startswith("cuda"):
        return CPU if isinstance(value, torch.device) else "cpu"
    return value
