"""Embeddings, indexing, sorting and scans, integers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.fidelity.case import Entries, integers, randn

ENTRIES = Entries()


@ENTRIES.add("word and position embeddings added, padding index, trained", grad=True)
def embedding_positions_train(device):
    words = nn.Embedding(5000, 256, padding_idx=0).to(device)
    places = nn.Embedding(512, 256).to(device)

    def embed(tokens):
        return words(tokens) * 16 + places(torch.arange(tokens.shape[1], device=tokens.device))

    return embed, (integers(5000, 4, 128, device=device),)


@ENTRIES.add("nn.EmbeddingBag by mean, with offsets, trained", grad=True)
def embedding_bag_train(device):
    bag = nn.EmbeddingBag(1000, 64, mode="mean").to(device)
    return bag, (integers(1000, 500, device=device), torch.arange(0, 500, 10, device=device))


@ENTRIES.add("nn.EmbeddingBag by sum, 2-D input")
def embedding_bag_sum(device):
    bag = nn.EmbeddingBag(1000, 64, mode="sum").to(device)
    return lambda i: bag(i).relu(), (integers(1000, 64, 10, device=device),)


@ENTRIES.add("gather of chosen log-probabilities, trained", grad=True)
def gather_train(device):
    def chosen(x, i):
        return x.log_softmax(-1).gather(-1, i[..., None]).squeeze(-1)

    return chosen, (
        randn(8, 64, 500, device=device, grad=True),
        integers(500, 8, 64, device=device),
    )


@ENTRIES.add("scatter_add as in a graph network, and a mean by counts, trained", grad=True)
def scatter_add_train(device):
    def aggregate(x, source, target):
        messages = x[source] * 2
        index = target[:, None].expand_as(messages)
        summed = torch.zeros_like(x).scatter_add(0, index, messages)
        count = torch.zeros(len(x), device=x.device).index_add(
            0, target, torch.ones(len(target), device=x.device)
        )
        return summed / count.clamp(min=1)[:, None]

    x = randn(300, 64, device=device, grad=True)
    return aggregate, (x, *(integers(300, 2000, device=device) for _ in range(2)))


@ENTRIES.add("index_put with and without accumulation")
def index_put(device):
    def put(x, rows, columns, values):
        x = x.clone()
        x[rows, columns] = values
        return x.index_put((rows,), values[:, None], accumulate=True)

    rows, columns = (integers(100, 64, device=device) for _ in range(2))
    return put, (randn(100, 100, device=device), rows, columns, randn(64, device=device))


@ENTRIES.add(
    "advanced indexing mixed with slices, None and negative steps by flip, trained", grad=True
)
def advanced_indexing_train(device):
    def pick(x, i):
        return x[:, i, 1:-1, None] + x[..., 2:, :].flip(2)[:, :1, :1, None, :].mean()

    return pick, (randn(4, 20, 16, 24, device=device, grad=True), integers(20, 7, device=device))


@ENTRIES.add("masked_fill, where and clamp, trained", grad=True)
def masked_where_train(device):
    def masked(x, y, keep):
        filled = x.masked_fill(~keep, -1e4)
        return torch.where(y > 0, filled, y * 0.1).clamp(-3, 3)

    keep = torch.rand(256, 300, device=device) > 0.5
    args = tuple(randn(256, 300, device=device, grad=True) for _ in range(2))
    return masked, (*args, keep)


@ENTRIES.add("roll by windows as in Swin, then split into windows")
def roll_windows(device):
    def windows(x):
        x = torch.roll(x, (-3, -3), (1, 2))
        b, h, w, c = x.shape
        return x.view(b, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c) * 2

    return windows, (randn(2, 28, 28, 96, device=device),)


@ENTRIES.add("cat of three, split, stack and chunk, trained", grad=True)
def cat_split_stack_train(device):
    def mix(a, b, c):
        joined = torch.cat((a, b.relu(), c * 2), 1)
        first, second = joined.split((100, joined.shape[1] - 100), 1)
        return torch.stack((first.chunk(2, 1)[0], first.chunk(2, 1)[1].exp())), second.sin()

    return mix, tuple(randn(64, width, device=device, grad=True) for width in (60, 77, 33))


@ENTRIES.add("triu, tril, diagonal, eye and outer")
def triangles(device):
    def corners(x):
        n = x.shape[-1]
        eye = torch.eye(n, device=x.device)
        return x.triu(1) + x.tril(-2) * 2 + eye, x.diagonal(dim1=-2, dim2=-1) ** 2, x.trace()

    return corners, (randn(129, 129, device=device),)


@ENTRIES.add("one_hot times a table, meshgrid, linspace")
def one_hot_grid(device):
    def made(i, table):
        x, y = torch.meshgrid(
            torch.linspace(-1, 1, 33, device=i.device), torch.linspace(-1, 1, 17, device=i.device),
            indexing="ij",
        )  # fmt: skip
        return F.one_hot(i, 50).to(table.dtype) @ table, torch.stack((x, y), -1).square().sum(-1)

    return made, (integers(50, 200, device=device), randn(50, 64, device=device))


@ENTRIES.add("index_select, take_along_dim, narrow and select_scatter, trained", grad=True)
def select_scatter_train(device):
    def pick(x, i):
        picked = x.index_select(0, i).narrow(1, 3, 20)
        ordered = torch.take_along_dim(x, x.argsort(1), 1)
        return picked, x.select_scatter(ordered[:, 0], 1, 5)

    return pick, (randn(64, 40, device=device, grad=True), integers(64, 30, device=device))


@ENTRIES.add("unfold with overlap, as_strided windows, expand and repeat")
def windows_expand(device):
    def seen(x):
        return x.unfold(1, 16, 8).mean(-1), x[:, None, :5].expand(-1, 3, -1).repeat(1, 2, 1) + 1

    return seen, (randn(32, 256, device=device),)


@ENTRIES.add("stable sort of rows with indices, and argsort")
def sort_rows(device):
    def ordered(x):
        values, places = x.sort(dim=-1, descending=True, stable=True)
        return values * 2, places, x[:, :33].argsort(-1)

    return ordered, (randn(128, 200, device=device),)


@ENTRIES.add("sort of a row too long for one block")
def sort_long(device):
    return lambda x: (x * 2).sort(-1)[0], (randn(4, 20000, device=device),)


@ENTRIES.add("nucleus sampling's mask: sort, softmax, cumsum, scatter back")
def top_p_mask(device):
    def mask(logits):
        ordered, places = logits.sort(-1, descending=True)
        probabilities = ordered.softmax(-1)
        remove = probabilities.cumsum(-1) - probabilities > 0.9
        return logits.masked_fill(remove.scatter(-1, places, remove), float("-inf"))

    return mask, (randn(4, 1000, device=device),)


@ENTRIES.add("top 5 with the gradient through it", grad=True)
def topk_train(device):
    return lambda x: x.tanh().topk(5, -1)[0], (randn(128, 100, device=device, grad=True),)


@ENTRIES.add("argmax, argmin, max with index over two dimensions")
def arg_extremes(device):
    def places(x):
        value, index = x.max(dim=1)
        return x.argmax(-1), x.argmin(0), value, index, x.argmax()

    return places, (randn(50, 60, 70, device=device),)


@ENTRIES.add("cumprod, cummax, logcumsumexp and diff")
def scans(device):
    def scanned(x):
        return x.cumprod(0), x.cummax(-1)[0], x.logcumsumexp(-1), x.diff(dim=-1)

    return scanned, (randn(64, 300, device=device),)


@ENTRIES.add("cumulative sum of one long row, trained", grad=True)
def cumsum_long_train(device):
    return lambda x: x.cumsum(0), (randn(1 << 17, device=device, grad=True),)


@ENTRIES.add("searchsorted, bucketize and histogram by scatter")
def searched(device):
    def found(x, edges):
        place = torch.searchsorted(edges, x)
        counts = torch.zeros(len(edges) + 1, device=x.device, dtype=torch.int64)
        ones = torch.ones_like(place)
        return torch.bucketize(x, edges, right=True), counts.scatter_add(0, place, ones)

    return found, (randn(5000, device=device), torch.linspace(-2, 2, 33, device=device))


@ENTRIES.add("bit operations, shifts and integer division on int32")
def bit_operations(device):
    def bits(x, y):
        packed = (x & 0xFF) | ((y & 0xFF) << 8) ^ (x >> 3)
        return packed, ~x, x // 7, x % 13, torch.div(y, 3, rounding_mode="floor")

    return bits, tuple(
        torch.randint(-(1 << 20), 1 << 20, (1000, 33), device=device, dtype=torch.int32)
        for _ in range(2)
    )


@ENTRIES.add("comparisons, logical operations, sign, isnan, counts of bools")
def comparisons(device):
    def compared(x, y):
        both = (x > y) & (x < 1) | ~(y == 0)
        return both, torch.isnan(x).any(), both.sum(), both.all(-1), (x >= 0).logical_xor(y > 0)

    return compared, tuple(randn(300, 70, device=device) for _ in range(2))


@ENTRIES.add("int8 weights taken back to bf16 for a matmul, uint8 images to float")
def dequantize(device):
    def used(x, weight, scale, image):
        normal = (image.float() / 255 - 0.45) / 0.22
        return x @ (weight.to(x.dtype) * scale).T, normal

    weight = torch.randint(-128, 128, (256, 512), device=device, dtype=torch.int8)
    image = torch.randint(0, 256, (2, 3, 50, 60), device=device, dtype=torch.uint8)
    bf16 = {"device": device, "dtype": torch.bfloat16}
    return used, (randn(64, 512, **bf16), weight, randn(256, 1, **bf16), image)
