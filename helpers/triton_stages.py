"""One Triton kernel of Inductor's, from TTIR down to SASS, for a card that need not be here.

(Private names of Inductor and Triton.) The kernel's text is run as Inductor runs it, so that the
heuristics give their own candidates and the options of a real launch; Triton then compiles for
an explicit target. Nothing is launched, no driver is loaded, and Triton's cache is not used.
"""

from __future__ import annotations

import contextlib
import linecache
import logging
import os
import re
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.pretended_driver import pretended_driver
from helpers.stage_texts import disassemble, readable
from helpers.targets import Target

__all__ = [
    "KERNEL_FILE",
    "STAGES",
    "KernelStages",
    "compile_kernel",
    "config_text",
    "pretended_driver",
]

STAGES = ("ttir", "ttgir", "llir", "ptx", "sass")
# The name that stands for the kernel's text in every stage; its lines count from 1.
KERNEL_FILE = "kernel.py"


@dataclass(frozen=True)
class KernelStages:
    """What one kernel becomes on one target.

    configs: every candidate of the heuristics, as `config_text` writes it, in Inductor's order;
    config: the one that `stages` were made for ("" if none was made); stages: text by stage name;
    unavailable: stage (or "configs") to the reason in one sentence; notes: what else to know.
    """

    configs: tuple[str, ...]
    config: str
    stages: Mapping[str, str] = field(repr=False)
    unavailable: Mapping[str, str]
    notes: tuple[str, ...] = ()


def config_text(config: Any) -> str:
    """A `triton.Config` in one line: "XBLOCK=1024, num_warps=4, num_stages=1"."""
    parts = dict(config.kwargs, num_warps=config.num_warps, num_stages=config.num_stages)
    if getattr(config, "num_ctas", 1) not in (1, None):
        parts["num_ctas"] = config.num_ctas
    if getattr(config, "maxnreg", None) is not None:
        parts["maxnreg"] = config.maxnreg
    return ", ".join(f"{name}={value}" for name, value in parts.items())


def compile_kernel(
    source: str, target: Target, stages: tuple[str, ...] = ("ptx",), config: int = 0
) -> KernelStages:
    """Compile one kernel's text for `target`, as far down as `stages` (of `STAGES`) ask.

    source: the whole text that Inductor hands to Triton (the argument of `async_compile.triton`),
    of any of its heuristics, a user's own kernel and templates included; config: the place of the
    candidate to compile. With no stages only the candidates are listed. A stage that cannot be
    made is left out and explained in `.unavailable`. ValueError for an unknown stage, a text that
    is no kernel of Inductor's, or a candidate that does not exist. The text is executed.
    """
    for stage in stages:
        if stage not in STAGES:
            raise ValueError(f"There is no stage {stage!r}: choose from {', '.join(STAGES)}.")
    reason = _why_no_triton()
    if reason:
        return KernelStages((), "", {}, dict.fromkeys(("configs", *stages), reason))
    with (
        tempfile.TemporaryDirectory(prefix="kernel-") as folder,
        _workplace(source, folder, target),
    ):
        tuner = _load(source, folder, target)
        configs = tuple(config_text(one) for one in tuner.configs)
        if not stages:
            return KernelStages(configs, "", {}, {})
        if not 0 <= config < len(configs):
            count = len(configs)
            raise ValueError(f"There is no candidate {config}: the kernel has {count}, from 0 on.")
        error, binary = _compile(tuner, tuner.configs[config], target)
        texts, unavailable = _texts(Path(folder), stages, error, target)
    return KernelStages(
        configs, configs[config], texts, unavailable, _notes(binary, configs[config], target)
    )


def _why_no_triton() -> str:
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 is set, so Triton interprets kernels here and compiles none."
    try:
        import triton  # noqa: F401
        from triton.backends.nvidia import compiler  # noqa: F401
    except ImportError:
        return "Triton is not installed here: there is no wheel of it for macOS or plain Windows."
    return ""


