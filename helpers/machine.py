"""What this machine has and what that allows, found without torch: Python, compiler, disk, cards.

Runs on a bare system Python, before anything is installed.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

PYTHONS = ((3, 11), (3, 12), (3, 13))
# With it torch 2.11.0 does not see that an attribute of a module changed, and gives results of the
# old one: a fault of CPython (python/cpython#125608), mended in 3.13.1.
FAULTY_PYTHON = (3, 13, 0)
DEFAULT_TORCH = "2.11.0"


@dataclass(frozen=True)
class TorchBuild:
    """What the wheel of one torch on the package index serves on Linux.

    cuda: the CUDA it is built with; driver: lowest NVIDIA driver (major number);
    lowest, highest: compute capabilities that torch.compile can use (highest None: any newer one);
    download_gb, installed_gb: gigabytes (10^9 bytes) of all pinned packages together.
    """

    cuda: str
    driver: int
    lowest: tuple[int, int]
    highest: tuple[int, int] | None
    download_gb: float
    installed_gb: float


# cuda: what torch.version.cuda of each wheel says.
# driver: CUDA 12.x needs 525 or newer, CUDA 13.x 580 or newer; table 1 of
#   https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
# lowest, highest: wheels of CUDA 12.6 hold code for 5.0 to 9.0, those of CUDA 13.0 for 7.5 to 12.0
#   and PTX for newer ones; "PyTorch CUDA Support Matrix" in PyTorch's RELEASE.md
#   (https://github.com/pytorch/pytorch/pull/164471, for 2.11 issue 172663, for 2.14 issue 190355).
# download_gb, installed_gb: measured on Linux x86_64 with Python 3.12 and 3.11.
TORCH_BUILDS = {
    "2.7.1": TorchBuild("12.6", 525, (7, 0), (9, 0), 3.2, 6.3),
    "2.11.0": TorchBuild("13.0", 580, (7, 5), None, 2.9, 5.8),
    "2.14.1": TorchBuild("13.0", 580, (7, 5), None, 3.2, 6.7),
}
SUPPORTED_TORCH = tuple(TORCH_BUILDS)

# Inductor refuses older cards: "Triton only supports devices of CUDA Capability >= 7.0"
# (torch/_inductor/scheduler.py, create_backend; https://github.com/pytorch/pytorch/issues/93801).
TRITON_LOWEST = (7, 0)
ANSWER_S = 20  # nvidia-smi takes several seconds on a machine of eight idle cards


@dataclass(frozen=True)
class Card:
    """An NVIDIA card as nvidia-smi names it; capability is None and memory_mb 0 where unknown."""

    name: str
    driver: str
    capability: tuple[int, int] | None
    memory_mb: int

    def __str__(self) -> str:
        capability = "unknown" if self.capability is None else "{}.{}".format(*self.capability)
        return f"{self.name} (driver {self.driver}, compute capability {capability})"


@dataclass(frozen=True)
class Advice:
    """Whether a torch serves a card; `line` says so in one line, `fix` what to type or do.

    `fix` is empty if all is well, and also if nothing helps and the card counts as no GPU.
    """

    ok: bool
    line: str
    fix: str = ""


def python_ok(version: tuple[int, ...] | None = None) -> bool:
    """Returns whether a Python version (default: the one that runs this) is supported."""
    found = tuple(version or sys.version_info)
    return found[:2] in PYTHONS and found[:3] != FAULTY_PYTHON


def find_python() -> str | None:
    """Returns the name of the newest supported Python on PATH, such as "python3.12", or None."""
    names = ["python{}.{}".format(*version) for version in reversed(PYTHONS)]
    return next((name for name in names if _serves(name)), None)


def find_compiler() -> tuple[str, str] | None:
    """Returns path and version line of the C++ compiler ($CXX, else g++ or clang++), or None.

    Where CXX is set, Inductor takes nothing else (torch/_inductor/config.py, class cpp).
    """
    for name in [os.environ["CXX"]] if "CXX" in os.environ else ["g++", "clang++"]:
        path = shutil.which(name) if name else None
        output = _output([path, "--version"]) if path else None
        if path and output:
            return path, output.splitlines()[0].strip()
    return None


def broken_cxx() -> str:
    """Returns in one line that $CXX does not start and what to do, "" if it does or is not set."""
    if "CXX" not in os.environ or find_compiler():
        return ""
    return (
        f"CXX={os.environ['CXX']} does not start, and torch.compile would take it: type "
        "`unset CXX`, or set it to the path of a C++ compiler"
    )


def has_python_headers() -> bool:
    """Returns whether Python.h is there: what Inductor and Triton compile includes it."""
    return (Path(sysconfig.get_path("include")) / "Python.h").is_file() or sys.platform == "darwin"


def free_gb(path: str | Path) -> float:
    """Returns free space in GB (10^9 bytes) where `path` is or would be created."""
    path = Path(path).absolute()
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(str(path)).free / 1e9


def look_for_cards() -> tuple[tuple[Card, ...], str]:
    """Returns the NVIDIA cards, and in one line why there are none (empty if there are)."""
    command = shutil.which("nvidia-smi")
    if command is None and Path("/usr/lib/wsl/lib/nvidia-smi").exists():
        command = "/usr/lib/wsl/lib/nvidia-smi"  # WSL2 keeps it outside PATH in some set-ups
    if command is None:
        return (), "no NVIDIA driver (nvidia-smi is not there); any other GPU counts as none"
    fields = ["name", "driver_version", "memory.total", "compute_cap"]
    # Drivers before 510 do not know compute_cap: ask again without it.
    for asked in (fields, fields[:3]):
        query = [command, "--query-gpu=" + ",".join(asked), "--format=csv,noheader,nounits"]
        code, output = _answer(query)
        if code is None:  # it hangs: asking again would only take as long again
            return (), output
        cards = tuple(filter(None, map(_card, output.splitlines()))) if code == 0 else ()
        if cards:
            return cards, ""
    code, said = _answer([command])
    lines = said.strip().splitlines() or ["it prints nothing"]
    return (), said if code is None else f"nvidia-smi finds no card: {lines[0]}"


def find_cards() -> tuple[Card, ...]:
    """Returns the NVIDIA cards of this machine, asked of nvidia-smi; empty if there are none."""
    return look_for_cards()[0]


def advice(card: Card, torch_version: str = DEFAULT_TORCH) -> Advice:
    """Says whether that torch serves `card`, and if not what to type.

    Raises ValueError for a torch that is not in SUPPORTED_TORCH.
    """
    if torch_version not in TORCH_BUILDS:
        raise ValueError(f"torch {torch_version} is not one of {', '.join(SUPPORTED_TORCH)}")
    if card.capability is not None and card.capability < TRITON_LOWEST:
        line = f"{card} counts as no GPU: torch.compile's Triton needs compute capability 7.0"
        return Advice(False, line + " or newer; lessons run on the CPU.")
    build = TORCH_BUILDS[torch_version]
    if _capability_fits(card, build) and _driver_fits(card, build):
        return Advice(True, f"{card} is served by torch {torch_version} (CUDA {build.cuda}).")
    fix = _fix(card, torch_version)
    return Advice(False, f"{card}: {_reason(card, torch_version)}. {fix}", fix)


def _reason(card: Card, torch_version: str) -> str:
    build = TORCH_BUILDS[torch_version]
    if not _has_cuda(build):
        return f"torch {torch_version} comes without CUDA for {platform.machine()} processors"
    if not _capability_fits(card, build):
        low = "{}.{}".format(*build.lowest)
        high = "{}.{}".format(*build.highest) if build.highest else ""
        span = f"{low} to {high}" if high else f"{low} and newer"
        return f"torch {torch_version} serves compute capabilities {span}"
    return f"torch {torch_version} (CUDA {build.cuda}) needs driver {build.driver} or newer"


def _fix(card: Card, torch_version: str) -> str:
    """The line to type if another torch serves the card as it is, else which driver to install."""
    order = [torch_version, DEFAULT_TORCH, *reversed(SUPPORTED_TORCH)]
    fitting = [version for version in order if _capability_fits(card, TORCH_BUILDS[version])]
    if not fitting:
        return "No torch that the suite supports serves it; lessons run on the CPU"
    for version in fitting:
        if _driver_fits(card, TORCH_BUILDS[version]):
            return f"Type: {_make_lab(version)}"
    best = fitting[0]
    then = "" if best == torch_version else f", then type: {_make_lab(best)}"
    return f"Update the NVIDIA driver to {TORCH_BUILDS[best].driver} or newer{then}"


def _make_lab(torch_version: str) -> str:
    return "make lab" + ("" if torch_version == DEFAULT_TORCH else f" TORCH={torch_version}")


def _has_cuda(build: TorchBuild) -> bool:
    # The index has CUDA 12 wheels of torch 2.7.1 for x86_64 only (its own requirements say so).
    return not build.cuda.startswith("12") or platform.machine() in ("x86_64", "AMD64")


def _capability_fits(card: Card, build: TorchBuild) -> bool:
    if card.capability is None or not _has_cuda(build):
        return _has_cuda(build)
    return build.lowest <= card.capability and (
        build.highest is None or card.capability <= build.highest
    )


def _driver_fits(card: Card, build: TorchBuild) -> bool:
    major = card.driver.split(".")[0]
    return not major.isdigit() or int(major) >= build.driver


def _card(line: str) -> Card | None:
    """Reads one line of nvidia-smi's table; None if it is not one (an error message, say)."""
    parts = [part.strip() for part in line.split(",")]
    if len(parts) < 3 or not parts[1][:1].isdigit():
        return None
    numbers = parts[3].split(".") if len(parts) > 3 else []
    known = len(numbers) == 2 and all(number.isdigit() for number in numbers)
    capability = (int(numbers[0]), int(numbers[1])) if known else None
    return Card(parts[0], parts[1], capability, int(parts[2]) if parts[2].isdigit() else 0)


def _answer(command: list[str]) -> tuple[int | None, str]:
    """Exit code and all output of a short command; (None, why) if it gave no answer in time."""
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        return 127, f"{name}: {error.strerror}"
    try:
        output = process.communicate(timeout=ANSWER_S)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)  # in the middle of a hanging driver call, nothing ends it
        return None, f"{name} did not answer in {ANSWER_S} s"


def _output(command: list[str]) -> str | None:
    """All output of a short command; None if it failed."""
    code, output = _answer(command)
    return output if code == 0 else None


def _serves(name: str) -> bool:
    """Returns whether the Python called `name` is on PATH, starts, and is one that is supported."""
    said = _output([name, "--version"]) if shutil.which(name) else None
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said or "")
    return found is not None and python_ok(tuple(map(int, found.groups())))
