"""One failed guard, read from its own text: what it is about, what was assumed, what came."""

from __future__ import annotations

import contextlib
import enum
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from helpers.guards import readable

_COMMENT = re.compile(r"\s+# |\s+\(HINT: ")
_TORCH_TENSOR = re.compile(
    r"^tensor '(?P<source>.+)' (?P<what>size|stride|dtype|rank|requires_grad|device index"
    r"|dispatch key set|\w+) mismatch(?: at index (?P<index>\d+))?\. "
    r"expected (?:requires_grad=)?(?P<expected>.+?)(?:(?:, actual|\. Actual) ?(?P<actual>.+?))?\.?$"
)
_NO_TENSOR = re.compile(
    r"^expected type of '(?P<source>.+)' to be (?:a tensor type|<class '(?P<cls>[^']+)'>)"
)
_ABOUT_PARAMETERS = re.compile(r"\. Guard failed on a parameter, consider using .*$")
_SIZE = re.compile(r"^(?P<of>.+)\.size\(\)\[(?P<index>\d+)\]$")
# A comparison with a constant, either way round; what a relation between values does not match.
EQUALS = re.compile(r"^(?P<source>[LG]\[[^ ]+) == (?P<value>.+)$")
NAMES = re.compile(
    r"""[LG]\[(?:'[^']*'|"[^"]*")\](?:\.\w+(?:\(\))?|\[(?:'[^']*'|"[^"]*"|\d+)\])*"""
)
_PROPERTY = re.compile(r"\.(?:size|stride|storage_offset)\(\)(?:\[\d+\])?$")
_TYPE = re.compile(r"type=<(?:class|enum) '(?P<name>[^']+)'>")
CLASS_ID = re.compile(r"___check_type_id\(.+, (?P<id>\d+)\)")
_OBJECT_ID = re.compile(r"___check_obj_id\(.+, (?P<id>\d+)\)")
_SINGLETONS = {id(value): value for value in (True, False, None)}
_LENGTH = re.compile(r"^(?:len\((?P<of>.+)\) [!=]= (?P<n>\d+)|not (?P<empty>[LG]\[.+))$")
# An attribute of a class is read from the class's own dict.
_OF_CLASS = re.compile(
    r"^(?P<whole>(?:dict\()?type\((?P<of>[LG]\[.+?)\)\.__dict__\)?\[['\"](?P<name>\w+)['\"]\])"
    r" == (?P<value>.+)$"
)
_TABLE = re.compile(r"\._(?:modules|parameters|buffers)$")
MISSING = object()


@dataclass(frozen=True)
class Failure:
    """One thing that differs from what a cache entry assumes.

    what: size, rank, dtype, device, layout, requires_grad, tensor type, dispatch, value, relation,
    type, identity, length, keys, optimizer state, attribute, surroundings, aliasing, gone or other;
    source: what it is about, as the learner writes it (empty for the surroundings); text: the
    guard, readable; expected, actual: what was assumed and what came (None where torch does not
    tell); index: the dimension of a size; raw: the source as Dynamo writes it; owner: whose
    attribute it is ("module", "class", else empty).
    """

    what: str
    source: str
    text: str
    expected: Any = None
    actual: Any = None
    index: int | None = None
    raw: str = ""
    owner: str = ""


def bare(part: str) -> str:
    """Returns the text of a guard without the comment that says which line made it."""
    return _COMMENT.split(part, maxsplit=1)[0].strip()


def compiled(text: str) -> types.CodeType | None:
    text = re.sub(r", type=<.*$", "", text)
    with contextlib.suppress(SyntaxError, ValueError):
        return compile(text, "<guard>", "eval")
    return None


def evaluate(code: types.CodeType | None, scope: tuple[dict[str, Any], dict[str, Any]]) -> Any:
    if code is None:
        return MISSING
    try:
        return eval(code, *scope)
    except Exception:  # the value it is about is not there any more, or torch keeps it to itself
        return MISSING


def value_of(raw: str, scope: tuple[dict[str, Any], dict[str, Any]]) -> Any:
    return evaluate(compiled(raw), scope) if raw else MISSING


_TORCH_WHAT = {
    "stride": "layout",
    "device index": "device",
    "dispatch key set": "dispatch",
}


