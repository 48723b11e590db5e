"""Which properties of a tensor differ from what a TENSOR_MATCH guard assumes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

from helpers.guard_texts import Failure
from helpers.guards import readable


def tensor_failures(match: re.Match[str], raw: str, value: Any) -> Iterator[Failure]:
    source = readable(raw)

    def differs(what: str, expected: Any, actual: Any, index: int | None = None) -> Failure:
        at = "" if index is None else f" at index {index}"
        text = f"tensor '{source}' {what} mismatch{at}. expected {expected}, actual {actual}"
        return Failure(what, source, text, expected, actual, index, raw)

    if not isinstance(value, torch.Tensor):
        yield differs("tensor type", match["cls"], value)
        return
    if type(value).__name__ != match["cls"]:
        yield differs("tensor type", match["cls"], type(value).__name__)
    if str(value.dtype) != match["dtype"]:
        yield differs("dtype", match["dtype"], str(value.dtype))
    device = _device(match["keys"], match["device"])
    if device and device != str(value.device):
        yield differs("device", device, str(value.device))
    if str(value.requires_grad) != match["grad"]:
        yield differs("requires_grad", match["grad"] == "True", value.requires_grad)
    if value.layout != torch.strided:
        return
    sizes, strides = parts_of(match["size"]), parts_of(match["stride"])
    if len(sizes) != value.ndim:
        yield differs("rank", len(sizes), value.ndim)
        return
    for i, (size, came) in enumerate(zip(sizes, value.shape, strict=True)):
        if size != "None" and size != str(came):
            yield differs("size", int(size), came, i)
    if not _same_layout(sizes, strides, value):
        yield differs("layout", strides, [str(n) for n in value.stride()])


def parts_of(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _device(keys: str, index: str) -> str:
    """Returns the device that a TENSOR_MATCH expects, empty where its text does not tell."""
    kinds = [kind for kind in ("CUDA", "Meta", "CPU") if kind in parts_of(keys)]
    if not kinds:
        return ""
    return f"cuda:{index}" if kinds[0] == "CUDA" else kinds[0].lower()


def _same_layout(sizes: list[str], strides: list[str], value: torch.Tensor) -> bool:
    """True if the strides are as expected, or differ only because sizes do."""
    actual = list(value.stride())
    if "None" in strides or "None" in sizes or len(strides) != len(actual):
        pairs = zip(strides, actual, strict=False)
        if all(s in ("None", str(a)) for s, a in pairs):
            return True
        return "None" in sizes[1:] and value.is_contiguous()
    if sizes == [str(n) for n in value.shape]:
        return strides == [str(n) for n in actual]
    plain = torch.empty([int(n) for n in sizes], device="meta").stride()
    if list(map(str, plain)) == strides:
        return value.is_contiguous()

    def order(numbers: list[int]) -> list[int]:
        return sorted(range(len(numbers)), key=lambda i: -numbers[i])

    return order([int(s) for s in strides]) == order(actual)
