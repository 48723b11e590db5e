"""What is known of the integers in a kernel: constants, positions in the grid, what follows.

A `Value` is a node of an expression over places: `index(xindex // d % m)`. Whatever depends on
data that a kernel loads is unknown, but keeps the places that its data was loaded for.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.logical_not,
    "neg": operator.neg,
    "where": np.where,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "int": lambda value: np.trunc(value).astype(np.int64),
    "float": lambda value: np.asarray(value, dtype=np.float32),
    "bool": lambda value: np.asarray(value, dtype=bool),
}


@dataclass(frozen=True)
class Root:
    """An index that a kernel counts over its grid or its loops, from 0 to `size` - 1."""

    name: str
    size: int


@dataclass(frozen=True)
class Place:
    """One coordinate: root // div % mod (mod None: not taken)."""

    root: Root
    div: int = 1
    mod: int | None = None

    @property
    def count(self) -> int:
        """How many values it takes at most."""
        size = -(-self.root.size // self.div)
        return size if self.mod is None else min(size, self.mod)


@dataclass(frozen=True, eq=False)
class Value:
    """op: "const" (number), "place", "pointer" (its name, args: the offset), "unknown", or a key of
    FUNCTIONS; places: all that it depends on, through data too; is_known: not on data.
    """

    op: str
    args: tuple[Value, ...] = ()
    what: Any = None
    places: frozenset[Place] = frozenset()
    is_known: bool = True

    @property
    def number(self) -> Any:
        """Its value if it is a constant, else None."""
        return self.what if self.op == "const" else None


def const(number: Any) -> Value:
    """Returns a constant."""
    return Value("const", what=number)


def place(root: Root, div: int = 1, mod: int | None = None) -> Value:
    """Returns a coordinate; one with a single value is the constant 0."""
    found = Place(root, div, mod)
    return Value("place", what=found, places=frozenset({found})) if found.count > 1 else const(0)


def unknown(*args: Value) -> Value:
    """Returns what depends on data, or on what is not understood."""
    return Value("unknown", args, None, _places(args), False)


def _places(args: tuple[Value, ...]) -> frozenset[Place]:
    return frozenset().union(*(one.places for one in args))


def apply(op: str, *args: Value) -> Value:
    """Returns `op` of the values, in a simpler form where one is known; `op`: of FUNCTIONS."""
    numbers = [one.number for one in args]
    if all(number is not None for number in numbers):
        try:
            result = FUNCTIONS[op](*numbers)
        except (ArithmeticError, TypeError, ValueError):
            return unknown()
        return const(result.item() if isinstance(result, (np.ndarray, np.generic)) else result)
    simpler = _RULES[op](*args) if op in _RULES else None
    return simpler or Value(op, args, None, _places(args), all(one.is_known for one in args))


def _divided(left: Value, right: Value) -> Value | None:
    by = right.number
    if left.op != "place" or not isinstance(by, int) or by <= 0:
        return None
    root, div, mod = left.what.root, left.what.div, left.what.mod
    if mod is not None and mod % by:
        return None
    return place(root, div * by, None if mod is None else mod // by)


def _remainder(left: Value, right: Value) -> Value | None:
    by = right.number
    if left.op != "place" or not isinstance(by, int) or by <= 0:
        return None
    root, div, mod = left.what.root, left.what.div, left.what.mod
    if mod is not None and mod % by:
        return left if left.what.count <= by else None
    return place(root, div, by) if left.what.count > by else left


def _both(left: Value, right: Value) -> Value | None:
    for one, other in ((left, right), (right, left)):
        if one.op == "const" and isinstance(one.what, bool):
            return other if one.what else one
    return None


def _either(left: Value, right: Value) -> Value | None:
    for one, other in ((left, right), (right, left)):
        if one.op == "const" and isinstance(one.what, bool):
            return one if one.what else other
    return None


def _chosen(condition: Value, yes: Value, no: Value) -> Value | None:
    return None if condition.number is None else yes if condition.number else no


def _compared(op: str) -> Callable[[Value, Value], Value | None]:
    def rule(left: Value, right: Value) -> Value | None:
        mine, theirs = bounds(left), bounds(right)
        if mine is None or theirs is None:
            return None
        low, high = mine[0] - theirs[1], mine[1] - theirs[0]
        at_ends = {bool(FUNCTIONS[op](end, 0)) for end in (low, high)}
        return const(at_ends.pop()) if len(at_ends) == 1 else None

    return rule


def bounds(value: Value) -> tuple[int, int] | None:
    """Returns what a value lies between, ends included; None if that is not seen."""
    if value.op == "const":
        return (value.what, value.what) if isinstance(value.what, int) else None
    if value.op == "place":
        return 0, value.what.count - 1
    if value.op not in ("add", "sub", "mul", "neg"):
        return None
    parts = [bounds(one) for one in value.args]
    if any(part is None for part in parts):
        return None
    if value.op == "neg":
        return -parts[0][1], -parts[0][0]
    ends = [FUNCTIONS[value.op](a, b) for a in parts[0] for b in parts[1]]
    return min(ends), max(ends)


_RULES: Mapping[str, Callable[..., Value | None]] = {
    "floordiv": _divided,
    "mod": _remainder,
    "and": _both,
    "or": _either,
    "where": _chosen,
    **{op: _compared(op) for op in ("lt", "le", "gt", "ge")},
}


def conjuncts(mask: Value) -> tuple[Value, ...]:
    """Returns the conditions that a mask joins with `&`."""
    if mask.op == "and":
        return (*conjuncts(mask.args[0]), *conjuncts(mask.args[1]))
    return () if mask.number is True else (mask,)


def evaluate(value: Value, at: Callable[[Place], np.ndarray]) -> Any:
    """Returns the numbers of a known value, where `at` gives the numbers of each place."""
    if value.op == "const":
        return value.what
    if value.op == "place":
        return at(value.what)
    return FUNCTIONS[value.op](*(evaluate(one, at) for one in value.args))
