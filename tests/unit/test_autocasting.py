"""Autocast's casts as on a card: the lists, each policy's rule, and torch's own C++ beside it."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from pretended import said_by
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers import autocasting
from helpers.autocasting import AUTOCAST, KERNELS, autocast_as_on_card, operator_named, read_lists

aten = torch.ops.aten
FP16, BF16, FP32, FP64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
# Registered for this key, and in no list: refused by its own kernel; called by cuDNN's path alone.
NOT_OURS = {"aten::binary_cross_entropy", "aten::_cudnn_rnn"}


@pytest.fixture(autouse=True)
def autocast():
    """Fake tensors on a card, and autocast to bf16 switched on."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    with (
        mock.patch.object(fake_tensor, "init_gpu_context"),
        mock.patch.object(torch.cuda, "_lazy_init"),
        FakeTensorMode(),
    ):
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", BF16)
        yield
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def tensor(*shape: int, dtype: torch.dtype = FP32, device: str = "cuda:0") -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device=device)


def named(name: str):
    return KERNELS()[operator_named(f"aten::{name}")]


def test_the_lists_are_all_that_the_installed_torch_registers():
    lists = read_lists(autocasting._header().read_text(encoding="utf-8"))
    registered = set(torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA"))
    here = {name for name in lists if operator_named(name)}
    assert here == registered - NOT_OURS
    policies = {name: lists[f"aten::{name}"] for name in ("mm", "pow.Scalar", "sum", "dot")}
    assert tuple(policies.values()) == (
        *("lower_precision_fp", "fp32", "fp32_set_opt_dtype", "promote"),
    )
    assert lists["aten::norm.Scalar"] == "fp32_append_dtype"


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16])
def test_the_rule_of_each_policy(dtype):
    square, vector = tensor(4, 4, dtype=dtype), tensor(4, dtype=dtype)
    for name in ("mm", "matmul"):
        assert named(name)(square, square).dtype == BF16
    assert named("linear")(square, square, vector).dtype == BF16
    assert named("einsum")("ij,jk", [square, square]).dtype == BF16
    for name in ("exp", "softplus", "logsumexp"):
        assert named(name)(square, *([[0]] if name == "logsumexp" else [])).dtype == FP32
    assert named("layer_norm")(square, [4], vector, vector).dtype == FP32
    for name, rest in (("softmax.int", (-1,)), ("sum", ()), ("cumsum", (0,))):
        assert named(name)(square, *rest).dtype == FP32
    assert named("softmax.int")(square, -1, FP16).dtype == FP16
    assert named("sum")(square, dtype=FP64).dtype == FP64
    assert named("norm.Scalar")(square).dtype == FP32
    assert named("norm.ScalarOpt_dim")(square, 2, [0]).dtype == FP32


def test_promote_takes_the_widest_and_refuses_a_third_dtype():
    half, single, other = (tensor(4, dtype=dtype) for dtype in (BF16, FP32, FP16))
    assert named("dot")(half, half).dtype == BF16
    assert named("dot")(half, single).dtype == FP32
    assert named("dot")(single, other).dtype == FP32
    with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
        named("dot")(half, other)


def test_what_is_not_cast():
    double, whole = tensor(4, 4, dtype=FP64), tensor(4, 4, dtype=torch.int64)
    assert named("mm")(double, double).dtype == FP64
    assert named("mm")(whole, whole).dtype == torch.int64
    assert named("sum")(whole).dtype == torch.int64
    assert named("norm.Scalar")(double).dtype == FP64
    here = tensor(4, 4, device="cpu")
    assert named("mm")(here, here).dtype == FP32
    assert named("exp")(tensor(4, dtype=FP16, device="cpu")).dtype == FP16
    mask = tensor(8, 8, dtype=torch.bool)
    for same in (double, whole, here, mask, None, 2.0):
        assert autocasting._cast(BF16, same) is same


def test_in_a_trace_the_kernels_are_called_where_autocast_is_on_only():
    square = tensor(4, 4)
    seen = []
    real = autocasting._cast

    def told(dtype, value):
        seen.append(dtype)
        return real(dtype, value)

    with (
        mock.patch.object(autocasting, "_cast", told),
        enable_python_dispatcher(),
        autocast_as_on_card() as problem,
    ):
        assert problem == ""
        assert torch.mm(square, square).dtype == BF16
        assert seen == [BF16, BF16]  # two tensors, once: autocast is off when mm is called again
        with torch.autocast("cuda", enabled=False):
            assert torch.mm(square, square).dtype == FP32
        assert len(seen) == 2


def test_binary_cross_entropy_is_refused_in_atens_words():
    probability = tensor(4)
    refused = pytest.raises(RuntimeError, match="are unsafe to autocast")
    with enable_python_dispatcher(), autocast_as_on_card(), refused:
        aten.binary_cross_entropy.default(probability, probability)


def test_the_context_leaves_nothing_even_after_an_error():
    def state():
        return {op: (dict(op.py_kernels), dict(op._dispatch_cache)) for op in KERNELS()}

    for operator in KERNELS():
        operator._dispatch_cache.clear()
    before = state()

    def fail_inside():
        with autocast_as_on_card():
            assert AUTOCAST in aten.mm.default.py_kernels
            with autocast_as_on_card():
                pass
            assert AUTOCAST in aten.mm.default.py_kernels
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert state() == before


def test_without_the_header_it_says_so_and_casts_nothing(tmp_path):
    try:
        for file, words in ((None, "is missing"), ("#pragma once\n", "AT_FORALL_LOWER_PRECISION")):
            path = tmp_path / "autocast_mode.h"
            if file:
                path.write_text(file, encoding="utf-8")
            KERNELS.cache_clear()
            with (
                mock.patch.object(autocasting, "_header", lambda path=path: path),
                autocast_as_on_card() as problem,
            ):
                assert words in problem and problem.endswith(".")
                assert AUTOCAST not in aten.mm.default.py_kernels
    finally:
        KERNELS.cache_clear()


def test_casts_are_those_of_the_installed_torch(tmp_path):
    assert " 0 different" in said_by("autocast_against_cpp.py", tmp_path)
