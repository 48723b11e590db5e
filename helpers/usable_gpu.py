"""Whether there is an NVIDIA card that the installed torch serves; if not, why, and what to do."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass
from typing import Any

# Triton and Inductor generate code for compute capability 7.0 and later
# (torch/_inductor/scheduler.py raises GPUTooOldForTriton below it).
OLDEST_CAPABILITY = (7, 0)


def _cuda_works(torch: Any) -> tuple[bool, str]:
    """Returns whether torch can use a CUDA device, and torch's own warning if it gave one."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        works = torch.version.cuda is not None and torch.cuda.is_available()
    first = str(said[0].message).strip().splitlines()[0] if said else ""
    return works, first


def _serves(architectures: list[str], capability: tuple[int, int]) -> bool:
    """Says whether a torch built for `architectures` ("sm_90", "compute_120") has code for a card.

    sm code runs on the same major number and an equal or later minor one; compute code (PTX) on
    every later card (CUDA Programming Guide, "Binary Compatibility" and "PTX Compatibility").
    """
    for kind, digits in re.findall(r"(sm|compute)_(\d+)", " ".join(architectures)):
        built = int(digits[:-1]), int(digits[-1])
        if built <= capability and (kind == "compute" or built[0] == capability[0]):
            return True
    return False


def _other_gpu(torch: Any) -> str:
    """Names a GPU of another maker that torch could use, "" if there is none."""
    if torch.version.hip is not None and torch.cuda.is_available():
        return "an AMD GPU"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        return "an Intel GPU"
    if hasattr(torch.backends, "mps") and torch.backends.mps.is_available():
        return "an Apple GPU"
    return ""


@dataclass(frozen=True)
class NoGPU:
    """Why no card counts, in one line, and what to do about it ("" where nothing helps)."""

    note: str
    fix: str = ""


def why_no_gpu() -> NoGPU | None:
    """Returns None if torch can use an NVIDIA card here, else why not."""
    import torch

    works, warning = _cuda_works(torch)
    if works:
        capability = torch.cuda.get_device_capability(0)
        served = _serves(torch.cuda.get_arch_list(), capability)
        if served and capability >= OLDEST_CAPABILITY:
            return None
        name, number = torch.cuda.get_device_name(0), "{}.{}".format(*capability)
        return _advised(torch) or NoGPU(
            f"no GPU that counts: torch {torch.__version__} has no code for {name}, "
            f"whose compute capability is {number}"
        )
    other = _other_gpu(torch)
    if other:
        return NoGPU(f"no GPU that counts: there is {other}, and the lessons use NVIDIA cards only")
    return _unreached_card(torch, warning)


def _unreached_card(torch: Any, warning: str) -> NoGPU:
    """Says why torch does not reach a card that nvidia-smi names, if it names one."""
    from helpers.machine import find_cards

    cards = find_cards()
    if not cards:
        return NoGPU("no GPU")
    here = f"no GPU that counts: {cards[0]} is here, but "
    if torch.version.cuda is None:
        return NoGPU(f"{here}this torch ({torch.__version__}) is built without CUDA", "make lab")
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return NoGPU(f"{here}CUDA_VISIBLE_DEVICES hides it", "unset CUDA_VISIBLE_DEVICES")
    return _advised(torch) or NoGPU(
        f"{here}torch {torch.__version__} cannot use it" + (f": {warning}" if warning else ""),
        "check that nvidia-smi works as this user, then restart the kernel",
    )


def _advised(torch: Any) -> NoGPU | None:
    """Returns what the table of drivers and cards says against the first card, None if nothing."""
    from helpers.machine import SUPPORTED_TORCH, advice, find_cards

    version, cards = torch.__version__.split("+")[0], find_cards()
    if not cards or version not in SUPPORTED_TORCH:
        return None
    found = advice(cards[0], version)
    return None if found.ok else NoGPU(f"no GPU that counts: {found.line}", found.fix)
