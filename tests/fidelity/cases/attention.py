"""scaled_dot_product_attention in its variants, and attention inside torch's own modules."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tests.fidelity.case import Entries, randn

ENTRIES = Entries()
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def _qkv(device, dtype, *, heads=8, length=128, size=64, grad=False):
    shape = (2, heads, length, size)
    return tuple(randn(*shape, device=device, dtype=dtype, grad=grad) for _ in range(3))


def _plain(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def _causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@ENTRIES.add("attention, fp16, causal, trained", grad=True)
def sdpa_fp16_causal_train(device):
    return _causal, _qkv(device, FP16, grad=True)


@ENTRIES.add("attention, bf16, causal, with pointwise work around it")
def sdpa_bf16_causal(device):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q * 1.1, k.tanh(), v + 1, is_causal=True).relu()

    return attend, _qkv(device, BF16)


@ENTRIES.add("attention, fp32")
def sdpa_fp32(device):
    return _plain, _qkv(device, FP32)


@ENTRIES.add("attention, fp32, causal, trained", grad=True)
def sdpa_fp32_causal_train(device):
    return _causal, _qkv(device, FP32, grad=True)


@ENTRIES.add("attention, float64: no fused kernel takes it")
def sdpa_fp64(device):
    return _plain, _qkv(device, torch.float64, length=48)


@ENTRIES.add("attention with a bool mask made in the function, bf16")
def sdpa_bool_mask(device):
    def attend(q, k, v):
        length = q.shape[2]
        mask = torch.ones(length, length, dtype=torch.bool, device=q.device).tril(3)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return attend, _qkv(device, BF16)


@ENTRIES.add("attention with a padding mask given as bool, fp32, trained", grad=True)
def sdpa_padding_mask_train(device):
    def attend(q, k, v, keep):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])

    keep = torch.arange(128, device=device)[None] < torch.tensor([[90], [128]], device=device)
    return attend, (*_qkv(device, FP32, grad=True), keep)


@ENTRIES.add("attention with a float mask, bf16, trained", grad=True)
def sdpa_float_mask_train(device):
    def attend(q, k, v, bias):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    bias = randn(1, 8, 128, 128, device=device, dtype=BF16)
    return attend, (*_qkv(device, BF16, grad=True), bias)


@ENTRIES.add("attention with a learned bias of odd length, fp16, trained", grad=True)
def sdpa_learned_bias_odd_train(device):
    def attend(q, k, v, bias):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    bias = randn(8, 77, 77, device=device, dtype=FP16, grad=True)
    return attend, (*_qkv(device, FP16, length=77, grad=True), bias)


@ENTRIES.add("grouped queries with enable_gqa, bf16, causal, trained", grad=True)
def sdpa_gqa_train(device):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    (q,) = _qkv(device, BF16, grad=True)[:1]
    return attend, (q, *_qkv(device, BF16, heads=2, grad=True)[1:])


@ENTRIES.add("grouped queries with enable_gqa, fp32")
def sdpa_gqa_fp32(device):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return attend, (_qkv(device, FP32)[0], *_qkv(device, FP32, heads=2)[1:])


@ENTRIES.add("grouped queries by repeat_interleave, bf16")
def sdpa_repeated_kv(device):
    def attend(q, k, v):
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return attend, (_qkv(device, BF16)[0], *_qkv(device, BF16, heads=2)[1:])


@ENTRIES.add("head size 40, fp16, trained", grad=True)
def sdpa_head40_train(device):
    return _plain, _qkv(device, FP16, size=40, grad=True)


@ENTRIES.add("head size 80, bf16")
def sdpa_head80(device):
    return _causal, _qkv(device, BF16, size=80)


@ENTRIES.add("head size 72, bf16, trained", grad=True)
def sdpa_head72_train(device):
    return _plain, _qkv(device, BF16, size=72, grad=True)


@ENTRIES.add("head size 256, bf16, trained", grad=True)
def sdpa_head256_train(device):
    return _causal, _qkv(device, BF16, size=256, grad=True)


@ENTRIES.add("head size 65, not a multiple of 8, bf16")
def sdpa_head65(device):
    return _plain, _qkv(device, BF16, size=65)


@ENTRIES.add("cross-attention: 100 queries, 77 keys, bf16, trained", grad=True)
def sdpa_cross_train(device):
    q = _qkv(device, BF16, length=100, grad=True)[0]
    return _plain, (q, *_qkv(device, BF16, length=77, grad=True)[1:])


@ENTRIES.add("one query against 512 keys, as in decoding, fp16")
def sdpa_one_query(device):
    return _plain, (_qkv(device, FP16, length=1)[0], *_qkv(device, FP16, length=512)[1:])


@ENTRIES.add("attention with dropout, bf16, trained", grad=True)
def sdpa_dropout_train(device):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)

    return attend, _qkv(device, BF16, grad=True)


@ENTRIES.add("attention with dropout, fp32, trained", grad=True)
def sdpa_dropout_fp32_train(device):
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.2, is_causal=True)

    return attend, _qkv(device, FP32, grad=True)


@ENTRIES.add("attention with its scale given, bf16")
def sdpa_scale(device):
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.2), _qkv(device, BF16)


@ENTRIES.add("attention held to the flash kernel, bf16, trained", grad=True)
def sdpa_flash_only_train(device):
    def attend(q, k, v):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return attend, _qkv(device, BF16, grad=True)


@ENTRIES.add("attention held to the plain operations, bf16")
def sdpa_math_only(device):
    def attend(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v)

    return attend, _qkv(device, BF16)


@ENTRIES.add("nn.MultiheadAttention, fp32, trained", grad=True)
def mha_train(device):
    mha = nn.MultiheadAttention(256, 8, batch_first=True).to(device)
    x = randn(4, 64, 256, device=device, grad=True)
    return lambda x: mha(x, x, x, need_weights=False)[0], (x,)


@ENTRIES.add("nn.MultiheadAttention with its weights returned, bf16, eval")
def mha_weights_eval(device):
    mha = nn.MultiheadAttention(256, 8, batch_first=True).to(device, BF16).eval()
    return lambda x: mha(x, x, x), (randn(4, 64, 256, device=device, dtype=BF16),)


@ENTRIES.add("nn.MultiheadAttention of two sequences with dropout, bf16, trained", grad=True)
def mha_cross_dropout_train(device):
    mha = nn.MultiheadAttention(256, 4, dropout=0.1, batch_first=True).to(device, BF16)
    x = randn(2, 50, 256, device=device, dtype=BF16, grad=True)
    memory = randn(2, 90, 256, device=device, dtype=BF16)
    return lambda x, m: mha(x, m, m, need_weights=False)[0], (x, memory)


@ENTRIES.add("nn.TransformerEncoderLayer, fp32, dropout 0.1, trained", grad=True)
def encoder_layer_train(device):
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True).to(device)
    return layer, (randn(4, 64, 256, device=device, grad=True),)


@ENTRIES.add("nn.TransformerEncoderLayer, fp32, eval: torch's own fast path")
def encoder_layer_eval(device):
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True).to(device).eval()
    return layer, (randn(4, 64, 256, device=device),)


@ENTRIES.add("nn.TransformerEncoderLayer, norm first, bf16, no dropout, trained", grad=True)
def encoder_layer_norm_first_train(device):
    layer = nn.TransformerEncoderLayer(
        256, 4, 512, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    ).to(device, BF16)
    return layer, (randn(4, 64, 256, device=device, dtype=BF16, grad=True),)
