"""Matrix products in odd sizes, mixed precision, dynamic shapes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.fidelity.case import Entries, randn

ENTRIES = Entries()
BF16, FP16 = torch.bfloat16, torch.float16


@ENTRIES.add("odd M, N and K, bf16")
def mm_odd_bf16(device):
    shapes = ((333, 511), (511, 257))
    return lambda a, b: (a @ b).relu(), tuple(randn(*s, device=device, dtype=BF16) for s in shapes)


@ENTRIES.add("odd N and K, fp16, trained", grad=True)
def mm_odd_fp16_train(device):
    shapes = ((256, 1001), (1001, 515))
    args = tuple(randn(*s, device=device, dtype=FP16, grad=True) for s in shapes)
    return lambda a, b: (a @ b).tanh(), args


@ENTRIES.add("odd M and N, fp32")
def mm_odd_fp32(device):
    shapes = ((501, 512), (512, 1023))
    return lambda a, b: a @ b * 2, tuple(randn(*s, device=device) for s in shapes)


@ENTRIES.add("large and odd, bf16: where padding can pay")
def mm_large_odd_bf16(device):
    shapes = ((2048, 2047), (2047, 2049))
    return torch.mm, tuple(randn(*s, device=device, dtype=BF16) for s in shapes)


@ENTRIES.add("a head over 50257 words, bf16, 3-D input")
def linear_vocabulary(device):
    head = nn.Linear(256, 50257, bias=False).to(device, BF16)
    return lambda x: head(x).float(), (randn(2, 32, 256, device=device, dtype=BF16),)


@ENTRIES.add("linear with odd features, 3-D input, fp32, trained", grad=True)
def linear_odd_train(device):
    layer = nn.Linear(300, 301).to(device)
    return lambda x: F.relu(layer(x)), (randn(4, 50, 300, device=device, grad=True),)


@ENTRIES.add("addmm with alpha and beta, and a matrix times a vector")
def addmm_mv(device):
    def both(c, a, b, v):
        return torch.addmm(c, a, b, beta=0.5, alpha=2.0), torch.mv(a, v) + 1

    shapes = ((128, 96), (128, 200), (200, 96), (200,))
    return both, tuple(randn(*s, device=device) for s in shapes)


@ENTRIES.add("bmm and baddbmm, fp16, trained", grad=True)
def bmm_baddbmm_train(device):
    def both(c, a, b):
        return torch.baddbmm(c, a, b, alpha=0.125).softmax(-1).bmm(b.transpose(1, 2))

    shapes = ((12, 65, 72), (12, 65, 40), (12, 40, 72))
    return both, tuple(randn(*s, device=device, dtype=FP16, grad=True) for s in shapes)


@ENTRIES.add("einsum with a permuted result, bf16, trained", grad=True)
def einsum_train(device):
    shapes = ((4, 50, 8, 32), (4, 60, 8, 32))
    args = tuple(randn(*s, device=device, dtype=BF16, grad=True) for s in shapes)
    return lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b).relu(), args


@ENTRIES.add("a matmul of very small and of one-row operands")
def mm_tiny(device):
    def tiny(a, b, row):
        return a @ b, row @ b, (a[:, :1] @ b[:1])

    return tiny, tuple(randn(*s, device=device) for s in ((3, 5), (5, 2), (1, 5)))


@ENTRIES.add("float64 matmul with bias")
def linear_fp64(device):
    layer = nn.Linear(64, 32).to(device, torch.float64)
    return lambda x: layer(x).sigmoid(), (randn(100, 64, device=device, dtype=torch.float64),)


def _autocast_net(device):
    return nn.Sequential(
        nn.Linear(256, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 100)
    ).to(device)  # fmt: skip


@ENTRIES.add("MLP and loss under autocast to bf16, trained", grad=True)
def autocast_bf16_train(device):
    net = _autocast_net(device)

    def loss(x, t):
        with torch.autocast(x.device.type, dtype=BF16):
            return F.cross_entropy(net(x), t)

    return loss, (randn(128, 256, device=device), torch.randint(0, 100, (128,), device=device))


@ENTRIES.add("MLP under autocast to fp16, softmax and a sum inside, trained", grad=True)
def autocast_fp16_train(device):
    net = _autocast_net(device)

    def run(x):
        with torch.autocast(device_type=x.device.type, dtype=FP16):
            return net(x).softmax(-1).pow(2).sum(-1)

    return run, (randn(128, 256, device=device, grad=True),)


@ENTRIES.add("convolution, batch norm and pooling under autocast to fp16, trained", grad=True)
def autocast_conv_train(device):
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU()).to(device)

    def run(x):
        with torch.autocast(x.device.type, dtype=FP16):
            return F.adaptive_avg_pool2d(net(x), 1).flatten(1)

    return run, (randn(4, 3, 32, 32, device=device),)


@ENTRIES.add("attention under autocast to bf16, with a part taken out of it")
def autocast_attention(device):
    qkv = nn.Linear(128, 384).to(device)

    def run(x):
        with torch.autocast(x.device.type, dtype=BF16):
            q, k, v = qkv(x).unflatten(-1, (3, 4, 32)).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v)
            with torch.autocast(x.device.type, enabled=False):
                return a.float().logsumexp(-1)

    return run, (randn(2, 64, 128, device=device),)


@ENTRIES.add("pointwise, dynamic shapes", dynamic=True)
def dynamic_pointwise(device):
    return lambda x, y: F.gelu(x) * y + 1, tuple(randn(100, 260, device=device) for _ in range(2))


@ENTRIES.add("reductions over both dimensions, dynamic shapes", dynamic=True)
def dynamic_reduction(device):
    def reduced(x):
        return x.softmax(-1), x.sum(0) / x.shape[0]

    return reduced, (randn(300, 500, device=device),)


@ENTRIES.add("MLP with layer norm, dynamic shapes, trained", grad=True, dynamic=True)
def dynamic_mlp_train(device):
    return _autocast_net(device), (randn(60, 256, device=device, grad=True),)


@ENTRIES.add("attention with its projection, dynamic shapes, bf16", dynamic=True)
def dynamic_attention(device):
    qkv = nn.Linear(128, 384).to(device, BF16)

    def run(x):
        batch, length, width = x.shape
        q, k, v = qkv(x).view(batch, length, 3, 4, 32).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return a.transpose(1, 2).reshape(batch, length, width)

    return run, (randn(2, 90, 128, device=device, dtype=BF16),)


@ENTRIES.add("convolution and batch norm, dynamic shapes, trained", grad=True, dynamic=True)
def dynamic_conv_train(device):
    net = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
    return net.to(device), (randn(3, 8, 20, 22, device=device, grad=True),)


@ENTRIES.add("a Python number as an argument, padding and arange, dynamic shapes", dynamic=True)
def dynamic_number(device):
    def padded(x, n):
        place = torch.arange(x.shape[1] + n, device=x.device)
        return F.pad(x, (0, n)) * (place < n)

    return padded, (randn(30, 40, device=device), 6)


@ENTRIES.add("only the batch dynamic, by mark_dynamic: sum over a fixed width, trained", grad=True)
def marked_dynamic_train(device):
    x = randn(70, 384, device=device, grad=True)
    torch._dynamo.mark_dynamic(x, 0)
    layer = nn.Linear(384, 64).to(device)
    return lambda x: layer(x).relu().sum(-1), (x,)
