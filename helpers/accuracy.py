"""Is a faster result still right? Both are compared with one run in float64."""

from __future__ import annotations

import copy
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from helpers.isolation import unwrap
from helpers.run_settings import tensors_in
from helpers.timing import MeasurementRefused, Timing, number
from helpers.words import error_line

# A candidate may be this many times as far from float64 as the baseline is. PyTorch's own
# benchmark suite allows 2 to 10 times, by model (`multiplier` in torch/_dynamo/utils.py, `same`).
ERROR_FACTOR = 3.0
NOTHING: Mapping[str, Any] = types.MappingProxyType({})


@dataclass(frozen=True)
class Reference:
    """The result of a run in float64, or None and `why`: the reason why there is none."""

    result: Any
    why: str = ""


def float64_run(fn: Any, *args: Any, kwargs: Mapping[str, Any] = NOTHING) -> Reference:
    """Runs an uncompiled copy of `fn` in float64, twice, and returns the result as a Reference.

    Modules that are `fn`, its owner or arguments are copied; tensors are copied as float64 and
    complex128. The Reference has no result, and says why, if the run fails, if its result is
    not float64 (something inside casts), or if two runs differ (random numbers). A cast inside
    that is undone again before the result cannot be seen. Random states are left as found.
    """
    cards = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=cards):
        try:
            first, second = (_run_in_float64(fn, args, kwargs) for _ in range(2))
        except Exception as error:  # whatever float64 does to code that was not written for it
            return Reference(None, f"the run in float64 failed with {error_line(error)}")
    casts = {str(one.dtype) for one in tensors_in(first) if _is_low(one)}
    if casts:
        return Reference(None, f"the result of the float64 run is {', '.join(sorted(casts))}: "
                         "the function casts inside")  # fmt: skip
    pairs = zip(tensors_in(first), tensors_in(second), strict=True)
    if not all(torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in pairs):
        return Reference(None, "two runs of the function differ: it uses random numbers")
    return Reference(first)


def _is_low(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64)


def _run_in_float64(fn: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    fn = unwrap(fn)
    if isinstance(fn, torch.nn.Module):
        fn = _as_float64(fn)
    elif isinstance(fn, types.MethodType) and isinstance(fn.__self__, torch.nn.Module):
        fn = types.MethodType(fn.__func__, _as_float64(fn.__self__))
    with torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        return fn(*_as_float64(list(args)), **_as_float64(dict(kwargs)))


def _as_float64(value: Any) -> Any:
    """Returns a copy with every floating-point tensor in float64; lists and so on are walked."""
    if isinstance(value, torch.nn.Module):
        return copy.deepcopy(unwrap(value)).double()
    if isinstance(value, torch.Tensor):
        wide = torch.complex128 if value.is_complex() else torch.float64
        wide = wide if value.is_complex() or value.is_floating_point() else value.dtype
        return value.detach().to(wide, copy=True).requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: _as_float64(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_as_float64(item) for item in value)
    return copy.deepcopy(value)


def check_accuracy(baseline: Timing, candidate: Timing, reference: Any, error_factor: float) -> str:
    """Returns what was checked in a sentence; refuses results that are farther off than eager's."""
    found = [tensors_in(one.result) for one in (baseline, candidate)]
    _check_kinds(*found)
    if reference is None:
        reference = Reference(None, "no float64 run was given (float64_run makes one)")
    why = reference.why if isinstance(reference, Reference) else ""
    exact = tensors_in(reference.result if isinstance(reference, Reference) else reference)
    if not found[0] and not why:
        why = "the measured calls returned no tensors"
    if why:
        return f"Accuracy was not checked: {why}."
    if [one.shape for one in exact] != [one.shape for one in found[0]]:
        return "Accuracy was not checked: the float64 run's result has other shapes."
    for index, (ours, theirs, truth) in enumerate(zip(*found, exact, strict=True)):
        _check_tensor(index, ours, theirs, truth, error_factor)
    return (
        f"Accuracy: the first results were compared with a float64 run; the candidate is at most "
        f"{number(error_factor)} times as far from it as the baseline, within rounding."
    )


def _check_kinds(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    kinds = [[(tuple(one.shape), str(one.dtype)) for one in found] for found in (ours, theirs)]
    if kinds[0] != kinds[1]:
        raise MeasurementRefused(
            f"The two callables return different kinds of results ({kinds[0]} and {kinds[1]}).",
            "Then they do not do the same work, and their ratio says nothing.",
            "Compare two forms of one computation.",
        )


def _check_tensor(
    index: int, ours: torch.Tensor, theirs: torch.Tensor, truth: torch.Tensor, factor: float
) -> None:
    truth, step = _wide(truth), _rounding_step(ours.dtype)
    errors = [_errors(_wide(one), truth) for one in (ours, theirs)]
    scales = _scales(truth)
    for name, scale, mine, other in zip(("typical", "largest"), scales, *errors, strict=True):
        allowed = factor * mine + step * scale
        if other > allowed:
            raise MeasurementRefused(
                f"The {name} error of the candidate's result {index} against float64 is "
                f"{other:.3g}; the baseline's is {mine:.3g}, and {allowed:.3g} is allowed "
                f"({number(factor)} times that and one rounding step).",
                "A faster wrong answer is not a speed-up.",
                "Find where the results part (helpers' lesson on numerics), or pass a larger "
                "error_factor if you can say why that is enough.",
            )


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach().cpu()
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.double()


def _rounding_step(dtype: torch.dtype) -> float:
    if dtype.is_complex or dtype.is_floating_point:
        return torch.finfo(dtype).eps
    return 0.0


def _scales(truth: torch.Tensor) -> tuple[float, float]:
    """Returns root mean square and largest magnitude of what is finite, 0 where nothing is."""
    finite = truth[truth.isfinite()]
    if not finite.numel():
        return 0.0, 0.0
    return float(finite.square().mean().sqrt()), float(finite.abs().max())


def _errors(found: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    """Returns typical (root mean square) and largest error; infinite where only one is finite."""
    if not found.numel():
        return 0.0, 0.0
    same = (found == truth) | (found.isnan() & truth.isnan())
    error = torch.where(same, torch.zeros_like(truth), (found - truth).abs())
    error = error.nan_to_num(nan=math.inf, posinf=math.inf)
    return float(error.square().mean().sqrt()), float(error.max())
