"""Real models, small by default, written out: nothing is downloaded and nothing is hidden."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Multi-head self-attention with one projection for q, k and v; x: (batch, length, width)."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.extended(self, k, v)
        causal = self.causal and length > 1
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class TransformerBlock(nn.Module):
    """Attention and a GELU MLP, each after a layer norm and beside a residual."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """A ViT: images (batch, 3, size, size) to scores (batch, classes).

    The defaults are tiny. ViT-B/16 at 224 (Dosovitskiy et al. 2020, table 1) is
    size=224, patch=16, width=768, depth=12, heads=12, classes=1000.
    """

    def __init__(
        self, size: int = 32, patch: int = 8, width: int = 64, depth: int = 2, heads: int = 4,
        classes: int = 10,
    ) -> None:  # fmt: skip
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm beside a residual; x: (batch, channels, h, w)."""

    def __init__(self, channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(out_channels), nn.BatchNorm2d(out_channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out_channels:
            self.shortcut = nn.Conv2d(channels, out_channels, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """A ResNet of basic blocks: images (batch, 3, h, w) to scores (batch, classes).

    The defaults are tiny. ResNet-18 (He et al. 2015, table 1) has widths (64, 128, 256, 512) and
    two blocks each, after a 7x7 stem that is left out here.
    """

    def __init__(
        self, widths: tuple[int, ...] = (16, 32), blocks: int = 1, classes: int = 10
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(widths[0])
        layers, channels = [], widths[0]
        for stage, width in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                layers.append(ResidualBlock(channels, width, stride))
                channels = width
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(channels, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.layers(F.relu(self.norm(self.stem(images))))
        return self.head(x.mean((2, 3)))


class Cache:
    """Keys and values of the positions that a decoder has seen, per attention layer."""

    def __init__(self) -> None:
        self.entries: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.length = 0

    def extended(
        self, layer: Attention, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Appends k and v (batch, heads, length, width per head) and returns all of them."""
        if (old := self.entries.get(id(layer))) is not None:
            k, v = torch.cat((old[0], k), dim=2), torch.cat((old[1], v), dim=2)
        self.entries[id(layer)] = (k, v)
        return k, v


class Decoder(nn.Module):
    """A GPT-like decoder: tokens (batch, length) to scores (batch, length, vocabulary).

    With a `Cache`, only the new tokens are given, and the cache grows by their number.
    """

    def __init__(
        self, vocabulary: int = 256, width: int = 64, depth: int = 2, heads: int = 4,
        context: int = 128,
    ) -> None:  # fmt: skip
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(TransformerBlock(width, heads, True) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        start = cache.length if cache is not None else 0
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for block in self.blocks:
            x = block(x, cache)
        if cache is not None:
            cache.length += tokens.shape[1]
        return self.head(self.norm(x))
