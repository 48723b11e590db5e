"""Advice on numbers, strings and other values that made torch.compile compile again."""

from __future__ import annotations

import math

from helpers.advice_words import Advice, Setting, first_up, place, shown
from helpers.guard_texts import Failure
from helpers.guards import BEFORE_BREAK


def value_advice(failure: Failure, setting: Setting) -> Advice:
    what = f"the {place(failure, setting)} {failure.source}".replace(
        f"value {BEFORE_BREAK}", "value"
    )
    expected, came = failure.expected, failure.actual
    reason = f"{first_up(what)} was {shown(expected)}; now {shown(came)}."
    if isinstance(came, bool) or isinstance(expected, bool) or came is None:
        return Advice(
            f"{reason} Each value takes its own path, so each has its own graph.",
            f"Nothing, if both values are needed: it happens once for each. Otherwise keep "
            f"{failure.source} the same in every call, or compile one function for each value.",
            False,
        )
    if BEFORE_BREAK in failure.source:
        return _from_before_break(failure, setting, reason)
    if isinstance(came, (int, float)) and isinstance(expected, (int, float)):
        return _number(failure, setting, reason)
    if type(came) is not type(expected):
        return Advice(
            f"{reason} Values of different types have different graphs.",
            f"Give {failure.source} one type in every call; otherwise it happens once for each "
            "type.",
            False,
        )
    if isinstance(came, str):
        return _text_value(failure, reason)
    return Advice(
        f"{reason} It is a constant to Dynamo, so each value is a graph of its own.",
        f"Use few different values of {failure.source}, or decide on it outside the compiled "
        "function. It happens once for each value.",
        False,
    )


def _from_before_break(failure: Failure, setting: Setting, reason: str) -> Advice:
    repeat = failure.raw not in setting.dynamic
    after = (
        "so every new value is a graph of its own." if repeat
        else "and from now on it is an input of the graph behind the break."
    )  # fmt: skip
    return Advice(
        f"{reason} Python computed it at the graph break, {after}",
        "Repair the graph break (explain_graph_breaks names it): keep the value a tensor in place "
        "of .item() or a Python number or string, or compute it before the compiled function and "
        "take only tensors in.",
        repeat,
    )


def _text_value(failure: Failure, reason: str) -> Advice:
    return Advice(
        f"{reason} A string is a constant to Dynamo, so every new string is a graph of its own; "
        "dynamic=True does not help.",
        f"Take {failure.source} out of the compiled function: turn it into numbers outside and "
        "compile only the part that takes tensors (token ids); or, if it names one of a few "
        "choices, keep to those.",
        True,
    )


def _number(failure: Failure, setting: Setting, reason: str) -> Advice:
    source, came = failure.source, failure.actual
    kind = "float" if isinstance(came, float) else "int"
    if type(came) is not type(failure.expected):
        after = f" From now on the {kind} is an input of the graph, so others are served too."
        return Advice(
            f"{reason} An int and a float have different graphs."
            + (after if failure.raw in setting.dynamic else ""),
            f"Give {source} one type in every call; otherwise it happens once for each type.",
            False,
        )
    if came != came:
        return Advice(
            f"{reason} NaN equals nothing, so it has a graph of its own.",
            f"Keep NaN out of {source}, or pass it as a tensor; otherwise every call with NaN may "
            "compile again.",
            True,
        )
    if math.isinf(came):
        return Advice(
            f"{reason} An infinite float is always a constant, so it has a graph of its own.",
            f"Nothing, if infinity is needed: it happens once for each sign. Otherwise pass "
            f"{source} as a tensor, or a large finite number (torch.finfo(dtype).max).",
            False,
        )
    if failure.raw in setting.dynamic:
        return Advice(
            f"{reason} The {kind} was taken for fixed; from now on it is an input of the graph.",
            "Often nothing: the new graph serves other values too. To save this compilation, "
            f"{_as_tensor(failure, setting)}.",
            False,
        )
    return _static_number(failure, setting, reason, kind)


def _static_number(failure: Failure, setting: Setting, reason: str, kind: str) -> Advice:
    """A number that the new graph holds as a constant too."""
    source = failure.source
    if kind == "int" and failure.owner == "module":
        return Advice(
            f"{reason} An int attribute of a module is static by default, so every new value is a "
            "graph of its own.",
            f"Keep {source} in a buffer (register_buffer with a tensor) or count outside forward; "
            "or set torch._dynamo.config.allow_unspec_int_on_nn_module = True, also where the "
            "number only tells equal blocks apart.",
            True,
        )
    if place(failure, setting) == "global variable":
        return Advice(
            f"{reason} A global number is a constant to Dynamo, so every new value is a graph of "
            "its own.",
            f"Pass {source} as an argument (a tensor, or a number that may become dynamic) in "
            "place of changing the global.",
            True,
        )
    return _fixed_number(failure, reason, kind)


def _as_tensor(failure: Failure, setting: Setting) -> str:
    tensor = f"torch.tensor({failure.actual!r})"
    if ".param_groups" in failure.raw:
        if failure.source.endswith("['lr']"):
            return f"make the optimizer with a tensor (lr={tensor}) and change that in place"
        return f"keep {failure.source} the same in every step"
    if isinstance(failure.actual, int):
        return (
            f"compile with dynamic=True; or, where it is used only in arithmetic and is no size "
            f"or index, pass {failure.source} as a tensor: {tensor}"
        )
    return f"pass {failure.source} as a tensor: {tensor}"


def _fixed_number(failure: Failure, reason: str, kind: str) -> Advice:
    source = failure.source
    if kind == "int":
        return Advice(
            f"{reason} The code needs the int as a plain number (a range() that is unrolled, an "
            "index, a shape), so each value is a graph of its own.",
            "Compile the loop's body and loop outside, or keep to a few fixed values of "
            f"{source} (pad up to them). If {source} is only used in arithmetic, pass it as a "
            f"tensor: torch.tensor({failure.actual!r}).",
            True,
        )
    return Advice(
        f"{reason} The code needs the float as a plain number, so each value is a graph of its "
        "own.",
        f"Pass {source} as a tensor (torch.tensor({failure.actual!r})), or hoist what is computed "
        "from it out of the compiled function.",
        True,
    )
