"""What this machine is and can do: its description, the device to use, a clean compiler state.

`preflight` (the checks, in `machine_check`) and `remember_vector_isa` (in `vector_isa`) are reached
from here, so that lessons have one place to ask.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import logging
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.usable_gpu import why_no_gpu
from helpers.vector_isa import remember_vector_isa

if TYPE_CHECKING:
    from helpers.machine_check import Preflight

__all__ = [
    "Environment",
    "choose_device",
    "describe_environment",
    "preflight",
    "remember_vector_isa",
    "require_cuda",
    "reset_compiler",
]


@dataclass(frozen=True)
class Environment:
    """This machine in words. Empty texts stand for what is not there.

    gpu: name of the card that is used, "" if none; gpu_note: why none is, in one line; gpu_fix:
    what to do about that; memory_gb: its memory in GiB; live, elsewhere: what is shown
    live here, and what is not.
    """

    torch: str
    triton: str
    python: str
    system: str
    cpu: str
    cores: int
    compiler: str
    gpu: str
    gpu_count: int
    capability: str
    driver: str
    memory_gb: float
    gpu_note: str
    gpu_fix: str
    live: tuple[str, ...]
    elsewhere: tuple[str, ...]

    def facts(self) -> list[tuple[str, str]]:
        """Returns name and value of each fact, as the table shows them."""
        card = self.gpu_note
        if self.gpu:
            card = f"{self.gpu}, driver {self.driver}, {self.memory_gb:.0f} GiB"
            card += f" (the first of {self.gpu_count})" if self.gpu_count > 1 else ""
        return [
            ("torch", self.torch),
            ("Triton", self.triton or "not installed"),
            ("Python", f"{self.python} on {self.system}"),
            ("CPU", f"{self.cpu}, {self.cores} core{'s' if self.cores != 1 else ''}"),
            ("C++ compiler", self.compiler or "none found"),
            ("GPU", card),
            ("Live here", "; ".join(self.live)),
            ("Not live here", "; ".join(self.elsewhere) or "nothing"),
        ]

    def __str__(self) -> str:
        card = f"{self.gpu} (driver {self.driver})" if self.gpu else self.gpu_note
        return (
            f"torch {self.torch}, Triton {self.triton or 'not installed'}, Python {self.python}, "
            f"{self.cpu} with {self.cores} core{'s' if self.cores != 1 else ''}, "
            f"C++ compiler {self.compiler or 'none found'}; {card}"
        )

    def __repr__(self) -> str:
        return f"<Environment: torch {self.torch}, {self.gpu or 'no GPU'}>"

    def _repr_html_(self) -> str:
        from helpers.display import table_html

        return table_html(("", "found"), self.facts(), "This machine")


def cpu_name() -> str:
    """Returns the processor's name as the system tells it, else its kind (x86_64, arm64)."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def cpu_cores() -> int:
    """Returns how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def triton_version() -> str:
    """Returns the version of the installed Triton without importing it; "" if there is none."""
    if importlib.util.find_spec("triton") is None:
        return ""
    for name in ("triton", "pytorch-triton", "triton-windows"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "of unknown version"


def compiler_text() -> str:
    """Returns name and version of the C++ compiler, without its path; "" if there is none."""
    from helpers.machine import find_compiler

    found = find_compiler()
    if found is None:
        return ""
    path, version = found
    number = re.search(r"\d+(\.\d+)+", str(version))
    return f"{Path(path).name} {number[0] if number else version}"


def _what_is_live(gpu: str, triton: str, compiler: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    live, elsewhere = ["graphs, guards, graph breaks and labs"], []
    if compiler:
        live.append("C++ code for the CPU and its times")
    else:
        elsewhere.append("C++ code: no C++ compiler was found")
    if gpu:
        live.append(f"Triton code, PTX, SASS and times on {gpu}")
        return tuple(live), tuple(elsewhere)
    if triton:
        elsewhere.append("GPU code: cross-target, made here for a GPU that is not here")
    else:
        elsewhere.append("GPU code: recorded on a GPU, as Triton is not installed")
    elsewhere.append("GPU times: recorded on a GPU")
    return tuple(live), tuple(elsewhere)


def describe_environment() -> Environment:
    """Describes this machine: versions, processor, compiler, GPU, and what is live on it.

    A GPU that is not NVIDIA's, or that the installed torch does not serve, counts as none, and
    `gpu_note` says so. The first card that torch sees is described.
    """
    import torch

    from helpers import card

    none, triton, compiler = why_no_gpu(), triton_version(), compiler_text()
    gpu, memory, capability, driver = "", 0.0, "", ""
    if none is None:
        properties = torch.cuda.get_device_properties(0)
        gpu, memory = properties.name, properties.total_memory / 2**30
        capability, driver = f"{properties.major}.{properties.minor}", card.read(0).driver
    live, elsewhere = _what_is_live(gpu, triton, compiler)
    return Environment(
        torch=torch.__version__, triton=triton, python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}", cpu=cpu_name(), cores=cpu_cores(),
        compiler=compiler, gpu=gpu, gpu_count=torch.cuda.device_count() if gpu else 0,
        capability=capability, driver=driver, memory_gb=memory,
        gpu_note=none.note if none else "", gpu_fix=none.fix if none else "",
        live=live, elsewhere=elsewhere,
    )  # fmt: skip


def preflight() -> Preflight:
    """Checks what the lessons need, one requirement per line: OK, or what to do.

    `.line` is the result in one line for an instructor, without user, host or path. Never raises.
    """
    from helpers import machine_check

    return machine_check.check_all()


def require_cuda() -> None:
    """Raises RuntimeError, with what to do, unless torch can use an NVIDIA card here."""
    none = why_no_gpu()
    if none:
        fix = "" if not none.fix or none.fix in none.note else f" To use it: {none.fix}."
        raise RuntimeError(
            f"This needs an NVIDIA card, and here there is {none.note.rstrip('.')}.{fix} Choose "
            'device="auto" or device="cpu" to go on without one: GPU code is then generated for a '
            "GPU that is not here, and GPU times are shown as recorded."
        )


def choose_device(device: str = "auto") -> str:
    """Returns "cpu" or "cuda" for a lesson's `device` parameter: "auto", "cpu" or "cuda".

    "auto" takes the card if there is one that counts. ValueError for another value; RuntimeError
    if "cuda" is asked for and there is none.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f'device is "auto", "cpu" or "cuda", not {device!r}')
    if device == "cuda":
        require_cuda()
    if device == "auto":
        device = "cpu" if why_no_gpu() else "cuda"
    if device == "cpu":
        # A CUDA toolkit without a card makes torch warn in red at the first compile; here that is
        # a choice, and said in words already.
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    return device


def reset_compiler() -> str:
    """Makes torch forget all it compiled in this process, and says so in a sentence.

    Calls torch.compiler.reset: compiled code, guards, recompile counts and recorded CUDA graphs
    are dropped, so the next call of each compiled function compiles again. The cache on disk stays.
    """
    if "torch" in sys.modules:
        import torch

        torch.compiler.reset()
    return (
        "Forgotten: all compiled code, guards and recompile counts of this process. The next call "
        "of each compiled function compiles again; Inductor's cache on disk is still there."
    )
