"""would_reuse against the truth: plain torch.compile makes the same calls, and graphs are counted.

Each case makes its function, a history and a call anew, so that both start from the same state.
"""

import dataclasses
import functools
from typing import NamedTuple

import pytest
import torch
import torch._dynamo

from helpers import trace_recompiles, would_reuse


def ones(*shape, **options):
    return torch.ones(*shape, **options)


def scale(x, by=2):
    return x * by


def unrolled(x, steps):
    for _ in range(steps):
        x = x.sin()
    return x


def total(*xs, **named):
    return sum([*xs, *named.values()])


def of_dict(batch):
    return sum(value.sin() for value in batch.values())


def with_bias(x, bias=None):
    return x.sin() if bias is None else x + bias


def both(a, b):
    return a.sum() + b.sum()


def apply(x, f):
    return f(x) + 1


def times(x, k):
    return x * k


class Pair(NamedTuple):
    x: torch.Tensor
    k: int


@dataclasses.dataclass
class Setting:
    x: torch.Tensor
    k: int


def of_record(record):
    return record.x * record.k


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.drop = torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)
        self.kind, self.level = "a", 1.5

    def forward(self, x):
        y = self.drop(self.lin(x)) * self.level
        return y.relu() if self.kind == "a" else y


def under(context, *args):
    def call(compiled):
        with context():
            compiled(*args)

    return call


def setting(name, value):
    def call(compiled):
        setattr(compiled, name, value)
        compiled(ones(2, 3))

    return call


def through_the_original(compiled):
    compiled._orig_mod.kind = "b"
    compiled(ones(2, 3))


def twice(compiled):
    compiled(ones(2, 3))
    compiled(ones(5, 3))


def in_eval(compiled):
    compiled.eval()
    compiled(ones(2, 3))


def frozen(compiled):
    compiled.lin.requires_grad_(False)
    compiled(ones(2, 3))


def swapped(compiled):
    compiled.drop = torch.nn.Identity()
    compiled(ones(2, 3))


