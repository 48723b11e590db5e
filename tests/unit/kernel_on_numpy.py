"""Runs the text of a Triton kernel on NumPy, as one program over its whole grid, and notes which
addresses it loads and stores: what `helpers.kernel_accesses` must find without running anything.

Values are all zero, so that an index that depends on data points at the first row. A kernel whose
functions are not known here, or whose grid is too large to list, is an `Unable`.
"""

from __future__ import annotations

import ast
import types
from collections import defaultdict
from typing import Any

import numpy as np

LARGEST = 1 << 16


class Unable(Exception):
    """The kernel cannot be run this way."""


class Block(np.ndarray):
    """A Triton block."""

    def to(self, dtype: str, **_: Any) -> Block:
        if dtype == "int1":
            return block(self.astype(bool))
        return block(np.trunc(self).astype(np.int64) if "int" in dtype else self.astype(np.float32))

    def broadcast_to(self, *shape: int) -> Block:
        return block(np.broadcast_to(self, shape))


def block(value: Any) -> Block:
    return np.asarray(value).view(Block)


class Pointer:
    def __init__(self, name: str, kind: str, offset: Any = 0) -> None:
        self.name, self.kind, self.offset = name, kind, offset

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.name, self.kind, self.offset + offset)


class _Functions:
    """`tl`, `triton_helpers`, `libdevice` and `tl_math`, as far as Inductor's kernels call them."""

    range = range
    where = staticmethod(lambda *args: block(np.where(*args)))
    broadcast_to = staticmethod(lambda value, shape: block(np.broadcast_to(value, shape)))
    arange = staticmethod(lambda first, end: block(np.arange(first, end)))
    zeros = staticmethod(lambda shape, dtype: block(np.zeros(shape)))
    program_id = staticmethod(lambda axis: block(0))
    num_programs = staticmethod(lambda axis: 1)
    cdiv = staticmethod(lambda a, b: -(-a // b))
    floor = staticmethod(lambda value: block(np.floor(value)))
    abs = staticmethod(lambda value: block(np.abs(value)))
    trunc = staticmethod(lambda value: block(np.trunc(value)))
    ceil = staticmethod(lambda value: block(np.ceil(value)))
    minimum = staticmethod(lambda a, b, *_: block(np.minimum(a, b)))
    maximum = staticmethod(lambda a, b, *_: block(np.maximum(a, b)))
    div_floor_integer = staticmethod(lambda a, b: a // b)
    remainder_integer = staticmethod(lambda a, b: a % b)

    def __init__(self) -> None:
        self.loaded: dict[str, list[np.ndarray]] = defaultdict(list)
        self.stored: dict[str, list[np.ndarray]] = defaultdict(list)

    @staticmethod
    def full(shape: list, value: Any, dtype: Any) -> Block:
        return block(np.full(shape, value, np.int64 if "int" in str(dtype) else np.float32))

    def load(self, at: Pointer, mask: Any = None, **_: Any) -> Block:
        offset, kept = _pair(at.offset, mask)
        self.loaded[at.name].append(np.unique(offset[kept]))
        return block(np.zeros(np.shape(at.offset), np.int64 if "*i" in at.kind else np.float32))

    def store(self, at: Pointer, value: Any, mask: Any = None, **_: Any) -> None:
        offset, kept = _pair(at.offset, mask)
        self.stored[at.name].append(np.unique(offset[kept]))

    def atomic_add(self, at: Pointer, value: Any, mask: Any = None, **_: Any) -> None:
        self.load(at, mask)
        self.store(at, value, mask)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("int", "uint", "float", "bfloat")):
            return name
        if name.startswith(("exclusive_scan", "bucketize", "make_block_ptr", "dot")):
            raise Unable(name)
        return lambda *args, **_: self._any(name, [one for one in args if one is not None])

    @staticmethod
    def _any(name: str, args: list[Any]) -> Any:
        several = {"welford": 3, "online": 2, "sort": 2, "max_with": 2, "min_with": 2}
        number = next((n for start, n in several.items() if name.startswith(start)), 1)
        blocks = [one for one in args if isinstance(one, np.ndarray)]
        if not blocks:
            return block(0)
        shape = np.broadcast_shapes(*(one.shape for one in blocks))
        is_scan = name in ("associative_scan", "sort_with_index", "cumsum")
        reduced = {"max2", "min2", "any", "sum", "prod", "welford", "online_softmax_reduce",
                   "max_with_index", "min_with_index", "reduce", "argmax"}  # fmt: skip
        axes = [one for one in args if type(one) is int]
        if name in reduced and axes and not is_scan:
            shape = shape[: axes[0]] + shape[axes[0] + 1 :]
        made = tuple(block(np.zeros(shape, np.float32)) for _ in range(number))
        return made if number > 1 else made[0]


def _pair(offset: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    kept = np.asarray(True if mask is None else mask, bool)
    return np.broadcast_arrays(np.asarray(offset), kept)


def touched(source: str, types_of: dict[str, str]) -> tuple[dict[str, int], dict[str, int]]:
    """Returns how many elements a kernel loads, and how many it stores, by argument."""
    module = ast.parse(source)
    (kernel,) = (
        one
        for one in module.body
        if isinstance(one, ast.FunctionDef)
        and any(isinstance(decorator, ast.Call) for decorator in one.decorator_list)
    )
    sizes = {
        one.targets[0].id: one.value.value
        for one in kernel.body
        if isinstance(one, ast.Assign)
        and isinstance(one.targets[0], ast.Name)
        and one.targets[0].id.endswith("numel")
        and isinstance(one.value, ast.Constant)
    }
    # One program with blocks as large as the grid: NumPy needs no powers of two.
    blocks = {name.removesuffix("numel").upper() + "BLOCK": size for name, size in sizes.items()}
    names = [one.arg for one in kernel.args.args]
    given = {one: Pointer(one, types_of[one]) for one in names if types_of.get(one, "")[:1] == "*"}
    given |= {one: size for one, size in (*sizes.items(), *blocks.items()) if one in names}
    if set(names) != set(given) or np.prod(list(blocks.values())) > LARGEST:
        raise Unable("arguments that are not known, or a grid too large")
    if any(isinstance(one, ast.If) for one in kernel.body):
        raise Unable("several kernels in one, of which each program runs one")
    kernel.decorator_list.clear()
    for one in kernel.args.args:
        one.annotation = None
    functions = _Functions()
    functions.math = functions.extra = functions
    space = dict.fromkeys(("tl", "triton_helpers", "libdevice", "tl_math"), functions)
    code = compile(ast.Module([kernel], []), "<kernel>", "exec")
    exec(code, space)
    run: types.FunctionType = space[kernel.name]
    with np.errstate(all="ignore"):
        try:
            run(**given)
        except Unable:
            raise
        except (TypeError, ValueError, AttributeError, NameError, IndexError) as error:
            raise Unable(str(error)) from error
    return _counted(functions.loaded), _counted(functions.stored)


def _counted(found: dict[str, list[np.ndarray]]) -> dict[str, int]:
    return {name: len(np.unique(np.concatenate(one))) for name, one in found.items()}
