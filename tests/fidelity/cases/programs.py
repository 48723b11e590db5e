"""Randomness, mutation, aliasing, several graphs, transforms, a kernel of one's own."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.fidelity.case import Entries, randn

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU-only torch brings no Triton; then there is no GPU code either
    triton = None

ENTRIES = Entries()

if triton is not None:

    @triton.jit
    def _scaled_add(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        keep = place < n
        x = tl.load(x_ptr + place, mask=keep)
        y = tl.load(y_ptr + place, mask=keep)
        tl.store(out_ptr + place, x * scale + y, mask=keep)


@ENTRIES.add("a user's own Triton kernel between pointwise work")
def user_triton_kernel(device):
    def run(x, y):
        x, out = x.relu(), torch.empty_like(x)
        n = out.numel()
        _scaled_add[(triton.cdiv(n, 256),)](x, y, out, n, 1.5, BLOCK=256)
        return out.sin() + 1

    return run, tuple(randn(5000, device=device) for _ in range(2))


@ENTRIES.add("F.dropout twice in one function, fp32, trained", grad=True)
def dropout_twice_train(device):
    def run(x):
        return F.dropout(F.dropout(x, 0.2).relu(), 0.5)

    return run, (randn(300, 257, device=device, grad=True),)


@ENTRIES.add("nn.Dropout2d after a convolution, trained", grad=True)
def dropout2d_train(device):
    net = nn.Sequential(nn.Conv2d(8, 16, 3), nn.Dropout2d(0.3)).to(device)
    return net, (randn(4, 8, 16, 16, device=device, grad=True),)


@ENTRIES.add("rand_like, randn, randint and bernoulli inside")
def random_inside(device):
    def noisy(x):
        noise = torch.rand_like(x) + torch.randn(x.shape, device=x.device)
        chosen = torch.randint(0, 10, (x.shape[0],), device=x.device)
        return x + noise, chosen, torch.bernoulli(x.sigmoid())

    return noisy, (randn(100, 65, device=device),)


@ENTRIES.add("a step of diffusion training: times and noise drawn inside, trained", grad=True)
def diffusion_loss_train(device):
    net = nn.Conv2d(3, 3, 3, padding=1).to(device)
    alphas = torch.linspace(0.999, 0.01, 1000, device=device)

    def loss(x):
        t = torch.randint(0, 1000, (len(x),), device=x.device)
        noise = torch.randn_like(x)
        a = alphas[t].view(-1, 1, 1, 1)
        return F.mse_loss(net(a.sqrt() * x + (1 - a).sqrt() * noise), noise)

    return loss, (randn(4, 3, 32, 32, device=device),)


@ENTRIES.add("an input changed in place, and a view of it")
def input_mutated(device):
    def change(x, y):
        x.add_(y)
        x[:, ::2].mul_(2)
        return x.sum(-1)

    return change, tuple(randn(64, 100, device=device) for _ in range(2))


@ENTRIES.add("outputs that alias inputs: a view, the input itself, and a new tensor")
def outputs_alias(device):
    def views(x, y):
        return x.view(-1), y, x.t() + y.t(), x[1:]

    return views, tuple(randn(40, 50, device=device) for _ in range(2))


@ENTRIES.add("an output that aliases another output, trained", grad=True)
def outputs_alias_train(device):
    def views(x):
        y = x.sin()
        return y, y.t(), y[0]

    return views, (randn(40, 50, device=device, grad=True),)


@ENTRIES.add("outputs of several kinds, some without gradient, a dict and a number", grad=True)
def outputs_mixed_train(device):
    def run(x):
        y = x.softmax(-1)
        return {"p": y, "best": y.argmax(-1), "entropy": -(y * y.log()).sum(-1), "n": x.shape[0]}

    return run, (randn(64, 33, device=device, grad=True),)


@ENTRIES.add("two graphs: graph_break() in the middle, trained", grad=True)
def two_graphs_train(device):
    first, second = nn.Linear(128, 256).to(device), nn.Linear(256, 64).to(device)

    def run(x):
        y = first(x).relu()
        torch._dynamo.graph_break()
        return second(y.tanh()).sigmoid()

    return run, (randn(64, 128, device=device, grad=True),)


@ENTRIES.add("two graphs: a decision by the data in between")
def two_graphs_by_data(device):
    def run(x):
        y = x.cos() * 2
        if y.sum() > 1e9:
            return y - 1
        return (y + 1).log()

    return run, (randn(200, 30, device=device).abs(),)


@ENTRIES.add("vmap of a pairwise distance")
def vmap_distance(device):
    def distance(a, b):
        return (a - b).square().sum(-1).sqrt()

    def pairwise(x, y):
        return torch.vmap(lambda row: torch.vmap(lambda other: distance(row, other))(y))(x)

    return pairwise, (randn(64, 32, device=device), randn(48, 32, device=device))


@ENTRIES.add("torch.func.grad and vmap: gradients per sample")
def func_grad_per_sample(device):
    def loss(w, x, t):
        return F.mse_loss((x @ w).tanh(), t)

    def gradients(w, x, t):
        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(w, x, t)

    args = (randn(32, 8, device=device), randn(50, 32, device=device), randn(50, 8, device=device))
    return gradients, args


class ScaledGradient(torch.autograd.Function):
    """The identity whose gradient is halved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 0.5 * (x > 0)


@ENTRIES.add("a torch.autograd.Function of one's own, trained", grad=True)
def custom_autograd_train(device):
    return lambda x: ScaledGradient.apply(x.exp()).sum(-1), (
        randn(100, 60, device=device, grad=True),
    )


@ENTRIES.add("detach and stop-gradient: straight-through quantization, trained", grad=True)
def straight_through_train(device):
    def quantize(x, book):
        distance = x.square().sum(-1, keepdim=True) - 2 * x @ book.T + book.square().sum(-1)
        code = distance.argmin(-1)
        q = F.embedding(code, book)
        return x + (q - x).detach(), F.mse_loss(q, x.detach()), code

    shapes = ((256, 64), (128, 64))
    return quantize, tuple(randn(*s, device=device, grad=True) for s in shapes)


@ENTRIES.add("several independent pointwise and reduction outputs of one input", fullgraph=True)
def many_outputs(device):
    def run(x):
        return x.relu(), x.sigmoid().mean(), (x * x).sum(0), x.t().contiguous(), x.amax(-1)

    return run, (randn(500, 300, device=device),)


@ENTRIES.add("compiled with options: buffers made after 2 reads, no more than 2 nodes fused",
             options={"realize_reads_threshold": 2, "max_fusion_size": 2})  # fmt: skip
def compile_options(device):
    def run(a, b, c, d):
        e = (a + b) * (c - d)
        return (e.exp() + a.sin()) * (e - b), e.sum(-1)

    return run, tuple(randn(128, 200, device=device) for _ in range(4))


@ENTRIES.add("Gaussian sampling and KL of a variational autoencoder, trained", grad=True)
def vae_loss_train(device):
    encode, decode = nn.Linear(784, 64).to(device), nn.Linear(32, 784).to(device)

    def loss(x):
        mean, log_var = encode(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        kl = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(-1).mean()
        return F.binary_cross_entropy_with_logits(decode(z), x) + kl

    return loss, (torch.rand(64, 784, device=device),)
