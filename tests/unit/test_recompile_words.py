"""What trace_recompiles says: it agrees with what torch did, repairs repair, names are plain."""

import functools
import logging

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from helpers import trace_recompiles


def ones(*shape, **options):
    return torch.ones(*shape, **options)


def add(x, y=2):
    return x * 2 + y


def only(report):
    (recompile,) = report.recompiles
    return recompile


def outcomes(report):
    return [call.outcome for call in report.calls]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.lin(x).tanh()

    def rollout(self, x):
        return self(self(x))


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Gain:
    factor = 2


def test_requires_grad_is_said_both_ways():
    learns = ones(3, requires_grad=True)
    came = only(trace_recompiles(add, [(ones(3),), (learns,)]))
    went = only(trace_recompiles(add, [(learns,), (ones(3),)]))
    assert came.reason.startswith("x required no gradient; now it does.")
    assert went.reason.startswith("x required a gradient; now it does not.")
    assert "x.detach()" in came.fix
    repaired = trace_recompiles(lambda x: add(x), [(ones(3),), (learns.detach(),)])
    assert outcomes(repaired) == ["compiled", "reused"]


def test_an_inference_tensor_is_said_in_plain_words():
    with torch.inference_mode():
        special = ones(3)

    def without_grad(x):
        def call(compiled):
            with torch.no_grad():
                compiled(x)

        return call

    report = trace_recompiles(add, [without_grad(ones(3)), without_grad(special)])
    assert only(report).reason.startswith("x is an inference tensor (made under torch.inference_m")
    repaired = trace_recompiles(add, [without_grad(x) for x in (ones(3), special.clone())])
    assert "x.clone()" in only(report).fix and outcomes(repaired) == ["compiled", "reused"]
    report = trace_recompiles(add, [without_grad(special), without_grad(ones(3))])
    assert "the graph was made for an inference tensor" in only(report).reason


def test_strides_that_became_dynamic_are_promoted_and_said_so():
    report = trace_recompiles(add, [(torch.randn(4, 4),), (torch.randn(4, 4).t(),)])
    told = only(report)
    assert told.promoted and outcomes(report) == ["compiled", "promoted"]
    assert "had strides (4, 1); now (1, 4)" in told.reason and "dynamic" in told.reason
    repaired = [(torch.randn(4, 4),), (torch.randn(4, 4).t().contiguous(),)]
    assert outcomes(trace_recompiles(add, repaired)) == ["compiled", "reused"]


def test_a_number_that_the_code_held_fixed_is_not_promoted():
    report = trace_recompiles(lambda x, dim: x.sum(dim), [(ones(2, 3, 4), d) for d in (0, 1, 2)])
    assert outcomes(report) == ["compiled", "recompiled", "recompiled"]
    assert all(r.will_repeat and "plain number" in r.reason for r in report.recompiles)


def test_what_needs_marking_is_named_whole():
    def both(a, b):
        return a.sum() + b.sum()

    told = only(trace_recompiles(both, [(ones(4), ones(4)), (ones(5), ones(6))]))
    assert "mark_dynamic(a, 0)" in told.fix and "The same for b (dimension 0)" in told.fix
    a, b = ones(4), ones(4)
    torch._dynamo.mark_dynamic(a, 0)
    torch._dynamo.mark_dynamic(b, 0)
    assert outcomes(trace_recompiles(both, [(a, b), (ones(5), ones(6))])) == ["compiled", "reused"]


def test_a_size_that_starts_at_one_becomes_dynamic_and_is_not_called_once_for_all():
    def grow(x, past):
        return torch.cat([past, x])

    report = trace_recompiles(grow, [(ones(1, 4), ones(n, 4)) for n in (1, 2, 3)])
    assert outcomes(report) == ["compiled", "promoted", "reused"]
    assert "From now on the size is dynamic" in only(report).reason


def test_infinity_is_a_constant_and_does_not_go_on():
    def fill(x, v):
        return x.masked_fill(x > 0, v)

    report = trace_recompiles(fill, [(ones(3), v) for v in (-1.0, float("-inf"))])
    assert "infinite" in only(report).reason and not only(report).will_repeat


