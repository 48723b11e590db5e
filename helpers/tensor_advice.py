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
    if _always_fixed(setting):
        return Advice(f"{reason} {_why_fixed(setting)}", _fixed_size_fix(source, i, setting), True)
    dynamic = f"{failure.raw}.size()[{i}]" in setting.dynamic
    if came in (0, 1) or (failure.expected in (0, 1) and not dynamic):
        return zero_or_one(reason, failure, f"dimension {i} of {source}")
    if dynamic:
        return _promoted_size(failure, reason)
    return Advice(f"{reason} {_why_fixed(setting)}", _fixed_size_fix(source, i, setting), True)


def _promoted_size(failure: Failure, reason: str) -> Advice:
    source, i = failure.source, failure.index
    mark = f"torch._dynamo.mark_dynamic({source}, {i})"
    if failure.expected in (0, 1):
        return Advice(
            f"{reason} Sizes 0 and 1 are special: each has a graph of its own. From now on the "
            "size is dynamic, from 2 on.",
            f"Often nothing: the new graph serves all sizes from 2 on. To have one graph fewer, "
            f"let {source} have at least 2 in dimension {i} from the first call on, and call "
            f"{mark} before it.",
            False,
        )
    return Advice(
        f"{reason} The size was taken for fixed; from now on it is dynamic.",
        f"Often nothing: the new graph serves other sizes too. To save this compilation, call "
        f"{mark} before the first call or compile with dynamic=True; to keep one fixed size, use "
        f"drop_last=True or pad {source}.",
        False,
    )


def _always_fixed(setting: Setting) -> bool:
    return (
        setting.options.get("dynamic") is False or not torch._dynamo.config.automatic_dynamic_shapes
    )


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
    sizes = [v for name, v in values.items() if ".stride" not in name]
    small = [v for v in sizes if isinstance(v, int) and v in (0, 1)]
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
    opened = _opened(failure, setting)
    known = "None" in failure.expected if isinstance(failure.expected, list) else True
    if opened and (what == "rank" or (what == "layout" and ("strides" in opened or not known))):
        after = f"From now on its {opened} are dynamic, so the new graph serves others too."
    else:
        after = "Each such case has a graph of its own."
    reason = f"{source} had {noun} {expected}; now {came}."
    if what == "layout" and failure.expected is None:
        reason = f"The strides of {source} are now {came}, and {failure.text} does not hold."
    return Advice(
        f"{reason} {after}",
        f"{fix.format(source=source)} Otherwise it happens once for each combination that comes.",
        False,
    )


def grad_advice(failure: Failure, setting: Setting) -> Advice:
    """A tensor that learns was taken for one that does not, or the other way round."""
    source = failure.source
    if failure.expected in (True, 1):
        reason = f"{source} required a gradient; now it does not."
    else:
        reason = f"{source} required no gradient; now it does."
    fix = (
        f"Give {source} the same requires_grad in every call: {source}.detach() before the call "
        f"where no gradient is wanted, {source}.requires_grad_() where one is. A call under "
        "torch.no_grad() does not help, since requires_grad itself is looked at."
    )
    if source.startswith("self"):
        fix = f"Freeze or unfreeze with {source}.requires_grad_() before the first call."
    return Advice(
        f"{reason} Each has its own graph.", f"{fix} Otherwise it happens once for each.", False
    )


def dispatch_advice(failure: Failure, setting: Setting) -> Advice:
    """Torch's own marks on a tensor: whether it was made in inference mode, views of it, ..."""
    source = failure.source
    expected, came = (set(re.findall(r"\w+", str(v))) for v in (failure.expected, failure.actual))
    gone, new = (sorted(keys - {"DispatchKeySet"}) for keys in (expected - came, came - expected))
    special = f"{source} is an inference tensor (made under torch.inference_mode)"
    if any(key.startswith("Autograd") for key in gone):
        reason = f"{special}; the graph was made for an ordinary tensor."
    elif any(key.startswith("Autograd") for key in new):
        reason = f"{source} is an ordinary tensor; the graph was made for an inference tensor."
    else:
        marks = [f"without {key}" for key in gone] + [f"with {key}" for key in new]
        reason = f"{source} is of another kind to torch's dispatcher: now {', '.join(marks)}."
        return Advice(
            f"{reason} Each kind has its own graph.",
            f"Make {source} in the same way for every call (for a lazy conjugate or negative view: "
            "resolve_conj(), resolve_neg()). Otherwise it happens once for each kind.",
            False,
        )
    return Advice(
        f"{reason} Each kind has its own graph.",
        f"Make {source} under torch.no_grad() in place of torch.inference_mode(), or take "
        f"{source}.clone() outside of inference mode. Otherwise it happens once for each kind.",
        False,
    )


def _opened(failure: Failure, setting: Setting) -> str:
    """Returns what of a tensor is dynamic in the new graph: "sizes", "strides", both or none."""
    found = [
        noun
        for noun, prefix in (("sizes", ".size()"), ("strides", ".stride()"))
        if any(name.startswith(failure.raw + prefix) for name in setting.dynamic)
    ]
    return " and ".join(found)


def _fact(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join('any' if part == 'None' else part for part in value)})"
    return str(value).removeprefix("torch.") if not isinstance(value, torch.Tensor) else "a tensor"


TENSOR_FACTS = {
    "dtype": ("dtype", "Cast {source} to one dtype before the compiled function."),
    "device": ("device", "Move {source} to one device before the compiled function."),
    "layout": ("strides", "Set the memory format once before the compiled function: "
               "{source}.contiguous(), or .contiguous(memory_format=torch.channels_last)."),
    "rank": ("number of dimensions", "Give {source} one number of dimensions: unsqueeze or "
             "flatten it before the compiled function."),
}  # fmt: skip


def tensor_type_advice(failure: Failure, setting: Setting) -> Advice:
    source, tensors = failure.source, isinstance(failure.actual, str)
    came = f"a {failure.actual}" if tensors else shown(failure.actual)
    fix = "one or the other" if tensors else "a tensor of zeros or a mask of ones in place of None"
    return Advice(
        f"{source} was a {failure.expected}; now {came}. Each kind has its own graph.",
        f"Give {source} the same kind of value in every call ({fix}); or accept one graph for "
        "each kind: it happens once for each.",
        False,
    )
