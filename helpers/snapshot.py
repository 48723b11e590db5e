"""Remembers the values that a call may change, and puts them back in place.

What is reached: modules with everything in their `__dict__` (parameters, buffers, `.grad`, hooks,
train or eval, Python attributes), tensors, NumPy arrays, generators of random numbers, lists,
dicts, sets, deques and ordinary objects, starting from the callable and its arguments. Things are
put back into the very same objects, and only where they differ, so that what refers to them
(an optimizer, Dynamo's guards, a pending autograd graph) goes on working. Sparse and quantized
tensors are left as the call leaves them: their bytes cannot be compared in general.
"""

from __future__ import annotations

import collections
import functools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

_LEFT_ALONE = (
    types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.CodeType,
    types.FrameType, types.GeneratorType, types.CoroutineType, types.MappingProxyType,
    str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size,
)  # fmt: skip
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx")


class Snapshot:
    """The values reached from `roots` at the time of making; `restore()` puts them back."""

    def __init__(self, *roots: Any) -> None:
        self._undo: list[Callable[[], None]] = []
        self._tensors: dict[int, _SavedTensor] = {}
        self._seen: dict[int, Any] = {}  # keeps objects alive, so that ids stay theirs
        todo = list(roots)
        while todo:
            todo.extend(self._save(todo.pop()))

    def _save(self, value: Any) -> Iterator[Any]:
        """Saves one value and yields what it refers to."""
        if isinstance(value, _LEFT_ALONE) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if type(value).__module__.startswith(_COMPILER):
            # A module that is already compiled wraps the learner's; the compiler's own objects
            # (callbacks, caches) belong to isolation.py.
            yield from getattr(value, "_modules", {}).values()
            return
        if isinstance(value, torch.Tensor):
            self._tensors[id(value)] = _SavedTensor(value)
            yield from vars(value).values()
        elif isinstance(value, (tuple, frozenset)):
            yield from value
        elif isinstance(value, types.MethodType):
            yield value.__self__
        elif isinstance(value, functools.partial):
            yield from (value.func, value.args, value.keywords)
        elif isinstance(value, (list, dict, set, collections.deque, bytearray)):
            self._undo.append(_container_undo(value))
            yield from _members(value)
        elif (undo := _random_or_array_undo(value)) is not None:
            self._undo.append(undo)
        else:
            yield from self._save_object(value)

    def _save_object(self, value: Any) -> Iterator[Any]:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._undo.append(_container_undo(attributes))
            yield from attributes.values()
        slots = _slots(value)
        if slots:
            self._undo.append(functools.partial(_restore_slots, value, slots))
            yield from slots.values()

    def protect(self, result: Any) -> Any:
        """Returns `result` with copies of the tensors whose memory `restore()` will rewrite."""
        rewritten = {
            pointer
            for saved in self._tensors.values()
            if saved.changed() and (pointer := _memory(saved.tensor)) is not None
        }

        def copied(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and _memory(leaf) in rewritten:
                return leaf.clone()  # keeps the link to autograd
            return leaf

        return tree_map(copied, result) if rewritten else result

    def restore(self) -> None:
        """Puts every value back, objects before the tensors in them; may be called repeatedly."""
        for undo in reversed(self._undo):
            undo()
        for saved in self._tensors.values():
            saved.restore()


class _SavedTensor:
    """One tensor: bytes, layout, version counter, requires_grad, attributes and its `.grad`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.layout = _layout(tensor)
        self.copy = _copy(tensor)
        self.keep_version = _version_keeper(tensor)
        self.attributes = dict(vars(tensor))
        self.requires_grad = tensor.requires_grad
        self.grad = tensor.grad if tensor.is_leaf else None
        self.saved_grad = _SavedTensor(self.grad) if self.grad is not None else None

    def changed(self) -> bool:
        if self.copy is None:
            return False
        return self.layout != _layout(self.tensor) or not _same_bytes(self.tensor, self.copy)

    def restore(self) -> None:
        tensor = self.tensor
        if self.changed():
            with torch.no_grad():
                if self.layout == _layout(tensor):
                    tensor.detach().copy_(self.copy)
                else:
                    tensor.data = self.copy.clone()
        # The bytes are again what they were at this version, so a backward that waits for the
        # tensor (saved before the inspection) is right to accept it.
        self.keep_version()
        if not _same_items(vars(tensor), self.attributes):
            vars(tensor).clear()
            vars(tensor).update(self.attributes)
        if tensor.is_leaf:
            if tensor.requires_grad != self.requires_grad:
                tensor.requires_grad_(self.requires_grad)
            if tensor.grad is not self.grad:
                tensor.grad = self.grad
        if self.saved_grad is not None:
            self.saved_grad.restore()


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    strides = tensor.stride() if tensor.layout == torch.strided else ()
    return tensor.shape, strides, tensor.dtype, tensor.device


def _copy(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns a copy of the bytes, or None where they cannot be copied and compared."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        return None
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        return None
    with torch.no_grad():
        return tensor.detach().clone()


def _same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Compares bit by bit, so that NaN equals NaN and -0.0 differs from 0.0."""
    with torch.no_grad():
        left, right = left.detach(), right.detach()
        if left.is_complex():
            left, right = torch.view_as_real(left.resolve_conj()), torch.view_as_real(right)
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        as_bits = bits[left.element_size()]
        return torch.equal(left.view(as_bits), right.view(as_bits))


def _version_keeper(tensor: torch.Tensor) -> Callable[[], None]:
    """Returns a function that sets the version counter back to what it is now."""
    if tensor.is_inference():
        return lambda: None  # inference tensors have no version counter
    keeper = torch.autograd._unsafe_preserve_version_counter(tensor)
    return lambda: keeper.__exit__(None, None, None)


def _memory(tensor: torch.Tensor) -> int | None:
    try:
        return tensor.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # sparse, meta and fake tensors have no storage
        return None


def _same_items(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    """True if both have the same keys in the same order, and the very same objects as values."""
    return list(left) == list(right) and all(left[key] is right[key] for key in left)


def _members(value: Any) -> Iterator[Any]:
    if isinstance(value, bytearray):
        return iter(())
    return iter(list(value.values() if isinstance(value, dict) else value))


def _container_undo(value: Any) -> Callable[[], None]:
    saved = dict(value) if isinstance(value, dict) else value.copy()
    return functools.partial(_restore_container, value, saved)


def _restore_container(value: Any, saved: Any) -> None:
    if isinstance(value, dict):
        if not _same_items(value, saved):
            value.clear()
            for key, member in saved.items():
                value[key] = member
    elif isinstance(value, set):
        if value != saved:
            value.clear()
            value.update(saved)
    elif isinstance(value, bytearray):
        value[:] = saved
    elif len(value) != len(saved) or any(a is not b for a, b in zip(value, saved, strict=True)):
        value.clear()
        value.extend(saved)


def _slots(value: Any) -> dict[str, Any]:
    saved = {}
    for cls in type(value).__mro__:
        names = cls.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else tuple(names):
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                saved[name] = getattr(value, name)
    return saved


def _restore_slots(value: Any, saved: dict[str, Any]) -> None:
    for name, member in saved.items():
        if getattr(value, name, None) is not member:
            object.__setattr__(value, name, member)


def _random_or_array_undo(value: Any) -> Callable[[], None] | None:
    """Returns what puts a generator of random numbers or a NumPy array back, None for others."""
    if isinstance(value, torch.Generator):
        return functools.partial(value.set_state, value.get_state())
    if isinstance(value, random.Random):
        return functools.partial(value.setstate, value.getstate())
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(value, numpy.ndarray):
        return functools.partial(_restore_array, value, value.copy())
    if isinstance(value, numpy.random.RandomState):
        return functools.partial(value.set_state, value.get_state())
    if isinstance(value, numpy.random.Generator):
        generator = value.bit_generator
        return functools.partial(setattr, generator, "state", generator.state)
    return None


def _restore_array(array: Any, saved: Any) -> None:
    if array.flags.writeable and array.tobytes() != saved.tobytes():
        array[...] = saved
