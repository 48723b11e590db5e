"""What cuDNN's attention asks of a call, as PyTorch checks it before it chooses cuDNN.

From aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (`can_use_cudnn_attention`), in its order.
"""

from __future__ import annotations

import torch

from helpers.attention_rules import (
    AttentionCall,
    Rule,
    batch_and_heads,
    cudnn_version,
    four_dims,
    hardware,
    lengths,
    low_precision,
    middle_rules,
    newer_rules,
    strides,
    surely,
)


def _cudnn_mask(call: AttentionCall) -> str:
    mask, (query, key) = call.mask, call.tensors[:2]
    if mask is None:
        return ""
    if mask.requires_grad:
        return "gives no gradient for the mask"
    wanted = [query.size(0), query.size(1), query.size(2), key.size(2)]

    def fits(dimension: int) -> bool:
        size = mask.size(dimension)
        return surely(size == wanted[dimension]) or surely(size == 1)

    last_fit = mask.dim() >= 2 and fits(-2) and fits(-1)
    if last_fit and (mask.dim() == 2 or (mask.dim() == 4 and fits(0) and fits(1))):
        return ""
    return "takes masks of two or four dimensions that broadcast"


def _cudnn_deterministic(call: AttentionCall) -> str:
    strict = torch.are_deterministic_algorithms_enabled()
    strict = strict and not torch.is_deterministic_algorithms_warn_only_enabled()
    return "is not deterministic" if strict else ""


def _cudnn_dropout(call: AttentionCall) -> str:
    if call.dropout_p > 0.0 and 91100 < cudnn_version() < 91400:
        return "has no dropout in cuDNN 9.11 to 9.13"
    if newer_rules() and (call.dropout_p * 16.0) % 1.0:
        return "drops only multiples of 1/16"
    return ""


def _data_centre(call: AttentionCall) -> bool:
    """Return whether the card is one that cuDNN's kernels for large heads are made for."""
    known = call.capability == (9, 0) or call.capability[0] == 10
    return known and (call.capability != (10, 7) or cudnn_version() > 92500)


def _cudnn_head_limit(call: AttentionCall) -> int:
    size, value_size = call.query.size(3), call.value.size(3)
    version, (major, _) = cudnn_version(), call.capability
    deepseek = version >= 91100 and surely(size == 192) and surely(value_size == 128)
    if newer_rules():
        if version > 92200 and _data_centre(call):
            return 256
        return 192 if deepseek and (call.capability == (9, 0) or major == 10) else 128
    if version >= 91000 and call.capability == (9, 0):
        return 256
    return 192 if deepseek and major == 10 else 128


def _no_decoding(call: AttentionCall) -> bool:
    """Return whether torch 2.14 keeps single queries from cuDNN 9.19 to 9.25.0 on sm_10x."""
    faulty = 91900 <= cudnn_version() <= 92500 and cudnn_version() != 92401
    return newer_rules() and call.capability[0] == 10 and faulty


def _cudnn_sizes(call: AttentionCall) -> str:
    if newer_rules() and not all(surely(call.query.size(i) <= 65535) for i in (0, 1)):
        return "takes batch and heads of at most 65535"
    sizes, limit = (call.query.size(3), call.value.size(3)), _cudnn_head_limit(call)
    if not all(surely(size <= limit) for size in sizes):
        return f"takes head sizes of at most {limit}"
    if not all(surely(size % 8 == 0) for size in sizes):
        return "needs head sizes in multiples of 8"
    if _no_decoding(call) and surely(call.query.size(2) == 1):
        return "does not take one query alone on this card"
    if not surely(call.key.size(2) != 1):
        return "does not take one key alone"
    single = call.dropout_p != 0.0 or not middle_rules()
    if single and not surely(call.query.size(2) != 1):
        return "does not take one query alone" + (" with dropout" if middle_rules() else "")
    return ""


def _cudnn_training(call: AttentionCall) -> str:
    """Return why cuDNN 9.22 and later cannot train with such head sizes (torch 2.14)."""
    if not (newer_rules() and call.needs_grad and cudnn_version() > 92200 and _data_centre(call)):
        return ""
    size, value_size = call.query.size(3), call.value.size(3)
    if surely(size <= 128) and surely(value_size <= 128):
        return ""
    pairs = ((192, 128), (256, 256))
    fits = any(surely(size == a) and surely(value_size == b) for a, b in pairs)
    return "" if fits else "cannot train with such head sizes"


def cudnn_rules() -> tuple[Rule, ...]:
    heads: tuple[Rule, ...] = (lambda call: batch_and_heads(call, same_kv=False),)
    return (
        _cudnn_dropout,
        four_dims,
        _cudnn_deterministic,
        low_precision,
        _cudnn_mask,
        lambda call: hardware(call, (8, 0)),
        lengths,
        lambda call: strides(call, ignore_single=True),
        *(heads if middle_rules() else ()),
        _cudnn_sizes,
        _cudnn_training,
    )
