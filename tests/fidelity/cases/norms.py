"""Normalisations and softmaxes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.fidelity.case import Entries, randn

ENTRIES = Entries()
BF16 = torch.bfloat16


@ENTRIES.add("nn.LayerNorm, fp32, trained", grad=True)
def layer_norm_train(device):
    return nn.LayerNorm(768).to(device), (randn(16, 128, 768, device=device, grad=True),)


@ENTRIES.add("layer norm over an odd width, bf16")
def layer_norm_odd_bf16(device):
    norm = nn.LayerNorm(1000).to(device, BF16)
    return norm, (randn(333, 1000, device=device, dtype=BF16),)


@ENTRIES.add("layer norm over two dimensions without weights")
def layer_norm_two_dims(device):
    return lambda x: F.layer_norm(x, (32, 48)), (randn(64, 32, 48, device=device),)


@ENTRIES.add("residual, layer norm and GELU fused, bf16, trained", grad=True)
def add_layer_norm_gelu_train(device):
    norm = nn.LayerNorm(1024).to(device, BF16)
    args = tuple(randn(2048, 1024, device=device, dtype=BF16, grad=True) for _ in range(2))
    return lambda x, y: F.gelu(norm(x + y)), args


@ENTRIES.add("layer norm over a width too large for one block, trained", grad=True)
def layer_norm_wide_train(device):
    return nn.LayerNorm(16384).to(device), (randn(64, 16384, device=device, grad=True),)


@ENTRIES.add("F.rms_norm, bf16, trained", grad=True)
def rms_norm_functional_train(device):
    weight = randn(1024, device=device, dtype=BF16, grad=True)
    x = randn(512, 1024, device=device, dtype=BF16, grad=True)
    return lambda x, weight: F.rms_norm(x, (1024,), weight, eps=1e-6), (x, weight)


@ENTRIES.add("nn.RMSNorm, fp32")
def rms_norm_module(device):
    return nn.RMSNorm(512).to(device), (randn(4, 100, 512, device=device),)


@ENTRIES.add("RMS norm written by hand as in Llama, bf16 with fp32 inside, trained", grad=True)
def rms_norm_by_hand_train(device):
    def rms_norm(x, weight):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * h.to(x.dtype)

    x = randn(4, 256, 1024, device=device, dtype=BF16, grad=True)
    return rms_norm, (x, randn(1024, device=device, dtype=BF16, grad=True))


@ENTRIES.add("nn.GroupNorm, trained", grad=True)
def group_norm_train(device):
    norm = nn.GroupNorm(8, 64).to(device)
    return lambda x: F.silu(norm(x)), (randn(4, 64, 32, 32, device=device, grad=True),)


@ENTRIES.add("nn.BatchNorm2d in train mode with running statistics, and backward", grad=True)
def batch_norm_train(device):
    norm = nn.BatchNorm2d(64).to(device)
    return lambda x: F.relu(norm(x)), (randn(8, 64, 28, 28, device=device, grad=True),)


@ENTRIES.add("nn.BatchNorm2d in eval mode, channels last")
def batch_norm_eval_channels_last(device):
    norm = nn.BatchNorm2d(64).to(device).eval()
    x = randn(8, 64, 28, 28, device=device).to(memory_format=torch.channels_last)
    return lambda x: F.relu(norm(x)), (x,)


@ENTRIES.add("nn.BatchNorm2d in train mode, channels last, and backward", grad=True)
def batch_norm_channels_last_train(device):
    norm = nn.BatchNorm2d(64).to(device)
    x = randn(8, 64, 28, 28, device=device).to(memory_format=torch.channels_last)
    return norm, (x.requires_grad_(),)


@ENTRIES.add("nn.BatchNorm1d over features, trained", grad=True)
def batch_norm_1d_train(device):
    return nn.BatchNorm1d(512).to(device), (randn(256, 512, device=device, grad=True),)


@ENTRIES.add("nn.InstanceNorm2d with weights, trained", grad=True)
def instance_norm_train(device):
    norm = nn.InstanceNorm2d(32, affine=True).to(device)
    return norm, (randn(4, 32, 48, 48, device=device, grad=True),)


@ENTRIES.add("softmax over 1024, bf16, trained", grad=True)
def softmax_train(device):
    x = randn(512, 1024, device=device, dtype=BF16, grad=True)
    return lambda x: (x * 0.5).softmax(-1), (x,)


@ENTRIES.add("softmax over a middle dimension")
def softmax_middle(device):
    return lambda x: x.softmax(1), (randn(16, 77, 130, device=device),)


@ENTRIES.add("log_softmax over a vocabulary of 50257, trained", grad=True)
def log_softmax_vocabulary_train(device):
    return lambda x: x.log_softmax(-1), (randn(128, 50257, device=device, grad=True),)


@ENTRIES.add("F.normalize of rows, trained", grad=True)
def l2_normalize_train(device):
    return lambda x: F.normalize(x, dim=-1), (randn(512, 384, device=device, grad=True),)
