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
import copy
import functools
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

_LEFT_ALONE = (
    types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.CodeType,
    types.FrameType, types.GeneratorType, types.CoroutineType, types.MappingProxyType,
    str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device, torch.Size,
)  # fmt: skip
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx")


class Snapshot:
    """The values reached from `roots` at the time of making; `restore()` puts them back."""

    def __init__(self, *roots: Any) -> None:
        self.undo: list[Callable[[], None]] = []
        self.tensors: dict[int, _SavedTensor] = {}
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
            self.tensors[id(value)] = _SavedTensor(value)
            yield from (*vars(value).values(), value._base, *_leaves_behind(value))
        elif isinstance(value, (tuple, frozenset)):
            yield from value
        elif isinstance(value, types.MethodType):
            yield value.__self__
        elif isinstance(value, functools.partial):
            yield from (value.func, value.args, value.keywords)
        elif isinstance(value, (list, dict, set, collections.deque, bytearray)):
            self.undo.append(_container_undo(value))
            yield from (*_members(value), *self._save_object(value))
        elif (undo := _random_or_array_undo(value)) is not None:
            self.undo.append(undo)
        else:
            yield from self._save_object(value)

    def _save_object(self, value: Any) -> Iterator[Any]:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.undo.append(_container_undo(attributes))
            yield from attributes.values()
        slots = _slots(value)
        if slots:
            self.undo.append(functools.partial(_restore_slots, value, slots))
            yield from slots.values()

    def protect(self, result: Any) -> Any:
        """Returns `result` with copies of whatever in it `restore()` will rewrite."""
        rewritten = {
            pointer
            for saved in self.tensors.values()
            if saved.changed() and (pointer := _memory(saved.tensor)) is not None
        }
        for array in self._arrays():
            rewritten.add(array.__array_interface__["data"][0])
        return self._protected(result, rewritten, {})

    def _arrays(self) -> list[Any]:
        numpy = sys.modules.get("numpy")
        known = self._seen.values()
        return [v for v in known if isinstance(v, numpy.ndarray)] if numpy else []

    def _protected(self, value: Any, rewritten: set[int], done: dict[int, Any]) -> Any:
        """Returns `value`, or a copy of it if it or something in it will be rewritten."""
        if id(value) in done:
            return done[id(value)]
        done[id(value)] = value  # ends a cycle at the original
        if isinstance(value, torch.Tensor):
            # clone() keeps the link to autograd
            new = value.clone() if _memory(value) in rewritten else value
        elif hasattr(value, "__array_interface__"):
            # Dynamo hands out arrays anew, over the memory of those that were given.
            shared = value.__array_interface__["data"][0] in rewritten
            new = value.copy() if shared else value
        elif isinstance(value, (torch.nn.Module, *_LEFT_ALONE)):
            new = value
        else:
            new = _rebuilt(
                value,
                lambda inner: self._protected(inner, rewritten, done),
                id(value) in self._seen,
            )
        done[id(value)] = new
        return new

    def restore(self) -> None:
        """Puts every value back, objects before the tensors in them; may be called repeatedly.

        What cannot be put back is named in a warning; everything else still is.
        """
        undos = [*reversed(self.undo), *[saved.restore for saved in self.tensors.values()]]
        for undo in undos:
            try:
                undo()
            except Exception as error:
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                warnings.warn(f"an inspected value could not be put back ({what})", stacklevel=2)


def _rebuilt(value: Any, protected: Callable[[Any], Any], will_be_put_back: bool) -> Any:
    """Returns a copy of a container or object if a member changed in it or it will be put back."""
    if isinstance(value, tuple):
        new = [protected(member) for member in value]
        if all(a is b for a, b in zip(new, value, strict=True)):
            return value
        return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
    if isinstance(value, (list, collections.deque, dict)):
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    elif isinstance(getattr(value, "__dict__", None), dict):
        pairs = list(vars(value).items())
    else:
        plain = isinstance(value, (set, bytearray)) or _random_or_array_undo(value) is not None
        return copy.copy(value) if will_be_put_back and plain else value
    new_pairs = [(key, protected(member)) for key, member in pairs]
    same = all(a is b for (_, a), (_, b) in zip(new_pairs, pairs, strict=True))
    if same and not will_be_put_back:
        return value
    new = copy.copy(value)
    for key, member in new_pairs:
        if isinstance(value, (list, collections.deque, dict)):
            new[key] = member
        else:
            object.__setattr__(new, key, member)
    return new


def _leaves_behind(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the leaves whose `.grad` a backward from `tensor` would write."""
    todo, seen = [tensor.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (variable := getattr(node, "variable", None)) is not None:
            yield variable
        todo += [function for function, _ in node.next_functions]


class _SavedTensor:
    """One tensor: bytes, layout, version counter, requires_grad, attributes and its `.grad`."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.layout = _layout(tensor)
        self.copy = _copied(tensor)
        self.keep_version = _version_keeper(tensor)
        self.attributes = dict(vars(tensor))
        self.requires_grad, self.is_leaf = tensor.requires_grad, tensor.is_leaf
        self.hooks = dict(tensor._backward_hooks or {})
        self.has_grad = tensor.is_leaf or tensor.retains_grad
        self.grad = tensor.grad if self.has_grad else None
        self.saved_grad = _SavedTensor(self.grad) if self.grad is not None else None

    def changed(self) -> bool:
        if self.copy is None:
            return False
        return self.layout != _layout(self.tensor) or not same_bytes(self.tensor, self.copy)

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
        if not same_items(vars(tensor), self.attributes):
            vars(tensor).clear()
            vars(tensor).update(self.attributes)
        if self.is_leaf and not tensor.is_leaf:  # an in-place operation with something that learns
            tensor.detach_()
        if tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if self.has_grad and tensor.grad is not self.grad:
            tensor.grad = self.grad
        if tensor._backward_hooks is not None and dict(tensor._backward_hooks) != self.hooks:
            tensor._backward_hooks.clear()
            tensor._backward_hooks.update(self.hooks)
        if self.saved_grad is not None:
            self.saved_grad.restore()


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.is_nested or tensor.layout != torch.strided:
        return ()
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _copied(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns a copy of the bytes, or None where they cannot be copied and compared."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return None
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        return None
    with torch.no_grad():
        return tensor.detach().clone()


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Compares bit by bit, so that NaN equals NaN and -0.0 differs from 0.0."""
    with torch.no_grad():
        left, right = (_plain(tensor) for tensor in (left, right))
        if left.is_complex():
            left, right = torch.view_as_real(left.resolve_conj()), torch.view_as_real(right)
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        as_bits = bits[left.element_size()]
        return torch.equal(left.view(as_bits), right.view(as_bits))


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor without gradient, names (until torch 2.13) and lazy negation."""
    tensor = tensor.detach().resolve_neg()
    return tensor.rename(None) if hasattr(tensor, "rename") and tensor.has_names() else tensor


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


def same_items(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
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
        if not same_items(value, saved):
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
    if array.shape != saved.shape:
        array.shape = saved.shape
    if array.flags.writeable and array.tobytes() != saved.tobytes():
        array[...] = saved
