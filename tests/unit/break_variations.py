"""Programs of the same kinds as the snippets in break_causes.toml, written another way.

By id of the cause; `torch` is there, and `inputs` is `ones(3)` where a program has none.
"""

VARIATIONS = {
    "while-on-tensor": """
def fn(x):
    steps = 0
    while x.norm() > 1.0:
        x, steps = x / 2, steps + 1
    return x * steps
""",
    "check-for-nan": """
def fn(x):
    if not torch.isfinite(x).all():
        x = x.clamp(max=1.0)
    return x * 2
""",
    "assert-on-tensor": """
def fn(x):
    assert torch.all(x >= 0), "least: {}".format(x.min())
    return x.sqrt()
""",
    "and-or-on-tensors": """
def fn(x, y):
    big = (x.mean() > 9) or (y.mean() > 9)
    return x * big
def inputs():
    return torch.ones(3), torch.ones(3)
""",
    "branch-on-tensor": """
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
    def forward(self, x):
        y = self.lin(x)
        y = y * 2 if y.norm() < 1 else y / 2
        return y + 1
fn = M()
""",
    "not-on-tensor": """
def fn(x):
    missing = not x.any()
    return x + 1, missing
""",
    "bool-of-tensor": """
def fn(x):
    if bool((x > 1).all()):
        return x - 1
    return x + 1
""",
    "range-over-tensor": """
def fn(x, lengths):
    for _ in range(lengths.max()):
        x = x * 2
    return x
def inputs():
    return torch.ones(4), torch.tensor([2, 1])
""",
    "list-indexed-by-tensor": """
layers = (torch.sin, torch.cos)
def fn(x, which):
    y = x + 1
    name = ["a", "b"][which]
    return y, name
def inputs():
    return torch.ones(4), torch.tensor(1)
""",
    "slice-by-tensor": """
def fn(x, start):
    y = x.exp()
    return y[:, start:] + 1
def inputs():
    return torch.ones(2, 4), torch.tensor(1)
""",
    "numpy-random": """
import numpy
rng = numpy.random.default_rng(0)
def fn(x):
    y = x + 1
    shift = rng.normal(size=1)
    return y, shift.shape
""",
    "int-or-float-of-tensor": """
def fn(x):
    k = int(x.sum() / 2)
    return x[0] + k
""",
    "tolist": """
def fn(x, sizes):
    parts = [round(k) for k in sizes.tolist()]
    return x[:parts[0]].sum()
def inputs():
    return torch.ones(4), torch.tensor([1.0, 3.0])
""",
    "size-from-tensor": """
def fn(x, n):
    pad = torch.zeros(n.sum(), 2)
    return pad + 1
def inputs():
    return torch.ones(4), torch.tensor([1, 2])
""",
    "one-hot": """
def fn(x):
    y = torch.nn.functional.one_hot(x.argmax(-1))
    return y.float()
def inputs():
    return (torch.eye(3),)
""",
    "item": """
def fn(x):
    for row in (x, x + 1):
        x = x + row.sum().item()
    return x
""",
    "compare-whole-tensors": """
def fn(x):
    return x + 1 if torch.allclose(x, x * 2) else x - 1
""",
    "unique": """
def fn(x):
    values, counts = torch.unique(x, return_counts=True)
    return values * counts
""",
    "repeat-interleave": """
def fn(x, n):
    return x.repeat_interleave(n, dim=0).exp()
def inputs():
    return torch.ones(2, 3), torch.tensor([1, 2])
""",
    "nonzero": """
def fn(x):
    i, j = torch.where(x > 0)
    return i + j
def inputs():
    return (torch.eye(3),)
""",
    "boolean-mask": """
def fn(x, mask):
    loss = (x ** 2)[mask]
    return loss.mean()
def inputs():
    return torch.ones(3), torch.tensor([True, False, True])
""",
    "data-dependent-shape": """
def fn(x):
    return x.bincount(minlength=2) + 1
def inputs():
    return (torch.tensor([1, 2, 3]),)
""",
    "print": """
def debug(name, y):
    print(name, y.shape, y.mean())
def fn(x):
    y = x.sin()
    debug("y", y)
    return y.cos()
""",
    "tensor-to-text": """
def fn(x):
    y = x.sin()
    key = repr(y)
    return y.cos(), key == ""
""",
    "logger": """
import logging
def fn(x):
    y = x.sin()
    logging.getLogger(__name__).warning("shape %s", tuple(y.shape))
    return y.cos()
""",
    "warning": """
from warnings import warn
def check(y):
    warn("too long", DeprecationWarning)
def fn(x):
    y = x.sin()
    check(y)
    return y.cos()
""",
    "clock": """
from time import monotonic, sleep
def fn(x):
    y = x.sin()
    sleep(0)
    return y.cos()
""",
    "python-random": """
import random
def fn(x):
    y = x.sin()
    kept = random.sample([1, 2, 3], 2)
    return y.cos(), len(kept)
""",
    "seed": """
def fn(x):
    y = x.sin()
    state = torch.get_rng_state()
    return y.cos(), state.shape
""",
    "generator-object": """
def fn(x, g):
    return x + torch.randn(3, generator=g)
def inputs():
    return torch.ones(3), torch.Generator()
""",
    "file": """
import os
def fn(x):
    y = x.sin()
    with open(os.devnull) as f:
        text = f.read()
    return y.cos(), text == ''
""",
    "operating-system": """
import os
def fn(x):
    y = x.sin()
    if os.path.exists("no such file"):
        y = y + 1
    return y.cos()
""",
    "pickle-or-json": """
import json
def fn(x):
    y = x.sin()
    text = json.dumps({"a": [1, 2]})
    return y.cos(), text == ""
""",
    "asdict": """
from dataclasses import astuple, dataclass
@dataclass
class Out:
    a: torch.Tensor
    b: float = 2.0
def fn(x):
    a, b = astuple(Out(x.cos()))
    return a * b
""",
    "deepcopy": """
from copy import deepcopy
lin = torch.nn.Linear(3, 3)
def fn(x):
    y = x.sin()
    return deepcopy(lin)(y)
""",
    "object-id": """
def fn(x):
    y = x.sin()
    known = id(y) in (1, 2)
    return y.cos(), known
""",
    "disabled-function": """
class M(torch.nn.Module):
    @torch._dynamo.disable
    def stats(self, y):
        return y.mean()
    def forward(self, x):
        y = x.sin()
        return y / self.stats(y)
fn = M()
""",
    "graph-break-asked-for": """
def inner(y):
    torch._dynamo.graph_break()
    return y * 2
def fn(x):
    return inner(x + 1) - 1
""",
    "recurrent-layer": """
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRU(4, 4, batch_first=True)
    def forward(self, x):
        out, state = self.cell(x.sin())
        return out + 1
fn = M()
def inputs():
    return (torch.ones(2, 3, 4),)
""",
    "packed-sequence": """
import torch.nn.utils.rnn as rnn
def fn(x):
    packed = rnn.pack_sequence([x + 1, x[:1]])
    return packed.data * 2
""",
    "backward": """
def fn(x, w):
    loss = (x * w).pow(2).mean()
    torch.autograd.backward(loss)
    return loss.detach()
def inputs():
    return torch.ones(3), torch.ones(3, requires_grad=True)
""",
    "autograd-grad": """
def energy(w):
    return w.pow(2).sum()
def fn(w):
    force = -torch.autograd.grad(energy(w), [w])[0]
    return force + 1
def inputs():
    return (torch.ones(3, requires_grad=True),)
""",
    "requires-grad": """
def fn(x):
    y = x.sin().detach()
    y.requires_grad = True
    return y.cos()
""",
    "set-data": """
def fn(x):
    y = x.sin()
    y.data = y.data.clamp(0, 1)
    return y.cos()
""",
    "zero-grad": """
lin = torch.nn.Linear(3, 3)
opt = torch.optim.AdamW(lin.parameters())
def fn(x):
    opt.zero_grad(set_to_none=True)
    return lin(x).sum()
""",
    "data-loader": """
from torch.utils.data import DataLoader, TensorDataset
batches = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
def fn(x):
    total = x.sum()
    for (b,) in batches:
        total = total + b.sum()
    return total
""",
    "tensor-hook": """
def fn(x):
    h = x * 3
    h.register_hook(torch.sin)
    return h.sum()
def inputs():
    return (torch.ones(3, requires_grad=True),)
""",
    "sparse-tensor": """
def fn(s, x):
    y = x.sin()
    return torch.mv(s, y)
def inputs():
    return torch.eye(3).to_sparse_csr(), torch.ones(3)
""",
    "anomaly-detection": """
def fn(x):
    y = x.sin()
    with torch.autograd.set_detect_anomaly(True):
        y = y.cos()
    return y
""",
    "context-manager": """
import threading
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.guard = threading.RLock()
    def forward(self, x):
        with self.guard:
            return x.sin()
fn = M()
""",
    "new-parameter": """
from torch import nn
def fn(x):
    return nn.Linear(3, 3)(x).sum() * 0 + x
""",
    "debugger": """
def fn(x):
    y = x.sin()
    breakpoint()
    return y.cos()
def inputs():
    import sys
    sys.breakpointhook = lambda: None
    return (torch.ones(3),)
""",
    "numpy-not-in-torch": """
import numpy as np
def fn(x):
    y = x.sin().numpy()
    z = np.apply_along_axis(np.sort, 0, y)
    return torch.from_numpy(z)
""",
    "compiled-library": """
from scipy.special import gammaln
def fn(x):
    y = x.exp()
    return torch.as_tensor(gammaln(y.numpy()))
""",
    "sort-by-tensor": """
def fn(x):
    rows = [x, x + 1]
    rows.sort(key=lambda r: r.sum())
    return rows[0] * 2
""",
    "builtin-not-read": """
def fn(x):
    y = x.sin()
    view = memoryview(b"ab")
    return y.cos(), view is None
""",
    "c-function": """
import gc
def fn(x):
    y = x.sin()
    gc.collect()
    return y.cos()
""",
    "skipped-library": """
import torch.utils.data
def fn(x):
    y = x.sin()
    parts = torch.utils.data.random_split([1, 2], [1, 1])
    return y.cos(), len(parts)
""",
    "method-not-read": """
import decimal
D = decimal.Decimal(2)
def fn(x):
    y = x.sin()
    s = D.to_integral_value()
    return y.cos(), s is None
""",
    "element-at-tensor": """
def fn(x):
    order = x.argsort()
    last, rest = order[0], order[1:]
    return (x[last] - x[order[1:]]).abs() + rest
""",
    "assert-function": """
from torch import _assert
def fn(x):
    y = x.exp()
    _assert((y > 0).all(), "not positive")
    return y.log()
""",
    "custom-op-without-fake": """
LIBRARY = torch.library.Library("other_no_fake", "FRAGMENT")
if not hasattr(torch.ops.other_no_fake, "summed"):
    LIBRARY.define("summed(Tensor x, Tensor y) -> Tensor")
    LIBRARY.impl("summed", lambda x, y: x + y, "CPU")
class M(torch.nn.Module):
    def forward(self, x):
        return torch.ops.other_no_fake.summed(x * 2, x).relu()
fn = M()
""",
    "scripted-module": """
layer = torch.jit.trace(torch.nn.ReLU(), torch.ones(3))
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = layer
    def forward(self, x):
        y = self.layer(x * 2)
        return y + 1
fn = M()
""",
    "regular-expression": """
import re
def fn(x):
    y = x + 1
    return y * len(re.sub("[bc]+(d|e)", "f", "abbbd"))
def inputs():
    re.purge()
    return (torch.ones(3),)
""",
    "attribute-a-tensor-lacks": """
def fn(x):
    y = x.sin()
    try:
        mask = y.key_mask
    except AttributeError:
        mask = x + 1
    return mask.cos() + y
""",
    "namedtuple-replace": """
import collections

Pair = collections.namedtuple("Pair", "left right")


def fn(x):
    pair = Pair(x + 1, x * 2)
    return pair._replace(left=x.cos()).left.sin()
""",
    "optimizer-step": """
class Trainer:
    def __init__(self):
        self.lin = torch.nn.Linear(3, 3)
        self.opt = torch.optim.AdamW(self.lin.parameters())
        self.lin(torch.ones(2, 3)).sum().backward()
    def __call__(self, x):
        y = x.sin()
        self.opt.step()
        return y.cos()
trainer = Trainer()
def fn(x):
    return trainer(x)
""",
}
