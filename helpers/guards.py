"""Guards: what Dynamo assumed when it captured a frame, in plain words, with what each protects."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# One guard in the printed tree: "| +- TENSOR_MATCH: check_tensor(...)  # code  # file:line in f".
_LINE = re.compile(r"^[|\s]*\+- (?P<kind>[A-Z][A-Z0-9_]*): (?P<rest>.+)$")
_USER_LINE = re.compile(r"\s{2,}# (?P<code>.*?)\s+# \S+?:(?P<lineno>\d+) in \S+")
_SOURCE = re.compile(
    r"""[LG]\[(?:'[^']*'|"[^"]*")\](?:\.\w+\b(?!\()|\[(?:'[^']*'|"[^"]*"|\d+)\])*"""
)
_ENTRY = re.compile(r"""\._(?:modules|parameters|buffers)\[(?:'|")(\w+)(?:'|")\]""")
_TENSOR = re.compile(
    r"check_tensor\(.*?(?P<dtype>torch\.\w+), device=(?P<device>[^,]+), "
    r"requires_grad=(?P<grad>\w+), size=\[(?P<size>[^]]*)\], stride=\[(?P<stride>[^]]*)\]\)"
)
_TYPE = re.compile(r"type=<class '(?P<name>[^']+)'>")
_OBJECT = re.compile(r"___check_obj_id\(.+, (?P<value>True|False|None)\)")
_KEY = re.compile(r"list\(dict\.keys\((?P<dict>.+?)\)\)\[(?P<index>\d+)\] == (?P<key>.+)$")
_OWN = re.compile(r"(?P<no>not )?___dict_contains\('(?P<name>\w+)', (?P<of>.+?)(?:\.__dict__)?\)$")
BEFORE_BREAK = "(a value from before the graph break)"
_SINGLETONS = {id(value): str(value) for value in (True, False, None)}

# Assumptions about the surroundings and not about one value: kind, words.
_AMBIENT = {
    "GLOBAL_STATE": "grad mode (torch.no_grad()), autocast, deterministic algorithms and default "
    "dtype are as then",
    "DEFAULT_DEVICE": "the default device is as then",
    "TORCH_FUNCTION_MODE_STACK": "no other torch function mode is active than then",
    "NO_TENSOR_ALIASING": "these arguments are different tensors",
    "STORAGE_OVERLAPPING": "these tensors share memory, or do not, as they did then",
    "GRAD_MODE": "grad mode is as then",
    "DETERMINISTIC_ALGORITHMS": "the choice of deterministic algorithms is as then",
    "TORCH_FUNCTION_STATE": "torch functions are overridden as they were then",
    "FSDP_TRAINING_STATE": "FSDP is in the same state as then",
    "DUAL_LEVEL": "forward-mode differentiation is as then",
    "FUNCTORCH_STACK_MATCH": "the stack of torch.func transforms is as then",
}


@dataclass(frozen=True)
class Guard:
    """One assumption under which a compiled frame may be used again.

    source: what it protects, as the learner writes it ("x", "self.scale", "EPS"; empty for the
    surroundings); words: the assumption in plain words; kind and text: Dynamo's own; lineno: the
    line that made Dynamo assume it (0 where torch does not tell); line: that line's text.
    """

    source: str
    words: str
    kind: str
    text: str
    lineno: int = 0
    line: str = ""

    @property
    def ambient(self) -> bool:
        """True if it is about the surroundings (grad mode, default device), not about a value."""
        return not self.source

    def __str__(self) -> str:
        return self.words


def read_guards(guard_manager: Any) -> tuple[Guard, ...]:
    """Returns the guards of one cache entry, those about values first, in Dynamo's order."""
    found = []
    for line in str(guard_manager).splitlines():
        match = _LINE.match(line)
        if match:
            found.append(_guard(match["kind"], match["rest"]))
    once: dict[tuple[str, str], Guard] = {}
    for guard in found:
        once.setdefault((guard.source, guard.words), guard)
    return tuple(sorted(once.values(), key=lambda guard: guard.ambient))


def _guard(kind: str, rest: str) -> Guard:
    user = _USER_LINE.search(rest)
    text = _steady(re.split(r"\s+# ", rest, maxsplit=1)[0].strip())
    lineno, line = (int(user["lineno"]), user["code"].strip()) if user else (0, "")
    if "init_ambient_guards" in rest:
        lineno, line = 0, ""
        kind = kind if kind in _AMBIENT else "AMBIENT"
    found = _SOURCE.search(text)
    if kind in _AMBIENT or found is None:
        if "top_saved_tensors_hooks" in text:
            words = "the hooks on tensors saved for backward are as then"
        else:
            words = _AMBIENT.get(kind, f"the surroundings are as then: {readable(text)}")
        return Guard("", words, kind, text, lineno, line)
    source = readable(found[0])
    return Guard(source, _words(kind, text, source), kind, text, lineno, line)


def _steady(text: str) -> str:
    """Returns Dynamo's text without ids of objects, addresses, paths and running numbers.

    They differ from run to run. The ids of True, False and None are kept in words.
    """
    text = re.sub(r", (\d{6,})\)", lambda m: f", {_SINGLETONS.get(int(m[1]), 'id')})", text)
    text = re.sub(r"(<[^<>]*?) at 0x[0-9a-f]+(?:, file \"[^\"]*\", line \d+)?", r"\1", text)
    return re.sub(r"__builtins_dict___\d+", "__builtins_dict__", text)


