"""What is packed comes out the same, here or elsewhere; what cannot travel is named."""

from __future__ import annotations

import inspect
import linecache
import math
import socket
import sys
import threading
import types

import pytest
import torch
from torch import nn

from helpers import travel
from helpers.travel import CannotTravel, pack, unpack

CELL = "/no/such/folder/cell.py"
SOURCE = """\
import math
import torch

scale = torch.full((3,), 2.0)

def helper(x):
    return x * scale + math.pi

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return helper(self.linear(x))

class Named(Model):
    label = "first"
"""


@pytest.fixture(autouse=True)
def scopes_forgotten():
    yield
    travel.forget_scopes()
    linecache.cache.pop(CELL, None)


@pytest.fixture
def cell() -> dict:
    """The names of a notebook cell: its text is only in linecache, its module is `__main__`."""
    return run_cell(SOURCE)


def run_cell(source: str, **names: object) -> dict:
    linecache.cache[CELL] = (len(source), None, source.splitlines(keepends=True), CELL)
    namespace = {"__name__": "__main__", **names}
    exec(compile(source, CELL, "exec"), namespace)
    return namespace


def trip(obj, device=None):
    return unpack(pack(obj), device)


def storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_a_function_of_a_cell_brings_the_globals_it_names(cell):
    arrived = trip(cell["helper"])
    assert arrived is not cell["helper"]
    assert torch.equal(arrived(torch.ones(3)), cell["helper"](torch.ones(3)))
    assert "Model" not in arrived.__globals__
    assert storage(arrived.__globals__["scale"]) != storage(cell["scale"])


def test_functions_of_one_cell_still_share_their_globals(cell):
    first, second = trip((cell["helper"], cell["Model"].forward), "cpu")
    assert first.__globals__ is second.__globals__


def test_dynamo_finds_globals_of_a_function_that_arrived_when_it_inlines_it(cell):
    arrived = trip(nn.Sequential(cell["Model"](), cell["Model"]()), "cpu")
    x = torch.ones(2, 3)
    compiled = torch.compile(arrived, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), arrived(x))


def test_closures_lambdas_and_modules_in_closures_travel():
    factor, module = torch.tensor(3.0), math

    def outer(x):
        return (lambda y: y * factor + module.floor(1.5))(x)

    assert trip(outer)(torch.ones(1)).item() == 4.0
    assert trip(lambda x: x + 1)(1) == 2


def test_what_a_class_inside_a_function_names_travels(cell):
    text = "def make():\n    class Inner(Base):\n        pi = math.pi\n    return Inner.pi\n"
    make = run_cell(text, math=math, Base=cell["Model"])["make"]
    assert trip(make)() == math.pi


def test_what_can_be_imported_travels_by_name():
    assert trip(torch.relu) is torch.relu
    assert trip(travel.pack) is travel.pack
    assert trip(nn.Linear) is nn.Linear
    assert trip(math) is math
    assert trip(torch._dynamo.config) is torch._dynamo.config
    assert trip(lambda: torch._dynamo.config.cache_size_limit)() > 0


def test_a_module_that_no_path_leads_to_travels_by_value(monkeypatch):
    module = types.ModuleType("made_by_hand")
    exec("def double(x):\n    return 2 * x", module.__dict__)
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    data = pack(module.double)
    monkeypatch.delitem(sys.modules, "made_by_hand")
    assert unpack(data)(4) == 8


