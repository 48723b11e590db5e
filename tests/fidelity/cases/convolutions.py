"""Convolutions in both memory formats, pooling, interpolation, padding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.fidelity.case import Entries, randn

ENTRIES = Entries()
LAST = torch.channels_last


@ENTRIES.add("3x3 convolution with bias and ReLU, contiguous, trained", grad=True)
def conv2d_relu_train(device):
    conv = nn.Conv2d(32, 64, 3, padding=1).to(device)
    return lambda x: F.relu(conv(x)), (randn(4, 32, 32, 32, device=device, grad=True),)


@ENTRIES.add("3x3 convolution with bias and ReLU, channels last, bf16, trained", grad=True)
def conv2d_channels_last_bf16_train(device):
    conv = nn.Conv2d(32, 64, 3, padding=1).to(device, torch.bfloat16, memory_format=LAST)
    x = randn(4, 32, 32, 32, device=device, dtype=torch.bfloat16).to(memory_format=LAST)
    return lambda x: F.relu(conv(x)), (x.requires_grad_(),)


@ENTRIES.add("channels-last input, contiguous weights, then SiLU and a sum over channels")
def conv2d_mixed_formats(device):
    conv = nn.Conv2d(32, 48, 3, stride=2).to(device)
    x = randn(4, 32, 31, 31, device=device).to(memory_format=LAST)
    return lambda x: F.silu(conv(x)).sum(1), (x,)


@ENTRIES.add("1x1 convolution, channels last, fp16")
def conv2d_1x1_channels_last(device):
    conv = nn.Conv2d(64, 128, 1).to(device, torch.float16, memory_format=LAST)
    x = randn(4, 64, 28, 28, device=device, dtype=torch.float16).to(memory_format=LAST)
    return lambda x: conv(x).relu(), (x,)


@ENTRIES.add("1-D convolutions, dilated, trained", grad=True)
def conv1d_train(device):
    net = nn.Sequential(
        nn.Conv1d(16, 32, 5, padding=2), nn.GELU(), nn.Conv1d(32, 32, 3, padding=4, dilation=4)
    ).to(device)
    return net, (randn(8, 16, 500, device=device, grad=True),)


@ENTRIES.add("depthwise convolution, trained", grad=True)
def depthwise_train(device):
    conv = nn.Conv2d(64, 64, 3, padding=1, groups=64).to(device)
    return lambda x: F.gelu(conv(x)), (randn(4, 64, 28, 28, device=device, grad=True),)


@ENTRIES.add("transposed convolution and tanh, trained", grad=True)
def conv_transposed_train(device):
    conv = nn.ConvTranspose2d(64, 32, 4, 2, 1).to(device)
    return lambda x: conv(x).tanh(), (randn(4, 64, 14, 14, device=device, grad=True),)


@ENTRIES.add("convolution, batch norm, ReLU in eval mode, channels last")
def conv_bn_relu_eval_channels_last(device):
    net = nn.Sequential(nn.Conv2d(32, 64, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    x = randn(4, 32, 30, 30, device=device).to(memory_format=LAST)
    return net.to(device, memory_format=LAST).eval(), (x,)


@ENTRIES.add("convolution, batch norm, SiLU, channels last, fp16, trained", grad=True)
def conv_bn_silu_fp16_train(device):
    net = nn.Sequential(nn.Conv2d(32, 64, 3, bias=False), nn.BatchNorm2d(64), nn.SiLU())
    x = randn(4, 32, 30, 30, device=device, dtype=torch.float16).to(memory_format=LAST)
    return net.to(device, torch.float16, memory_format=LAST), (x.requires_grad_(),)


@ENTRIES.add("3-D convolution with batch norm, trained", grad=True)
def conv3d_train(device):
    net = nn.Sequential(nn.Conv3d(4, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU()).to(device)
    return net, (randn(2, 4, 8, 16, 16, device=device, grad=True),)


@ENTRIES.add("max pooling after ReLU, trained", grad=True)
def max_pool_train(device):
    x = randn(4, 32, 56, 56, device=device, grad=True)
    return lambda x: F.max_pool2d(F.relu(x), 3, 2, 1), (x,)


@ENTRIES.add("max pooling, channels last, with indices")
def max_pool_indices_channels_last(device):
    x = randn(4, 32, 28, 28, device=device).to(memory_format=LAST)
    return lambda x: F.max_pool2d(x, 2, return_indices=True), (x,)


@ENTRIES.add("average pooling, trained", grad=True)
def avg_pool_train(device):
    return lambda x: F.avg_pool2d(x, 2).sin(), (randn(4, 32, 28, 28, device=device, grad=True),)


@ENTRIES.add("adaptive average pooling to 7x7 and to 1x1, trained", grad=True)
def adaptive_avg_pool_train(device):
    def pool(x):
        return F.adaptive_avg_pool2d(x, 7), F.adaptive_avg_pool2d(x, 1).flatten(1)

    return pool, (randn(4, 32, 30, 30, device=device, grad=True),)


@ENTRIES.add("adaptive max pooling, 1-D average pooling")
def adaptive_max_pool(device):
    def pool(x):
        return F.adaptive_max_pool2d(x, 5), F.avg_pool1d(x[:, :, 0], 3, 2)

    return pool, (randn(4, 16, 23, 23, device=device),)


@ENTRIES.add("nearest upsampling by 2, then a convolution, trained", grad=True)
def interpolate_nearest_train(device):
    conv = nn.Conv2d(16, 16, 3, padding=1).to(device)

    def up(x):
        return conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))

    return up, (randn(2, 16, 16, 16, device=device, grad=True),)


@ENTRIES.add("bilinear resize to an odd size, trained", grad=True)
def interpolate_bilinear_train(device):
    def up(x):
        return F.interpolate(x, size=(45, 61), mode="bilinear", align_corners=False)

    return up, (randn(2, 8, 20, 28, device=device, grad=True),)


@ENTRIES.add("bicubic resize with corners aligned")
def interpolate_bicubic(device):
    def up(x):
        return F.interpolate(x, scale_factor=1.5, mode="bicubic", align_corners=True)

    return up, (randn(1, 3, 32, 32, device=device),)


@ENTRIES.add("reflection padding, pixel shuffle, trained", grad=True)
def pad_pixel_shuffle_train(device):
    def shuffled(x):
        return F.pixel_shuffle(F.pad(x, (1, 1, 2, 2), mode="reflect"), 2)

    return shuffled, (randn(2, 16, 12, 14, device=device, grad=True),)


@ENTRIES.add("grid_sample at points moved by an affine map, trained", grad=True)
def grid_sample_train(device):
    def warp(x, theta):
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    theta = torch.tensor([[[1.0, 0.1, 0.0], [-0.1, 1.0, 0.2]]], device=device).repeat(2, 1, 1)
    return warp, (randn(2, 4, 24, 24, device=device, grad=True), theta)


@ENTRIES.add("unfold into patches and fold back")
def unfold_fold(device):
    def there_and_back(x):
        return F.fold(F.unfold(x, 4, stride=4) * 2, x.shape[2:], 4, stride=4)

    return there_and_back, (randn(2, 8, 32, 32, device=device),)
