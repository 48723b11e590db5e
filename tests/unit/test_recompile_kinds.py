"""What makes torch.compile compile again: each kind with outcome, guard, reason, repair."""

import enum
import re

import pytest
import torch
from torch.overrides import TorchFunctionMode

from helpers import trace_recompiles

SCALE, RATE = 3, 0.5


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


def ones(*shape, **options):
    return torch.ones(*shape, **options)


def under(context, *args):
    def call(compiled):
        with context():
            compiled(*args)

    return call


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)
        self.drop = torch.nn.Dropout(0.5)
        self.level, self.rate, self.name = 4, 0.5, "a"

    def forward(self, x):
        y = self.drop(self.lin(x)) * self.rate + self.level
        return y.relu() if self.name == "a" else y


def setting(name, values):
    """Calls that each set an attribute of the module and then run it."""

    def call(value):
        def run(compiled):
            setattr(compiled._orig_mod, name, value)
            compiled(ones(2, 3))

        return run

    return [call(value) for value in values]


def training(compiled):
    compiled.train()
    compiled(ones(2, 3))


def evaluating(compiled):
    compiled.eval()
    compiled(ones(2, 3))


def add(x, y=2):
    return x * 2 + y


def branch(x, flag):
    return x + 1 if flag else x - 1


def by_text(x, how):
    return x.relu() if how == "relu" else x.sin()


def by_mode(x, mode):
    return x + 1 if mode is Mode.FAST else x * 2


def with_bias(x, bias=None):
    return x.sin() if bias is None else x + bias


def total(xs):
    return sum(x.sin() for x in xs)


def of_dict(batch):
    return sum(value.sin() for value in batch.values())


def even(x):
    return x.sin() if x.shape[0] % 2 == 0 else x.cos()


def unrolled(x, steps):
    for _ in range(steps):
        x = x.sin()
    return x


def text_of_float(x, rate):
    return x * float(str(rate))


def apply(x, f):
    return f(x)


def two(x, y):
    return x.sin() + y


def of_global(x):
    return x * SCALE


def set_global(value):
    def call(compiled):
        global SCALE
        SCALE = value
        compiled(ones(3))

    return call


def fresh(k):
    return lambda x: x + k