def test_tensors_that_share_memory_still_do_and_keep_their_layout():
    base = torch.randn(4, 6)
    rows, turned, bits = base[1:3], base.t(), base.view(torch.int32)
    arrived = trip((base, rows, turned, bits))
    assert len({storage(tensor) for tensor in arrived}) == 1
    for before, after in zip((base, rows, turned, bits), arrived, strict=True):
        assert torch.equal(before, after) and before.dtype == after.dtype
        assert before.stride() == after.stride()
        assert before.storage_offset() == after.storage_offset()
    last = trip(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_a_storage_arrives_as_aligned_as_torch_makes_them():
    for tensor in trip([torch.zeros(size, dtype=torch.uint8) for size in (1, 3, 17, 33)]):
        assert storage(tensor) % 64 == 0


def test_parameters_stay_parameters_tied_ones_tied_and_gradients_are_there():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    model[0].bias.requires_grad_(False)
    model.register_buffer("steps", torch.zeros(1), persistent=False)
    model(torch.ones(1, 3)).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    arrived, its_optimizer = trip((model, optimizer))
    assert type(arrived[0].weight) is nn.Parameter
    assert arrived[0].weight is arrived[1].weight
    assert not arrived[0].bias.requires_grad and arrived[1].bias.requires_grad
    assert torch.equal(arrived.steps, model.steps)
    assert torch.equal(arrived[0].weight.grad, model[0].weight.grad)
    before = model[0].weight.detach().clone()
    its_optimizer.step()
    assert not torch.equal(arrived[0].weight, before)
    assert torch.equal(model[0].weight, before)


def test_what_autograd_computed_arrives_as_a_leaf():
    computed = torch.ones(3, requires_grad=True) * 2
    arrived = trip(computed)
    assert arrived.is_leaf and arrived.requires_grad and torch.equal(arrived, computed)


def test_other_kinds_of_tensors_and_modules_travel():
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    x = torch.randn(3)
    marked = torch.ones(2)
    torch._dynamo.mark_dynamic(marked, 0)
    turned = torch.randn(3, dtype=torch.complex64).conj()
    arrived = trip((torch.eye(3).to_sparse(), turned, torch.empty(2, device="meta"),
                    weighted, marked))  # fmt: skip
    assert torch.equal(arrived[0].to_dense(), torch.eye(3))
    assert torch.equal(arrived[1], turned) and arrived[2].is_meta
    assert torch.equal(arrived[3](x), weighted(x))
    assert arrived[4]._dynamo_dynamic_indices == {0}


def test_inside_inference_mode_ordinary_tensors_arrive():
    data = pack(torch.ones(2, requires_grad=True))
    with torch.inference_mode():
        arrived = unpack(data)
    assert not arrived.is_inference() and arrived.requires_grad


@pytest.mark.cuda
def test_cuda_tensors_arrive_on_the_cpu_and_everything_can_go_to_the_card(cell):
    base = torch.randn(4, device="cuda")
    assert [t.device.type for t in trip((base, base[1:]))] == ["cpu", "cpu"]
    model, x = trip((cell["Model"](), torch.ones(3)), "cuda")
    assert model(x).is_cuda


def test_a_copy_for_a_device_has_classes_and_globals_of_its_own(cell):
    model = cell["Model"]()
    copy = trip(model, "cpu")
    assert type(copy) is not cell["Model"]
    copy.forward.__func__.__globals__["scale"].fill_(0.0)
    assert cell["scale"].sum() == 6.0
    assert torch.equal(copy(torch.ones(3)), torch.full((3,), math.pi))


def test_an_object_that_comes_home_is_of_the_class_that_left_as_it_now_is(cell):
    named = cell["Named"]
    data = pack(named())
    named.label = "second"
    forward = named.forward
    assert type(unpack(data)) is named
    assert named.label == "second" and named.forward is forward


def test_lines_of_a_cell_arrive_and_newer_ones_replace_them(cell):
    data = pack(cell["helper"])
    del linecache.cache[CELL]
    assert inspect.getsource(unpack(data)) == "def helper(x):\n    return x * scale + math.pi\n"
    newer = run_cell("def helper(x):\n    return x")
    data = pack(newer["helper"])
    linecache.cache[CELL] = (1, None, ["x"], CELL)
    assert inspect.getsource(unpack(data)).endswith("return x")


def test_lines_that_are_known_here_are_not_overwritten():
    name = "<lines that are known>"
    text = ["def f(): pass\n"]
    linecache.cache[name] = (len(text[0]), None, text, name)
    namespace: dict = {"__name__": "__main__"}
    exec(compile(text[0], name, "exec"), namespace)
    data = pack(namespace["f"])
    linecache.cache[name] = (3, None, ["new"], name)
    unpack(data)
    assert linecache.getlines(name) == ["new"]


def test_what_is_compiled_travels_as_what_it_was_made_from(cell):
    model = cell["Model"]()
    compiled = torch.compile(model, backend="eager")
    function = torch.compile(cell["helper"], backend="eager")
    arrived, its_function = trip((compiled, lambda x: function(x)))
    assert type(arrived) is cell["Model"]
    assert its_function(torch.ones(3)).shape == (3,)
    left_alone = trip(torch.compiler.disable(cell["helper"]))
    assert left_alone._torchdynamo_disable


def generator():
    yield 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (threading.Lock, "A lock"),
        (generator, "A generator"),
        (socket.socket, "A socket"),
        (lambda: open(__file__), "An open file"),  # noqa: SIM115
        (sys._getframe, "A stack frame"),
        (lambda: torch.jit.script(nn.Linear(1, 1)), "An object of type torch.*ScriptModule"),
    ],
)
def test_what_cannot_travel_is_named(make, words):
    thing = make()
    with pytest.raises(CannotTravel, match=f"^{words}.* cannot travel to another process: [^.]+"):
        pack({"deep": [thing]})
    if hasattr(thing, "close"):
        thing.close()


def test_where_it_is_held_is_said():
    lock = threading.Lock()

    def uses(x):
        with lock:
            return x

    with pytest.raises(CannotTravel, match=r"^A lock \(the variable 'lock' in .*uses\) cannot"):
        pack(uses)


def test_an_operator_travels_by_name_and_must_be_known_there(monkeypatch):
    call = trip(lambda x: torch.ops.aten.add.Tensor(x, 1) + aten_relu(x))
    assert call(torch.ones(1)).item() == 3.0

    @torch.library.custom_op("travel_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert trip(twice) is twice
    by_name = pack(lambda x: torch.ops.travel_test.twice(x))
    assert unpack(by_name)(torch.ones(1)).item() == 2.0
    monkeypatch.setattr(torch.ops, "travel_test", types.SimpleNamespace())
    with pytest.raises(LookupError, match="travel_test::twice is registered in another process"):
        unpack(by_name)


aten_relu = torch.ops.aten.relu


def test_kernels_of_the_learners_own_travel():
    triton = pytest.importorskip("triton")
    source = """\
@triton.jit
def part(x):
    return x * FACTOR

@triton.jit(do_not_specialize=["n"])
def kernel(x, n, BLOCK: tl.constexpr):
    tl.store(x, part(tl.load(x)))
"""
    names = {"FACTOR": triton.language.constexpr(2), "triton": triton, "tl": triton.language}
    kernel = run_cell(source, **names)["kernel"]
    arrived = trip(kernel)
    assert type(arrived) is type(kernel) and arrived is not kernel
    assert arrived.src == kernel.src
    assert [p.name for p in arrived.params if p.do_not_specialize] == ["n"]
    assert type(arrived.fn.__globals__["part"]) is type(kernel)


def test_kernels_of_a_module_travel_by_name(tmp_path, monkeypatch):
    pytest.importorskip("triton")
    text = "import triton\n\n@triton.jit\ndef nothing(x):\n    pass\n"
    (tmp_path / "kernels_in_a_file.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import kernels_in_a_file

    assert trip(kernels_in_a_file.nothing) is kernels_in_a_file.nothing
    monkeypatch.delitem(sys.modules, "kernels_in_a_file")
