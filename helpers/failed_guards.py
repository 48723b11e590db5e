"""Which guards of a cache entry fail for the values of a call, each as one thing that differs.

Torch itself tells the first guard that fails. To find the entry that came closest to matching,
all of them are needed: the guards' own texts are Python, and are evaluated one by one.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from helpers.guard_tensors import parts_of, tensor_failures
from helpers.guard_texts import (
    CLASS_ID,
    EQUALS,
    MISSING,
    NAMES,
    Failure,
    bare,
    compiled,
    evaluate,
    from_text,
    value_of,
)
from helpers.guards import readable

_TENSOR = re.compile(
    r"check_tensor\((?P<source>.+), (?P<cls>\w+), DispatchKeySet\((?P<keys>[^)]*)\), "
    r"(?P<dtype>torch\.\w+), device=(?P<device>[^,]+), requires_grad=(?P<grad>\w+), "
    r"size=\[(?P<size>[^]]*)\], stride=\[(?P<stride>[^]]*)\]\)"
)
_CELL = re.compile(r"^(?P<of>.+)\.__closure__\[(?P<index>\d+)\]\.cell_contents")
_NUMBERS = {id(int), id(float)}
# Names that Dynamo itself puts into a module's globals: they never change.
_DYNAMOS_OWN = ("G['__builtins_dict__", "G['__import_")


@dataclass(frozen=True, eq=False)  # compared by identity: `_leaf` makes each only once
class _Leaf:
    kind: str
    raw: str
    text: str
    code: types.CodeType | None
    tensor: re.Match[str] | None


class Entry:
    """The guards of one cache entry, ready to be tried on the values of a frame."""

    def __init__(self, guard_manager: Any) -> None:
        self.guard_manager = guard_manager
        self._leaves: list[_Leaf] | None = None

    def matches(self, f_locals: Mapping[str, Any]) -> bool:
        """Returns True if torch takes this entry for a frame with these local variables.

        As when the frame is entered, what torch saw unchanged is not looked at again: a parameter
        that was frozen in place can go unnoticed.
        """
        return bool(self.guard_manager.check(dict(f_locals)))

    def failures(
        self, f_locals: Mapping[str, Any], memo: dict[_Leaf, tuple[Failure, ...]] | None = None
    ) -> tuple[Failure, ...]:
        """Returns what differs, torch's first failing guard first; empty if all guards hold.

        memo: verdicts on guards already tried on the very same values; the entries of one code
        object have most of their guards in common.
        """
        f_locals = dict(f_locals)
        told = self.guard_manager.check_verbose(f_locals)
        if told.result:
            return ()
        scope = self._scope(f_locals)
        found = self._failures(told, scope, memo)
        # Strides follow from sizes: where those differ already, a relation of strides is no news.
        known = {f.raw for f in found if f.what in ("size", "rank", "layout") and f.expected}
        kept = [f for f in found if f.what != "layout" or f.expected or f.raw not in known]
        return tuple(_closure_named(f, scope) for f in kept)

    def _failures(
        self,
        told: Any,
        scope: tuple[dict[str, Any], dict[str, Any]],
        memo: dict[_Leaf, tuple[Failure, ...]] | None,
    ) -> tuple[Failure, ...]:
        found = list(self._evaluated(scope, {} if memo is None else memo))
        first = self._torchs_own(told.verbose_code_parts, scope)
        if first is None:
            return tuple(found) or (Failure("other", "", "a guard that torch does not name"),)
        if first.what == "aliasing" and not first.source:
            first = self._aliased(scope) or first
        same = [f for f in found if _subject(f) == _subject(first)]
        if same:
            merged = replace(same[0], text=first.text)
            return (merged, *[f for f in found if f is not same[0]])
        inside = [f for f in found if not _belongs(f.raw, first.raw)] if first.raw else found
        return (first, *inside)

    def symbolic(self) -> set[str]:
        """Returns what the guards leave open, as Dynamo's sources: sizes, ints and floats."""
        found = set()
        for leaf in self._read():
            if leaf.tensor:
                sizes = enumerate(parts_of(leaf.tensor["size"]))
                found |= {f"{leaf.raw}.size()[{i}]" for i, size in sizes if size == "None"}
            elif (match := CLASS_ID.search(leaf.text)) and int(match["id"]) in _NUMBERS:
                found.add(leaf.raw)
        return found - self.fixed()

    def fixed(self) -> set[str]:
        """Returns what the guards hold to one value, as Dynamo's sources."""
        matches = [EQUALS.match(leaf.text) for leaf in self._read() if not leaf.tensor]
        return {m["source"] for m in matches if m and not NAMES.search(m["value"])}

    def _scope(self, f_locals: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        manager = self.guard_manager
        names = {"L": f_locals, "G": manager.global_scope["G"], **manager.closure_vars}
        return dict(manager.global_scope), names

    def _read(self) -> list[_Leaf]:
        if self._leaves is None:
            once = {(leaf.raw, leaf.text): leaf for leaf in _leaves(self.guard_manager.root)}
            self._leaves = list(once.values())
        return self._leaves

    def _evaluated(
        self,
        scope: tuple[dict[str, Any], dict[str, Any]],
        memo: dict[_Leaf, tuple[Failure, ...]],
    ) -> Iterator[Failure]:
        broken: list[str] = []  # what is of another type or length: its members need no word
        for leaf in self._read():
            if any(_belongs(leaf.raw, raw) for raw in broken):
                continue
            if leaf not in memo:
                memo[leaf] = tuple(_tried(leaf, scope))
            for failure in memo[leaf]:
                if failure.what in ("type", "length", "keys", "tensor type", "identity"):
                    broken.append(failure.raw)
                yield failure

    def _aliased(self, scope: tuple[dict[str, Any], dict[str, Any]]) -> Failure | None:
        """Returns which tensors are the same, although the graph was made for different ones."""
        for leaf in self._read():
            if leaf.text.startswith("check_no_aliasing"):
                named = [(name, value_of(name, scope)) for name in NAMES.findall(leaf.text)]
                for i, (name, value) in enumerate(named):
                    same = [name, *[other for other, v in named[i + 1 :] if v is value]]
                    if value is not MISSING and len(same) > 1:
                        names = " and ".join(map(readable, same))
                        text = f"Duplicate tensors found: {names}"
                        return Failure("aliasing", names, text, raw=name)
        return None

    def _torchs_own(
        self, parts: list[str], scope: tuple[dict[str, Any], dict[str, Any]]
    ) -> Failure | None:
        """Returns the first failure in torch's words; of several parts, the one that is false."""
        for part in parts:
            text = bare(part)
            if len(parts) == 1 or evaluate(compiled(text), scope) is False:
                return from_text(text, part, scope)
        return None


def _leaves(manager: Any, root: bool = True) -> Iterator[_Leaf]:
    for guard in manager.get_leaf_guards():
        yield from _of_guard(guard, manager.get_source())
    if hasattr(manager, "get_key_value_managers"):
        for pair in manager.get_key_value_managers().values():
            for inner in pair:
                if inner is not None:
                    yield from _leaves(inner, False)
    for child in manager.get_child_managers():
        yield from _leaves(child, False)
    if root:
        for guard in manager.get_epilogue_lambda_guards():
            yield from _of_guard(guard, "")


def _of_guard(guard: Any, raw: str) -> Iterator[_Leaf]:
    if raw.startswith(_DYNAMOS_OWN):
        return
    kind = type(guard).__name__
    for part in guard.verbose_code_parts():
        leaf = _leaf(kind, raw, part)
        if leaf is not None:
            yield leaf


@functools.lru_cache(maxsize=50_000)
def _leaf(kind: str, raw: str, part: str) -> _Leaf | None:
    """Returns a guard ready to be tried, None if its text is not Python; read once for all."""
    text = bare(part)
    tensor = _TENSOR.search(text) if kind == "TENSOR_MATCH" else None
    code = compiled(raw if tensor else text)
    if code is None:
        return None
    return _Leaf(kind, raw, part if kind == "TYPE_MATCH" else text, code, tensor)


def _tried(leaf: _Leaf, scope: tuple[dict[str, Any], dict[str, Any]]) -> Iterator[Failure]:
    value = evaluate(leaf.code, scope)
    if leaf.tensor:
        if value is not MISSING:
            yield from tensor_failures(leaf.tensor, leaf.raw, value)
    elif value is False:
        yield from_text(bare(leaf.text), leaf.text, scope, leaf.raw)


def _belongs(raw: str, to: str) -> bool:
    """True if `raw` is a part of `to` (L['xs'][0] of L['xs']), and not `to` itself."""
    return bool(to) and raw != to and raw.startswith(to) and raw[len(to)] in ".["


def _closure_named(failure: Failure, scope: tuple[dict[str, Any], dict[str, Any]]) -> Failure:
    """Returns the failure with a variable that a function holds under its own name."""
    match = _CELL.match(failure.raw)
    function = value_of(match["of"], scope) if match else None
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    if match is None or int(match["index"]) >= len(names):
        return failure
    cell = readable(match[0])
    name = names[int(match["index"])]
    source, text = (words.replace(cell, name) for words in (failure.source, failure.text))
    return replace(failure, source=source, text=text)


def _subject(failure: Failure) -> tuple[Any, ...]:
    return failure.what, failure.raw, failure.index
