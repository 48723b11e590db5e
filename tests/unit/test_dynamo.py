"""capture_graphs: graphs, ops with the learner's lines, real results, clear errors."""

import pytest
import torch
import torch._dynamo

from helpers import Capture, capture_graphs
from helpers.dynamo import compilation_count
from helpers.words import file_name


def rms_norm(x, weight, eps: float = 1e-6):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return x * scale * weight


def test_one_graph_with_ops_lines_shapes_and_the_real_result():
    x, weight = torch.randn(4, 8), torch.randn(8)
    capture = capture_graphs(rms_norm, x, weight)
    assert isinstance(capture, Capture)
    (graph,) = capture.graphs
    assert graph.function == "rms_norm"
    assert [op.target for op in graph.calls] == [
        "torch.Tensor.pow", "torch.Tensor.mean", "operator.add", "torch.rsqrt",
        "operator.mul", "operator.mul",
    ]  # fmt: skip
    assert [op.kind for op in graph.ops[:2]] == ["placeholder", "placeholder"]
    assert graph.ops[-1].kind == "output"
    mean = graph.calls[1]
    assert (mean.shape, mean.dtype) == ((4, 1), "float32")
    assert mean.source_line.startswith("scale = torch.rsqrt(")
    assert mean.filename == __file__
    assert mean.lineno == rms_norm.__code__.co_firstlineno + 1
    assert set(mean.inputs) == {graph.calls[0].name}
    assert torch.equal(capture.result, rms_norm(x, weight))
    assert capture.origin.kind == "live"
    assert capture.changes_behaviour is None


def test_graphs_of_functions_called_after_a_break_name_their_function():
    def outer(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return inner(y.cos())

    def inner(y):
        torch._dynamo.graph_break()
        return y.tan()

    functions = [graph.function for graph in capture_graphs(outer, torch.ones(3)).graphs]
    assert functions[0] == "outer"
    assert functions[-1] == "inner"
    assert not any("torch_dynamo_resume" in name for name in functions)


def test_modules_methods_and_keyword_arguments():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    x = torch.randn(2, 8)
    (graph,) = capture_graphs(model, x).graphs
    assert [op.target for op in graph.calls] == [
        "torch.nn.functional.linear", "torch.nn.functional.relu",
    ]  # fmt: skip
    assert capture_graphs(model.forward, x).graphs
    with_eps = capture_graphs(rms_norm, x, torch.ones(8), kwargs={"eps": 0.5})
    assert torch.equal(with_eps.result, rms_norm(x, torch.ones(8), eps=0.5))


def test_no_machine_path_in_what_is_shown():
    shown = str(capture_graphs(rms_norm, torch.randn(4, 8), torch.ones(8)))
    assert "# test_dynamo.py:" in shown
    assert "/test_dynamo.py" not in shown
    assert file_name("/tmp/ipykernel_12/345.py") == "cell"


def test_a_function_without_tensors_gives_no_graph_and_says_so():
    capture = capture_graphs(lambda: 3)
    assert capture.graphs == ()
    assert capture.result == 3
    assert "no graph" in str(capture)


def test_compile_options_reach_torch_compile():
    def sized(x):
        return x.sin() * x.shape[0]

    dynamic = capture_graphs(sized, torch.ones(5, 2), compile_options={"dynamic": True})
    shapes = [op.shape for op in dynamic.graphs[0].ops if op.shape]
    assert any(isinstance(size, str) for shape in shapes for size in shape)
    with pytest.raises(TypeError, match="no_such_option"):
        capture_graphs(sized, torch.ones(5, 2), compile_options={"no_such_option": 1})
    named = capture_graphs(sized, torch.ones(5, 2), compile_options={"backend": "aot_eager"})
    assert torch.equal(named.result, sized(torch.ones(5, 2)))


def test_a_run_that_only_fails_when_compiled_says_so_and_gives_eagers_result():
    def broken(x):
        torch._dynamo.graph_break()
        return x + 1

    capture = capture_graphs(broken, torch.ones(2), compile_options={"fullgraph": True})
    assert capture.changes_behaviour is not None
    assert capture.result.tolist() == [2, 2]
    assert "stopped with" in str(capture)


def test_something_that_cannot_be_called_is_named():
    with pytest.raises(TypeError, match="needs a function or a module first, got int"):
        capture_graphs(3)


def test_the_count_of_compilations_grows_by_compiles_and_not_by_inspections():
    torch._dynamo.reset()
    compiled = torch.compile(rms_norm, backend="eager")
    args = torch.ones(4, 8), torch.ones(8)
    assert compilation_count() == 0
    compiled(*args)
    assert compilation_count() == 1
    compiled(*args)
    capture_graphs(rms_norm, *args)
    assert compilation_count() == 1
    compiled(torch.ones(4, 8, dtype=torch.float64), torch.ones(8))
    assert compilation_count() == 2
