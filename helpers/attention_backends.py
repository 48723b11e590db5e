"""Which attention backend PyTorch's CUDA build chooses, worked out with no GPU.

`scaled_dot_product_attention` looks at the card in C++ and so cannot be asked on a machine that
has none. The order is that of `select_sdp_backend` in
aten/src/ATen/native/transformers/cuda/sdp_utils.cpp. Uses private names of torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch

from helpers.attention_cudnn import cudnn_rules
from helpers.attention_rules import (
    AttentionCall,
    cudnn_version,
    efficient_rules,
    flash_rules,
    newer_rules,
)

# The order of at::SDPBackend, whose numbers the priority order uses.
BACKENDS = ("math", "flash", "efficient", "cudnn", "overrideable")
DEFAULT_ORDER = ("flash", "efficient", "math", "cudnn")
CUDNN_FIRST = ("cudnn", "flash", "efficient", "math")


def prefers_cudnn(capability: tuple[int, int]) -> bool:
    """Return whether cuDNN comes first on that card: Hopper and Blackwell of data centres.

    Above cuDNN 9.15.0 only; wheels for CUDA 12 leave out minor versions other than 0 and 3.
    """
    if os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED", "") in ("1", "true", "TRUE", "on", "ON"):
        return False
    major, minor = capability
    cuda = int((torch.version.cuda or "13").split(".")[0])
    fitting = (cuda >= 13 and newer_rules()) or minor in (0, 3)
    return cudnn_version() > 91500 and major in (9, 10) and fitting


def backend_order(capability: tuple[int, int]) -> tuple[str, ...]:
    """Return the backends in the order in which they are tried; one set by the user is kept."""
    codes = torch._C._get_sdp_priority_order()
    order = tuple(dict.fromkeys(BACKENDS[code] for code in codes))
    order = tuple(name for name in order if name != "overrideable")
    if order not in (DEFAULT_ORDER, CUDNN_FIRST):
        return order
    return CUDNN_FIRST if prefers_cudnn(capability) else DEFAULT_ORDER


def switched_on(backend: str) -> bool:
    """Return whether the user (or `sdpa_kernel`) leaves that backend on."""
    name = {"efficient": "mem_efficient"}.get(backend, backend)
    return bool(getattr(torch.backends.cuda, f"{name}_sdp_enabled")())


def why_not(call: AttentionCall, backend: str) -> str:
    """Return why a backend would not take this call, or an empty text where it would."""
    if not switched_on(backend):
        return "is switched off"
    rules = {"flash": flash_rules, "efficient": efficient_rules, "cudnn": cudnn_rules}
    checks: Iterator[str] = (rule(call) for rule in rules.get(backend, tuple)())
    return next((reason for reason in checks if reason), "")


def choose_backend(call: AttentionCall) -> tuple[str, dict[str, str]]:
    """Return the backend that the card would take, and why those tried before it were not.

    Raises RuntimeError where no backend that is switched on takes the call, as PyTorch does.
    """
    refused: dict[str, str] = {}
    for backend in backend_order(call.capability):
        refused[backend] = why_not(call, backend)
        if not refused[backend]:
            del refused[backend]
            return backend, refused
    reasons = "; ".join(f"{name} {reason}" for name, reason in refused.items())
    raise RuntimeError(f"no attention backend takes this call on the card: {reasons}")
