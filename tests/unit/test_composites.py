"""Composite operators taken apart as on a card: the choice of attention, its calls, conversions."""

from __future__ import annotations

import types
from unittest import mock

import pytest
import torch
from pretended import said_by
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from helpers import composites
from helpers.attention import additive_mask, attention_for, attention_math
from helpers.attention_backends import backend_order, choose_backend, prefers_cudnn, why_not
from helpers.attention_rules import AttentionCall, newer_rules

T4, A100, L4, H200, B200 = (7, 5), (8, 0), (8, 9), (9, 0), (10, 0)
FP16, BF16, FP32, FP64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
# On cards of data centres from Hopper on, cuDNN goes first where its library is new enough.
FIRST = "cudnn" if prefers_cudnn(H200) else "flash"


@pytest.fixture(autouse=True)
def fakes():
    with (
        mock.patch.object(fake_tensor, "init_gpu_context"),
        mock.patch.object(torch.cuda, "_lazy_init"),
        FakeTensorMode() as mode,
    ):
        yield mode


def tensor(*shape: int, dtype: torch.dtype = BF16, grad: bool = False) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="cuda:0").requires_grad_(grad)


def call(card, dtype=BF16, head=64, value_head=None, lengths=(128, 128), mask=None, **more):
    grad, batch, heads = more.pop("grad", False), 2, more.pop("heads", (8, 8))
    query = tensor(batch, heads[0], lengths[0], head, dtype=dtype, grad=grad)
    key = tensor(batch, heads[1], lengths[1], head, dtype=dtype)
    value = tensor(batch, heads[1], lengths[1], value_head or head, dtype=dtype)
    rest = {"dropout_p": 0.0, "is_causal": False, "enable_gqa": False} | more
    return AttentionCall(query, key, value, mask, capability=card, **rest)


CHOICES = [
    # card, what is asked, backend, why: sdp_utils.cpp
    (H200, {}, FIRST, "cuDNN first on sm_90 above 9.15.0"),
    (B200, {"dtype": FP16}, FIRST, "and on sm_100"),
    (A100, {}, "flash", "cuDNN is not preferred below sm_90"),
    (H200, {"dtype": FP32}, "efficient", "flash and cuDNN take halves only"),
    (A100, {"dtype": FP64}, "math", "no fused backend takes float64"),
    (T4, {"dtype": FP16}, "efficient", "flash needs sm_80"),
    (T4, {"dtype": BF16}, "math", "the efficient kernels take bf16 from sm_80 on"),
    (A100, {"head": 256}, "flash", "flash takes heads up to 256"),
    (A100, {"head": 264}, "efficient", "above 256 flash does not, efficient has no limit"),
    (A100, {"head": 12}, "flash", "flash pads the head to 16"),
    (T4, {"head": 12, "dtype": FP16}, "math", "tensor cores want multiples of 8 halves"),
    (T4, {"head": 12, "dtype": FP32}, "efficient", "without tensor cores, no alignment on sm_75"),
    (A100, {"head": 6, "dtype": FP32}, "math", "from sm_80 on fp32 wants multiples of 4"),
    (A100, {"value_head": 128}, "efficient", "flash needs one head size for all"),
    (L4, {"head": 200, "grad": True}, "efficient", "sm_89 cannot train flash with heads 193..224"),
    (L4, {"head": 200}, "flash", "but can infer"),
    (L4, {"head": 256, "grad": True}, "flash", "and train 256 without dropout"),
    (L4, {"head": 256, "grad": True, "dropout_p": 0.1}, "efficient", "not with dropout"),
    (A100, {"head": 200, "grad": True}, "flash", "sm_80 can train all of them"),
    (A100, {"is_causal": True}, "flash", "causal, equal lengths"),
    (A100, {"is_causal": True, "lengths": (64, 128)}, "efficient", "flash: equal lengths only"),
    (A100, {"lengths": (128, 0)}, "math", "no fused backend takes a length of zero"),
    (H200, {"lengths": (128, 1)}, "flash", "cuDNN does not take one key alone"),
    (A100, {"heads": (8, 2), "enable_gqa": True}, "flash", "flash groups heads"),
    (A100, {"heads": (8, 3), "enable_gqa": True}, "math", "3 does not divide 8"),
    (A100, {"heads": (8, 2)}, "math", "grouped heads must be asked for"),
]


@pytest.mark.parametrize(("card", "asked", "backend", "why"), CHOICES)
def test_the_choice_of_the_card(card, asked, backend, why):
    assert choose_backend(call(card, **asked))[0] == backend, why


def test_a_mask_keeps_flash_out_and_its_shape_and_gradient_keep_cudnn_out():
    assert choose_backend(call(A100, mask=tensor(128, 128)))[0] == "efficient"
    wide = call(H200, mask=tensor(2, 128, 128))
    assert "two or four" in why_not(wide, "cudnn")
    assert "gradient" in why_not(call(H200, mask=tensor(128, 128, grad=True)), "cudnn")
    turned = call(H200, mask=tensor(128, 128).t())
    assert choose_backend(turned)[0] == "math"
    assert all("stride" in why_not(turned, name) for name in ("efficient", "cudnn"))


def test_grouped_heads_in_fp32_reach_the_efficient_kernels_in_newer_torch_only():
    grouped = call(A100, dtype=FP32, heads=(8, 2), enable_gqa=True)
    assert choose_backend(grouped)[0] == ("efficient" if newer_rules() else "math")