@contextlib.contextmanager
def _workplace(source: str, folder: str, target: Target) -> Iterator[None]:
    """The pretended card, a Triton cache of our own, quiet logs, the text findable by its name."""
    from torch._inductor import config as inductor_config
    from torch._inductor.runtime import triton_heuristics
    from triton.compiler import compiler

    # A static launcher would want to load the binary, and drops the stages.
    static = ("use_static_cuda_launcher", "static_launch_user_defined_triton_kernels")
    flags = {name: False for name in static if hasattr(inductor_config, name)}
    kept = linecache.cache.get(KERNEL_FILE)
    cache_dir, thread = os.environ.get("TRITON_CACHE_DIR"), threading.get_ident()
    real_manager, log = compiler.get_cache_manager, triton_heuristics.log

    def our_manager(key: str) -> Any:
        ours = threading.get_ident() == thread
        return _cache_in(folder, key) if ours else real_manager(key)

    def quiet(record: logging.LogRecord) -> bool:
        return record.thread != thread

    with pretended_driver(target), inductor_config.patch(flags):
        log.addFilter(quiet)
        compiler.get_cache_manager = our_manager
        lines = source.splitlines(keepends=True)
        linecache.cache[KERNEL_FILE] = (len(source), None, lines, KERNEL_FILE)
        try:
            yield
        finally:
            compiler.get_cache_manager = real_manager
            log.removeFilter(quiet)
            linecache.cache.pop(KERNEL_FILE, None)
            if kept is not None:
                linecache.cache[KERNEL_FILE] = kept
            if cache_dir is None:  # the autotuner sets it where it is not set
                os.environ.pop("TRITON_CACHE_DIR", None)


def _cache_in(folder: str, key: str) -> Any:
    from triton.runtime.cache import FileCacheManager

    manager = FileCacheManager.__new__(FileCacheManager)
    manager.key, manager.cache_dir = key, os.path.join(folder, "stages")
    manager.lock_path = os.path.join(manager.cache_dir, "lock")
    os.makedirs(manager.cache_dir, exist_ok=True)
    return manager


def _load(source: str, folder: str, target: Target) -> Any:
    """Run the kernel's text and return its `CachingAutotuner`."""
    import torch
    from torch._inductor.runtime.hints import DeviceProperties
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    # Generated for another card, it would bring that card's properties along. The line stays one.
    properties = repr(DeviceProperties.create(torch.device("cuda", 0)))
    here = re.sub(r"DeviceProperties\(type='cuda'[^()]*\)", lambda _: properties, source)
    # `__file__` tells the autotuner where to look for an earlier choice: there is none.
    module = types.ModuleType("helpers._inductor_kernel")
    module.__file__ = os.path.join(folder, KERNEL_FILE)
    try:
        exec(compile(here, KERNEL_FILE, "exec", dont_inherit=True), vars(module))
    except Exception as error:
        raise ValueError(
            f"This is not the text of a Triton kernel from Inductor of torch {torch.__version__}: "
            f"running it raised {type(error).__name__}: {_one_line(error)}"
        ) from error
    tuners = [value for value in vars(module).values() if isinstance(value, CachingAutotuner)]
    if not tuners:
        raise ValueError(
            "This text defines no kernel of Inductor's: a function under a decorator of "
            "triton_heuristics and @triton.jit was expected."
        )
    return tuners[-1]


def _compile(tuner: Any, config: Any, target: Target) -> tuple[str, Any]:
    """The error in one sentence ("" if none) and Triton's compiled kernel (None if none)."""
    try:
        result = tuner._precompile_config(config)
    except Exception as error:
        return _compile_error(error, target), None
    return "", getattr(result, "kernel", None)


def _compile_error(error: Exception, target: Target) -> str:
    from triton import __version__

    card = f"{target.key} (sm_{target.compute_capability})"
    kind = "ptxas" if type(error).__name__ == "PTXASError" else f"Triton {__version__}"
    return f"{kind} cannot compile this kernel for {card}: {type(error).__name__}: " + _one_line(
        error
    )


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^\t")]
    said = [line for line in lines if re.search(r"\b(error|fatal)\b\s*:", line)]
    return (said or lines or ["no message"])[-1]


def _texts(
    folder: Path, stages: tuple[str, ...], error: str, target: Target
) -> tuple[dict[str, str], dict[str, str]]:
    """The stages' texts out of the folder, and the reasons of those that are not there."""
    made = {path.suffix[1:]: path for path in (folder / "stages").glob("*")}
    texts: dict[str, str] = {}
    unavailable: dict[str, str] = {}
    for stage in stages:
        path = made.get("cubin" if stage == "sass" else stage)
        if path is None:
            unavailable[stage] = error or f"Triton made no {stage} for {target.key}."
        elif stage == "sass":
            text, reason = disassemble(path)
            if reason:
                unavailable[stage] = reason
            else:
                texts[stage] = readable(text, stage)
        else:
            texts[stage] = readable(path.read_text(), stage)
    return texts, unavailable


def _notes(binary: Any, config: str, target: Target) -> tuple[str, ...]:
    shared = getattr(getattr(binary, "metadata", None), "shared", 0) or 0
    limit = target.shared_memory_per_block_optin
    if shared <= limit:
        return ()
    return (
        f"With {config} the kernel needs {shared} bytes of shared memory per block and "
        f"{target.key} has {limit}: Inductor would drop this candidate.",
    )
