"""From an index expression and a mask to the set of elements that they address.

Each root index is split into digits, so that every coordinate (xindex // 64 % 100) is a sum of
digits and all combinations of digits occur. What is linear in the digits is a set of runs; only
digits that meet in something else (a condition, a remainder of a sum) are listed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from helpers.address_sets import LIMIT, Reach, distinct, reach
from helpers.index_values import Place, Root, Value, bounds, conjuncts, const, evaluate


@dataclass(frozen=True)
class Digit:
    """One digit of a root index, in a mixed radix: root // div % count."""

    root: Root
    div: int
    count: int


class _Digits:
    """The digits of all roots that some places are of."""

    def __init__(self, places: Iterable[Place]) -> None:
        by_root: dict[Root, set[int]] = {}
        for one in places:
            cuts = by_root.setdefault(one.root, {1, one.root.size})
            cuts |= {one.div, one.div * (one.mod or 1)}
        self.of_root = {root: self._split(root, cuts) for root, cuts in by_root.items()}

    @staticmethod
    def _split(root: Root, cuts: set[int]) -> tuple[Digit, ...]:
        steps = sorted(cut for cut in cuts if cut <= root.size)
        pairs = list(itertools.pairwise(steps))
        if any(high % low for low, high in pairs):
            return (Digit(root, 1, root.size),)  # its places are no digits of one radix
        return tuple(Digit(root, low, high // low) for low, high in pairs)

    def of(self, one: Place) -> tuple[dict[Digit, int], bool]:
        """Returns the digits of a place with their weights, and whether it is their sum."""
        digits = self.of_root[one.root]
        end = one.root.size if one.mod is None else one.div * one.mod
        if len(digits) == 1 and not (one.div == 1 and end >= one.root.size):
            return dict.fromkeys(digits, 1), False
        inside = [digit for digit in digits if one.div <= digit.div < end]
        return {digit: digit.div // one.div for digit in inside}, True

    def all_of(self, values: Iterable[Value]) -> set[Digit]:
        """Returns the digits that values depend on, through data too."""
        return {digit for value in values for one in value.places for digit in self.of(one)[0]}


@dataclass
class _Sum:
    """constant + sum of weight times digit + sum of factor times what is not linear."""

    constant: int
    weights: dict[Digit, int]
    others: list[tuple[int, Value]]

    def add(self, other: _Sum, factor: int) -> None:
        """Adds another sum, times a factor."""
        self.constant += factor * other.constant
        for digit, weight in other.weights.items():
            self.weights[digit] = self.weights.get(digit, 0) + factor * weight
        self.others += [(factor * times, value) for times, value in other.others]


def _summed(value: Value, digits: _Digits) -> _Sum:
    if value.op == "const" and isinstance(value.what, int):
        return _Sum(int(value.what), {}, [])
    if value.op == "place":
        weights, is_sum = digits.of(value.what)
        if is_sum:
            return _Sum(0, dict(weights), [])
    if value.op in ("add", "sub", "neg"):
        total = _Sum(0, {}, [])
        signs = {"add": (1, 1), "sub": (1, -1), "neg": (-1,)}[value.op]
        for sign, one in zip(signs, value.args, strict=True):
            total.add(_summed(one, digits), sign)
        return total
    if value.op == "int" and bounds(value.args[0]) is not None:  # whole numbers already
        return _summed(value.args[0], digits)
    if value.op == "mul":
        for one, other in (value.args, value.args[::-1]):
            if isinstance(one.number, int):
                total = _Sum(0, {}, [])
                total.add(_summed(other, digits), one.number)
                return total
    return _Sum(0, {}, [(1, value)])


def addressed(index: Value, mask: Value | None) -> Reach:
    """Returns the elements that an access touches, over all of its kernel's grid and loops.

    Where the index depends on data, how many at most; where only the mask does, all that it may.
    """
    conditions = conjuncts(mask if mask is not None else const(True))
    if any(one.number is False for one in conditions):
        return Reach(some=0)
    known = [one for one in conditions if one.is_known]
    digits = _Digits(index.places.union(*(one.places for one in known)))
    total = _unwrapped(_summed(index, digits), known, digits)
    groups = _groups(digits, total, known)
    is_bound = len(known) < len(conditions)
    if not index.is_known:
        return Reach(some=_combinations(index, digits, groups))
    single = set().union(*(group for group, *_ in groups))
    parts: list = [(w, one.count) for one, w in total.weights.items() if one not in single]
    for group, others, conditions_here in groups:
        part = None if others else _clipped(group, total.weights, conditions_here, digits)
        if part is None:
            listed = _listed(group, total.weights, others, conditions_here, digits)
            if listed is None:
                count = math.prod(one.count for one in digits.all_of([index]))
                return Reach(some=count, is_bound=True)
            part = 0, listed
        total.constant += part[0]
        parts.append(part[1])
    return reach(total.constant, parts, is_bound)


def _clipped(
    group: set[Digit], weights: dict[Digit, int], conditions: list[Value], digits: _Digits
) -> tuple[int, tuple[int, int]] | None:
    """Returns the first offset and the run of digits that conditions only cut at its ends.

    So it is where each condition compares one and the same sum of the digits with a number, the
    sum takes every value of a run once, and the index has a multiple of it. Else None.
    """
    cuts = [_cut(one, digits) for one in conditions]
    if any(cut is None or cut[0] != cuts[0][0] for cut in cuts):
        return None
    shared = cuts[0][0]
    run = reach(0, [(weight, one.count) for one, weight in shared.items()])
    factors = {weights.get(one, 0) / weight for one, weight in shared.items()}
    if set(shared) != group or run.base or len(run.runs) != 1 or len(factors) != 1:
        return None
    step, count = run.runs[0]
    factor = factors.pop()
    if factor != int(factor) or count != run.points:
        return None
    low = max([0, *(-(-at // step) for _, at, _ in cuts)])
    high = min([count - 1, *(end // step for *_, end in cuts)])
    return int(factor) * step * low, (int(factor) * step, high - low + 1)


def _cut(condition: Value, digits: _Digits) -> tuple[dict[Digit, int], int, int] | None:
    """Returns weights of the sum that a condition compares, and its least and greatest value."""
    if condition.op not in ("lt", "le", "gt", "ge"):
        return None
    total = _summed(condition.args[0], digits)
    total.add(_summed(condition.args[1], digits), -1)
    weights = {digit: weight for digit, weight in total.weights.items() if weight}
    if total.others or not weights:
        return None
    strict = condition.op in ("lt", "gt")
    is_upper = condition.op in ("lt", "le")  # sum + constant below 0, or above
    if min(weights.values()) < 0:
        weights = {digit: -weight for digit, weight in weights.items()}
        total.constant, is_upper = -total.constant, not is_upper
    if is_upper:
        return weights, 0, -total.constant - strict
    return weights, -total.constant + strict, sum(w * (d.count - 1) for d, w in weights.items())


def _unwrapped(total: _Sum, conditions: list[Value], digits: _Digits) -> _Sum:
    """Drops remainders that change nothing, since a condition keeps their sum below the divisor."""
    cuts = [cut for cut in (_cut(one, digits) for one in conditions) if cut is not None]
    found = _Sum(total.constant, dict(total.weights), [])
    for factor, value in total.others:
        inner = _summed(value.args[0], digits) if value.op == "mod" else _Sum(0, {}, [(1, value)])
        ranges = [(low, high) for weights, low, high in cuts if weights == inner.weights]
        changes = not ranges or bool(inner.others)
        if not changes:
            low = inner.constant + max(low for low, _ in ranges)
            high = inner.constant + min(high for _, high in ranges)
            by = value.args[1].number
            changes = not (isinstance(by, int) and low >= 0 and high < by)
        found.add(_Sum(0, {}, [(1, value)]) if changes else inner, factor)
    return found


_Group = tuple[set[Digit], list[tuple[int, Value]], list[Value]]


def _groups(digits: _Digits, total: _Sum, conditions: list[Value]) -> list[_Group]:
    """Groups digits that meet in a part that is not linear, or in a condition."""
    found: list[_Group] = []
    parts = [([one], []) for one in total.others if one[1].is_known]
    parts += [([], [one]) for one in conditions]
    for others, here in parts:
        group = digits.all_of([*(value for _, value in others), *here])
        for one in [one for one in found if one[0] & group]:
            found.remove(one)
            group, others, here = group | one[0], others + one[1], here + one[2]
        found.append((group, others, here))
    return found


def _listed(
    group: set[Digit],
    weights: dict[Digit, int],
    others: list[tuple[int, Value]],
    conditions: list[Value],
    digits: _Digits,
) -> np.ndarray | None:
    """Returns all sums that a group of digits can give under its conditions; None: too many."""
    order = sorted(group, key=lambda one: (one.root.name, one.div))
    if math.prod(one.count for one in order) > LIMIT:
        return None
    axes = np.meshgrid(*(np.arange(one.count) for one in order), indexing="ij", sparse=True)
    numbers = dict(zip(order, axes, strict=True))

    def at(one: Place) -> np.ndarray:
        parts, is_sum = digits.of(one)
        value = sum((numbers[digit] * weight for digit, weight in parts.items()), np.array(0))
        if is_sum:
            return value
        return value // one.div if one.mod is None else value // one.div % one.mod

    shape = tuple(one.count for one in order)
    kept = np.ones(shape, bool)
    for one in conditions:
        kept = kept & np.asarray(evaluate(one, at), bool)
    sums = np.zeros(shape, np.int64)
    for one in order:
        sums = sums + weights.get(one, 0) * numbers[one]
    for factor, value in others:
        sums = sums + factor * np.asarray(evaluate(value, at)).astype(np.int64)
    return distinct(sums[kept])


def _combinations(index: Value, digits: _Digits, groups: list[_Group]) -> int:
    """Returns for how many different places an index that depends on data can be computed."""
    involved = digits.all_of([index])
    count = 1
    for group, _, conditions in groups:
        here = involved & group
        listed = None
        if here and conditions:
            ranks, step = {}, 1
            for one in here:
                ranks[one], step = step, step * one.count
            listed = _listed(group, ranks, [], conditions, digits)
        count *= len(listed) if listed is not None else math.prod(one.count for one in here)
        involved = involved - group
    return count * math.prod(one.count for one in involved)
