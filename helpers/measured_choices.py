"""What Inductor decides by timing candidates on the card, decided here without one. (Private *.)

Two things: which kernel wins a matmul or convolution under max-autotune (here the library's), and
whether a matmul of odd sizes is padded to aligned ones. For the latter a rule stands in that was
fitted to 192 pairs of times on an H200 (tests/fidelity/padding_h200.json); the card itself
decides small ones differently from run to run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torch._inductor import select_algorithm
from torch._inductor.fx_passes import pad_mm

# Below it, the launches of the copies cost more than the padding saves (H200, measured).
PADDING_PAYS_FROM = 16e9  # floating-point operations of the matmul
_ALIGNED = 8  # elements of bf16 and fp16 that cuBLAS wants rows to be a multiple of (16 bytes)
_OPERAND = re.compile(r"torch\.Size\(\[(?P<sizes>[\d, ]*)\]\), \([\d, ]*\), torch\.(?P<dtype>\w+)")


def padding_pays(m: int, k: int, n: int, dtype: str) -> bool:
    """Returns whether an m x k by k x n matmul of `dtype` ("bfloat16", ...) is taken to be padded.

    Only 16-bit types: fp32 never gained on the H200. Odd m alone never gained either.
    """
    odd = k % _ALIGNED or n % _ALIGNED
    return dtype in ("bfloat16", "float16") and bool(odd) and 2 * m * k * n >= PADDING_PAYS_FROM


@contextlib.contextmanager
def nothing_timed() -> Iterator[list[str]]:
    """Lets Inductor decide without a card in its body; yields what was decided by rule."""
    decided: list[str] = []
    cache = select_algorithm.AlgorithmSelectorCache
    replacements = (
        (cache, "make_benchmark_fn", classmethod(_library_first)),
        (cache, "make_precompile_fn", _nothing_to_compile),
        (select_algorithm, "PRINT_AUTOTUNE", False),  # a table of times that nobody measured
        (pad_mm, "get_cached_should_pad", lambda key: _should_pad(key, decided)),
    )
    with contextlib.ExitStack() as stack:
        for owner, name, value in replacements:
            if hasattr(owner, name):
                stack.enter_context(mock.patch.object(owner, name, value))
        yield decided


def _should_pad(key: str, decided: list[str]) -> bool:
    """Answers for Inductor's memory of measurements, whose key names operands and operator."""
    operands = list(_OPERAND.finditer(key))[:2]
    if len(operands) < 2:
        return False  # open sizes: Inductor pads those of known sizes only
    left, right = ([int(n) for n in one["sizes"].split(",")] for one in operands)
    batch = left[0] if len(left) == 3 else 1
    (m, k), n = left[-2:], right[-1]
    pays = padding_pays(batch * m, k, n, operands[0]["dtype"])
    decided.append(f"{m} x {k} by {k} x {n} is {'' if pays else 'not '}padded")
    return pays


def _library_first(cls: type, choices: Any, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    def times(given: Any, *rest: Any, **more: Any) -> dict[Any, float]:
        extern = select_algorithm.ExternKernelCaller
        return {choice: 0.0 if isinstance(choice, extern) else 1.0 for choice in given}

    return times


def _nothing_to_compile(*args: Any, **kwargs: Any) -> Callable[[], dict[Any, float]]:
    return dict
