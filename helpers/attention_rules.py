"""What the fused attention backends of PyTorch's CUDA build ask of a call.

The rules are those of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp and sdp_utils_cpp.h, in
their order, so that a dynamic shape gets the same guards. Rules that changed between torch 2.7 and
2.14 are told apart by names that torch has. Those of cuDNN are in `helpers.attention_cudnn`.
Uses private names of torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes

HALF_TYPES = (torch.float16, torch.bfloat16)
CUDNN_WITHOUT_LIBRARY = 91900  # of the wheel of torch 2.11.0; a wheel for CPU has none to ask


def surely(condition: Any) -> bool:
    """Return what a (perhaps symbolic) condition says; a size that nothing is known of says no."""
    decide = getattr(symbolic_shapes, "guard_or_false", bool)
    return bool(condition) if isinstance(condition, bool) else bool(decide(condition))


@dataclass(frozen=True)
class AttentionCall:
    """One call of attention as the choice sees it.

    query, key, value: (batch, heads, length, head size) for the fused backends; mask: bool or
    float, broadcastable to (batch, heads, query length, key length); capability: the card's
    compute capability, (9, 0) for an H200.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout_p: float
    is_causal: bool
    enable_gqa: bool
    capability: tuple[int, int]

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.query, self.key, self.value

    @property
    def needs_grad(self) -> bool:
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self.tensors)


Rule = Callable[[AttentionCall], str]  # says why not, or nothing


@cache
def cudnn_version() -> int:
    """Return cuDNN's version as its library says it, 91900 for 9.19.0.

    Not through `torch.backends.cudnn`, which would ask a pretended card for its capability.
    """
    library = getattr(torch._C, "_cudnn", None)
    return int(library.getVersionInt()) if library else CUDNN_WITHOUT_LIBRARY


def newer_rules() -> bool:
    """Return whether this torch has the rules of 2.14, seen by a name that came before them."""
    return hasattr(torch._C, "_is_ck_sdpa_available")


def middle_rules() -> bool:
    """Return whether this torch has the rules of 2.11 or later, which know FlashAttention 3."""
    return hasattr(torch._C, "_get_fa3_sdp_enabled")


# -- rules for several backends


def four_dims(call: AttentionCall) -> str:
    return "" if all(tensor.dim() == 4 for tensor in call.tensors) else "needs four dimensions"


def _types(call: AttentionCall, allowed: tuple[torch.dtype, ...]) -> str:
    same = all(tensor.dtype == call.query.dtype for tensor in call.tensors)
    return "" if same and call.query.dtype in allowed else f"does not take {call.query.dtype}"


def low_precision(call: AttentionCall) -> str:
    return _types(call, HALF_TYPES if call.capability[0] >= 8 else (torch.float16,))


def lengths(call: AttentionCall) -> str:
    none = surely(call.query.size(-2) == 0) or surely(call.key.size(-2) == 0)
    return "does not take a length of zero" if none else ""


def strides(call: AttentionCall, ignore_single: bool) -> str:
    dense = all(surely(tensor.stride(-1) == 1) for tensor in call.tensors)
    dense = dense or (ignore_single and surely(call.query.size(-1) == 1))
    mask_dense = call.mask is None or surely(call.mask.stride(-1) == 1)
    return "" if dense and mask_dense else "needs a last dimension of stride 1"


def batch_and_heads(call: AttentionCall, grouped: bool = True, same_kv: bool = True) -> str:
    batches, heads = zip(*((t.size(0), t.size(-3)) for t in call.tensors), strict=True)
    if not all(surely(batches[0] == batch) for batch in batches[1:]):
        return "needs the same batch size"
    if call.enable_gqa and grouped:
        if same_kv and not surely(heads[1] == heads[2]):
            return "needs as many heads in key as in value"
        divisors = heads[1:2] if same_kv else heads[1:]
        divided = all(surely(heads[0] % count == 0) for count in divisors)
        return "" if divided else "needs query heads that key heads divide"
    if all(surely(heads[0] == count) for count in heads[1:]):
        return ""
    single = newer_rules() and all(surely(count == 1) for count in heads[1:])
    return "" if single else "needs the same number of heads"


def hardware(call: AttentionCall, lowest: tuple[int, int]) -> str:
    within = lowest <= call.capability <= ((12, 1) if middle_rules() else (12, 0))
    return "" if within else f"does not run on sm_{call.capability[0]}{call.capability[1]}"


# -- flash


def _flash_head_size(call: AttentionCall) -> str:
    sizes = [tensor.size(-1) for tensor in call.tensors]
    same = all(surely(sizes[0] == size) for size in sizes[1:])
    fits = same and surely(sizes[0] <= 256)
    return "" if fits else "needs one head size, at most 256"


def _flash_training(call: AttentionCall) -> str:
    consumer = (8, 6) <= call.capability <= (8, 9) or (12, 0) <= call.capability <= (12, 1)
    if not (call.needs_grad and consumer):
        return ""
    size = call.query.size(-1)
    if surely(size <= 192) or (call.dropout_p == 0.0 and surely(size > 224)):
        return ""
    return "cannot train with such a head size on this card"


def _flash_causal(call: AttentionCall) -> str:
    uneven = call.is_causal and not surely(call.query.size(-2) == call.key.size(-2))
    return "is causal only for equal lengths" if uneven else ""


def flash_rules() -> tuple[Rule, ...]:
    return (
        four_dims,
        lambda call: "" if call.mask is None else "takes no mask",
        _flash_head_size,
        lambda call: hardware(call, (8, 0)),
        _flash_training,
        _flash_causal,
        low_precision,
        batch_and_heads,
        lengths,
        lambda call: strides(call, ignore_single=True),
    )


# -- memory-efficient


def _gemm_alignment(call: AttentionCall) -> int:
    """Return how many elements a matrix multiply of that card wants side by side."""
    half = call.query.dtype in HALF_TYPES
    tensor_cores = call.capability[0] >= 8 or (call.capability[0] == 7 and half)
    alignment = 4 if call.capability[0] >= 8 else 1
    return max(alignment, 128 // (16 if half else 32)) if tensor_cores else alignment


def _efficient_head_size(call: AttentionCall) -> str:
    query, key, value = (tensor.size(-1) for tensor in call.tensors)
    step = _gemm_alignment(call)
    fits = (
        surely(query == key)
        and surely(query % step == 0)
        and surely(query > 0)
        and surely(value % step == 0)
        and surely(value > 0)
    )
    return "" if fits else f"needs head sizes in multiples of {step}"


def _efficient_offsets(call: AttentionCall) -> str:
    if not newer_rules() or call.capability[0] < 8:
        return ""
    step = _gemm_alignment(call) * call.query.element_size()
    for tensor in call.tensors:
        offset = tensor.storage_offset() * tensor.element_size() % step
        if isinstance(offset, int) and offset and not surely(tensor.numel() == 0):
            return f"needs storage offsets in multiples of {step} bytes"
    return ""


def _efficient_types(call: AttentionCall) -> str:
    allowed = (torch.float16, torch.float32)
    return _types(call, (*allowed, torch.bfloat16) if call.capability[0] >= 8 else allowed)


def efficient_rules() -> tuple[Rule, ...]:
    return (
        lambda call: hardware(call, (5, 0)),
        four_dims,
        _efficient_head_size,
        _efficient_offsets,
        lengths,
        lambda call: strides(call, ignore_single=False),
        lambda call: batch_and_heads(call, grouped=newer_rules()),
        _efficient_types,
    )
