"""Classes and globals that travel by value: which ones are the same on both sides."""

from __future__ import annotations

import contextlib
import sys
import threading
import types
import uuid
import weakref
from collections.abc import Iterator
from typing import Any

# Classes that travelled by value, so that an object that comes home is of the class that left.
_CLASS_OF: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()
_KEY_OF: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()
_ARRIVED: weakref.WeakSet[type] = weakref.WeakSet()  # made by `unpack`, not defined here
_SCOPE = "_travelled_"  # how the modules that hold globals which arrived are called
_MODE = threading.local()  # of this thread's `unpack`: .copying, .scopes


@contextlib.contextmanager
def unpacking(copying: bool, scopes: bool) -> Iterator[None]:
    """While its body unpacks. copying: every class is made anew; scopes: Dynamo finds globals."""
    before = dict(_MODE.__dict__)
    _MODE.copying, _MODE.scopes = copying, scopes
    try:
        yield
    finally:
        _MODE.__dict__.clear()
        _MODE.__dict__.update(before)


def forget_scopes() -> None:
    """Drops the modules through which Dynamo finds globals that arrived: no call follows."""
    for name in [name for name in sys.modules if name.startswith(_SCOPE)]:
        sys.modules.pop(name, None)


class Scope(dict):
    """The globals that a function arrives with; arrives as the dict of a module of its own.

    Dynamo looks globals of inlined functions up in `sys.modules`, under their `__name__`.
    """


def make_scope(values: dict[str, Any]) -> dict[str, Any]:
    module = types.ModuleType(_SCOPE + uuid.uuid4().hex)
    module.__dict__.update({name: value for name, value in values.items() if name != "__name__"})
    if getattr(_MODE, "scopes", True):
        sys.modules[module.__name__] = module
    return module.__dict__


def class_reduced(cls: type, reduced: tuple[Any, ...], home: bool) -> tuple[Any, ...]:
    """Returns how a class travels, made from cloudpickle's way.

    home: it goes where what arrived here came from; such a class is known there.
    """
    if home and cls in _ARRIVED:
        return _known_class, (_KEY_OF[cls],)
    make, arguments, state, _, _, put_state = reduced
    key = _KEY_OF.setdefault(cls, uuid.uuid4().hex)
    _CLASS_OF.setdefault(key, cls)
    # cloudpickle's own key, the last but one, would put the state into a class defined here.
    arguments = (*arguments[:-2], None, arguments[-1])
    return _class, (key, make, arguments), (put_state, state), None, None, _class_state


def _known_class(key: str) -> type:
    return _CLASS_OF[key]


def _class(key: str, make: Any, arguments: tuple[Any, ...]) -> type:
    known = _CLASS_OF.get(key)
    if known is not None and known not in _ARRIVED and not getattr(_MODE, "copying", False):
        return known
    made = make(*arguments)
    _ARRIVED.add(made)
    _KEY_OF[made] = key
    return made


def _class_state(cls: type, state: tuple[Any, Any]) -> None:
    put_state, values = state
    if cls in _ARRIVED:
        put_state(cls, values)
