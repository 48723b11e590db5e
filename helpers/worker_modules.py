"""What surrounds a call: folders, variables, and modules, imported again after an edit."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import os
import site
import sys
import sysconfig
from typing import Any

_LIBRARIES = tuple(
    folder + os.sep
    for folder in (
        *(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    )
)
_kept: frozenset[str] = frozenset()  # what a running worker cannot do without
_seen: dict[str, int] = {}  # file of a module to when it was last changed
_path: list[str] = []


def surroundings() -> dict[str, Any]:
    """Returns where this process looks for modules and files, and its environment variables."""
    try:
        folder: str | None = os.getcwd()
    except FileNotFoundError:
        folder = None  # it was removed
    return {"path": list(sys.path), "folder": folder, "environment": dict(os.environ)}


def apply_surroundings(values: dict[str, Any], own: dict[str, str]) -> None:
    """Makes this process look where another one does; `own`: variables with values of its own."""
    sys.path[:] = values["path"]
    with contextlib.suppress(OSError):
        if values["folder"] is not None:
            os.chdir(values["folder"])
    wanted = {**values["environment"], **own}
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted)


def keep_modules() -> None:
    """Notes what is imported by now: it stays for the worker's life."""
    global _kept
    _kept = frozenset(sys.modules)


def forget_changed_modules() -> None:
    """Forgets all modules of the learner's if one was edited since it was imported, and those that
    `sys.path` now has elsewhere. Packages with compiled parts stay: they load only once.
    """
    own = _own_modules()
    edited = any(_seen.get(file, time) != time for file, time in _times(own).items())
    moved = _path != sys.path
    for name in own:
        if edited or (moved and _is_elsewhere(name)):
            sys.modules.pop(name, None)
    if edited:
        importlib.invalidate_caches()
        _seen.clear()
    _path[:] = sys.path


def note_modules() -> None:
    """Notes when the modules that the call imported were changed last."""
    for file, time in _times(_own_modules()).items():
        _seen.setdefault(file, time)


def _own_modules() -> dict[str, str]:
    """Returns the learner's modules that can be imported again: name to file."""
    files = {
        name: module.__file__
        for name, module in list(sys.modules.items())
        if isinstance(getattr(module, "__file__", None), str)
    }
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    fixed = _kept | {
        name.partition(".")[0] for name, file in files.items() if file.endswith(suffixes)
    }
    return {
        name: file
        for name, file in files.items()
        if name.partition(".")[0] not in fixed and not file.startswith(_LIBRARIES)
    }


def _times(modules: dict[str, str]) -> dict[str, int]:
    return {file: _changed_at(file) for file in modules.values()}


def _is_elsewhere(name: str) -> bool:
    top = name.partition(".")[0]
    spec = importlib.machinery.PathFinder.find_spec(top)
    here = getattr(sys.modules.get(top), "__file__", None)
    return spec is None or (here is not None and spec.origin != here)


def _changed_at(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0