def test_what_the_user_switched_off_stays_off():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        backend, refused = choose_backend(call(H200))
        assert backend == "math" and refused["flash"] == "is switched off"
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="float32"):
        choose_backend(call(H200, dtype=FP32))
    order = torch._C._get_sdp_priority_order()
    try:
        torch._C._set_sdp_priority_order([2, 1, 0, 3])
        assert backend_order(H200)[:2] == ("efficient", "flash")
    finally:
        torch._C._set_sdp_priority_order(order)


def test_deterministic_algorithms_keep_cudnn_out():
    torch.use_deterministic_algorithms(True)
    try:
        assert choose_backend(call(H200))[0] == "flash"
    finally:
        torch.use_deterministic_algorithms(False)


def test_shapes_and_strides_of_the_result():
    attention = attention_for(types.SimpleNamespace(capability=A100))
    split = [tensor(2, 128, 8, 64).transpose(1, 2) for _ in range(3)]
    assert attention(*split).stride() == split[0].stride()
    odd = attention(*(tensor(2, 8, 128, 12) for _ in range(3)))
    assert odd.shape == (2, 8, 128, 12) and odd.stride(-2) == 16  # a slice of the padded head
    wide = attention(*(tensor(2, 8, 128, size, dtype=FP32) for size in (64, 64, 96)))
    assert wide.shape == (2, 8, 128, 96) and wide.device.type == "cuda"


def test_bad_input_is_refused_as_torch_refuses_it():
    attention = attention_for(types.SimpleNamespace(capability=A100))
    query = tensor(2, 8, 128, 64)
    with pytest.raises(RuntimeError, match="same dtype"):
        attention(query, query, tensor(2, 8, 128, 64, dtype=FP32))
    with pytest.raises(RuntimeError, match="attn_mask dtype"):
        attention(query, query, query, tensor(128, 128, dtype=torch.int64))


@pytest.mark.parametrize("mask", [None, "float", "causal"])
@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("scale", [None, 0.3, -0.3])
def test_the_math_backend_computes_what_torch_computes(mask, dtype, scale):
    with _disable_current_modes():
        query = torch.randn(2, 8, 16, 8, dtype=dtype)
        key, value = (torch.randn(2, 2, 24, 8, dtype=dtype) for _ in range(2))
        shown = torch.randn(16, 24, dtype=dtype) if mask == "float" else None
        arguments = (query, key, value, shown, 0.0, mask == "causal")
        more = {"scale": scale, "enable_gqa": True}
        theirs = torch.ops.aten._scaled_dot_product_attention_math(*arguments, **more)
        ours = attention_math(*arguments, **more)
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_bool_mask_says_where_attention_may_look():
    with _disable_current_modes():
        seen = torch.tensor([True, False, True])
        assert additive_mask(seen, FP32).tolist() == [0.0, -float("inf"), 0.0]
        query, key, value = (torch.randn(1, 1, 3, 4) for _ in range(3))
        ours = attention_math(query, key, value, additive_mask(seen, FP32))[0]
        both = torch.nn.functional.scaled_dot_product_attention(query, key, value, seen[None])
        torch.testing.assert_close(ours, both)


# -- the other kernels


def kernels():
    return composites.KERNELS(types.SimpleNamespace(capability=H200))


def test_conversions_with_nothing_to_do_give_the_very_same_tensor():
    aten, ours, here = torch.ops.aten, kernels(), tensor(4, 8, dtype=FP32)
    assert ours[aten.to.device](here, torch.device("cuda"), FP32) is here
    assert ours[aten.to.dtype](here, FP32) is here
    assert ours[aten.to.dtype_layout](here, dtype=FP32, device="cuda:0") is here
    assert ours[aten.to.other](here, tensor(1, dtype=FP32)) is here
    assert ours[aten.type_as.default](here, tensor(1, dtype=FP32)) is here
    contiguous = torch.contiguous_format
    assert ours[aten.to.dtype](here, FP32, memory_format=contiguous) is here
    assert ours[aten.to.dtype](here, FP32, copy=True) is not here
    moved = ours[aten.to.device](here, torch.device("cpu"), BF16)
    assert (moved.device.type, moved.dtype) == ("cpu", BF16)


def test_softmax_widens_in_one_go_on_a_card_only():
    ours = kernels()[torch.ops.aten.softmax.int]
    seen = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.name())
            return func(*args, **(kwargs or {}))

    with Record():
        assert ours(tensor(4, 8, dtype=FP16), -1, FP32).dtype == FP32
        assert "aten::_softmax" in seen and "aten::_to_copy" not in seen
        ours(torch.empty(4, 8, dtype=FP16, device="cpu"), -1, FP32)
        assert "aten::_to_copy" in seen


def state():
    return {op: (dict(op.py_kernels), dict(op._dispatch_cache)) for op in kernels()}


def test_the_context_leaves_nothing_even_after_an_error():
    target = types.SimpleNamespace(capability=H200)
    for operator in kernels():
        operator._dispatch_cache.clear()
    before = state()

    def fail_inside():
        with composites.composites_as_on(target):
            operator = torch.ops.aten.scaled_dot_product_attention.default
            outer = operator.py_kernels[composites.COMPOSITE]
            with composites.composites_as_on(types.SimpleNamespace(capability=T4)):
                assert operator.py_kernels[composites.COMPOSITE] is not outer
            assert operator.py_kernels[composites.COMPOSITE] is outer
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert state() == before


# -- against torch's own C++, which is asked through a CUDA runtime that only pretends


@pytest.mark.parametrize("capability", ["75", "89", "90", "100"])
def test_choice_and_calls_are_those_of_the_installed_torch(capability, tmp_path):
    said = said_by(
        "attention_against_cpp.py", tmp_path, capability, "120", PRETENDED_CAPABILITY=capability
    )
    assert "120 calls compared" in said
