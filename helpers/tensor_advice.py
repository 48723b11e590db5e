"""Advice on sizes and other properties of tensors that made torch.compile compile again."""

from __future__ import annotations

import re
from typing import Any

import torch
import torch._dynamo

from helpers.advice_words import Advice, Setting, rows, shown, zero_or_one
from helpers.guard_texts import Failure


def size_advice(failure: Failure, setting: Setting) -> Advice:
    source, i, came = failure.source, failure.index, failure.actual
    reason = f"{source} had size {failure.expected} in dimension {i}; now {came}."
    if i == 0:
        reason = (
            f"{source} had {rows(failure.expected)} (dimension 0 of size {failure.expected}); "
            f"now {came}."
        )
    name = f"{failure.raw}.size()[{i}]"
    if came in (0, 1) or failure.expected in (0, 1):
        return zero_or_one(reason, failure, f"dimension {i} of {source}")
    if name in setting.dynamic:
        return Advice(
            f"{reason} The size was taken for fixed; from now on it is dynamic.",
            f"Often nothing: the new graph serves other sizes too. To save this compilation, call "
            f"torch._dynamo.mark_dynamic({source}, {i}) before the first call or compile with "
            f"dynamic=True; to keep one fixed size, use drop_last=True or pad {source}.",
            False,
        )
    return Advice(f"{reason} {_why_fixed(setting)}", _fixed_size_fix(source, i, setting), True)


def _why_fixed(setting: Setting) -> str:
    if setting.options.get("dynamic") is False:
        return "dynamic=False makes every new size a graph of its own."
    if not torch._dynamo.config.automatic_dynamic_shapes:
        return "automatic_dynamic_shapes is off, so every new size is a graph of its own."
    return "The code needs this size as a plain number, so each size is a graph of its own."


def _fixed_size_fix(source: str, i: int | None, setting: Setting) -> str:
    pad = f"pad {source} to a few fixed sizes (buckets), or use drop_last=True"
    if setting.options.get("dynamic") is False:
        return f"Leave dynamic=False out, so that the size becomes dynamic; or {pad}."
    return (
        f"Keep the size out of Python (range(), lists and int() over {source}.shape[{i}] fix it), "
        f"compile the loop's body instead of the loop, or {pad}."
    )


def fixed_size_advice(failure: Failure, setting: Setting) -> Advice:
    """A size or number that was dynamic, and that the code then turned into a constant."""
    source, i = failure.source, failure.index
    reason = f"{source} had size {failure.expected} in dimension {i}; now {failure.actual}."
    if failure.actual in (0, 1) or failure.expected in (0, 1):
        return zero_or_one(reason, failure, f"dimension {i} of {source}")
    if f"{failure.raw}.size()[{i}]" in setting.dynamic:
        return Advice(
            f"{reason} The code asks whether the size is {failure.expected}, and that decided.",
            "Nothing: the new graph serves all other sizes.",
            False,
        )
    return Advice(
        f"{reason} The code needs this size as a plain number, so each size is a graph of its own.",
        _fixed_size_fix(source, i, setting),
        True,
    )


def relation_advice(failure: Failure, setting: Setting) -> Advice:
    values = failure.actual or {}
    came = ", ".join(f"{name} is {shown(value)}" for name, value in values.items())
    reason = f"The graph holds only while {failure.text}; now {came or 'that is not so'}."
    small = [v for v in values.values() if isinstance(v, int) and v in (0, 1)]
    if re.match(r"^(\d+ <= |.* != [01]$|.* == .*size)", failure.text) and small:
        return zero_or_one(reason, failure, "each size")
    return Advice(
        f"{reason} A condition in the code, or a kernel's choice, asked for it.",
        "Nothing, if both outcomes are needed: it happens once for each outcome. Otherwise keep "
        f"{failure.source or 'the sizes'} on one side of the condition (pad or round it), or take "
        "the condition out of the compiled function.",
        False,
    )


def tensor_fact_advice(failure: Failure, setting: Setting) -> Advice:
    source, what = failure.source, failure.what
    noun, fix = TENSOR_FACTS[what]
    expected, came = (_fact(v) for v in (failure.expected, failure.actual))
    more = " Its sizes became dynamic too." if what == "rank" and _open(failure, setting) else ""
    return Advice(
        f"{source} had {noun} {expected}; now {came}. Each such case has a graph of its own.{more}",
        f"{fix.format(source=source)} Otherwise it happens once for each combination that comes.",
        False,
    )


def _open(failure: Failure, setting: Setting) -> bool:
    return any(name.startswith(f"{failure.raw}.size()") for name in setting.dynamic)


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(value)})"
    return str(value).removeprefix("torch.") if not isinstance(value, torch.Tensor) else "a tensor"


TENSOR_FACTS = {
    "dtype": ("dtype", "Cast {source} to one dtype before the compiled function."),
    "device": ("device", "Move {source} to one device before the compiled function."),
    "layout": ("strides", "Set the memory format once before the compiled function: "
               "{source}.contiguous(), or .contiguous(memory_format=torch.channels_last)."),
    "requires_grad": ("requires_grad", "Call it with {source}.detach(), or with the same "
                      "requires_grad every time."),
    "rank": ("number of dimensions", "Give {source} one number of dimensions: unsqueeze or "
             "flatten it before the compiled function."),
    "dispatch": ("dispatch keys", "Make and use {source} under one mode (torch.inference_mode, "
                 "torch.no_grad, autocast or none) in every call."),
}  # fmt: skip


def tensor_type_advice(failure: Failure, setting: Setting) -> Advice:
    came = failure.actual if isinstance(failure.actual, str) else shown(failure.actual)
    return Advice(
        f"{failure.source} was a {failure.expected}; now {came}. Each kind has its own graph.",
        f"Give {failure.source} the same kind of value in every call (a tensor of zeros or a mask "
        "of ones in place of None); or accept one graph for each kind: it happens once for each.",
        False,
    )
