"""What the callables of a history change stays changed, although the rest is put back."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from helpers.isolation import reached_by_name
from helpers.snapshot import Snapshot, same_bytes, same_items

_NOTHING = object()


class KeptChanges:
    """Notes what changes, while a callable runs, in all that `fn` and the arguments reach."""

    def __init__(self, fn: Any, values: list[Any]) -> None:
        self._roots = (fn, *values, *reached_by_name(fn))
        self._items: dict[tuple[int, Any], tuple[dict[Any, Any], Any, Any]] = {}
        self._units: dict[int, Any] = {}

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Compares before and after its body; only what changed is remembered."""
        before = Snapshot(*self._roots)
        try:
            yield
        finally:
            after = Snapshot(*self._roots)
            self._note_containers(before, after)
            for key, saved in after.tensors.items():
                if key in before.tensors and _differs(before.tensors[key], saved):
                    self._units[key] = saved.restore

    def apply(self) -> None:
        """Makes the remembered changes again, after everything was put back."""
        for container, key, value in self._items.values():
            if value is _NOTHING:
                container.pop(key, None)
            else:
                container[key] = value
        for restore in self._units.values():
            restore()

    def _note_containers(self, before: Snapshot, after: Snapshot) -> None:
        old = {_key(undo): undo for undo in before.undo if _key(undo) is not None}
        for undo in after.undo:
            past = old.get(_key(undo))
            if past is None:
                continue
            container, now = undo.args[0], undo.args[1]
            then = past.args[1]
            if isinstance(container, dict):
                self._note_items(container, then, now)
            elif _changed(then, now):
                self._units[id(container)] = undo

    def _note_items(
        self, container: dict[Any, Any], then: dict[Any, Any], now: dict[Any, Any]
    ) -> None:
        for key in {**then, **now}:
            left, right = then.get(key, _NOTHING), now.get(key, _NOTHING)
            if left is not right:
                self._items[id(container), key] = (container, key, right)


def _key(undo: Any) -> tuple[Any, int] | None:
    """Returns what identifies an undo of a container, an object's slots or an array."""
    if isinstance(undo, functools.partial) and len(undo.args) == 2:
        return undo.func, id(undo.args[0])
    return None


def _changed(then: Any, now: Any) -> bool:
    if isinstance(then, dict):
        return not same_items(then, now)
    if hasattr(then, "tobytes"):
        return then.shape != now.shape or then.tobytes() != now.tobytes()
    if isinstance(then, (set, bytearray)):
        return then != now
    return len(then) != len(now) or any(a is not b for a, b in zip(then, now, strict=True))


def _differs(before: Any, after: Any) -> bool:
    """True if a tensor's bytes, layout, attributes or `.grad` changed between two snapshots."""
    if before.layout != after.layout or before.requires_grad != after.requires_grad:
        return True
    if before.grad is not after.grad or not same_items(before.attributes, after.attributes):
        return True
    if before.saved_grad is not None and _differs(before.saved_grad, after.saved_grad):
        return True
    if before.copy is None or after.copy is None:
        return False
    return not same_bytes(before.copy, after.copy)
