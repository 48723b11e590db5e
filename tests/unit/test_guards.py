"""Guards in plain words, each with the source it protects; breaks and bytecode of a capture."""

import pytest
import torch
import torch._dynamo

from helpers import capture_graphs
from helpers.bytecode import Bytecode, Instruction, align
from helpers.guards import readable

EPS = 1e-6


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.norm = torch.nn.LayerNorm(4)
        self.scale = 2.0
        self.table = {"a": 1}

    def forward(self, x, flag=True, name="a", parts=()):
        if self.training and flag:
            x = x * self.scale
        if x.shape[0] > 2:
            x = x + self.table[name] + len(parts)
        return self.norm(x * self.weight + EPS)


@pytest.fixture(scope="module")
def guards():
    torch._dynamo.reset()
    capture = capture_graphs(Scaled(), torch.ones(3, 4), kwargs={"parts": [1, 2]})
    return {(guard.source, guard.words): guard for guard in capture.graphs[0].guards}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            "x",
            "x is a float32 tensor of shape (3, 4), contiguous, on the CPU that requires no "
            "gradient",
        ),
        ("x", "no dimension of x is marked dynamic"),
        ("self.scale", "self.scale equals 2.0"),
        ("self.training", "self.training is True"),
        ("self.table['a']", "self.table['a'] equals 1"),
        ("EPS", "EPS equals 1e-06"),
        ("flag", "flag is True"),
        ("name", "name equals 'a'"),
        ("parts", "len(parts) is 2"),
        (
            "self.norm.weight",
            "self.norm.weight is a float32 tensor of shape (4,), contiguous, on the CPU "
            "that requires a gradient",
        ),
        (
            "",
            "grad mode (torch.no_grad()), autocast, deterministic algorithms and default dtype "
            "are as then",
        ),
        ("", "the default device is as then"),
    ],
)
def test_each_assumption_is_named_with_its_source(guards, source, words):
    assert (source, words) in guards


def test_guards_on_values_come_first_and_none_is_empty(guards):
    ambient = [guard.ambient for guard in guards.values()]
    assert ambient == sorted(ambient)
    assert all(guard.words and guard.text for guard in guards.values())
    for guard in guards.values():  # readable: no accessor, no id, no running number of Dynamo's
        assert "L['" not in guard.words
        assert "__builtins_dict__" not in guard.words


def test_guards_say_which_line_asked_for_them_where_torch_tells(guards):
    scale = guards["self.scale", "self.scale equals 2.0"]
    assert scale.line in ("", "x = x * self.scale", "if self.training and flag:")
    assert bool(scale.line) == bool(scale.lineno)


def test_a_dynamic_size_is_any_and_its_range_is_a_guard():
    def tall(x):
        return x * 2 if x.shape[0] > 2 else x

    graph = capture_graphs(tall, torch.ones(5, 4), compile_options={"dynamic": True}).graphs[0]
    words = [guard.words for guard in graph.guards]
    assert any("of shape (any, any)" in text for text in words)
    assert any("x.size()[0]" in text and "SHAPE_ENV" not in text for text in words)
    assert not any("contiguous" in text or "strides" in text for text in words)
    sources = {guard.source for guard in graph.guards if "x.size()" in guard.words}
    assert sources == {"x"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.ones(8, 8), "shape (8, 8), contiguous, on"),
        (lambda: torch.ones(8, 8).t(), "shape (8, 8), strides (1, 8), on"),
        (lambda: torch.ones(4, 8)[:, :5], "shape (4, 5), strides (8, 1), on"),
        (lambda: torch.ones(10)[::2], "shape (5,), strides (2,), on"),
        (lambda: torch.ones(2, 0, 3), "shape (2, 0, 3), contiguous, on"),
        (lambda: torch.tensor(1.0), "shape () on"),
        (lambda: torch.ones(3, dtype=torch.int64), "an int64 tensor of shape (3,), contiguous,"),
    ],
)
def test_the_layout_is_in_the_words(make, words):
    graph = capture_graphs(lambda x: x * 2, make()).graphs[0]
    assert any(words in guard.words for guard in graph.guards)


def test_words_for_lists_dicts_and_hooks_are_plain():
    seen = []

    def remembers(d, x):
        seen.append(1)
        for key in d:
            x = x * d[key]
        return x

    graph = capture_graphs(remembers, {"a": torch.ones(3)}, torch.ones(3)).graphs[0]
    words = [guard.words for guard in graph.guards]
    assert "seen is empty" in words
    assert "key number 1 of d is 'a'" in words
    assert not any("dict.keys" in text or "saved_tensors" in text for text in words)


def test_a_missing_attribute_is_said_in_words(guards):
    assert not any("___dict_contains" in guard.words for guard in guards.values())
    assert any("has no attribute forward of its own" in guard.words for guard in guards.values())


def test_readable_undoes_dynamos_accessors():
    assert readable("L['self']._modules['fc']._parameters['weight']") == "self.fc.weight"
    assert readable("G['__builtins_dict__']['len']") == "len"
    assert readable("G['__import_torch_dot_nn'].functional") == "torch.nn.functional"


def test_bytecode_before_is_pythons_and_after_calls_the_graph():
    def scaled(x):
        y = x.sin()
        return y * 3

    graph = capture_graphs(scaled, torch.ones(3)).graphs[0]
    assert "BINARY_OP" in graph.bytecode_before.names
    assert "y * 3" in str(graph.bytecode_before)
    called = [str(instruction) for instruction in graph.bytecode_after.instructions]
    assert any("__compiled_fn" in text for text in called)
    assert "BINARY_OP" not in graph.bytecode_after.names
    rows = align(graph.bytecode_before, graph.bytecode_after)
    assert [a for a, _, _ in rows if a] == list(map(str, graph.bytecode_before.instructions))
    assert [b for _, _, b in rows if b] == called
    assert all(a == b for a, mark, b in rows if mark == "=")
    assert {mark for _, mark, _ in rows} <= set("=+-")


def listing(*lines):
    found = (Instruction(*line.split(" ", 1), 1) if " " in line else Instruction(line, "", 1)
             for line in lines)  # fmt: skip
    return Bytecode("f", "", tuple(found))


def test_align_pairs_nothing_by_chance():
    before = listing("LOAD_FAST x", "LOAD_CONST 0", "BINARY_SUBSCR", "CALL", "RETURN_VALUE")
    after = listing("LOAD_FAST x", "CALL", "LOAD_CONST 0", "BINARY_SUBSCR", "RETURN_VALUE")
    same = [a for a, mark, _ in align(before, after) if mark == "="]
    assert same == ["LOAD_FAST x", "RETURN_VALUE"]


def test_align_pairs_a_call_of_what_was_fetched():
    before = listing("LOAD_FAST y", "CALL", "LOAD_GLOBAL print", "LOAD_FAST x", "CALL", "POP_TOP")
    after = listing("LOAD_GLOBAL print", "LOAD_FAST x", "CALL", "LOAD_FAST z", "RETURN_VALUE")
    same = [a for a, mark, _ in align(before, after) if mark == "="]
    assert same == ["LOAD_GLOBAL print", "LOAD_FAST x", "CALL"]