def from_text(
    text: str, whole: str, scope: tuple[dict[str, Any], dict[str, Any]], raw: str = ""
) -> Failure:
    """Returns the failure that a guard's text tells of; `whole` is the text with its comment."""
    words = readable(_ABOUT_PARAMETERS.sub("", text))
    if match := _TORCH_TENSOR.match(text):
        what = _TORCH_WHAT.get(match["what"], match["what"])
        index = int(match["index"]) if what == "size" else None
        expected, actual = (_number(match[name] or "") for name in ("expected", "actual"))
        source = match["source"]
        return Failure(what, readable(source), words, expected, actual, index, source)
    if match := _NO_TENSOR.match(text):
        source = match["source"]
        return _other_type(match["cls"] or "Tensor", source, value_of(source, scope))
    if text.startswith("GLOBAL_STATE changed:"):
        names = text.partition(":")[2].split()
        return Failure("surroundings", "", words, None, " ".join(names))
    if "Duplicate tensor" in text or text.startswith("check_no_aliasing"):
        return Failure("aliasing", _sources(text), words, raw=raw)
    return _from_code(text, whole, scope, raw)


def _from_code(
    text: str, whole: str, scope: tuple[dict[str, Any], dict[str, Any]], raw: str
) -> Failure:
    words = readable(re.sub(r", type=<.*$", "", text))
    names = list(dict.fromkeys(NAMES.findall(text)))
    about = raw if raw.startswith(("L[", "G[", "list(")) else names[0] if names else ""
    value = value_of(about, scope)
    actual = None if value is MISSING else value
    source = readable(about)
    if "___check_type_id" in text:
        match = _TYPE.search(whole)
        wanted = match["name"] if match else _type_name(text)
        words = f"type({source}) is {wanted or 'as then'}"
        return Failure("type", source, words, wanted, actual, None, about)
    if (match := _OBJECT_ID.search(text)) and int(match["id"]) in _SINGLETONS:
        expected = _SINGLETONS[int(match["id"])]
        kind = "none" if expected is None else "value"
        return Failure(kind, source, f"{source} is {expected}", expected, actual, None, about)
    if match := _OBJECT_ID.search(text):
        return _other_object(int(match["id"]), source, actual, about)
    if match := _LENGTH.match(text):
        return _length(match, scope)
    if any(words in text for words in ("dict.keys(", "___dict_contains", "__contains__(")):
        return _other_keys(names[0] if names else about, words, scope)
    if text.startswith(("hasattr(", "not hasattr(")):
        return Failure("attribute", source, words, None, actual, None, about)
    if re.match(r"^[LG]\[.+ is (not )?[LG]\[", text):
        return Failure("aliasing", _sources(text), words, raw=about)
    if match := re.match(r"^(?P<of>[LG]\[.+) is (?P<no>not )?None$", text):
        expected = "something" if match["no"] else None
        return Failure("none", readable(match["of"]), words, expected, actual, None, match["of"])
    return _from_comparison(text, words, names, about, scope)


def _length(match: re.Match[str], scope: tuple[dict[str, Any], dict[str, Any]]) -> Failure:
    of = match["of"] or match["empty"]
    value = value_of(of, scope)
    came = len(value) if hasattr(value, "__len__") else None
    expected = int(match["n"] or 0)
    source = readable(_TABLE.sub("", of))
    # Torch writes some of these as what must not hold.
    text = f"len({source}) == {expected}"
    what = "optimizer state" if _in_optimizer_state(of, scope) else "length"
    owner = "module" if isinstance(value, torch.nn.Module) or source != readable(of) else ""
    return Failure(what, source, text, expected, came, None, of, owner)


def _other_keys(of: str, words: str, scope: tuple[dict[str, Any], dict[str, Any]]) -> Failure:
    what = "optimizer state" if _in_optimizer_state(of, scope) else "keys"
    source = readable(_TABLE.sub("", of))
    return Failure(what, source, words, None, _keys(value_of(of, scope)), None, of)


