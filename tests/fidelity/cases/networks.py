"""Blocks of networks: MLPs, transformer blocks, convolution nets, cells written out."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.fidelity.case import Entries, randn

ENTRIES = Entries()
BF16 = torch.bfloat16


@ENTRIES.add("MLP with tanh GELU, bf16")
def mlp_gelu_tanh(device):
    mlp = nn.Sequential(nn.Linear(512, 2048), nn.GELU("tanh"), nn.Linear(2048, 512))
    return mlp.to(device, BF16), (randn(4, 64, 512, device=device, dtype=BF16),)


@ENTRIES.add("SwiGLU without biases, bf16, trained", grad=True)
def swiglu_train(device):
    gate, up, down = (
        nn.Linear(*sizes, bias=False).to(device, BF16)
        for sizes in ((512, 1376), (512, 1376), (1376, 512))
    )
    x = randn(2, 128, 512, device=device, dtype=BF16, grad=True)
    return lambda x: down(F.silu(gate(x)) * up(x)), (x,)


@ENTRIES.add("GEGLU by chunk, fp16, trained", grad=True)
def geglu_chunk_train(device):
    up, down = (nn.Linear(*s).to(device, torch.float16) for s in ((256, 1024), (512, 256)))

    def geglu(x):
        value, gate = up(x).chunk(2, -1)
        return down(value * F.gelu(gate))

    return geglu, (randn(4, 64, 256, device=device, dtype=torch.float16, grad=True),)


@ENTRIES.add("three-layer ReLU MLP, fp32, trained", grad=True)
def mlp_relu_fp32_train(device):
    mlp = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
    ).to(device)
    return mlp, (randn(256, 784, device=device),)


@ENTRIES.add("linear layer with a low-rank addition (LoRA), bf16, trained", grad=True)
def lora_train(device):
    base = nn.Linear(512, 512).to(device, BF16).requires_grad_(False)
    down, up = (nn.Linear(*s, bias=False).to(device, BF16) for s in ((512, 16), (16, 512)))
    return lambda x: base(x) + up(down(x)) * 2.0, (randn(256, 512, device=device, dtype=BF16),)


class ViTBlock(nn.Module):
    """A pre-norm transformer block on patches."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, causal: bool = False):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + self.out(a.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


@ENTRIES.add("patches, class token, two ViT blocks and a head, fp32, trained", grad=True)
def vit_train(device):
    patch = nn.Conv2d(3, 192, 16, 16).to(device)
    token = nn.Parameter(torch.zeros(1, 1, 192, device=device))
    place = nn.Parameter(torch.zeros(1, 197, 192, device=device))
    blocks = nn.Sequential(*(ViTBlock(192, 3) for _ in range(2))).to(device)
    head = nn.Linear(192, 1000).to(device)

    def vit(image):
        x = patch(image).flatten(2).transpose(1, 2)
        x = torch.cat((token.expand(len(x), -1, -1), x), 1) + place
        return head(blocks(x)[:, 0])

    return vit, (randn(2, 3, 224, 224, device=device),)


@ENTRIES.add("a ViT block of odd length, bf16")
def vit_block_bf16(device):
    return ViTBlock(384, 6).to(device, BF16), (randn(2, 197, 384, device=device, dtype=BF16),)


@ENTRIES.add("two causal decoder layers with tied embedding, bf16, trained", grad=True)
def decoder_train(device):
    emb = nn.Embedding(1000, 256).to(device, BF16)
    blocks = nn.ModuleList(ViTBlock(256, 4) for _ in range(2)).to(device, BF16)

    def loss(tokens):
        x = emb(tokens)
        for block in blocks:
            x = block(x, causal=True)
        logits = F.linear(x, emb.weight).float()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return loss, (torch.randint(0, 1000, (2, 128), device=device),)


@ENTRIES.add("a transformer block under torch.utils.checkpoint, trained", grad=True)
def checkpointed_block_train(device):
    block = ViTBlock(256, 4).to(device)
    x = randn(2, 64, 256, device=device, grad=True)
    return lambda x: checkpoint(block, x, use_reentrant=False), (x,)


@ENTRIES.add("mixture of experts: top 2 of 4, dense dispatch, bf16, trained", grad=True)
def moe_dense_train(device):
    router = nn.Linear(256, 4, bias=False).to(device, BF16)
    up, down = (
        randn(*s, device=device, dtype=BF16, grad=True) for s in ((4, 256, 512), (4, 512, 256))
    )

    def moe(x, up, down):
        weights, chosen = router(x).float().softmax(-1).topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros(len(x), 4, device=x.device).scatter_(1, chosen, weights)
        hidden = F.silu(torch.einsum("td,edh->eth", x, up))
        return torch.einsum("eth,ehd,te->td", hidden, down, gates.to(x.dtype))

    return moe, (randn(256, 256, device=device, dtype=BF16, grad=True), up, down)


