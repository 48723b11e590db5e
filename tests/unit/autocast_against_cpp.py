"""Compares autocast's casts in Python with torch's own C++, operator by operator.

Run by test_autocasting.py. Needs the pretended CUDA runtime loaded before torch: the tensors are
fake, on cuda:0, and C++ is told so. Compares every operator called, its tensors' dtypes, and the
outcome. Overloads with named dimensions are left out: fake tensors have no names.
"""

import itertools
import logging
import sys
import warnings
from unittest import mock

import torch
from pretended import Record
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import fake_tensor
from torch.utils._pytree import tree_map

from helpers import autocasting

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def described(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.device
    return value


class T:
    """A tensor to be: of the case's dtype (`n` picks which), or of a fixed one."""

    def __init__(self, *shape, dtype=None, device="cuda", n=0):
        self.shape, self.dtype, self.device, self.n = shape, dtype, device, n


def t(*shape, n=0):
    return T(*shape, n=n)


def index(*shape):
    return T(*shape, dtype=torch.int64)


def bools(*shape):
    return T(*shape, dtype=torch.bool)


M, V = t(4, 4), t(4)
M2, V2 = t(4, 4, n=1), t(4, n=1)
CONV = ([1], [0], [1])
CELL = (t(2, 4), t(2, 4, n=1), t(4, 4), t(4, 4, n=1), t(4), t(4, n=1))


def conv(n):
    return (t(2, 4, *[8] * n), t(4, 4, *[3] * n, n=1), t(4, n=2))


def rest(n):
    return ([1] * n, [0] * n, [1] * n)


def gates(n):
    return [t(2, 4), t(2, 4, n=1), t(n * 4, 4), t(n * 4, 4, n=1), t(n * 4), t(n * 4, n=1)]


def _lstm():
    first, hidden, *others = gates(4)
    return [(first, [hidden, t(2, 4)], *others)]


ATTENTION = (t(2, 4, 16, 8), t(2, 4, 16, 8, n=1), t(2, 4, 16, 8, n=2))
FIVE = t(1, 4, 8, 8, 8)
# By operator: lists of arguments. What is not here is called with one tensor of 4 x 4, or two.
CALLS = {
    "_convolution.deprecated": [
        (*conv(2), *rest(2), False, [0, 0], 1, False, False, True),
    ],
    "_convolution": [(*conv(2), *rest(2), False, [0, 0], 1, False, False, True, True)],
    "conv1d": [conv(1), conv(1)[:2]],
    "conv2d": [conv(2), conv(2)[:2]],
    "conv3d": [conv(3)],
    "conv_tbc": [(t(8, 2, 4), t(3, 4, 4, n=1), t(4, n=2))],
    "conv_transpose1d": [conv(1)],
    "conv_transpose2d.input": [conv(2)],
    "conv_transpose3d.input": [conv(3)],
    "convolution": [(*conv(2), *rest(2), False, [0, 0], 1)],
    "cudnn_convolution": [(*conv(2)[:2], [0, 0], [1, 1], [1, 1], 1, False, False, True)],
    "cudnn_convolution_transpose": [
        (*conv(2)[:2], [0, 0], [0, 0], [1, 1], [1, 1], 1, False, False, True)
    ],
    "prelu": [(M, t(4, n=1))],
    "addmm": [(M, M2, t(4, 4, n=2)), (M, M2, M, {"beta": 0.5, "alpha": 2})],
    "addmv": [(V, M2, t(4, n=2))],
    "addr": [(M, V2, t(4, n=2))],
    "einsum": [("ij,jk", [M, M2])],
    "mv": [(M, V2)],
    "linalg_matrix_sqrth": [(M,)],
    "linalg_vecdot": [(V, V2), (M, M2, {"dim": 0})],
    "linear": [(M, M2, t(4, n=2)), (M, M2)],
    "addbmm": [(M, t(2, 4, 4, n=1), t(2, 4, 4, n=2))],
    "baddbmm": [(t(2, 4, 4), t(2, 4, 4, n=1), t(2, 4, 4, n=2))],
    "bmm": [(t(2, 4, 4), t(2, 4, 4, n=1))],
    "chain_matmul": [([M, M2, t(4, 4, n=2)],)],
    "linalg_multi_dot": [([M, M2, t(4, 4, n=2)],)],
    "_thnn_fused_lstm_cell": [(t(2, 16), t(2, 16, n=1), t(2, 4), t(16), t(16, n=1))],
    "_thnn_fused_gru_cell": [(t(2, 12), t(2, 12, n=1), t(2, 4), t(12), t(12, n=1))],
    "lstm_cell": _lstm(),
    "gru_cell": [tuple(gates(3))],
    "rnn_tanh_cell": [CELL],
    "rnn_relu_cell": [CELL[:4]],
    "_scaled_dot_product_flash_attention": [ATTENTION],
    "scaled_dot_product_attention": [
        ATTENTION,
        (*ATTENTION, t(16, 16)),
        (*ATTENTION, bools(16, 16)),
    ],
    "pow.Tensor_Scalar": [(M, 2)],
    "pow.Scalar": [(2, M)],
    "layer_norm": [(M, [4], V, V2), (M, [4])],
    "rms_norm": [(M, [4], V2), (M, [4])],
    "native_layer_norm": [(M, [4], V, V2, 1e-5)],
    "group_norm": [(t(2, 4, 8), 2, V, V2)],
    "frobenius_norm.dim": [(M, [0, 1])],
    "nuclear_norm.dim": [(M, [0, 1])],
    "cosine_embedding_loss": [(M, M2, t(4, n=2))],
    "poisson_nll_loss": [(M, M2, True, False, 1e-8, 1)],
    "nll_loss": [(M, index(4)), (M, index(4), V2)],
    "nll_loss2d": [(t(2, 4, 8, 8), index(2, 8, 8))],
    "margin_ranking_loss": [(V, V2, t(4, n=2))],
    "multilabel_margin_loss": [(M, index(4, 4))],
    "triplet_margin_loss": [(M, M2, t(4, 4, n=2))],
    "multi_margin_loss": [(M, index(4)), (M, index(4), 1, 1, V2)],
    "binary_cross_entropy_with_logits": [(M, M2, V, t(4, n=2)), (M, M2)],
    "pdist": [(M,)],
    "renorm": [(M, 2, 0, 1.0)],
    "logsumexp": [(M, [0])],
    "upsample_nearest1d": [(t(1, 4, 8), [16])],
    "_upsample_nearest_exact1d": [(t(1, 4, 8), [16])],
    "upsample_nearest2d": [(t(1, 4, 8, 8), [16, 16])],
    "_upsample_nearest_exact2d": [(t(1, 4, 8, 8), [16, 16])],
    "upsample_nearest3d": [(FIVE, [16] * 3)],
    "_upsample_nearest_exact3d": [(FIVE, [16] * 3)],
    "upsample_linear1d": [(t(1, 4, 8), [16], False)],
    "upsample_bilinear2d": [(t(1, 4, 8, 8), [16, 16], False)],
    "_upsample_bilinear2d_aa": [(t(1, 4, 8, 8), [16, 16], False)],
    "upsample_trilinear3d": [(FIVE, [16] * 3, False)],
    "upsample_bicubic2d": [(t(1, 4, 8, 8), [16, 16], False)],
    "_upsample_bicubic2d_aa": [(t(1, 4, 8, 8), [16, 16], False)],
    "prod": [(M,), (M, {"dtype": F16})],
    "prod.dim_int": [(M, 0), (M, 0, True, {"dtype": F64})],
    "softmax.int": [(M, -1), (M, -1, F16), (M, -1, None)],
    "log_softmax.int": [(M, -1), (M, -1, BF16)],
    "cumprod": [(M, 0), (M, 0, {"dtype": F16})],
    "cumsum": [(M, 0), (M, 0, {"dtype": F64})],
    "linalg_vector_norm": [(M,), (M, 1, [0], True), (M, 2, None, False, {"dtype": F64})],
    "linalg_matrix_norm": [(M, 1), (M, 1, [0, 1], True, {"dtype": F64})],
    "linalg_matrix_norm.str_ord": [(M,), (M, "nuc")],
    "sum": [(M,), (M, {"dtype": F16})],
    "sum.dim_IntList": [(M, [0]), (M, None, True), (M, [1], {"dtype": F64})],
    "norm.Scalar": [(M,), (M, 1)],
    "norm.ScalarOpt_dim": [(M, None, [0]), (M, 2, [1], True)],
    "addcdiv": [(M, M2, t(4, 4, n=2)), (M, M2, M, {"value": 2})],
    "addcmul": [(M, M2, t(4, 4, n=2)), (M, T(dtype=F32, device="cpu"), M2)],
    "bilinear": [(M, M2, t(4, 4, 4, n=2), V), (M, M, t(4, 4, 4), V2)],
    "cross": [(t(4, 3), t(4, 3, n=1))],
    "dot": [(V, V2)],
    "vdot": [(V, V2)],
    "grid_sampler": [(t(1, 4, 8, 8), t(1, 8, 8, 2, n=1), 0, 0, False)],
    "index_put": [(M, [index(2), index(2)], t(2, n=1)), (M, [None, index(2)], t(4, 2, n=1), True)],
    "tensordot": [(M, M2, [0], [1])],
    "scatter_add": [(M, 0, index(4, 4), M2)],
}
TWO = {"matmul", "mm", "pow.Tensor_Tensor", "cosine_similarity", "hinge_embedding_loss", "kl_div"}
TWO |= {"l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss", "soft_margin_loss", "dist", "cdist"}
TWO |= {"atan2"}


def calls_of(name):
    short = name.removeprefix("aten::")
    if short in CALLS:
        return CALLS[short]
    return [(M, M2), (M, T(4, 4, dtype=F32, device="cpu"))] if short in TWO else [(M,)]


def made(value, dtypes):
    if isinstance(value, T):
        dtype = value.dtype or dtypes[value.n]
        return torch.zeros(value.shape, dtype=dtype, device=value.device)
    if isinstance(value, (list, tuple)):
        return [made(one, dtypes) for one in value]
    return value


def outcome(operator, arguments, options):
    """Returns the calls, whether it ran to its end, and what came out or the error."""
    with enable_python_dispatcher(), Record(described) as record:
        try:
            out = operator(*arguments, **options)
        except (RuntimeError, NotImplementedError) as error:
            return record.calls, False, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return record.calls, True, repr(tree_map(described, out))


def compare(operator, call, dtypes, half, enabled):
    """Returns what C++ and Python did, in that order."""
    options = call[-1] if call and isinstance(call[-1], dict) else {}
    arguments = made([value for value in call if not isinstance(value, dict)], dtypes)
    torch.set_autocast_dtype("cuda", half)
    torch.set_autocast_enabled("cuda", enabled)
    try:
        theirs = outcome(operator, arguments, options)
        with autocasting.autocast_as_on_card() as problem:
            assert not problem, problem
            ours = outcome(operator, arguments, options)
    finally:
        torch.set_autocast_enabled("cuda", False)
    return theirs, ours


# The dtypes of a call's first, second and other tensors; "all" takes every pair.
FEW = [(F32, F32, F32), (F16, F32, F32), (F32, BF16, F16), (BF16, BF16, F32), (F16, F16, F16)]
FEW += [(BF16, F16, F32), (F64, F32, F16), (F32, F64, F32), (torch.int64,) * 3]
ALL = [*itertools.product((F16, BF16, F32, F64), (F16, BF16, F32, F64), (F32, F16)), FEW[-1]]
SETTINGS = ((F16, True), (BF16, True), (BF16, False))  # autocast's dtype, and whether it is on


class Tally:
    """What was compared, what differed, and operators that never ran or were never seen to cast."""

    def __init__(self):
        self.compared = self.different = 0
        self.never_ran, self.never_cast = [], []

    def operator(self, name, operator, trios):
        ran = acted = False
        for call, dtypes, setting in itertools.product(calls_of(name), trios, SETTINGS):
            theirs, ours = compare(operator, call, dtypes, *setting)
            self.compared += 1
            ran |= theirs[1]
            # A cast, or a dtype that is set where there was none.
            acted |= setting[1] and ("_to_copy" in repr(theirs[0]) or "dtype" in repr(theirs[0]))
            if theirs != ours:
                self.different += 1
                print("different:", name, dtypes, *setting, "\n  C++", theirs, "\n  Python", ours)
        if not ran:
            self.never_ran.append(f"{name}: {theirs[2]}")
        if not acted:
            self.never_cast.append(name)


def main(trios):
    tally = Tally()
    for name in autocasting.read_lists(autocasting._header().read_text(encoding="utf-8")):
        operator = autocasting.operator_named(name)
        if operator is not None and "dimname" not in str(operator).lower() and "names" not in name:
            tally.operator(name, operator, trios)
    print("never ran:", *tally.never_ran, sep="\n  ")
    print("never cast:", *tally.never_cast, sep="\n  ")
    print(f"{tally.compared} calls compared, {tally.different} different")
    return 1 if tally.different or tally.never_cast else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    with (
        mock.patch.object(fake_tensor, "init_gpu_context"),
        mock.patch.object(torch.cuda, "_lazy_init"),
        fake_tensor.FakeTensorMode(),
    ):
        sys.exit(main(ALL if sys.argv[1:] == ["all"] else FEW))
