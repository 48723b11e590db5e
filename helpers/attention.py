"""Attention as PyTorch's CUDA build takes it apart: which ATen operators, with which arguments.

Follows aten/src/ATen/native/transformers/attention.cpp, written afresh in Python, so that tracing
on a machine with no GPU gives the graph that the card would. The backend is that of
`helpers.attention_backends`. Uses private names of torch (the operators of the backends).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from helpers.attention_backends import choose_backend
from helpers.attention_rules import HALF_TYPES, AttentionCall, middle_rules, newer_rules, surely

aten = torch.ops.aten
MASK_STEP = 8  # elements that the memory-efficient kernels want rows of a mask to start at
HEAD_STEP = 8  # elements that the flash kernels want head sizes to be a multiple of

MASK_AND_CAUSAL = (
    "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
)


class HasCapability(Protocol):
    """What the choice asks of a target: its compute capability."""

    capability: tuple[int, int]


def attention_for(target: HasCapability) -> Callable[..., torch.Tensor]:
    """Return `scaled_dot_product_attention` as that card would take it apart.

    target: has `capability`, (9, 0) for an H200. The result takes the arguments of
    `torch.nn.functional.scaled_dot_product_attention` and raises RuntimeError where the card
    would.
    """
    capability = tuple(target.capability)

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if query.device.type != "cuda":  # made on the CPU by the user's code, so it stays there
            return aten.scaled_dot_product_attention.default._op_dk(
                torch._C.DispatchKey.CompositeImplicitAutograd,
                *(query, key, value, attn_mask, dropout_p, is_causal),
                scale=scale,
                enable_gqa=enable_gqa,
            )
        return scaled_dot_product_attention(
            *(query, key, value, attn_mask, dropout_p, is_causal),
            scale=scale,
            enable_gqa=enable_gqa,
            capability=capability,
        )

    return attention


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    capability: tuple[int, int] = (9, 0),
) -> torch.Tensor:
    """Attention through the operator that a card of that compute capability would call.

    query: (..., heads, length, head size), key and value likewise; the result has query's shape
    with value's head size. Raises RuntimeError where PyTorch does.
    """
    _validate(query, key, value, attn_mask)
    if newer_rules() and is_causal and attn_mask is not None:
        raise RuntimeError(MASK_AND_CAUSAL)
    unbatched = newer_rules() and all(tensor.dim() == 3 for tensor in (query, key, value))
    if unbatched:
        query, key, value, attn_mask = _with_batch(query, key, value, attn_mask)
    if newer_rules() and any(surely(tensor.numel() == 0) for tensor in (query, key, value)):
        out = _nothing_to_attend(query, key, value)
    else:
        call = AttentionCall(
            *(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, capability)
        )
        out = _through(choose_backend(call)[0], call, scale)
    return out.squeeze(0) if unbatched else out


def _through(backend: str, call: AttentionCall, scale: float | None) -> torch.Tensor:
    mask = additive_mask(call.mask, call.query.dtype, backend)
    if backend == "math":
        rest = (mask, call.dropout_p, call.is_causal, None)
        return attention_math(*call.tensors, *rest, scale=scale, enable_gqa=call.enable_gqa)[0]
    run = {"flash": _flash, "efficient": _efficient, "cudnn": _cudnn}[backend]
    return run(call, mask, scale)


def _validate(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> None:
    tensors = (query, key, value)
    if any(tensor.dtype != query.dtype for tensor in tensors):
        raise RuntimeError("Expected query, key, and value to have the same dtype")
    if any(tensor.device != query.device for tensor in tensors):
        raise RuntimeError("Expected query, key, and value to have the same device type")
    if any(tensor.dim() < 2 for tensor in tensors):
        raise RuntimeError("Expected query, key, and value to all be at least 2 dimensional")
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise RuntimeError("Expected attn_mask dtype to be bool or float or to match query dtype")


def _with_batch(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None
) -> tuple[Any, ...]:
    batched = [tensor.unsqueeze(0) for tensor in (query, key, value)]
    while mask is not None and mask.dim() < 4:
        mask = mask.unsqueeze(0)
    return (*batched, mask)


def _nothing_to_attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    shape = (*query.shape[:-1], value.size(-1))
    out = torch.zeros(shape, dtype=query.dtype, device=query.device)
    last, middle, first = (tensor.sum() for tensor in (value, key, query))
    return out + aten.mul.Scalar(first + middle + last, 0)


def additive_mask(
    mask: torch.Tensor | None, dtype: torch.dtype, backend: str = ""
) -> torch.Tensor | None:
    """Return a mask to add: a bool one says where attention may look."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    lowest = -65504.0 if backend == "cudnn" and not newer_rules() else -float("inf")
    blocked = aten.scalar_tensor(lowest, dtype=dtype, device=mask.device)
    return where_scalar_self(mask, 0.0, blocked)


def where_scalar_self(condition: torch.Tensor, chosen: Any, other: torch.Tensor) -> torch.Tensor:
    """`aten.where.ScalarSelf` with its scalar made on the device that `other` says it is on."""
    dtype = torch.result_type(other, chosen)
    made = aten.scalar_tensor(chosen, dtype=dtype, device=other.device)
    return aten.where.self(condition, made, other.to(dtype))