class Bottleneck(nn.Module):
    """ResNet's bottleneck with a projection on the shortcut."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(inner, 64, 1, bias=False), nn.BatchNorm2d(64)
        self.c2 = nn.Conv2d(64, 64, 3, stride, 1, bias=False)
        self.b2 = nn.BatchNorm2d(64)
        self.c3, self.b3 = nn.Conv2d(64, outer, 1, bias=False), nn.BatchNorm2d(outer)
        self.short = nn.Sequential(
            nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
        )

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        y = F.relu(self.b2(self.c2(y)))
        return F.relu(self.b3(self.c3(y)) + self.short(x))


@ENTRIES.add("ResNet bottleneck with stride and projection, channels last, trained", grad=True)
def bottleneck_channels_last_train(device):
    block = Bottleneck(128, 256, 2).to(device, memory_format=torch.channels_last)
    x = randn(4, 128, 28, 28, device=device).to(memory_format=torch.channels_last)
    return block, (x.requires_grad_(),)


@ENTRIES.add("ResNet bottleneck in eval mode, contiguous")
def bottleneck_eval(device):
    return Bottleneck(128, 256, 1).to(device).eval(), (randn(4, 128, 28, 28, device=device),)


@ENTRIES.add("ResNet stem and basic block with a head, fp16 channels last, eval")
def resnet_fp16_eval(device):
    net = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1), nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64),
        nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100),
    ).to(device, torch.float16, memory_format=torch.channels_last).eval()  # fmt: skip
    x = randn(2, 3, 128, 128, device=device, dtype=torch.float16)
    return net, (x.to(memory_format=torch.channels_last),)


@ENTRIES.add("UNet block: group norm, SiLU, convolution, time embedding, attention", grad=True)
def unet_block_train(device):
    norm1, norm2, norm3 = (nn.GroupNorm(32, 64).to(device) for _ in range(3))
    conv1, conv2 = (nn.Conv2d(64, 64, 3, padding=1).to(device) for _ in range(2))
    time, qkv, out = (nn.Linear(*s).to(device) for s in ((128, 64), (64, 192), (64, 64)))

    def block(x, t):
        h = conv1(F.silu(norm1(x))) + time(F.silu(t))[:, :, None, None]
        h = conv2(F.silu(norm2(h))) + x
        flat = norm3(h).flatten(2).transpose(1, 2)
        q, k, v = qkv(flat).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return h + out(a).transpose(1, 2).reshape(h.shape)

    return block, (randn(2, 64, 16, 16, device=device, grad=True), randn(2, 128, device=device))


@ENTRIES.add("ConvNeXt block: depthwise 7x7, layer norm, layer scale", grad=True)
def convnext_block_train(device):
    depthwise = nn.Conv2d(96, 96, 7, padding=3, groups=96).to(device)
    norm, up, down = nn.LayerNorm(96), nn.Linear(96, 384), nn.Linear(384, 96)
    norm, up, down = norm.to(device), up.to(device), down.to(device)
    scale = nn.Parameter(torch.full((96,), 1e-6, device=device))

    def block(x):
        h = norm(depthwise(x).permute(0, 2, 3, 1))
        return x + (scale * down(F.gelu(up(h)))).permute(0, 3, 1, 2)

    return block, (randn(2, 96, 28, 28, device=device, grad=True),)


@ENTRIES.add("inverted residual with squeeze-excite and hard swish, eval")
def mobilenet_block_eval(device):
    net = nn.Sequential(
        nn.Conv2d(32, 128, 1, bias=False), nn.BatchNorm2d(128), nn.Hardswish(),
        nn.Conv2d(128, 128, 3, padding=1, groups=128, bias=False), nn.BatchNorm2d(128),
    ).to(device).eval()  # fmt: skip
    squeeze, excite = (nn.Conv2d(*s, 1).to(device) for s in ((128, 32), (32, 128)))
    project = nn.Conv2d(128, 32, 1).to(device)

    def block(x):
        h = net(x)
        gate = F.hardsigmoid(excite(F.relu(squeeze(h.mean((2, 3), keepdim=True)))))
        return x + project(h * gate)

    return block, (randn(4, 32, 28, 28, device=device),)


@ENTRIES.add("an LSTM cell written out and run for three steps, trained", grad=True)
def lstm_cell_train(device):
    inner, outer = nn.Linear(128, 1024).to(device), nn.Linear(256, 1024).to(device)

    def run(steps, h, c):
        for x in steps.unbind(1):
            i, f, g, o = (inner(x) + outer(h)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h, c

    state = (randn(32, 256, device=device), randn(32, 256, device=device))
    return run, (randn(32, 3, 128, device=device), *state)


@ENTRIES.add("a GRU cell written out, bf16, trained", grad=True)
def gru_cell_train(device):
    inner, outer = nn.Linear(128, 768).to(device, BF16), nn.Linear(256, 768).to(device, BF16)

    def cell(x, h):
        r_x, z_x, n_x = inner(x).chunk(3, -1)
        r_h, z_h, n_h = outer(h).chunk(3, -1)
        z, n = (z_x + z_h).sigmoid(), (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
        return (1 - z) * n + z * h

    shapes = ((32, 128), (32, 256))
    return cell, tuple(randn(*s, device=device, dtype=BF16, grad=True) for s in shapes)


@ENTRIES.add("weight norm by torch's parametrization, trained", grad=True)
def weight_norm_train(device):
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(256, 384)).to(device)
    return layer, (randn(64, 256, device=device),)


@ENTRIES.add(
    "a weight divided by its largest singular value, one power iteration, trained", grad=True
)
def spectral_norm_by_hand_train(device):
    def layer(x, weight, u):
        with torch.no_grad():
            v = F.normalize(weight.t() @ u, dim=0)
            u = F.normalize(weight @ v, dim=0)
        return F.linear(x, weight / torch.dot(u, weight @ v)), u

    weight = randn(384, 256, device=device, grad=True)
    return layer, (randn(64, 256, device=device), weight, randn(384, device=device))
