"""The preflight: what the lessons need of a machine, each checked, and what to do if it fails."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Room for compiled code and recordings of all lessons; the installed packages are not counted.
NEEDED_GB = 1.0
# What a damaged installation raises when it is looked at.
BROKEN = (ImportError, OSError, RuntimeError, ValueError, AttributeError, TypeError)
MODULES = {
    "ipykernel": "ipykernel",
    "ipywidgets": "ipywidgets",
    "jupyterlab": "jupyterlab",
    "matplotlib": "matplotlib",
    "scipy": "scipy",
    "filelock": "filelock",
    "pynvml": "nvidia-ml-py",
}


@dataclass(frozen=True)
class Requirement:
    """One thing the lessons need: what was found, and what to do ("" if nothing)."""

    name: str
    found: str
    todo: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing needs doing."""
        return not self.todo


@dataclass(frozen=True)
class Preflight:
    """All requirements; `.ok`: none needs anything; `.line`: the result in one line to send."""

    requirements: tuple[Requirement, ...]
    line: str

    @property
    def ok(self) -> bool:
        """Whether no requirement needs anything."""
        return all(requirement.ok for requirement in self.requirements)

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns a row for each requirement: name, what was found, "OK" or what to do."""
        return [(one.name, one.found, one.todo or "OK") for one in self.requirements]

    def __str__(self) -> str:
        from helpers.display import table_text

        return table_text(("requirement", "found", "result"), self.rows()) + f"\n\n{self.line}"

    def __repr__(self) -> str:
        return f"<Preflight: {'ready' if self.ok else 'something to do'}>"

    def _repr_html_(self) -> str:
        from helpers.display import sentence_html, table_html

        caption = "This machine is ready" if self.ok else "Something needs doing"
        table = table_html(("requirement", "found", "result"), self.rows(), caption)
        return table + sentence_html(f"For your instructor: {self.line}")


def _python() -> Requirement:
    from helpers.machine import python_ok

    found = platform.python_version()
    if python_ok():
        return Requirement("Python", found)
    return Requirement(
        "Python", found, "install Python 3.11, 3.12 or 3.13.1 and set up again with it"
    )


def _torch() -> Requirement:
    from helpers.machine import DEFAULT_TORCH, SUPPORTED_TORCH

    try:
        import torch
    except (ImportError, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        return Requirement("torch", f"does not import ({first})", "run the set-up again: make lab")
    version = torch.__version__
    if version.split("+")[0] in SUPPORTED_TORCH:
        return Requirement("torch", version)
    return Requirement("torch", f"{version}, which the lessons are not tested with",
                       f"install a tested one, such as {DEFAULT_TORCH}: make lab")  # fmt: skip


def _triton() -> Requirement:
    from helpers.environment import triton_version

    version = triton_version()
    if version:
        return Requirement("Triton", version)
    if os.name == "posix" and os.uname().sysname == "Linux":
        return Requirement("Triton", "not installed", "pip install triton, for GPU code")
    return Requirement("Triton", "none for this system: GPU code is shown as recorded")


def _compiler() -> Requirement:
    from helpers.environment import compiler_text
    from helpers.machine import broken_cxx

    if broken_cxx():
        return Requirement("C++ compiler", "CXX is set and does not start", broken_cxx())
    found = compiler_text()
    if found:
        return Requirement("C++ compiler", found)
    return Requirement("C++ compiler", "none found", "install one: on Debian or Ubuntu, "
                       "sudo apt-get install g++; on macOS, xcode-select --install")  # fmt: skip


def _headers() -> Requirement:
    from helpers.machine import has_python_headers

    if has_python_headers():
        return Requirement("Python.h", "found")
    number = sysconfig.get_python_version()
    return Requirement("Python.h", "not found, so compiled code cannot be built",
                       f"install Python's headers: on Debian or Ubuntu, "
                       f"sudo apt-get install python{number}-dev")  # fmt: skip


def cache_folder() -> Path:
    """Returns where compiled code goes: TORCHINDUCTOR_CACHE_DIR, else the temporary folder."""
    return Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or tempfile.gettempdir())


def _cache() -> Requirement:
    """Checks the folder of compiled code: writable, room in it, programs may run from it."""
    from helpers.machine import free_gb

    name, elsewhere = "compile cache", "set TORCHINDUCTOR_CACHE_DIR to another folder"
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
        free = free_gb(folder)
    except OSError as error:
        return Requirement(name, f"not writable ({error.strerror})", elsewhere)
    with contextlib.suppress(AttributeError):  # not on Windows
        if os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0):
            return Requirement(name, "compiled code may not run from there (noexec)", elsewhere)
    if free < NEEDED_GB:
        return Requirement(name, f"{free:.1f} GB free", f"free {NEEDED_GB:.0f} GB, or {elsewhere}")
    return Requirement(name, f"writable, {free:.0f} GB free")


def _packages() -> Requirement:
    missing = [name for module, name in MODULES.items() if importlib.util.find_spec(module) is None]
    if not missing:
        return Requirement("notebook packages", "all found")
    return Requirement("notebook packages", f"missing: {', '.join(missing)}",
                       f"pip install {' '.join(missing)}, or set up again: make lab")  # fmt: skip


def _gpu() -> Requirement:
    """Checks the card with one addition on it; no card at all is fine."""
    from helpers.environment import describe_environment

    here = describe_environment()
    if here.gpu:
        import torch

        try:
            torch.ones(1, device="cuda").add_(1).item()
        except RuntimeError as error:
            first = (str(error).splitlines() or [""])[0]
            return Requirement("NVIDIA card", f"{here.gpu} fails at one addition: {first}",
                               "close what else uses the card, or restart it; "
                               "until then choose the device cpu")  # fmt: skip
        return Requirement("NVIDIA card", f"{here.gpu}, driver {here.driver}")
    if here.gpu_fix:
        return Requirement("NVIDIA card", here.gpu_note, here.gpu_fix)
    return Requirement("NVIDIA card", f"{here.gpu_note}; fine: {'; '.join(here.elsewhere)}")


CHECKS: tuple[tuple[str, Callable[[], Requirement]], ...] = (
    ("Python", _python), ("torch", _torch), ("Triton", _triton), ("C++ compiler", _compiler),
    ("Python.h", _headers), ("compile cache", _cache), ("notebook packages", _packages),
    ("NVIDIA card", _gpu),
)  # fmt: skip


def check_all() -> Preflight:
    """Runs every check; one that breaks is reported on its own line and stops no other."""
    results = []
    for name, check in CHECKS:
        try:
            results.append(check())
        except BROKEN as error:
            first = (str(error).splitlines() or [""])[0]
            found = f"could not be checked: {type(error).__name__} {first}"
            results.append(Requirement(name, found, "run the set-up again: make lab"))
    return Preflight(tuple(results), _line(results))


def _line(results: list[Requirement]) -> str:
    """Returns the result in one line that names no user, host or path."""
    from helpers import __version__

    failed = [one.name for one in results if not one.ok]
    verdict = f"to do: {', '.join(failed)}" if failed else "ready"
    try:
        from helpers.environment import describe_environment

        here = describe_environment()
        machine = [here.system, f"Python {here.python}", f"torch {here.torch}",
                   f"Triton {here.triton or 'none'}", here.compiler or "no compiler",
                   f"{here.cores} cores of {here.cpu}",
                   f"{here.gpu}, driver {here.driver}" if here.gpu else "no GPU"]  # fmt: skip
    except BROKEN as error:
        machine = [f"machine not described ({type(error).__name__})"]
    return " | ".join([f"helpers {__version__}", verdict, *machine])
