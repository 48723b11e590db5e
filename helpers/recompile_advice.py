"""What a failed guard means in plain words, whether it will go on failing, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from helpers.advice_words import Advice, Setting, shown
from helpers.guard_texts import Failure
from helpers.guards import BEFORE_BREAK
from helpers.tensor_advice import (
    TENSOR_FACTS,
    dispatch_advice,
    fixed_size_advice,
    grad_advice,
    relation_advice,
    size_advice,
    tensor_fact_advice,
    tensor_type_advice,
)
from helpers.value_advice import value_advice
from helpers.words import counted

_AMBIENT = (
    ("grad_mode", "grad mode", "torch.no_grad()"),
    ("autocast", "autocast", "torch.autocast"),
    ("default_dtype", "the default dtype", "torch.set_default_dtype"),
    ("deterministic", "deterministic algorithms", "torch.use_deterministic_algorithms"),
    ("num_threads", "the number of threads", "torch.set_num_threads"),
    ("tf32", "TF32", "torch.set_float32_matmul_precision"),
    ("reduce", "reduced-precision sums", "torch.backends.cuda.matmul"),
    ("inference", "inference mode", "torch.inference_mode()"),
    ("mode_stack", "the stack of torch function modes", "a torch function mode"),
    ("torch_function", "torch functions being overridden", "a tensor subclass or mode"),
    ("CURRENT_DEVICE", "the default device", "torch.set_default_device"),
    ("saved_tensors_hooks", "hooks on saved tensors", "torch.autograd.graph.saved_tensors_hooks"),
)


def ambient_name(failure: Failure) -> str:
    """Returns what of the surroundings differs ("grad mode"), in the field's words."""
    return " and ".join(name for name, _ in _ambient(failure)) or "the surroundings"


def advise(failure: Failure, setting: Setting) -> Advice:
    """Returns reason, fix (neither empty) and whether further new values compile again."""
    return _ADVISERS.get(failure.what, _other)(failure, setting)


def advise_on_all(failures: Sequence[Failure], setting: Setting) -> Advice:
    """Returns one advice on all that differs; what is said of several things is said once."""
    advices = [advise(failure, setting) for failure in failures]
    reasons = list(dict.fromkeys(advice.reason for advice in advices))
    more = len(reasons) - 2
    names = list(dict.fromkeys(failure.source for failure in failures[2:] if failure.source))
    tail = ""
    if more > 0:
        also = f" ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})" if names else ""
        tail = f" And {counted(more, 'more thing')}{also} {'differs' if more == 1 else 'differ'}."
    repeat = any(advice.will_repeat for advice in advices)
    return Advice(
        " ".join(reasons[:2]) + tail, " ".join(_fixes(failures, advices, setting)[:2]), repeat
    )


def _fixes(failures: Sequence[Failure], advices: Sequence[Advice], setting: Setting) -> list[str]:
    """Returns the repairs, what goes on happening first; the same one is told once, with names."""
    fixes: dict[str, str] = {}
    same: dict[str, list[str]] = {}
    pairs = sorted(zip(failures, advices, strict=True), key=lambda pair: not pair[1].will_repeat)
    for failure, advice in pairs:
        key = _pattern(failure, setting) or advice.fix
        if key not in fixes:
            fixes[key] = advice.fix
        elif advice.fix != fixes[key]:
            at = "" if failure.index is None else f" (dimension {failure.index})"
            same.setdefault(key, []).append(failure.source + at)
    return [fix + _same_for(same.get(key, [])) for key, fix in fixes.items()]


def _pattern(failure: Failure, setting: Setting) -> str:
    """Returns the repair without the name and numbers that it is told with, empty for others."""
    if failure.what not in ("size", "value", "requires_grad") or ".param_groups" in failure.raw:
        return ""
    if BEFORE_BREAK in failure.source:
        return ""
    name = "self.?" if failure.source.startswith("self") else "?"
    told = advise(replace(failure, source=name), setting).fix
    return re.sub(r"-?\d[\d.e-]*", "#", told)


