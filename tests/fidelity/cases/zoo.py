"""The twelve functions that the first experiments used, with the same shapes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.fidelity.case import Entries, integers, randn

ENTRIES = Entries()
BF16 = torch.bfloat16


@ENTRIES.add("layer norm, GELU MLP and a residual, bf16", grad=True)
def mlp_train(device):
    mlp = nn.Sequential(
        nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)
    ).to(device, BF16)
    x = randn(4096, 1024, device=device, dtype=BF16, grad=True)
    return lambda x: (mlp(x) + x).float().pow(2).mean(), (x,)


@ENTRIES.add("two convolutions with batch norm and a residual", grad=True)
def resblock_train(device):
    blk = nn.ModuleDict({
        "c1": nn.Conv2d(64, 64, 3, padding=1, bias=False),
        "b1": nn.BatchNorm2d(64),
        "c2": nn.Conv2d(64, 64, 3, padding=1, bias=False),
        "b2": nn.BatchNorm2d(64),
    }).to(device)  # fmt: skip

    def residual(x):
        return F.relu(blk.b2(blk.c2(F.relu(blk.b1(blk.c1(x))))) + x).mean()

    return residual, (randn(8, 64, 56, 56, device=device, grad=True),)


def _attention(device):
    qkv = nn.Linear(512, 1536).to(device, BF16)

    def attention(x):
        q, k, v = qkv(x).view(8, 128, 3, 8, 64).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(8, 128, 512)

    return attention


@ENTRIES.add("attention with its projection, no_grad inside")
def attn_infer(device):
    return torch.no_grad()(_attention(device)), (randn(8, 128, 512, device=device, dtype=BF16),)


@ENTRIES.add("attention with its projection", grad=True)
def attn_train(device):
    attention = _attention(device)
    x = randn(8, 128, 512, device=device, dtype=BF16, grad=True)
    return lambda x: attention(x).float().mean(), (x,)


@ENTRIES.add("embedding, tied output weights, cross entropy over 32000 words", grad=True)
def embed_xent_train(device):
    emb = nn.Embedding(32000, 512).to(device, BF16)

    def loss(i, t):
        return F.cross_entropy((emb(i) @ emb.weight.T).float(), t)

    return loss, (integers(32000, 2048, device=device), integers(32000, 2048, device=device))


@ENTRIES.add("dropout after SiLU", grad=True)
def dropout_train(device):
    x = randn(4096, 1024, device=device, dtype=BF16, grad=True)
    return lambda x: F.dropout(F.silu(x), 0.1).sum(), (x,)


@ENTRIES.add("cumulative sum, and top 8 of a softmax")
def cumsum_sort(device):
    def both(x):
        return x.cumsum(-1), x.float().softmax(-1).topk(8)[0]

    return both, (randn(512, 1024, device=device, dtype=BF16),)


@ENTRIES.add("index_add_ into zeros")
def gather_scatter(device):
    def add(x, i):
        return torch.zeros_like(x).index_add_(0, i, x * 2)

    return add, (randn(4096, 256, device=device), integers(4096, 4096, device=device))


@ENTRIES.add("group norm and SiLU")
def groupnorm_silu(device):
    return lambda x: F.silu(F.group_norm(x, 32)), (randn(4, 256, 64, 64, device=device),)


@ENTRIES.add("rotary embedding with halves swapped")
def rope(device):
    def rotate(x, c, s):
        return x * c + torch.cat((-x[..., 32:], x[..., :32]), -1) * s

    shapes = ((8, 16, 512, 64), (512, 64), (512, 64))
    return rotate, tuple(randn(*shape, device=device, dtype=BF16) for shape in shapes)


@ENTRIES.add("an update like Adam's over 4 million parameters")
def adam_like(device):
    def update(p, g, m, v):
        return p - 1e-3 * (m * 0.9 + g * 0.1) / ((v * 0.999 + g * g * 0.001).sqrt() + 1e-8)

    return update, tuple(randn(1 << 22, device=device).abs() for _ in range(4))


@ENTRIES.add("matmul with bias and ReLU")
def mm_epilogue(device):
    shapes = ((2048, 2048), (2048, 2048), (2048,))
    return (
        lambda a, b, c: F.relu(a @ b + c),
        tuple(randn(*shape, device=device, dtype=BF16) for shape in shapes),
    )
