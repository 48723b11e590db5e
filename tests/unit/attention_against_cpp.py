"""Compares attention in Python with torch's own C++, call by call; run by test_composites.py.

Needs the pretended CUDA runtime loaded before torch. Arguments: capability, number of calls.
"""

import logging
import random
import sys
import types
import warnings
from unittest import mock

import torch
from pretended import Record
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import fake_tensor

from helpers.attention import attention_for

CHOOSE = random.Random(0)
pick = CHOOSE.choice
LENGTHS = (1, 17, 64, 128, 200)
HEADS = (1, 4, 7, 8, 12, 40, 64, 64, 64, 96, 128, 136, 192, 200, 224, 232, 256, 264, 512)
TYPES = (torch.float32, torch.float16, torch.float16, torch.bfloat16, torch.bfloat16, torch.float64)


def described(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.device, value.storage_offset()
    return value


def made(layout, dtype, shape, grad):
    if layout == "heads last" and len(shape) == 4:
        batch, heads, length, size = shape
        out = torch.empty(batch, length, heads, size, dtype=dtype, device="cuda").transpose(1, 2)
    elif layout == "turned":
        turned = (*shape[:-2], shape[-1], shape[-2])
        out = torch.empty(turned, dtype=dtype, device="cuda").transpose(-1, -2)
    elif layout == "offset":
        whole = torch.empty(torch.Size(shape).numel() + 8, dtype=dtype, device="cuda")
        out = whole[pick((1, 2, 4, 8)) :][: torch.Size(shape).numel()].view(shape)
    else:
        out = torch.empty(shape, dtype=dtype, device="cuda")
    return out.requires_grad_(True) if grad and CHOOSE.random() < 0.8 else out


def mask_for(batch, heads, length, keys, dtype):
    shapes = [(length, keys), (batch, 1, length, keys), (batch, heads, length, keys)]
    shapes += [(1, 1, 1, keys), (heads, length, keys), (length, 1)]
    kind = pick((dtype, torch.bool, torch.bool, torch.float32))
    layout = "turned" if CHOOSE.random() < 0.15 else ""
    return made(layout, kind, pick(shapes), kind != torch.bool and CHOOSE.random() < 0.2)


def random_call():
    dtype, batch, heads = pick(TYPES), pick((1, 2, 3)), pick((1, 4, 8))
    length, grad = pick((*LENGTHS, 128, 128, 0)), CHOOSE.random() < 0.4
    keys = pick((length, length, length, *LENGTHS))
    grouped = CHOOSE.random() < 0.2
    key_heads = pick((1, 2, 4)) if grouped or CHOOSE.random() < 0.1 else heads
    size = pick(HEADS)
    value_size = pick((size, size, size, 64, 128))
    layout = pick(("", "", "", "heads last", "heads last", "turned", "offset"))
    lead = pick(((batch,), (batch,), (batch,), (batch,), (), (2, batch)))
    query = made(layout, dtype, (*lead, heads, length, size), grad)
    key = made(layout, dtype, (*lead, key_heads, keys, size), grad)
    value = made(layout, dtype, (*lead, key_heads, keys, value_size), grad)
    mask = mask_for(batch, heads, length, keys, dtype) if CHOOSE.random() < 0.4 else None
    causal = CHOOSE.random() < (0.05 if mask is not None else 0.25)
    rest = (mask, pick((0.0, 0.0, 0.0, 0.1, 0.125, 0.5)), causal)
    return (query, key, value, *rest), {
        "scale": pick((None, None, 0.3, -0.3)),
        "enable_gqa": grouped,
    }


def switch_backends():
    some = CHOOSE.random() < 0.25
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        getattr(torch._C, f"_set_sdp_use_{name}")(not some or CHOOSE.random() < 0.5)
    torch._C._set_math_sdp_allow_fp16_bf16_reduction(CHOOSE.random() < 0.1)
    torch.use_deterministic_algorithms(CHOOSE.random() < 0.1, warn_only=CHOOSE.random() < 0.5)


def outcome(function, arguments, more, grad):
    record = Record(described, left_out=("layout", "pin_memory"))
    with torch.set_grad_enabled(grad), enable_python_dispatcher(), record:
        try:
            return record.calls, described(function(*arguments, **more))
        except RuntimeError:
            return "refused"


def main(capability: int, count: int) -> int:
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    target = types.SimpleNamespace(capability=divmod(capability, 10))
    ours, theirs = attention_for(target), torch.nn.functional.scaled_dot_product_attention
    different = 0
    for _ in range(count):
        switch_backends()
        (arguments, more), grad = random_call(), CHOOSE.random() < 0.8
        results = [outcome(function, arguments, more, grad) for function in (theirs, ours)]
        if results[0] != results[1]:
            different += 1
            print("different:", [described(value) for value in arguments], more)
            print("  C++", results[0], "\n  Python", results[1])
    print(f"{count} calls compared, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    with (
        mock.patch.object(fake_tensor, "init_gpu_context"),
        mock.patch.object(torch.cuda, "_lazy_init"),
        fake_tensor.FakeTensorMode(),
    ):
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
