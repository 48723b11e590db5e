"""One failed guard, read from its own text: what it is about, what was assumed, what came."""

from __future__ import annotations

import contextlib
import enum
import re
import types
from collections.abc import Iterator, Mapping
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
_NO_TENSOR = re.compile(r"^expected type of '(?P<source>.+)' to be a tensor type")
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
MISSING = object()


@dataclass(frozen=True)
class Failure:
    """One thing that differs from what a cache entry assumes.

    what: size, rank, dtype, device, layout, requires_grad, tensor type, dispatch, value, relation,
    type, identity, length, keys, attribute, surroundings, aliasing, gone or other; source: what it
    is about, as the learner writes it (empty for the surroundings); text: the guard, readable;
    expected, actual: what was assumed and what came (None where torch does not tell); index: the
    dimension of a size; raw: the source as Dynamo writes it.
    """

    what: str
    source: str
    text: str
    expected: Any = None
    actual: Any = None
    index: int | None = None
    raw: str = ""


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
        open_inside = "None" in sizes[1:]
        return open_inside or all(s in ("None", str(a)) for s, a in pairs) or value.is_contiguous()
    if sizes == [str(n) for n in value.shape]:
        return strides == [str(n) for n in actual]
    plain = torch.empty([int(n) for n in sizes], device="meta").stride()
    if list(map(str, plain)) == strides:
        return value.is_contiguous()

    def order(numbers: list[int]) -> list[int]:
        return sorted(range(len(numbers)), key=lambda i: -numbers[i])

    return order([int(s) for s in strides]) == order(actual)


_TORCH_WHAT = {
    "stride": "layout",
    "device index": "device",
    "dispatch key set": "dispatch",
}


def from_text(
    text: str, whole: str, scope: tuple[dict[str, Any], dict[str, Any]], raw: str = ""
) -> Failure:
    """Returns the failure that a guard's text tells of; `whole` is the text with its comment."""
    words = readable(text)
    if match := _TORCH_TENSOR.match(text):
        what = _TORCH_WHAT.get(match["what"], match["what"])
        index = int(match["index"]) if what == "size" else None
        expected, actual = (_number(match[name] or "") for name in ("expected", "actual"))
        source = match["source"]
        return Failure(what, readable(source), words, expected, actual, index, source)
    if match := _NO_TENSOR.match(text):
        source = match["source"]
        value = value_of(source, scope)
        return Failure("tensor type", readable(source), words, "Tensor", value, None, source)
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
    if "dict.keys(" in text or "___dict_contains" in text:
        of = names[0] if names else about
        return Failure("keys", readable(of), words, None, _keys(value_of(of, scope)), None, of)
    if match := _LENGTH.match(text):
        of = match["of"] or match["empty"]
        value = value_of(of, scope)
        came = len(value) if hasattr(value, "__len__") else None
        expected = int(match["n"]) if match["n"] else 0
        return Failure("length", readable(of), words, expected, came, None, of)
    if text.startswith("hasattr("):
        return Failure("attribute", source, words, None, actual, None, about)
    if re.match(r"^[LG]\[.+ is (not )?[LG]\[", text):
        return Failure("aliasing", _sources(text), words, raw=about)
    if match := re.match(r"^(?P<of>[LG]\[.+) is (?P<no>not )?None$", text):
        expected = "something" if match["no"] else None
        return Failure("none", readable(match["of"]), words, expected, actual, None, match["of"])
    return _from_comparison(text, words, names, about, scope)


def _from_comparison(
    text: str,
    words: str,
    names: list[str],
    about: str,
    scope: tuple[dict[str, Any], dict[str, Any]],
) -> Failure:
    if match := EQUALS.match(text):
        return _equality(match, words, scope)
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
    return Failure("value", readable(source), words, wanted, actual, None, source)


def _sources(text: str) -> str:
    return " and ".join(dict.fromkeys(readable(name) for name in NAMES.findall(text)))


def _keys(value: Any) -> Any:
    return list(value) if isinstance(value, Mapping) else None


def _number(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d+", text) else text