CL = torch.channels_last
IMAGE = (2, 3, 4, 4)
# Function or module class, history, the call that is asked about.
CASES = {
    "same": (scale, [(ones(3),)], (ones(3),)),
    "new size": (scale, [(ones(3),)], (ones(4),)),
    "size after dynamic": (scale, [(ones(3),), (ones(4),)], (ones(9),)),
    "one after dynamic": (scale, [(ones(3),), (ones(4),)], (ones(1),)),
    "rank": (scale, [(ones(3),)], (ones(3, 1),)),
    "dtype": (scale, [(ones(3),)], (ones(3).double(),)),
    "int": (scale, [(ones(3), 2)], (ones(3), 3)),
    "int after dynamic": (scale, [(ones(3), 2), (ones(3), 3)], (ones(3), 9)),
    "zero after dynamic": (scale, [(ones(3), 2), (ones(3), 3)], (ones(3), 0)),
    "default given": (scale, [(ones(3),)], (ones(3), 2)),
    "by name": (scale, [(ones(3), 2)], lambda c: c(ones(3), by=2)),
    "by name, other value": (scale, [(ones(3), 2)], lambda c: c(ones(3), by=4)),
    "float": (scale, [(ones(3), 0.5), (ones(3), 0.25)], (ones(3), 0.125)),
    "float for int": (scale, [(ones(3), 2), (ones(3), 3)], (ones(3), 2.5)),
    "infinity": (scale, [(ones(3), 0.5), (ones(3), 0.25)], (ones(3), float("inf"))),
    "requires grad": (scale, [(ones(3),)], (ones(3, requires_grad=True),)),
    "parameter": (scale, [(ones(3),)], (torch.nn.Parameter(ones(3)),)),
    "layout": (scale, [(ones(*IMAGE),)], (ones(*IMAGE).to(memory_format=CL),)),
    "layout seen": (scale, [(ones(*IMAGE),), (ones(*IMAGE).to(memory_format=CL),)],
                    (ones(*IMAGE).to(memory_format=CL),)),
    "offset": (scale, [(torch.arange(8.0)[:4],)], (torch.arange(8.0)[4:],)),
    "every second": (scale, [(torch.arange(8.0)[:4],)], (torch.arange(8.0)[::2],)),
    "no_grad": (scale, [(ones(3),)], under(torch.no_grad, ones(3))),
    "no_grad seen": (scale, [(ones(3),), under(torch.no_grad, ones(3))],
                     under(torch.no_grad, ones(3))),
    "autocast": (scale, [(ones(3),)], under(lambda: torch.autocast("cpu"), ones(3))),
    "inference": (scale, [(ones(3),)], under(torch.inference_mode, ones(3))),
    "unrolled seen": (unrolled, [(ones(3), n) for n in (2, 3, 4)], (ones(3), 3)),
    "unrolled new": (unrolled, [(ones(3), n) for n in (2, 3, 4)], (ones(3), 5)),
    "after the limit, seen": (unrolled, [(ones(3), n) for n in range(2, 12)], (ones(3), 4)),
    "after the limit, new": (unrolled, [(ones(3), n) for n in range(2, 12)], (ones(3), 40)),
    "more arguments": (total, [(ones(3), ones(3))], (ones(3), ones(3), ones(3))),
    "same arguments": (total, [(ones(3), ones(3))], (ones(3), ones(3))),
    "names in order": (total, [lambda c: c(a=ones(3), b=ones(3))],
                       lambda c: c(a=ones(3), b=ones(3))),
    "names in other order": (total, [lambda c: c(a=ones(3), b=ones(3))],
                             lambda c: c(b=ones(3), a=ones(3))),
    "dict": (of_dict, [({"a": ones(3), "b": ones(3)},)], ({"a": ones(3), "b": ones(3)},)),
    "dict order": (of_dict, [({"a": ones(3), "b": ones(3)},)], ({"b": ones(3), "a": ones(3)},)),
    "none": (with_bias, [(ones(3),)], (ones(3), None)),
    "bias": (with_bias, [(ones(3),)], (ones(3), ones(3))),
    "two equal sizes": (both, [(ones(4), ones(4)), (ones(5), ones(5))], (ones(6), ones(7))),
    "two other sizes": (both, [(ones(4), ones(4)), (ones(5), ones(6))], (ones(7), ones(7))),
    "partial": (apply, [(ones(3), functools.partial(times, k=2))],
                (ones(3), functools.partial(times, k=2))),
    "other partial": (apply, [(ones(3), functools.partial(times, k=2))],
                      (ones(3), functools.partial(times, k=3))),
    "other function": (apply, [(ones(3), torch.sin)], (ones(3), torch.cos)),
    "named tuple": (of_record, [(Pair(ones(3), 2),)], (Pair(ones(3), 2),)),
    "named tuple, other int": (of_record, [(Pair(ones(3), 2),)], (Pair(ones(3), 4),)),
    "dataclass": (of_record, [(Setting(ones(3), 2),)], (Setting(ones(3), 2),)),
    "dataclass, other int": (of_record, [(Setting(ones(3), 2),)], (Setting(ones(3), 4),)),
    "other class": (of_record, [(Setting(ones(3), 2),)], (Pair(ones(3), 2),)),
    "fresh module": (apply, [(ones(2, 3), torch.nn.Linear(3, 3))],
                     (ones(2, 3), torch.nn.Linear(3, 3))),
    "module": (Net, [(ones(2, 3),)], (ones(2, 3),)),
    "module in eval": (Net, [(ones(2, 3),)], in_eval),
    "module string": (Net, [(ones(2, 3),)], setting("kind", "b")),
    "module string, original": (Net, [(ones(2, 3),)], through_the_original),
    "twice, one is new": (Net, [(ones(2, 3),)], twice),
    "twice, both seen": (Net, [(ones(2, 3),), (ones(5, 3),)], twice),
    "module same string": (Net, [(ones(2, 3),)], setting("kind", "a")),
    "module string seen": (Net, [(ones(2, 3),), setting("kind", "b")], setting("kind", "a")),
    "module float": (Net, [(ones(2, 3),)], setting("level", 2.5)),
    "module float after dynamic": (Net, [(ones(2, 3),), setting("level", 2.5)],
                                   setting("level", 3.5)),
    "module frozen": (Net, [(ones(2, 3),)], frozen),
    "module swapped": (Net, [(ones(2, 3),)], swapped),
}  # fmt: skip


def made(case):
    fn, history, call = CASES[case]
    return (fn() if isinstance(fn, type) else fn), history, call


def make(call, compiled):
    compiled(*call) if isinstance(call, tuple) else call(compiled)


def truly_reused(case):
    """True if the call runs a graph that is there, counted under plain torch.compile."""
    fn, history, call = made(case)
    new, ran = [], []

    def backend(graph, inputs):
        new.append(graph)

        def run(*args):
            ran.append(graph)
            return graph.forward(*args)

        return run

    torch._dynamo.reset()
    compiled = torch.compile(fn, backend=backend)
    for past in history:
        make(past, compiled)
    before = len(new), len(ran)
    make(call, compiled)
    torch._dynamo.reset()
    return len(new) == before[0] and len(ran) > before[1]


@pytest.mark.parametrize("case", CASES)
def test_it_says_what_torch_then_does(case):
    fn, history, call = made(case)
    report = trace_recompiles(fn, history)
    assert all(past.error is None for past in report.calls), str(report)
    said = would_reuse(report, call)
    why = report.first_failure(call)
    assert said == truly_reused(case), why
    assert (why is None) == said