class Counting(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


CL = torch.channels_last
SAME = torch.ones(3)
# Of each kind: function, calls, outcome of the last call, its guard, its source, goes on, repair.
KINDS = {
    "size": (add, [(ones(8, 3),), (ones(5, 3),)], "promoted",
             r"tensor 'x' size mismatch at index 0. expected 8, actual 5", "x", False,
             r"mark_dynamic\(x, 0\)"),
    "second size": (add, [(ones(8, 3),), (ones(8, 4),)], "promoted",
                    "size mismatch at index 1", "x", False, r"mark_dynamic\(x, 1\)"),
    "size one": (add, [(ones(8, 3),), (ones(1, 3),)], "recompiled",
                 "size mismatch at index 0. expected 8, actual 1", "x", False, "pad x"),
    "one after dynamic": (add, [(ones(8, 3),), (ones(5, 3),), (ones(1, 3),)], "recompiled",
                          r"2 <= x.size\(\)\[0\]", "x", False, "drop_last"),
    "divisible": (even, [(ones(8),), (ones(6),), (ones(5),)], "recompiled",
                  r"x.size\(\)\[0\] % 2", "x", False, "condition"),
    "rank": (add, [(ones(2, 3),), (ones(2, 3, 1),)], "promoted", "rank", "x", False,
             "unsqueeze"),
    "dtype": (add, [(ones(3),), (ones(3, dtype=torch.bfloat16),)], "recompiled",
              "dtype mismatch. expected Float, actual BFloat16", "x", False, "Cast x"),
    "layout": (add, [(ones(2, 3, 4, 4),), (ones(2, 3, 4, 4).to(memory_format=CL),)], "recompiled",
               "stride mismatch", "x", False, "memory_format"),
    "requires_grad": (add, [(ones(3),), (ones(3, requires_grad=True),)], "recompiled",
                      "requires_grad", "x", False, "detach"),
    "device": (add, [(ones(3),), (ones(3, device="meta"),)], "recompiled", "tensor 'x'", "x",
               False, "one device|one mode"),
    "int": (add, [(ones(3), 2), (ones(3), 5)], "promoted", "y == 2", "y", False,
            r"torch.tensor\(5\)"),
    "int unrolled": (unrolled, [(ones(3), 2), (ones(3), 3), (ones(3), 4)], "recompiled",
                     "steps == 3", "steps", True, "loop"),
    "float": (add, [(ones(3), 0.1), (ones(3), 0.2)], "promoted", "y == 0.1", "y", False,
              r"torch.tensor\(0.2\)"),
    "float in text": (text_of_float, [(ones(3), 0.1), (ones(3), 0.2), (ones(3), 0.3)],
                      "recompiled", "before the graph break", "before the graph break", True,
                      "Repair the graph break"),
    "bool": (branch, [(ones(3), True), (ones(3), False)], "recompiled", "flag", "flag", False,
             "flag"),
    "string": (by_text, [(ones(3), "relu"), (ones(3), "sin")], "recompiled", "how == 'relu'",
               "how", True, "outside"),
    "enum": (by_mode, [(ones(3), Mode.FAST), (ones(3), Mode.EXACT)], "recompiled", "mode", "mode",
             False, "mode"),
    "none": (with_bias, [(ones(3),), (ones(3), ones(3))], "recompiled", "bias is None", "bias",
             False, "zeros"),
    "tensor then none": (with_bias, [(ones(3), ones(3)), (ones(3), None)], "recompiled",
                         "bias", "bias", False, "None"),
    "list length": (total, [([ones(3)] * 1,), ([ones(3), ones(3)],)], "recompiled", r"len\(xs\)",
                    "xs", True, "torch.stack"),
    "dict keys": (of_dict, [({"a": ones(3)},), ({"b": ones(3)},)], "recompiled", "batch",
                  "batch", True, "keys"),
    "type": (add, [(ones(3), 2), (ones(3), 2.5)], "promoted", "y", "y", False, "one type"),
    "module float": (Block, setting("rate", (0.5, 0.25)), "promoted", "self.rate == 0.5",
                     "self.rate", False, "tensor"),
    "module string": (Block, setting("name", ("a", "b")), "recompiled", "self.name == 'a'",
                      "self.name", True, "self.name"),
    "training": (Block, [training, evaluating], "recompiled", "training", r"self(\.drop)?.training",
                 False, "training"),
    "global": (of_global, [set_global(3), set_global(5)], "recompiled", "SCALE == 3", "SCALE",
               True, "as an argument"),
    "grad mode": (add, [(ones(3),), under(torch.no_grad, ones(3))], "recompiled", "grad_mode",
                  "grad mode", False, "no_grad"),
    "inference mode": (add, [(ones(3),), under(torch.inference_mode, ones(3))], "recompiled",
                       "grad_mode|dispatch key", "grad mode|x", False, "mode|no_grad"),
    "autocast": (add, [(ones(3),), under(lambda: torch.autocast("cpu"), ones(3))], "recompiled",
                 "autocast|GLOBAL_STATE", "autocast", False, "autocast"),
    "function mode": (add, [(ones(3),), under(Counting, ones(3))], "recompiled", "mode_stack|mode",
                      "function mode", False, "mode"),
    "fresh lambda": (apply, [(ones(3), fresh(1)), (ones(3), abs)], "recompiled", "f", "f",
                     None, "f"),
    "aliasing": (two, [(ones(3), ones(3)), (SAME, SAME)], "recompiled",
                 "x", "x and y|y and x", False, "clone"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_kind(kind):
    made, calls, outcome, guard, source, goes_on, fix = KINDS[kind]
    fn = made() if isinstance(made, type) else made
    report = trace_recompiles(fn, calls)
    assert [call.error for call in report.calls] == [None] * len(calls)
    last = report.recompiles[-1]
    assert (report.calls[-1].outcome, last.call_index) == (outcome, len(calls) - 1), str(report)
    assert re.search(guard, last.guard), last
    assert re.fullmatch(source, last.source) or re.search(source, last.source), last
    assert goes_on is None or last.will_repeat == goes_on, last
    assert re.search(fix, last.fix), last
    assert last.promoted == (outcome == "promoted")
    assert last.reason and not re.search(r"[LG]\[|0x[0-9a-f]{6}|\d{9}", str(last)), last
    assert len(last.all_guards) >= 1 and last.guard in last.all_guards


def test_an_int_attribute_of_a_module_is_static_unless_torch_makes_it_dynamic():
    report = trace_recompiles(Block(), setting("level", (4, 7, 9)))
    first = report.recompiles[0]
    assert (first.guard, first.source) == ("self.level == 4", "self.level")
    if first.promoted:  # torch 2.7
        assert report.calls[2].outcome == "reused" and not first.will_repeat
    else:
        assert report.calls[2].outcome == "recompiled" and first.will_repeat
        assert "register_buffer" in first.fix and "allow_unspec_int_on_nn_module" in first.fix
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        report = trace_recompiles(Block(), setting("level", (4, 7, 9)))
    assert [call.outcome for call in report.calls] == ["compiled", "promoted", "reused"]


def test_a_float_that_torch_was_told_to_fix_goes_on_compiling():
    with torch._dynamo.config.patch(specialize_float=True):
        report = trace_recompiles(add, [(ones(3), rate) for rate in (0.1, 0.2, 0.3)])
    assert [call.outcome for call in report.calls] == ["compiled", "recompiled", "recompiled"]
    last = report.recompiles[-1]
    assert (last.guard, last.source, last.will_repeat) == ("y == 0.2", "y", True)
    assert "torch.tensor(0.3)" in last.fix


def test_sizes_that_must_stay_fixed_go_on_compiling():
    calls = [(ones(n, 3),) for n in (8, 5, 6)]
    report = trace_recompiles(add, calls, compile_options={"dynamic": False})
    assert [call.outcome for call in report.calls] == ["compiled", "recompiled", "recompiled"]
    assert all(r.will_repeat and "dynamic=False" in r.reason + r.fix for r in report.recompiles)
    report = trace_recompiles(add, calls, compile_options={"dynamic": True})
    assert [call.outcome for call in report.calls] == ["compiled", "reused", "reused"]


def test_requires_grad_is_told_with_what_came():
    report = trace_recompiles(add, [(ones(3),), (ones(3, requires_grad=True),)])
    assert report.recompiles[0].reason.startswith("x required no gradient; now it does.")


def test_a_variable_that_a_function_holds_has_its_own_name():
    report = trace_recompiles(apply, [(ones(3), fresh(k)) for k in (2, 3, 4)])
    assert [call.outcome for call in report.calls] == ["compiled", "promoted", "reused"]
    assert (report.recompiles[0].guard, report.recompiles[0].source) == ("k == 2", "k")


def test_a_growing_list_goes_on_and_is_put_back():
    def remember(x, cache):
        cache.append(x)
        return sum(entry.sin() for entry in cache)

    cache = []
    report = trace_recompiles(remember, [(ones(3), cache)] * 3)
    assert [call.outcome for call in report.calls] == ["compiled", "recompiled", "recompiled"]
    assert cache == [] and all(r.source == "cache" and r.will_repeat for r in report.recompiles)


def test_one_row_against_a_dynamic_size_is_the_special_size():
    calls = [(ones(4), ones(4)), (ones(5), ones(5)), (ones(6), ones(1)), (ones(7), ones(7))]
    report = trace_recompiles(two, calls)
    assert [c.outcome for c in report.calls] == ["compiled", "promoted", "recompiled", "reused"]
    assert "Sizes 0 and 1 are special" in report.recompiles[1].reason


def test_of_several_things_that_differ_all_are_said():
    report = trace_recompiles(add, [(ones(3), 2), (ones(3).double(), True)])
    (only,) = report.recompiles
    assert "dtype" in only.reason and "y was" in only.reason
    assert "Cast x" in only.fix


def test_the_default_dtype_counts_as_surroundings_and_is_put_back():
    def in_double(compiled):
        torch.set_default_dtype(torch.float64)
        compiled(torch.ones(3, dtype=torch.float32))

    report = trace_recompiles(add, [(ones(3),), in_double])
    assert report.recompiles[0].source == "the default dtype"
    assert torch.get_default_dtype() == torch.float32
