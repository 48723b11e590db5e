"""Losses, and the steps of optimizers."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tests.fidelity.case import Entries, integers, randn

ENTRIES = Entries()


def _pair(device, *shape):
    return randn(*shape, device=device, grad=True), randn(*shape, device=device)


@ENTRIES.add("cross entropy with ignore_index and label smoothing", grad=True)
def cross_entropy_smoothed_train(device):
    target = integers(1000, 256, device=device)
    target[::7] = -100

    def loss(x, t):
        return F.cross_entropy(x, t, ignore_index=-100, label_smoothing=0.1)

    return loss, (randn(256, 1000, device=device, grad=True), target)


@ENTRIES.add("cross entropy of bf16 logits with class weights, per pixel", grad=True)
def cross_entropy_pixels_train(device):
    def loss(x, t, weight):
        return F.cross_entropy(x.float(), t, weight=weight)

    logits = randn(2, 21, 32, 32, device=device, dtype=torch.bfloat16, grad=True)
    return loss, (logits, integers(21, 2, 32, 32, device=device), torch.rand(21, device=device))


@ENTRIES.add("cross entropy against probabilities, not reduced", grad=True)
def cross_entropy_soft_train(device):
    x, t = _pair(device, 128, 100)
    return lambda x, t: F.cross_entropy(x, t.softmax(-1), reduction="none"), (x, t)


@ENTRIES.add("mean squared error of two bf16 tensors", grad=True)
def mse_bf16_train(device):
    shape = {"device": device, "dtype": torch.bfloat16}
    args = (randn(512, 256, grad=True, **shape), randn(512, 256, **shape))
    return F.mse_loss, args


@ENTRIES.add("smooth L1 and Huber together", grad=True)
def smooth_l1_train(device):
    def loss(x, y):
        return F.smooth_l1_loss(x, y, beta=0.5) + F.huber_loss(x, y, delta=2.0)

    return loss, _pair(device, 1000, 37)


@ENTRIES.add("binary cross entropy with logits and positive weights", grad=True)
def bce_with_logits_train(device):
    def loss(x, y, weight):
        return F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=weight)

    return loss, (*_pair(device, 256, 80), torch.rand(80, device=device))


@ENTRIES.add("distillation: KL divergence at a temperature", grad=True)
def kl_div_train(device):
    def loss(student, teacher):
        return 16 * F.kl_div(
            F.log_softmax(student / 4, -1), F.log_softmax(teacher / 4, -1),
            reduction="batchmean", log_target=True,
        )  # fmt: skip

    return loss, _pair(device, 256, 1000)


@ENTRIES.add("negative log likelihood of log-probabilities", grad=True)
def nll_train(device):
    args = (randn(300, 50, device=device, grad=True), integers(50, 300, device=device))
    return lambda x, t: F.nll_loss(x.log_softmax(1), t), args


@ENTRIES.add("triplet margin and cosine embedding losses", grad=True)
def triplet_cosine_train(device):
    def loss(anchor, positive, negative):
        near = 1 - F.cosine_similarity(anchor, positive)
        return F.triplet_margin_loss(anchor, positive, negative) + near.mean()

    return loss, (*_pair(device, 128, 256), randn(128, 256, device=device, grad=True))


@ENTRIES.add("contrastive loss of two sets of embeddings, as in CLIP", grad=True)
def clip_loss_train(device):
    def loss(image, text, scale):
        logits = scale.exp() * F.normalize(image, dim=-1) @ F.normalize(text, dim=-1).T
        t = torch.arange(len(logits), device=logits.device)
        return (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2

    args = tuple(randn(128, 256, device=device, grad=True) for _ in range(2))
    return loss, (*args, torch.tensor(2.6, device=device, requires_grad=True))


@ENTRIES.add("SGD with momentum and weight decay, in place")
def sgd_momentum_step(device):
    def step(p, g, momentum):
        g = g + 1e-4 * p
        momentum.mul_(0.9).add_(g)
        p.sub_(0.1 * momentum)

    return step, tuple(randn(512, 1000, device=device) for _ in range(3))


@ENTRIES.add("AdamW with its step counted in a tensor, in place")
def adamw_step(device):
    def step(p, g, m, v, t):
        t.add_(1)
        p.mul_(1 - 1e-3 * 0.01)
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        denominator = (v / (1 - 0.999**t)).sqrt() + 1e-8
        p.sub_(1e-3 / (1 - 0.9**t) * m / denominator)

    p, g, m, v = (randn(1 << 18, device=device) for _ in range(4))
    return step, (p, g, m, v.abs(), torch.ones((), device=device))


@ENTRIES.add("Adam over a list of tensors with torch._foreach functions")
def foreach_adam_step(device):
    def step(params, grads, means, squares):
        torch._foreach_lerp_(means, grads, 0.1)
        torch._foreach_mul_(squares, 0.999)
        torch._foreach_addcmul_(squares, grads, grads, 0.001)
        roots = torch._foreach_add(torch._foreach_sqrt(squares), 1e-8)
        torch._foreach_addcdiv_(params, means, roots, -1e-3)

    shapes = ((256, 256), (256,), (1000, 256), (37,))
    lists = [[randn(*shape, device=device).abs() for shape in shapes] for _ in range(4)]
    return step, tuple(lists)


@ENTRIES.add("gradients clipped to a norm over a list of tensors")
def clip_gradients(device):
    def clip(grads):
        total = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in grads]))
        scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
        return [g * scale for g in grads], total

    return clip, ([randn(*s, device=device) for s in ((300, 200), (200,), (64, 3, 7, 7))],)


@ENTRIES.add("exponential moving average of weights, Lion's sign update")
def ema_lion_step(device):
    def step(p, g, m, average):
        p.sub_(1e-4 * torch.sign(m * 0.9 + g * 0.1))
        m.mul_(0.99).add_(g, alpha=0.01)
        average.lerp_(p, 0.001)

    return step, tuple(randn(1000, 333, device=device) for _ in range(4))


def _parameters_with_grad(device):
    params = [torch.nn.Parameter(randn(*s, device=device)) for s in ((256, 128), (256,), (64, 64))]
    for param in params:
        param.grad = torch.ones_like(param)
    return params


@ENTRIES.add("torch.optim.AdamW's own step, compiled")
def optim_adamw_step(device):
    optimizer = torch.optim.AdamW(_parameters_with_grad(device), lr=1e-3)

    def step():
        optimizer.step()

    return step, ()


@ENTRIES.add("torch.optim.SGD's own step with momentum, compiled")
def optim_sgd_step(device):
    optimizer = torch.optim.SGD(_parameters_with_grad(device), lr=0.1, momentum=0.9)

    def step():
        optimizer.step()

    return step, ()