def _in_optimizer_state(raw: str, scope: tuple[dict[str, Any], dict[str, Any]]) -> bool:
    """True if `raw` is an optimizer's `.state` or something in it."""
    owners = [raw[: match.start()] for match in re.finditer(r"\.state\b", raw)]
    return any(isinstance(value_of(of, scope), torch.optim.Optimizer) for of in owners)


def _other_type(cls: str, raw: str, value: Any) -> Failure:
    wanted, source = cls.rpartition(".")[2], readable(raw)
    came = type(value).__name__ if isinstance(value, torch.Tensor) else value
    text = f"expected type of '{source}' to be {wanted}, but found {type(value).__name__}"
    return Failure("tensor type", source, text, wanted, came, None, raw)


def _from_comparison(
    text: str,
    words: str,
    names: list[str],
    about: str,
    scope: tuple[dict[str, Any], dict[str, Any]],
) -> Failure:
    if names and (".stride()" in text or ".storage_offset()" in text):
        return _layout(words, names, scope)
    if match := EQUALS.match(text):
        return _equality(match, words, scope)
    if match := _OF_CLASS.match(text):
        return _class_value(match, scope)
    if not names:
        return Failure("surroundings", "", words, None, None)
    came = {readable(name): v for name in names if (v := value_of(name, scope)) is not MISSING}
    about = _PROPERTY.sub("", about)
    return Failure("relation", readable(about), words, words, came, None, about)


def _other_object(number: int, source: str, actual: Any, raw: str) -> Failure:
    if isinstance(actual, enum.Enum):
        for member in type(actual):
            if id(member) == number:
                return Failure("value", source, f"{source} is {member}", member, actual, None, raw)
    text = f"{source} is the same object as then"
    return Failure("identity", source, text, None, actual, None, raw)


def _type_name(text: str) -> str | None:
    """Returns the name of the class with the id in `text`, which is all that torch 2.7 tells."""
    match = CLASS_ID.search(text)
    todo: list[type] = [object]
    seen: set[type] = set()
    while match and todo:
        cls = todo.pop()
        if id(cls) == int(match["id"]):
            return f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.")
        inner = [c for c in type.__subclasses__(cls) if c not in seen]
        seen.update(inner)
        todo += inner
    return None


def _equality(
    match: re.Match[str], words: str, scope: tuple[dict[str, Any], dict[str, Any]]
) -> Failure:
    source, expected = match["source"], match["value"]
    actual = value_of(source, scope)
    if NAMES.search(expected):  # two values that must be equal
        both = {readable(name): value_of(name, scope) for name in (source, expected)}
        source = _PROPERTY.sub("", source)
        return Failure("relation", readable(source), words, words, both, None, source)
    wanted = evaluate(compiled(expected), scope)
    wanted = expected if wanted is MISSING else wanted
    if size := _SIZE.match(source):
        return Failure("fixed size", readable(size["of"]), words, wanted, actual,
                       int(size["index"]), size["of"])  # fmt: skip
    of = value_of(source.rpartition(".")[0], scope)
    owner = "module" if isinstance(of, torch.nn.Module) else ""
    return Failure("value", readable(source), words, wanted, actual, None, source, owner)


def _layout(words: str, names: list[str], scope: tuple[dict[str, Any], dict[str, Any]]) -> Failure:
    told = next((name for name in names if ".stride()" in name or ".storage" in name), names[0])
    about = _PROPERTY.sub("", told)
    value = value_of(about, scope)
    strides = [str(n) for n in value.stride()] if isinstance(value, torch.Tensor) else None
    return Failure("layout", readable(about), words, None, strides, None, about)


def _class_value(match: re.Match[str], scope: tuple[dict[str, Any], dict[str, Any]]) -> Failure:
    of = value_of(match["of"], scope)
    source = f"{type(of).__name__}.{match['name']}"
    expected = evaluate(compiled(match["value"]), scope)
    expected = match["value"] if expected is MISSING else expected
    actual = getattr(type(of), match["name"], None)
    text = f"{source} == {match['value']}"
    return Failure("value", source, text, expected, actual, None, match["whole"], "class")


def _sources(text: str) -> str:
    return " and ".join(dict.fromkeys(readable(name) for name in NAMES.findall(text)))


def _keys(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return value
    return list(value) if isinstance(value, Mapping) else None


def _number(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d+", text) else text