def readable(text: str) -> str:
    """Returns an expression as the learner writes it: L['self']._modules['fc'] becomes self.fc."""
    text = re.sub(r"G\['__builtins_dict__[^']*'\]\['(\w+)'\]", r"\1", text)
    text = re.sub(r"G\['__import_(\w+)'\]", lambda m: m[1].replace("_dot_", "."), text)
    text = _ENTRY.sub(r".\1", text)
    # A resume function holds what was on Python's stack at the break under names of Dynamo's own.
    text = re.sub(r"___from_numpy\((.+?)\)", r"\1", text)
    text = re.sub(r"""L\[(?:'|")___stack\d+(?:'|")\]""", BEFORE_BREAK, text)
    return re.sub(r"""[LG]\[(?:'|")([^'"]+)(?:'|")\]""", r"\1", text)


def _words(kind: str, text: str, source: str) -> str:
    write = _WRITERS.get(kind)
    words = write(text, source) if write else None
    return words or readable(text)


def _tensor(text: str, source: str) -> str | None:
    match = _TENSOR.search(text)
    if match is None:
        return None
    sizes = [part.strip() for part in match["size"].split(",") if part.strip()]
    shape = ", ".join("any" if size == "None" else size for size in sizes)
    shape += "," if len(sizes) == 1 else ""
    layout = _layout(sizes, [part.strip() for part in match["stride"].split(",") if part.strip()])
    device = "the CPU" if match["device"] == "None" else f"cuda:{match['device']}"
    grad = "requires a gradient" if match["grad"] == "True" else "requires no gradient"
    dtype = match["dtype"].removeprefix("torch.")
    kind = f"{'an' if dtype[0] in 'aeio' else 'a'} {dtype} tensor"
    return f"{source} is {kind} of shape ({shape}){layout} on {device} that {grad}"


def _layout(sizes: list[str], strides: list[str]) -> str:
    """Returns the layout in memory as ", contiguous," or ", strides (1, 8),".

    Empty where a stride is not fixed: what must hold for it then stands in guards of its own.
    """
    if not strides or not all(part.isdigit() for part in strides):
        return ""
    # The strides of a contiguous tensor follow from all sizes but the first.
    inner = [int(size) if size.isdigit() else None for size in sizes[1:]]
    if None not in inner:
        plain = [math.prod(max(size, 1) for size in inner[i:]) for i in range(len(sizes))]
        if plain == list(map(int, strides)):
            return ", contiguous,"
    return f", strides ({', '.join(strides)}{',' if len(strides) == 1 else ''}),"


def _same_object(text: str, source: str) -> str:
    match = _OBJECT.search(text)
    if match:
        return f"{source} is {match['value']}"
    return f"{source} is the very same object as then"


def _type(text: str, source: str) -> str:
    match = _TYPE.search(text)
    name = match["name"].removeprefix("__main__.") if match else None
    return f"{source} is of type {name}" if name else f"{source} is of the same type as then"


def _missing_attribute(text: str, source: str) -> str:
    if re.search(r"_dynamo_\w*indices", text):
        return f"no dimension of {source} is marked dynamic"
    return readable(text)


def _equal(text: str, source: str) -> str:
    key = _KEY.search(text)
    if key:
        place = int(key["index"]) + 1
        return f"key number {place} of {readable(key['dict'])} is {key['key']}"
    return readable(text).replace(" == ", " equals ", 1)


def _length(text: str, source: str) -> str:
    if text.startswith("not "):
        return f"{source} is empty"
    return readable(text).replace(" == ", " is ", 1)


def _contains(text: str, source: str) -> str | None:
    match = _OWN.search(text)
    if match is None:
        return None
    of, name = readable(match["of"]), match["name"]
    if "__dict__" in text:
        return f"{of} has {'no' if match['no'] else 'an'} attribute {name} of its own"
    return f"{of} has {'no' if match['no'] else 'a'} key {name!r}"


_WRITERS: dict[str, Callable[[str, str], str | None]] = {
    "TENSOR_MATCH": _tensor,
    "EQUALS_MATCH": _equal,
    "CONSTANT_MATCH": _equal,
    "TRUE_MATCH": lambda text, source: f"{source} is True",
    "FALSE_MATCH": lambda text, source: f"{source} is False",
    "NONE_MATCH": lambda text, source: f"{source} is None",
    "ID_MATCH": _same_object,
    "FUNCTION_MATCH": _same_object,
    "CLOSURE_MATCH": _same_object,
    "BUILTIN_MATCH": _same_object,
    "MODULE_MATCH": _same_object,
    "CLASS_MATCH": _same_object,
    "TYPE_MATCH": _type,
    "LENGTH_CHECK": _length,
    "SEQUENCE_LENGTH": _length,
    "TUPLE_ITERATOR_LEN": _length,
    "DICT_LENGTH": _length,
    "DICT_CONTAINS": _contains,
    "NO_HASATTR": _missing_attribute,
    "DIMENSION_DYNAMIC_MARKING_GUARD": _missing_attribute,
}
