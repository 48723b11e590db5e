"""Reductions of every shape, and pointwise functions."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.fidelity.case import Entries, randn

ENTRIES = Entries()


@ENTRIES.add("sum over the last dimension of 1000x37")
def sum_last_odd(device):
    return lambda x: (x * 2).sum(-1), (randn(1000, 37, device=device),)


@ENTRIES.add("sum over the first dimension: an outer reduction")
def sum_first(device):
    return lambda x: x.exp().sum(0), (randn(2048, 384, device=device),)


@ENTRIES.add("sum over the first dimension, tall and narrow: split")
def sum_first_tall(device):
    return lambda x: x.square().sum(0), (randn(100000, 17, device=device),)


@ENTRIES.add("mean over a middle dimension, bf16")
def mean_middle(device):
    return lambda x: x.mean(1), (randn(16, 200, 96, device=device, dtype=torch.bfloat16),)


@ENTRIES.add("sum of everything, 2**24 numbers: split in two kernels")
def sum_all_huge(device):
    return lambda x: x.abs().sum(), (randn(1 << 24, device=device),)


@ENTRIES.add("sum of everything, a few numbers")
def sum_all_tiny(device):
    return lambda x: (x + 1).sum(), (randn(7, device=device),)


@ENTRIES.add("sum over the first and last of three dimensions")
def sum_outer_two(device):
    return lambda x: x.sum((0, 2)), (randn(32, 48, 500, device=device),)


@ENTRIES.add("one very long row among few: split along it")
def sum_few_long(device):
    return lambda x: (x.sum(-1), x.amax(-1)), (randn(3, 500001, device=device),)


@ENTRIES.add("variance and mean together, std without correction")
def var_mean(device):
    def spread(x):
        var, mean = torch.var_mean(x, -1)
        return var, mean, x.std(0), x.var(unbiased=False)

    return spread, (randn(500, 777, device=device),)


@ENTRIES.add("variance of everything, large: Welford, split")
def var_all_large(device):
    return lambda x: x.var(), (randn(3000, 1001, device=device),)


@ENTRIES.add("amax and amin over two dimensions, trained", grad=True)
def amax_train(device):
    return lambda x: (x.amax((1, 2)), x.amin(0)), (randn(20, 30, 41, device=device, grad=True),)


@ENTRIES.add("max over a dimension with its index, trained", grad=True)
def max_dim_train(device):
    return lambda x: (x.max(dim=1)[0] * 2, x.min(dim=0)[0]), (
        randn(200, 90, device=device, grad=True),
    )


@ENTRIES.add("logsumexp, trained", grad=True)
def logsumexp_train(device):
    return lambda x: x.logsumexp(-1), (randn(256, 1500, device=device, grad=True),)


@ENTRIES.add("vector norms of order 1, 2 and infinity, trained", grad=True)
def norms_train(device):
    def norms(x):
        return x.norm(dim=-1), x.norm(p=1, dim=0), torch.linalg.vector_norm(x, float("inf"))

    return norms, (randn(128, 300, device=device, grad=True),)


@ENTRIES.add("product, any, all and count_nonzero")
def prod_any_all(device):
    def reduced(x):
        return x.prod(-1), (x > 2).any(0), (x < 3).all(), (x > 0).count_nonzero(1)

    return reduced, (randn(300, 65, device=device),)


@ENTRIES.add("reduction of a transposed view fused with a broadcast, fp16")
def transposed_reduction(device):
    def centred(x):
        y = x.transpose(0, 1)
        return y - y.float().mean(-1, keepdim=True).to(x.dtype)

    return centred, (randn(400, 120, device=device, dtype=torch.float16),)


@ENTRIES.add("float64 mean and standard deviation")
def standardize_fp64(device):
    def standardize(x):
        return (x - x.mean(0)) / x.std(0)

    return standardize, (randn(300, 50, device=device, dtype=torch.float64),)


@ENTRIES.add(
    "two reductions of different sizes and a pointwise one between them, trained", grad=True
)
def chained_reductions_train(device):
    def chained(x):
        y = x / x.sum(-1, keepdim=True).abs().add(1)
        return (y * y.mean(0)).sum()

    return chained, (randn(256, 640, device=device, grad=True),)


@ENTRIES.add("activations of many kinds, trained", grad=True)
def activations_train(device):
    def active(x):
        return (
            F.mish(x) + F.softplus(x) + F.elu(x) + F.leaky_relu(x, 0.1) + F.hardtanh(x)
            + F.selu(x) + F.celu(x) + F.relu6(x) + F.logsigmoid(x) + F.softsign(x)
        )  # fmt: skip

    return active, (randn(100, 257, device=device, grad=True),)


@ENTRIES.add("special functions: erf, lgamma, exp2, log1p, atan2, pow, floor, fmod")
def special_functions(device):
    def special(x, y):
        a = torch.erf(x) + torch.lgamma(y.abs() + 1) + torch.exp2(x) + torch.log1p(y.abs())
        return a + torch.atan2(x, y) + x.abs().pow(1.7) + x.floor() + torch.fmod(x, 0.3)

    return special, tuple(randn(333, 65, device=device) for _ in range(2))


@ENTRIES.add("pointwise on a transposed and a contiguous tensor: tiled")
def pointwise_tiled(device):
    return lambda x, y: x.t() * y + 1, (
        randn(512, 300, device=device),
        randn(300, 512, device=device),
    )


@ENTRIES.add("pointwise with broadcasting over three dimensions, bf16 and fp32 mixed")
def pointwise_broadcast(device):
    def mixed(x, y, z):
        return (x * y + z).to(torch.bfloat16), x.float() ** 2

    bf16 = {"device": device, "dtype": torch.bfloat16}
    return mixed, (randn(8, 1, 130, **bf16), randn(1, 50, 130, **bf16), randn(50, 1, device=device))


@ENTRIES.add("a scalar tensor, a Python number and an empty result")
def scalars(device):
    def used(x, s):
        return x * s + 2.5, s.sqrt() * 3, x[:0] + 1

    return used, (randn(65, device=device), torch.tensor(2.0, device=device))