def _same_for(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    if not names:
        return ""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f" The same for {', '.join(names[:4])}{more}."


def _ambient(failure: Failure) -> list[tuple[str, str]]:
    text = f"{failure.text} {failure.actual or ''}"
    return [(name, by) for key, name, by in _AMBIENT if key in text]


def _none(failure: Failure, setting: Setting) -> Advice:
    was = "None" if failure.expected is None else "not None"
    tensor = isinstance(failure.actual, torch.Tensor) or failure.actual is None
    instead = ", for example a tensor of zeros or a mask of ones in place of None" if tensor else ""
    return Advice(
        f"{failure.source} was {was}; now {shown(failure.actual)}. With and without it are "
        "different graphs.",
        f"Nothing, if both are needed: it happens once for each. Otherwise always give "
        f"{failure.source}{instead}.",
        False,
    )


def _type(failure: Failure, setting: Setting) -> Advice:
    came = type(failure.actual).__name__
    was = f"type {failure.expected.rpartition('.')[2]}" if failure.expected else "another type"
    return Advice(
        f"{failure.source} was of {was} when the graph was compiled; now {came}. Each type has its "
        "own graph.",
        f"Give {failure.source} one type in every call; otherwise it happens once for each type.",
        False,
    )


def _identity(failure: Failure, setting: Setting) -> Advice:
    source = failure.source or "an object"
    came = f"; now {shown(failure.actual)}" if failure.actual is not None else ""
    return Advice(
        f"The graph is bound to one object as {source}{came}, which is another one. Each object "
        "is a graph of its own.",
        f"Make the function, module or object that is {source} once and use it again, in place of "
        "a fresh lambda or instance in each call; or pass what differs between them as a tensor.",
        True,
    )


def _length(failure: Failure, setting: Setting) -> Advice:
    fix = (
        f"Keep the length of {failure.source} fixed (pad it), stack its tensors into one "
        "(torch.stack), or keep it out of the compiled function."
    )
    if failure.owner == "module":
        fix = f"Build {failure.source} as a whole before the first call."
    return Advice(
        f"{failure.source} had {counted(failure.expected, 'member')}; now {failure.actual}. The "
        "members are unrolled into the graph, so each length is a graph of its own.",
        fix,
        True,
    )


def _optimizer_state(failure: Failure, setting: Setting) -> Advice:
    return Advice(
        "The optimizer's state was another one: it is made in the first step (momentum and the "
        "like), so the second one finds what was not there.",
        "Nothing: it happens once. To save it, take one step outside of the compiled function.",
        False,
    )


def _calling(failure: Failure, setting: Setting) -> Advice:
    kind = "by position" if "args" in failure.raw and "kw" not in failure.raw else "by name"
    return Advice(
        f"{failure.source} was called with {counted(failure.expected, 'argument')} {kind}; now "
        f"{failure.actual}.",
        "Pass the arguments the same way in every call; otherwise it happens once for each way.",
        False,
    )


def _keys(failure: Failure, setting: Setting) -> Advice:
    now = f"; now {shown(failure.actual)}" if failure.actual is not None else ""
    if isinstance(failure.actual, (set, frozenset)):
        return Advice(
            f"{failure.source} had other members{now}. What is in it decides on the graph.",
            f"Decide on {failure.source} outside of the compiled function, or keep to few "
            "different sets: it happens once for each case.",
            False,
        )
    return Advice(
        f"{failure.source} had other keys{now}. The keys are part of the graph, so each set of "
        "keys is a graph of its own.",
        f"Give {failure.source} the same keys in the same order in every call, or pass only the "
        "values that the function needs.",
        True,
    )


def _surroundings(failure: Failure, setting: Setting) -> Advice:
    found = _ambient(failure)
    names = ambient_name(failure)
    by = " or ".join(dict.fromkeys(by for _, by in found)) or "the same settings"
    return Advice(
        f"The graph was compiled under another setting of {names}. Each setting has its own graph.",
        f"Call it under one setting: always or never under {by}. Otherwise it happens once for "
        "each setting, for example once for training and once for evaluation.",
        False,
    )


def _aliasing(failure: Failure, setting: Setting) -> Advice:
    source = failure.source or "the arguments"
    return Advice(
        f"Whether {source} are the same tensor (or share memory) differs from when the graph was "
        "compiled.",
        "Pass different tensors (a clone), or the same one, in every call; otherwise it happens "
        "once for each case.",
        False,
    )


def _attribute(failure: Failure, setting: Setting) -> Advice:
    marked = "_dynamo_" in failure.text
    what = "a dimension was marked dynamic" if marked else "an attribute came or went"
    fix = "Mark the tensors of every call alike, before the first call."
    return Advice(
        f"{failure.source}: {what} since the graph was compiled ({failure.text}).",
        fix if marked else f"Give {failure.source} all its attributes before the first call.",
        False,
    )


def _other(failure: Failure, setting: Setting) -> Advice:
    return Advice(
        f"The graph holds only while this does: {failure.text}.",
        "Keep what it names the same in every call.",
        False,
    )


_ADVISERS: dict[str, Callable[[Failure, Setting], Advice]] = {
    "size": size_advice,
    "fixed size": fixed_size_advice,
    "value": value_advice,
    "relation": relation_advice,
    **dict.fromkeys(TENSOR_FACTS, tensor_fact_advice),
    "tensor type": tensor_type_advice,
    "none": _none,
    "type": _type,
    "identity": _identity,
    "gone": _identity,
    "length": _length,
    "keys": _keys,
    "optimizer state": _optimizer_state,
    "requires_grad": grad_advice,
    "dispatch": dispatch_advice,
    "calling": _calling,
    "surroundings": _surroundings,
    "aliasing": _aliasing,
    "attribute": _attribute,
}