@pytest.mark.parametrize(("value", "word"), [("mean", "different types"), (None, "None")])
def test_values_of_different_types_are_said_so(value, word):
    def choose(x, how):
        return x.sum() if isinstance(how, str) or how is None else x.sum(how)

    told = only(trace_recompiles(choose, [(ones(3), 0), (ones(3), value)]))
    assert word in told.reason and not told.will_repeat


def test_a_class_attribute_has_the_learners_name():
    gain = Gain()

    def scaled(x, by):
        return x * by.factor

    def at(value):
        def call(compiled):
            Gain.factor = value
            compiled(ones(3), gain)

        return call

    report = trace_recompiles(scaled, [at(2), at(3), at(4)])
    Gain.factor = 2
    assert outcomes(report) == ["compiled", "promoted", "reused"]
    assert "factor was 2; now 3" in only(report).reason and "dict(" not in str(report)


def test_attributes_and_members_are_called_what_they_are():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))

    def evaluate(compiled):
        compiled.eval()
        compiled(ones(2, 3))

    told = only(trace_recompiles(model, [(ones(2, 3),), evaluate]))
    assert told.reason.startswith("The attribute self[1].training was True; now False")
    times = [functools.partial(torch.mul, other=k) for k in (2, 3)]
    told = only(trace_recompiles(lambda x, f: f(x), [(ones(3), f) for f in times]))
    assert told.reason.startswith("The member f.keywords['other'] was 2; now 3")


def test_one_member_is_singular_and_a_modules_list_has_its_own_name():
    class Stack(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleList([torch.nn.Linear(3, 3)])

        def forward(self, x):
            for part in self.parts:
                x = part(x)
            return x

    def longer(compiled):
        compiled.parts.append(torch.nn.Linear(3, 3))
        compiled(ones(2, 3))

    told = only(trace_recompiles(Stack(), [(ones(2, 3),), longer]))
    assert (told.source, told.guard) == ("self.parts", "len(self.parts) == 1")
    assert told.reason.startswith("self.parts had 1 member; now 2.")


def test_an_optimizers_state_is_made_once():
    parameter = torch.nn.Parameter(ones(3))
    parameter.grad = ones(3)
    optimizer = torch.optim.SGD([parameter], lr=0.5, momentum=0.5)
    report = trace_recompiles(optimizer.step, [lambda c: c()] * 3)
    assert outcomes(report)[-1] == "reused"
    assert all(not r.will_repeat and "Parameter" not in r.reason for r in report.recompiles)


def test_a_parameter_in_place_of_a_tensor_is_a_kind_of_its_own():
    parameter = torch.nn.Parameter(ones(3))
    told = only(trace_recompiles(add, [(ones(3),), (parameter,)]))
    assert told.reason.startswith("x was a Tensor; now a Parameter")
    assert told.guard == "expected type of 'x' to be Tensor, but found Parameter"
    told = only(trace_recompiles(add, [(ones(3), ones(3)), (ones(3), 0.5)]))
    assert told.reason.startswith("y was a Tensor; now 0.5")


def test_notes_say_why_nothing_ran_compiled():
    note = trace_recompiles(Net(), [lambda c: c.rollout(ones(2, 3))]).notes[0]
    assert note.startswith("No compiled graph ran") and "rollout is another method" in note
    assert "model.compile()" in note

    def in_mode(compiled):
        with Passing():
            compiled(ones(3))

    report = trace_recompiles(add, [in_mode])
    assert "dispatch mode is active (Passing)" in report.notes[0]
    assert report.notes[0] in str(report) and "Passing" in report._repr_html_()
    hidden = torch._dynamo.disable(lambda x: x * 2)
    report = trace_recompiles(lambda x: hidden(x), [(ones(3),)])
    assert "explain_graph_breaks" in report.notes[0]
    assert trace_recompiles(add, [(ones(3),)]).notes == () == trace_recompiles(add, []).notes


def test_torchs_own_remarks_stay_off_the_screen(capfd):
    def unrolled(x, steps):
        for _ in range(steps):
            x = x.sin()
        return x

    before = logging.getLogger("torch._dynamo").level
    report = trace_recompiles(unrolled, [(ones(3), n) for n in range(2, 12)])
    assert report.hit_limit and logging.getLogger("torch._dynamo").level == before
    assert "limit" not in "".join(capfd.readouterr())
