"""Functions that say "cuda" themselves; as Python they only work on a machine with a GPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.fidelity.case import Entries, randn

ENTRIES = Entries()


@ENTRIES.add('torch.arange(device="cuda") and torch.zeros(...).cuda() inside')
def says_device_cuda(device):
    def run(x):
        place = torch.arange(x.shape[-1], device="cuda")
        return x * place + torch.ones(x.shape[-1]).cuda()

    return run, (randn(100, 64, device=device),)


@ENTRIES.add("x.is_cuda decides, and x.cuda() where it is not")
def asks_is_cuda(device):
    def run(x):
        return x.relu() + 1 if x.is_cuda else x.cuda().sin()

    return run, (randn(100, 64, device=device),)


@ENTRIES.add('torch.autocast("cuda") around an MLP, trained', grad=True)
def says_autocast_cuda_train(device):
    net = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 10)).to(device)

    def run(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return net(x).softmax(-1)

    return run, (randn(64, 128, device=device),)


@ENTRIES.add("x.device.type compared with a string, and torch.cuda.is_available() asked")
def asks_device_type(device):
    def run(x):
        if x.device.type == "cuda" and torch.cuda.is_available():
            return F.silu(x) * 2
        raise RuntimeError("this branch is for a machine without a GPU")

    return run, (randn(100, 64, device=device),)