# -- the fused backends


def _flash(call: AttentionCall, mask: None, scale: float | None) -> torch.Tensor:
    size = call.query.size(-1)
    padded = [_padded_head(tensor) for tensor in call.tensors]
    factor = float(_scale_of(call.query, scale))  # of the size before padding
    out = aten._scaled_dot_product_flash_attention.default(
        *padded, call.dropout_p, call.is_causal, False, scale=factor
    )[0]
    return out if surely(out.size(-1) == size) else aten.slice.Tensor(out, -1, 0, size)


def _padded_head(tensor: torch.Tensor) -> torch.Tensor:
    rest = tensor.size(-1) % HEAD_STEP
    if surely(rest == 0):
        return tensor
    return aten.pad.default(tensor, [0, HEAD_STEP - rest])


def _efficient(call: AttentionCall, mask: Any, scale: float | None) -> torch.Tensor:
    query, key, _ = call.tensors
    if mask is not None:
        mask = mask if _aligned(mask) else _aligned_copy(mask)
        mask = mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    trains = call.needs_grad or (newer_rules() and _mask_trains(mask))
    return aten._scaled_dot_product_efficient_attention.default(
        *(*call.tensors, mask, trains, call.dropout_p, call.is_causal), scale=scale
    )[0]


def _mask_trains(mask: torch.Tensor | None) -> bool:
    return mask is not None and torch.is_grad_enabled() and mask.requires_grad


def _aligned(mask: torch.Tensor) -> bool:
    """Return whether every row of a mask starts where the kernels can load it."""
    for stride in mask.stride()[:-1]:
        if middle_rules() and not isinstance(stride, int):
            return False  # an unknown stride is taken as unaligned, which spares a guard
        if not surely(stride % MASK_STEP == 0):
            return False
    return surely(mask.stride(-1) == 1)


def _aligned_copy(mask: torch.Tensor) -> torch.Tensor:
    size = mask.size(-1)
    padded = aten.pad.default(mask, [0, MASK_STEP - size % MASK_STEP])
    return aten.slice.Tensor(padded, -1, 0, size)


def _cudnn(call: AttentionCall, mask: Any, scale: float | None) -> torch.Tensor:
    return aten._scaled_dot_product_cudnn_attention.default(
        *(*call.tensors, mask, call.needs_grad, call.dropout_p, call.is_causal, False),
        scale=scale,
    )[0]


# -- the math backend


def _scale_of(query: torch.Tensor, scale: float | None) -> Any:
    return 1.0 / torch.sym_sqrt(torch.sym_float(query.size(-1))) if scale is None else scale


def _repeated_heads(query, key, value, enable_gqa: bool) -> tuple[torch.Tensor, torch.Tensor]:
    heads = [tensor.size(-3) for tensor in (query, key, value)] if enable_gqa else [1, 1, 1]
    if surely(heads[0] == heads[1]) and surely(heads[1] == heads[2]):
        return key, value
    if not all(surely(heads[0] % count == 0) for count in heads[1:]):
        raise RuntimeError("Number of heads in key and value must divide the number of heads in ")
    repeat = aten.repeat_interleave.self_int
    return repeat(key, heads[0] // heads[1], -3), repeat(value, heads[0] // heads[2], -3)


def attention_math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    dropout_mask: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`aten._scaled_dot_product_attention_math` with its masks made where the tensors are.

    Returns the attended values, shaped as query with value's head size, and the weights
    (..., query length, key length).
    """
    dtype = query.dtype
    if not torch._C._get_math_sdp_allow_fp16_bf16_reduction():
        exact = (t.to(torch.float32) if t.dtype in HALF_TYPES else t for t in (query, key, value))
        query, key, value = exact
    negative = scale is not None and scale < 0.0
    factor = torch.sym_sqrt(_scale_of(query, abs(scale) if negative else scale))
    query = aten.mul.Scalar(query, 0.0 - factor if negative else factor)
    if is_causal:
        attn_mask = _causal_mask(query, key, attn_mask)
    key, value = _repeated_heads(query, key, value, enable_gqa)
    weights = aten.matmul.default(query, aten.mul.Scalar(key.transpose(-2, -1), factor))
    if attn_mask is not None:
        weights = weights + attn_mask
    weights = aten._safe_softmax.default(weights, -1)
    if dropout_p > 0.0 and dropout_mask is not None:
        weights = weights.masked_fill(dropout_mask.logical_not(), 0.0)
        value = aten.mul.Scalar(value, 1.0 / (1 - dropout_p))
    elif dropout_p > 0.0:
        weights = aten.dropout.default(weights, dropout_p, True)
    shown = weights.to(dtype)  # before the product, as C++ evaluates its arguments
    return aten.matmul.default(weights, value).to(dtype), shown


def _causal_mask(
    query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None
) -> torch.Tensor | None:
    if mask is not None:
        raise RuntimeError(MASK_AND_CAUSAL)
    shape = (query.size(-2), key.size(-2))
    seen = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    return additive_mask(seen, query.dtype)
