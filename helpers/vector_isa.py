"""A remedy for a slow start: torch's probe of the processor's vector instructions, remembered.

Before its first C++ kernel, Inductor asks of each instruction set (AVX2, AVX-512, AMX, ...)
whether compiler, processor and torch support it together (`VecISA.check_build` in
torch/_inductor/cpu_vec_isa.py). Up to torch 2.11 each question starts a Python process that
imports torch, in every fresh process, also when all else comes from a warm cache. Here a "yes" is
kept in a file of the user. No setting of torch is changed, so its cache keys stay as they are.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

SCHEMA = 1
MOST_ANSWERS = 200  # old ones go first; one machine and one torch need about five


def answers_file() -> Path:
    """Returns the file of remembered answers in the user's cache folder (XDG_CACHE_HOME)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache, "torch_compile_suite", "vector_isa.json")


@functools.cache
def _processor() -> str:
    """Returns model and flags of the processor, as far as this system tells them."""
    with contextlib.suppress(OSError):
        wanted = ("model name", "model", "stepping", "flags", "Features", "CPU part")
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in wanted}))
    return f"{platform.machine()} {platform.processor()}"


@functools.cache
def _toolchain() -> str:
    """Returns what else decides the answer: torch and its place, the compiler and its version."""
    import torch
    from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler

    compiler = get_cpp_compiler()
    built = (torch.__version__, torch.version.git_version, torch.__file__)
    compiled_by = (shutil.which(compiler) or compiler, get_compiler_version_info(compiler))
    return "\n".join(map(str, (*built, *compiled_by)))


def _key(isa: Any, code: str) -> str:
    # The flags are read off the instance: torch changes them between two questions to one set.
    parts = (str(isa), code, isa._arch_flags, str(isa._macro), _processor(), _toolchain())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _read(path: Path) -> dict[str, bool]:
    """Returns the remembered answers; a missing, unreadable or damaged file holds none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            return {}
        return {str(key): True for key, answer in content["answers"].items() if answer is True}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _remember(path: Path, key: str) -> None:
    """Adds one answer; a folder that cannot be written costs the memory and nothing else."""
    import filelock

    from helpers.files import write_whole

    with contextlib.suppress(OSError, filelock.Timeout):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Read and write under one lock, or one of two processes would lose what the other added.
        with filelock.FileLock(f"{path}.lock", timeout=5):
            answers = {**_read(path), key: True}
            kept = dict(list(answers.items())[-MOST_ANSWERS:])
            write_whole(path, json.dumps({"schema": SCHEMA, "answers": kept}, indent=1) + "\n")


def _remembering(check_build: Callable[[Any, str], bool]) -> Callable[[Any, str], bool]:
    @functools.wraps(check_build)
    def check_build_remembered(isa: Any, code: str) -> bool:
        try:
            path, key = answers_file(), _key(isa, code)
        except (RuntimeError, OSError, ImportError, AttributeError):
            # No compiler, say: then torch itself has the right words for it.
            return check_build(isa, code)
        if key in _read(path):
            return True
        answer = bool(check_build(isa, code))
        # A "no" is asked again: a full disk or a killed child says "no" too, and compiled code
        # would stay slow for ever.
        if answer:
            _remember(path, key)
        return answer

    check_build_remembered.remembers = True  # type: ignore[attr-defined]
    return check_build_remembered


def remember_vector_isa() -> str:
    """Makes torch remember its probe of vector instructions, and says in a sentence what it did.

    Call it before the first compilation; a second call changes nothing. Where this torch has no
    such probe, or remembers it by itself (2.14 does), nothing is changed. Only a "yes" is kept, in
    the user's cache folder, by torch, compiler, processor, probed code and flags.
    """
    try:
        from torch._inductor import cpu_vec_isa
    except ImportError:
        return "This torch has no probe of vector instructions; nothing was changed."
    base = getattr(cpu_vec_isa, "VecISA", None)
    if base is None or not hasattr(base, "check_build"):
        return "This torch has no probe of vector instructions; nothing was changed."
    if hasattr(base, "_probe_load"):
        return "This torch remembers its probe of vector instructions itself; nothing was changed."
    pending = [base]
    while pending:  # a kind of instructions may bring a check_build of its own
        kind = pending.pop()
        pending += kind.__subclasses__()
        own = vars(kind).get("check_build")
        if own is not None and not hasattr(own, "remembers"):
            kind.check_build = _remembering(own)
    return "Torch's probe of vector instructions is now remembered between processes."
