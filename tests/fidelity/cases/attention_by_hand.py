"""Attention and what belongs to it, written out: softmax, biases, rotary embedding, caches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import flex_attention

from tests.fidelity.case import Entries, randn

ENTRIES = Entries()
BF16 = torch.bfloat16


@ENTRIES.add("softmax attention written by hand, causal, bf16, trained", grad=True)
def attention_by_hand_train(device):
    def attend(q, k, v):
        scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        length = scores.shape[-1]
        future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill(future, float("-inf")).float().softmax(-1).to(q.dtype) @ v

    shape = (2, 8, 128, 64)
    return attend, tuple(randn(*shape, device=device, dtype=BF16, grad=True) for _ in range(3))


@ENTRIES.add("attention by hand without scale or mask, fp32: a known pattern", grad=True)
def attention_pattern_train(device):
    def attend(q, k, v):
        return torch.matmul((torch.matmul(q, k.transpose(-2, -1)) / 8.0).softmax(-1), v)

    shape = (2, 8, 128, 64)
    return attend, tuple(randn(*shape, device=device, grad=True) for _ in range(3))


@ENTRIES.add("attention by hand with dropout on the weights, fp16: a known pattern", grad=True)
def attention_pattern_dropout_train(device):
    def attend(q, k, v):
        weights = (torch.matmul(q, k.transpose(-2, -1)).div(8.0)).softmax(-1)
        return F.dropout(weights, 0.1).matmul(v)

    shape = (2, 4, 64, 64)
    return attend, tuple(
        randn(*shape, device=device, dtype=torch.float16, grad=True) for _ in range(3)
    )


@ENTRIES.add("ALiBi: a slope per head on the distance, added in scaled_dot_product_attention")
def alibi(device):
    def attend(q, k, v):
        heads, length = q.shape[1], q.shape[2]
        slopes = 2.0 ** (-8.0 / heads * torch.arange(1, heads + 1, device=q.device))
        place = torch.arange(length, device=q.device)
        bias = -(place[:, None] - place[None, :]).abs() * slopes[:, None, None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))

    return attend, tuple(randn(2, 8, 128, 64, device=device, dtype=BF16) for _ in range(3))


@ENTRIES.add("relative position bias looked up in a table, as in Swin, trained", grad=True)
def relative_bias_train(device):
    place = torch.arange(49, device=device)
    index = (place[:, None] - place[None, :]) + 48

    def attend(q, k, v, table):
        scores = q @ k.transpose(-2, -1) * 0.17 + table[index].permute(2, 0, 1)
        return scores.softmax(-1) @ v

    qkv = tuple(randn(16, 4, 49, 32, device=device, grad=True) for _ in range(3))
    return attend, (*qkv, randn(97, 4, device=device, grad=True))


@ENTRIES.add("rotary embedding of q and k with frequencies made inside, trained", grad=True)
def rotary_train(device):
    def rotate(x, cos, sin):
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    def rotary(q, k):
        half = torch.arange(0, q.shape[-1], 2, device=q.device).float() / q.shape[-1]
        angles = torch.outer(torch.arange(q.shape[2], device=q.device).float(), 10000.0**-half)
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        return rotate(q, cos, sin), rotate(k, cos, sin)

    return rotary, tuple(randn(2, 8, 128, 64, device=device, dtype=BF16, grad=True) for _ in "qk")


@ENTRIES.add("a step of decoding: keys and values copied into a cache in place, then attention")
def kv_cache_step(device):
    cache_k = torch.zeros(2, 8, 256, 64, device=device, dtype=BF16)
    cache_v = torch.zeros_like(cache_k)

    def step(q, k, v, place):
        cache_k.index_copy_(2, place, k)
        cache_v.index_copy_(2, place, v)
        keep = torch.arange(cache_k.shape[2], device=q.device) <= place
        return F.scaled_dot_product_attention(q, cache_k, cache_v, attn_mask=keep[None, None, None])

    qkv = tuple(randn(2, 8, 1, 64, device=device, dtype=BF16) for _ in range(3))
    return step, (*qkv, torch.tensor([17], device=device))


@ENTRIES.add("a cache grown by torch.cat, fp16")
def kv_cache_cat(device):
    def step(q, k, v, old_k, old_v):
        k, v = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
        return F.scaled_dot_product_attention(q, k, v), k, v

    half = torch.float16
    new = tuple(randn(2, 8, 1, 64, device=device, dtype=half) for _ in range(3))
    return step, (*new, *(randn(2, 8, 127, 64, device=device, dtype=half) for _ in range(2)))


@ENTRIES.add("flex_attention with a bias in the scores, bf16")
def flex_bias(device):
    def relative(score, batch, head, q_index, k_index):
        return score + (q_index - k_index) * 0.01

    def attend(q, k, v):
        return flex_attention(q, k, v, score_mod=relative)

    return attend, tuple(randn(1, 4, 256, 64, device=device, dtype=BF16) for _ in range(3))


@ENTRIES.add("linear attention: an elu kernel and einsum, trained", grad=True)
def linear_attention_train(device):
    def attend(q, k, v):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        summed = torch.einsum("bhnd,bhne->bhde", k, v)
        scale = 1 / (torch.einsum("bhnd,bhd->bhn", q, k.sum(2)) + 1e-6)
        return torch.einsum("bhnd,bhde,bhn->bhne", q, summed, scale)

    return attend, tuple(randn(2, 4, 128, 32, device=device, grad=True) for _ in range(3))
