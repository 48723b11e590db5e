"""Lengths rounded up to buckets: what padding that costs, and how many compilations it saves."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

EXACT = "exact lengths"


def bucket_lengths(lengths: Iterable[int], buckets: Iterable[int]) -> tuple[int, ...]:
    """Returns each length rounded up to the smallest bucket that holds it.

    lengths, buckets: whole numbers from 1 on, in any order. ValueError if a length is longer than
    the largest bucket, or if a number is below 1.
    """
    sizes, given = sorted(set(buckets)), list(lengths)
    wrong = [one for one in (*sizes, *given) if one < 1 or one != int(one)]
    if wrong:
        raise ValueError(f"lengths and buckets are whole numbers from 1 on; got {wrong[0]!r}")
    if given and (not sizes or max(given) > sizes[-1]):
        largest = f"the largest bucket is {sizes[-1]}" if sizes else "there are no buckets"
        raise ValueError(
            f"a length of {max(given)} fits no bucket: {largest}. Add a larger one, or cut it off."
        )
    return tuple(sizes[bisect.bisect_left(sizes, length)] for length in given)


def powers_of_two(lengths: Iterable[int], smallest: int = 8) -> tuple[int, ...]:
    """Returns smallest, twice that, and so on, up to the first that holds the longest length."""
    return _until(lengths, smallest, lambda size: 2 * size)


def multiples_of(step: int, lengths: Iterable[int]) -> tuple[int, ...]:
    """Returns step, 2 step, 3 step, up to the first that holds the longest length."""
    return _until(lengths, step, lambda size: size + step)


def _until(lengths: Iterable[int], first: int, following: Callable[[int], int]) -> tuple[int, ...]:
    if first < 1:
        raise ValueError(f"a bucket is at least 1 long; got {first}")
    longest, sizes = max(lengths, default=1), [first]
    while sizes[-1] < longest:
        sizes.append(following(sizes[-1]))
    return tuple(sizes)


def quantile_buckets(lengths: Iterable[int], count: int) -> tuple[int, ...]:
    """Returns at most `count` buckets that about equally many of the lengths fall into.

    Each bucket is a length that occurs, the last one the longest. ValueError for no lengths or
    a count below 1.
    """
    ordered = sorted(lengths)
    if not ordered or count < 1:
        raise ValueError(f"quantiles need a length and a count from 1 on; got {count} buckets")
    places = (math.ceil(len(ordered) * part / count) - 1 for part in range(1, count + 1))
    return tuple(sorted({ordered[max(place, 0)] for place in places}))


@dataclass(frozen=True)
class BucketPlan:
    """One way to serve lengths: the size that each is padded to, and `dynamic` of torch.compile.

    lengths: real tokens of each call; padded: tokens that are computed, at least as many.
    """

    name: str
    lengths: tuple[int, ...]
    padded: tuple[int, ...]
    dynamic: bool | None = False

    def __post_init__(self) -> None:
        if len(self.lengths) != len(self.padded) or not self.lengths:
            raise ValueError("a plan needs one padded length for each of its lengths")
        if any(real > size for real, size in zip(self.lengths, self.padded, strict=True)):
            raise ValueError("a padded length is shorter than the length itself")

    @property
    def sizes(self) -> tuple[int, ...]:
        """The different sizes that are computed, smallest first."""
        return tuple(sorted(set(self.padded)))

    @property
    def waste(self) -> float:
        """The share of the computed tokens that are padding, from 0 to below 1."""
        return 1 - sum(self.lengths) / sum(self.padded)


def usual_plans(lengths: Sequence[int], quantiles: int = 4) -> tuple[BucketPlan, ...]:
    """Returns the usual ways to serve `lengths`, from no padding at all to one size for all."""
    given = tuple(lengths)

    def fixed(name: str, buckets: Iterable[int], dynamic: bool | None = False) -> BucketPlan:
        return BucketPlan(name, given, bucket_lengths(given, buckets), dynamic)

    return (
        BucketPlan(f"{EXACT}, dynamic=False", given, given, False),
        BucketPlan(f"{EXACT}, automatic", given, given, None),
        BucketPlan(f"{EXACT}, dynamic=True", given, given, True),
        fixed("powers of two", powers_of_two(given)),
        fixed("powers of two, automatic", powers_of_two(given), None),
        fixed("multiples of 64", multiples_of(64, given)),
        fixed(f"{quantiles} quantile buckets", quantile_buckets(given, quantiles)),
        fixed("all to the longest", [max(given)]),
    )


@dataclass(frozen=True)
class PlanResult:
    """What really happened with a plan: compilations, and calls that ran eager past the limit."""

    plan: BucketPlan
    compiles: int
    eager_calls: int

    @property
    def recompiles(self) -> int:
        """Compilations after the first."""
        return max(0, self.compiles - 1)


def count_plans(
    fn: Callable[..., Any],
    make_args: Callable[[int, int], tuple[Any, ...]],
    plans: Iterable[BucketPlan],
) -> tuple[PlanResult, ...]:
    """Runs `fn` over each plan under Dynamo, without generating code, and counts compilations.

    make_args: from (length, padded length) to the arguments of one call. `fn` runs once for
    each call of each plan; what it raises reaches the caller.
    """
    from helpers.recompiles import trace_recompiles

    results = []
    for plan in plans:
        calls = [
            make_args(real, size) for real, size in zip(plan.lengths, plan.padded, strict=True)
        ]
        report = trace_recompiles(fn, calls, compile_options={"dynamic": plan.dynamic})
        for call in report.calls:
            if call.error is not None:
                raise call.error
        results.append(PlanResult(plan, report.compiles, len(report.eager_calls)))
    return tuple(results)


def sentence_lengths(
    count: int = 200, median: float = 24, spread: float = 0.6, longest: int = 200, seed: int = 0
) -> tuple[int, ...]:
    """Returns `count` whole lengths as they are usual for sentences: many short, few long.

    Log-normal (a usual model of sentence lengths) around `median` with `spread`, the standard
    deviation of the logarithm; between 2 and `longest`. The same for the same seed.
    """
    import torch

    dice = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, generator=dice, dtype=torch.float64)
    sizes = (drawn * spread + math.log(median)).exp().round().clamp(2, longest)
    return tuple(int(size) for size in sizes)
