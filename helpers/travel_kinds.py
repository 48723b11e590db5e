"""Kinds of objects that a pickler alone would lose or refuse: what each one travels as."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.utils.parametrize
from torch import _ops
from torch._library.custom_ops import OPDEFS, CustomOpDef

# What a Triton kernel's decorator was given, by the names in `triton.jit`.
_JIT_OPTIONS = (
    "version", "do_not_specialize", "do_not_specialize_on_alignment", "debug", "noinline",
)  # fmt: skip


def reduce_kind(obj: Any) -> Any:
    """Returns what pickle's `reducer_override` returns for one of these kinds, else
    NotImplemented.
    """
    if isinstance(obj, torch.Tensor):
        return _tensor(obj)
    if isinstance(obj, types.FunctionType):
        return _compiled_function(obj)
    if _is_special_module(obj):
        return importlib.import_module, (obj.__name__,)
    if "torch._dynamo" in sys.modules and isinstance(obj, torch._dynamo.OptimizedModule):
        return _itself, (obj._orig_mod,)
    if type(obj).__module__.startswith("triton."):
        return _triton_function(obj)
    if isinstance(obj, torch.nn.Module) and torch.nn.utils.parametrize.is_parametrized(obj):
        return _parametrized, (type(obj).__bases__[0], obj.__dict__.copy())
    return _operator_kind(obj)


def _is_special_module(obj: Any) -> bool:
    """torch.ops, torch's configs: modules of a type of their own, which cloudpickle leaves out."""
    special = isinstance(obj, types.ModuleType) and type(obj) is not types.ModuleType
    return special and sys.modules.get(obj.__name__) is obj


def _itself(obj: Any) -> Any:
    return obj


def _tensor(tensor: torch.Tensor) -> Any:
    """A tensor's own way leaves `.grad` behind, which an optimizer's step needs."""
    if tensor.dtype in torch.storage._new_dtypes() and type(tensor) is torch.Tensor:
        build, arguments, *rest = tensor.__reduce_ex__(2)
        if build is torch._utils._rebuild_tensor_v3:  # which takes a storage wrapped by torch.load
            return _tensor_of_new_dtype, arguments, *rest
    if not tensor.is_leaf or tensor.grad is None:
        return NotImplemented
    build, arguments, *rest = tensor.__reduce_ex__(2)
    return _tensor_with_grad, (build, arguments, tensor.grad), *rest


def _tensor_of_new_dtype(storage: torch.UntypedStorage, *arguments: Any) -> torch.Tensor:
    wrapped = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.uint8, _internal=True)
    return torch._utils._rebuild_tensor_v3(wrapped, *arguments)


def _tensor_with_grad(build: Any, arguments: Any, grad: torch.Tensor) -> torch.Tensor:
    tensor = build(*arguments)
    tensor.grad = grad
    return tensor


def _compiled_function(function: types.FunctionType) -> Any:
    """What is already compiled travels as what it was made from: Dynamo looks through it anyway.

    A function that must not be compiled stays one of that kind.
    """
    original = function.__dict__.get("_torchdynamo_orig_callable")
    if original is None or original is function:
        return NotImplemented
    if getattr(function, "_torchdynamo_disable", False):
        return _disabled, (original,)
    return _itself, (original,)


def _disabled(function: Any) -> Any:
    return torch.compiler.disable(function)


def _parametrized(cls: type[torch.nn.Module], state: dict[str, Any]) -> torch.nn.Module:
    """Makes a parametrized module; torch refuses to pickle one, as its class has no name."""
    module = cls.__new__(cls)
    module.__dict__.update(state)
    torch.nn.utils.parametrize._inject_new_class(module)
    for name in state["_modules"]["parametrizations"]:
        torch.nn.utils.parametrize._inject_property(module, name)
    return module


def _operator_kind(obj: Any) -> Any:
    """Operators live in C++: they travel as their names."""
    if isinstance(obj, _ops._OpNamespace):
        return _operator, (obj.name,)
    if isinstance(obj, _ops.OpOverloadPacket):
        return _operator, tuple(obj._qualified_op_name.split("::"))
    if isinstance(obj, _ops.OpOverload):
        return _operator, (*obj._schema.name.split("::"), obj._overloadname)
    if isinstance(obj, CustomOpDef):
        return _custom_operator, (obj._qualname, obj._init_fn.__module__)
    return NotImplemented


def _operator(*names: str) -> Any:
    return functools.reduce(getattr, names, torch.ops)


def _custom_operator(name: str, module: str) -> Any:
    if name not in OPDEFS and module != "__main__":
        importlib.import_module(module)  # which registers it
    if name not in OPDEFS:
        raise LookupError(f"the operator {name} is registered in another process only")
    return OPDEFS[name]


def operators_named(code: types.CodeType) -> set[tuple[str, str]]:
    """Returns (namespace, operator) for each operator that the code may call by `torch.ops`."""
    found: set[tuple[str, str]] = set()
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found |= operators_named(const)
    if "ops" in code.co_names:
        names = set(code.co_names)
        for space in names:
            known = torch.ops.__dict__.get(space)
            if isinstance(known, _ops._OpNamespace):
                found |= {(space, name) for name in names if hasattr(known, name)}
    return found


def check_operators(operators: Iterable[tuple[str, str]]) -> None:
    """Raises LookupError for an operator that this process does not know."""
    for space, name in sorted(operators):
        if not hasattr(getattr(torch.ops, space), name):
            raise LookupError(f"the operator {space}::{name} is registered in another process only")


def _triton_function(obj: Any) -> Any:
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    if not isinstance(obj, (JITFunction, Autotuner, Heuristics)):
        return NotImplemented
    kernel = obj
    while not isinstance(kernel, JITFunction) and hasattr(kernel, "fn"):
        kernel = kernel.fn
    function = getattr(kernel, "fn", None)
    if not isinstance(function, types.FunctionType):
        return NotImplemented
    found = _by_name(obj, function)
    if found is not NotImplemented or kernel is not obj:
        return found
    options = {name: getattr(obj, name) for name in _JIT_OPTIONS if hasattr(obj, name)}
    return _jit, (function, options)


def _by_name(obj: Any, function: types.FunctionType) -> Any:
    from helpers.travel import importable

    name, module = function.__module__, sys.modules.get(function.__module__)
    here = getattr(module, function.__name__, None) is obj
    if here and name != "__main__" and importable(name.partition(".")[0]):
        return getattr, (module, function.__name__)
    return NotImplemented


def _jit(function: types.FunctionType, options: dict[str, Any]) -> Any:
    import triton

    return triton.jit(function, **options)
