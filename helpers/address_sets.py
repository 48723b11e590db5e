"""Sets of addresses, counted without listing them: which elements of a buffer a kernel touches.

A set is a base plus one element of each of its parts; a part is an arithmetic progression ("run":
step, count) or a list of offsets. Nearly every access that Inductor writes is a few runs, so that
a tensor of billions of elements costs no more than a small one. What cannot be told apart this
way is listed up to `LIMIT` points, and above that bounded, which the answer says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

LIMIT = 1 << 22  # points that are listed at most: 4 million, some 50 ms


@dataclass(frozen=True, eq=False)
class Reach:
    """The elements that one access touches, counted from the start of the buffer's memory.

    runs: (step, count), step > 0, count > 1, by step; lists: sorted distinct offsets that are no
    run; some: how many at most, where which ones depends on data (then there are no parts);
    is_bound: the access may touch fewer than these.
    """

    base: int = 0
    runs: tuple[tuple[int, int], ...] = ()
    lists: tuple[np.ndarray, ...] = field(default=(), repr=False)
    some: int | None = None
    is_bound: bool = False

    @property
    def last(self) -> int:
        """The highest element touched."""
        runs = sum(step * (count - 1) for step, count in self.runs)
        return self.base + runs + sum(int(one[-1]) for one in self.lists)

    @property
    def points(self) -> int:
        """How many combinations of parts there are: at least the number of elements."""
        runs = math.prod(count for _, count in self.runs)
        return runs * math.prod(len(one) for one in self.lists)

    @property
    def is_interval(self) -> bool:
        """Whether it touches every element from its first to its last."""
        return not self.lists and (not self.runs or (len(self.runs) == 1 and self.runs[0][0] == 1))

    def same(self, other: Reach) -> bool:
        """Whether both are the same set, as far as their parts show it."""
        mine, theirs = self.lists, other.lists
        return (self.base, self.runs, self.some, len(mine)) == (
            other.base, other.runs, other.some, len(theirs),
        ) and all(np.array_equal(*pair) for pair in zip(mine, theirs, strict=True))  # fmt: skip

    def moved(self, offset: int) -> Reach:
        """Returns the same set, `offset` elements further."""
        return replace(self, base=self.base + offset)

    def resized(self, size: int, unit: int) -> Reach:
        """Returns a set of elements of `size` bytes as one of elements of `unit` bytes."""
        if size == unit:
            return self
        if self.some is not None or size % unit:
            return Reach(some=-(-(self.points if self.some is None else self.some) * size // unit))
        times = size // unit
        parts: list = [(1, times), *((step * times, count) for step, count in self.runs)]
        return reach(
            self.base * times, [*parts, *(one * times for one in self.lists)], self.is_bound
        )


def whole(size: int, is_bound: bool = False) -> Reach:
    """Returns all of a buffer of `size` elements."""
    return reach(0, [(1, size)], is_bound=is_bound)


def strided(shape: Sequence[int], strides: Sequence[int]) -> Reach:
    """Returns the elements of a view; an expanded dimension (stride 0) counts once."""
    return reach(0, list(zip(strides, shape, strict=True)))


def reach(
    base: int, parts: Sequence[tuple[int, int] | np.ndarray], is_bound: bool = False
) -> Reach:
    """Returns the set in its simplest form. A part of no element gives a set of no element."""
    runs, lists = [], []
    for part in parts:
        if isinstance(part, np.ndarray):
            part = distinct(part)
            if not len(part):
                return Reach(some=0)
            base, part = base + int(part[0]), part - part[0]
            step = int(part[1]) if len(part) > 1 else 1
            if not np.array_equal(part, np.arange(len(part)) * step):
                lists.append(part)
                continue
            part = (step, len(part))
        step, count = part
        if count <= 0:
            return Reach(some=0)
        base += min(0, step * (count - 1))
        if step and count > 1:
            runs.append((abs(step), count))
    return Reach(base, _joined(runs), tuple(lists), None, is_bound)


def distinct(numbers: np.ndarray) -> np.ndarray:
    """Returns the different whole numbers in an array, sorted; faster than by sorting them."""
    if not numbers.size:
        return numbers.ravel()
    first, last = int(numbers.min()), int(numbers.max())
    if last - first >= 16 * LIMIT:
        return np.unique(numbers)
    seen = np.zeros(last - first + 1, bool)
    seen[numbers.ravel() - first] = True
    return np.flatnonzero(seen) + first


def _joined(runs: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Joins runs that continue or overlap each other without a gap."""
    runs = sorted(runs)
    for i, (step, count) in enumerate(runs):
        for j, (further, times) in enumerate(runs[i + 1 :], i + 1):
            if further % step == 0 and further <= step * count:
                joined = (step, count + further // step * (times - 1))
                return _joined([*runs[:i], joined, *runs[i + 1 : j], *runs[j + 1 :]])
    return tuple(runs)


def union_size(sets: Sequence[Reach], size: int) -> tuple[int, bool]:
    """Returns how many of a buffer's `size` elements the sets touch together, and if that is exact.

    If it is not, it is the most that they can touch.
    """
    known = _without_parts_of_others([one for one in sets if one.some is None])
    unknown = sum(one.some for one in sets if one.some)
    count, exact = _union(known) if known else (0, True)
    bound = any(one.is_bound for one in known)
    if unknown and count < size:
        return min(size, count + unknown), False
    return min(size, count), exact and not bound


def _without_parts_of_others(sets: list[Reach]) -> list[Reach]:
    kept: list[Reach] = []
    for one in sorted(sets, key=lambda one: (not one.is_interval, one.base - one.last)):
        inside = any(
            other.same(one)
            or (other.is_interval and other.base <= one.base and one.last <= other.last)
            for other in kept
        )
        kept += [] if inside else [one]
    return kept


def _union(sets: list[Reach]) -> tuple[int, bool]:
    """Returns the size of the union: by structure where that is safe, else by listing."""
    if len(sets) == 1 and (count := _separate(sets[0])):
        return count, True
    clusters = _clusters(sets)
    if len(clusters) > 1:
        answers = [_union(cluster) for cluster in clusters]
        return sum(count for count, _ in answers), all(exact for _, exact in answers)
    peeled = _peeled(sets)
    if peeled is not None:
        times, rest = peeled
        count, exact = _union(_without_parts_of_others(rest))
        return times * count, exact
    first, last = min(one.base for one in sets), max(one.last for one in sets)
    points = sum(one.points for one in sets)
    if points > LIMIT or last - first >= 16 * LIMIT:
        return min(points, last - first + 1), False
    touched = np.zeros(last - first + 1, bool)
    for one in sets:
        places = np.array([one.base - first])
        for part in (*(np.arange(n) * step for step, n in one.runs), *one.lists):
            places = (places[:, None] + part).ravel()
        touched[places] = True
    return int(touched.sum()), True


def _separate(one: Reach) -> int:
    """Returns the size of a set whose parts never meet (each step clears all below), else 0."""
    parts = [(step, step * (count - 1)) for step, count in one.runs]
    parts += [(int(np.diff(part).min()), int(part[-1])) for part in one.lists]
    covered = 0
    for gap, length in sorted(parts):
        if gap <= covered:
            return 0
        covered += length
    return one.points


def _clusters(sets: list[Reach]) -> list[list[Reach]]:
    """Groups sets whose ranges overlap; ranges of different groups do not."""
    found: list[list[Reach]] = []
    end = -1
    for one in sorted(sets, key=lambda one: one.base):
        if found and one.base <= end:
            found[-1].append(one)
        else:
            found.append([one])
        end = max(end, one.last)
    return found


def _peeled(sets: list[Reach]) -> tuple[int, list[Reach]] | None:
    """Takes off a run that all sets share and that the rest cannot reach across, if there is one.

    Outermost: what is left lies within one step; innermost: what is left moves in whole multiples.
    """
    shared = [run for run in sets[0].runs if all(run in one.runs for one in sets)]
    for step, count in reversed(shared):
        rest = [
            replace(one, runs=tuple(run for run in one.runs if run != (step, count)))
            for one in sets
        ]
        first, last = min(one.base for one in rest), max(one.last for one in rest)
        if last - first < step:
            return count, rest
        steps = [run[0] for one in rest for run in one.runs]
        steps += [math.gcd(*part.tolist()) for one in rest for part in one.lists]
        if step * (count - 1) < math.gcd(*steps, *(one.base - first for one in rest)):
            return count, rest
    return None
