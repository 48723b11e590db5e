"""helpers.typed_function, helpers.views, helpers.widgets: a learner's text, shown or explained."""

from __future__ import annotations

import math

import pytest
import torch

from helpers import typed_function, widgets
from helpers.typed_function import Problem, define, make_inputs, read_function
from helpers.views import GraphView, graph_view
from helpers.widgets import graph_panel

ATTENTION = """\
def attention(q, k, v, causal=False):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf"))
    return torch.softmax(scores, dim=-1) @ v
"""


def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2 / math.pi


def test_the_view_of_a_function() -> None:
    view = graph_view(ATTENTION, (2, 8, 4))
    text = str(view)
    assert "1 graph with 5 operations; the real result: shape (2, 8, 4), float32." in text
    assert "in this order: transpose, matmul, truediv, softmax, matmul." in text
    assert view.html.count("<svg") == 1
    assert "live: made when this cell ran" in text
    with torch.random.fork_rng():
        q, k, v = make_inputs(define(ATTENTION), (2, 8, 4), "float32").values()
    eager = torch.softmax(q @ k.transpose(-2, -1) / 2, dim=-1) @ v
    assert torch.allclose(view.capture.result, eager)


def test_a_function_instead_of_its_text() -> None:
    assert "in this order: relu, mul, truediv." in str(graph_view(doubled, (4, 4)))


def test_a_function_without_a_source_is_a_problem_in_words() -> None:
    view = graph_view(torch.relu)
    assert view.capture is None
    assert "source of this function cannot be found" in str(view)


def test_what_changed_is_said_and_marked() -> None:
    before = graph_view(ATTENTION, (2, 8, 4))
    after = graph_view(ATTENTION, (2, 8, 4), switch=True, previous=before.capture)
    assert "Since the last view: new: ones_like, triu, masked_fill." in str(after)
    assert after.html.count("> new</tspan>") == 3
    back = graph_view(ATTENTION, (2, 16, 4), switch=False, previous=after.capture)
    assert (
        "gone: ones_like, triu, masked_fill; the result was shape (2, 8, 4), float32, "
        "now shape (2, 16, 4), float32." in str(back)
    )
    same = graph_view(ATTENTION, (2, 16, 4), previous=back.capture)
    assert "Since the last view: the same operations." in str(same)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(x):\n    return x +\n", "line 2: Python cannot read this: invalid syntax."),
        ("x = 3", "No function found in the text. Write one that starts with: def name(x):"),
        ("", "No function found"),
        ("async def f(x):\n    return x", "No function found"),
        ("def f(x):\n    y = x * 2\n    return y + foo", "line 3: NameError: name 'foo' is not"),
        ("def f(x):\n    return x.reshape(7, 7)", "line 2: RuntimeError: shape '[7, 7]' is inv"),
        ("def f(x):\n    raise ValueError('mine')", "line 2: ValueError: mine"),
        ("import nothing_of_that_name\ndef f(x): return x", "line 1: ModuleNotFoundError"),
        ("import sys\nsys.exit(3)\ndef f(x): return x", "line 2: SystemExit: 3"),
        ("def f(x):\n    raise KeyboardInterrupt", "you interrupted the kernel"),
        ("def f(x):\n    return f(x)", "line 2: RecursionError"),
        ("x = '\0'", "null bytes"),
    ],
)
def test_what_is_wrong_is_said_at_the_learners_line(text: str, message: str) -> None:
    view = graph_view(text)
    assert view.capture is None
    assert message in str(view)
    assert "<b>Error:</b>" in view.html
    assert "typed_function.py" not in str(view)


def test_a_graph_break_is_shown_with_its_line() -> None:
    view = graph_view(
        "def f(x):\n    y = x * 2\n    print('seen', y.sum() > 1e9)\n    return y + 1"
    )
    text = str(view)
    assert "2 graphs with" in text
    assert "a graph break at line 3, \"print('seen', y.sum() > 1e9)\". Dynamo says: " in text
    assert "your function printed: seen tensor(False)" in text
    assert text.count("seen tensor") == 1
    assert view.html.count("<svg") == 2


def test_nothing_the_learner_prints_escapes(capsys: pytest.CaptureFixture) -> None:
    graph_view("print('at import')\ndef f(x):\n    print('inside')\n    return x * 2")
    assert capsys.readouterr().out == ""


def test_a_function_without_tensor_operations() -> None:
    text = str(graph_view("def f(x):\n    return 3"))
    assert "0 graphs with 0 operations; the real result: a value of type int." in text
    assert "Nothing here is an operation on tensors" in text


@pytest.mark.parametrize(
    "text", ["def f(x):\n    while True: pass", "while True: pass\ndef f(x): pass"]
)
def test_an_endless_loop_is_stopped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(typed_function, "TIME_LIMIT_S", 1)
    assert "Stopped after 1 s. Is there a loop that never ends" in str(graph_view(text))
    monkeypatch.setattr(typed_function, "TIME_LIMIT_S", 60)
    assert graph_view(ATTENTION).capture is not None


@pytest.mark.parametrize("dtype", typed_function.DTYPES)
def test_inputs_of_each_dtype(dtype: str) -> None:
    state = torch.random.get_rng_state()
    inputs = make_inputs(define("def f(a, b, c=1, *d, **e): pass"), (2, 3), dtype)
    assert list(inputs) == ["a", "b"]
    assert inputs["a"].dtype is getattr(torch, dtype) and inputs["a"].shape == (2, 3)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [
        ((2, 0), "float32", "1 or more"),
        ((2,), "int7", "Unknown dtype 'int7'; choose one of float32"),
    ],
)
def test_inputs_that_cannot_be_made(shape: tuple, dtype: str, message: str) -> None:
    assert message in str(graph_view("def f(x): return x", shape, dtype))


def test_switches_are_arguments_with_a_truth_value_as_default() -> None:
    source = "def g(): pass\ndef f(a, n=3, causal=False, *, fast=True, name='x'): pass"
    found = read_function(source)
    assert (found.name, found.switches) == ("f", ("causal", "fast"))
    with pytest.raises(Problem):
        read_function("1 +")


def test_each_text_is_run_in_a_namespace_of_its_own() -> None:
    graph_view("secret = 5\ndef f(x): return x * secret")
    assert "name 'secret' is not defined" in str(graph_view("def f(x): return x * secret"))


def test_fifty_views_leave_the_compiler_as_it_was() -> None:
    first = str(graph_view(ATTENTION, (2, 8, 4)))
    for _ in range(49):
        last = str(graph_view(ATTENTION, (2, 8, 4)))
    assert last == first


def test_the_panel_shows_what_the_pure_function_returns() -> None:
    panel = graph_panel(ATTENTION, (4, 128, 64))
    assert panel.output.value == graph_view(ATTENTION, (4, 128, 64)).html
    assert "Done" in panel.status.value
    assert (panel.batch.value, panel.rows.value, panel.width_.value) == ("4", 128, 64)


def test_every_control_changes_the_view() -> None:
    panel = graph_panel(ATTENTION, (4, 16, 8))
    panel.rows.value = 24
    assert "shape (4, 24, 8)" in panel.output.value
    panel.batch.value = "no batch"
    assert "shape (24, 8)" in panel.output.value
    panel.width_.value = 16
    assert "shape (24, 16)" in panel.output.value
    panel.dtype.value = "bfloat16"
    assert "bfloat16" in panel.output.value
    panel.switch.value = True
    assert "new: ones_like, triu, masked_fill" in panel.output.value
    panel.editor.value = "def f(x):\n    return torch.relu(x)"
    assert "in this order: relu." in panel.output.value
    assert "gone: transpose" in panel.output.value


def test_the_switch_carries_the_name_of_the_argument() -> None:
    panel = graph_panel(ATTENTION, (4, 16, 8))
    assert (panel.switch.description, panel.switch.disabled) == ("causal", False)
    panel.editor.value = "def f(x):\n    return x * 2"
    assert (panel.switch.description, panel.switch.disabled) == ("no on/off argument", True)
    panel.editor.value = "def f(x, scaled=False):\n    return x * 2 if scaled else x + 1"
    assert (panel.switch.description, panel.switch.disabled) == ("scaled", False)


def test_an_error_is_shown_and_the_next_good_text_compares_with_the_last_good_one() -> None:
    panel = graph_panel("def f(x):\n    return torch.relu(x)", (4, 16, 8))
    panel.editor.value = "def f(x):\n    return torch.relu(x"
    assert "line 2: Python cannot read this" in panel.output.value
    assert "Not captured" in panel.status.value
    panel.editor.value = "def f(x):\n    return torch.relu(x) + 1"
    assert "Since the last view: new: add." in panel.output.value


def test_working_is_shown_before_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = graph_panel(ATTENTION, (4, 16, 8))
    seen: list[str] = []

    def watched(*args: object, **kwargs: object) -> GraphView:
        seen.append(panel.status.value)
        return graph_view(*args, **kwargs)

    monkeypatch.setattr(widgets, "graph_view", watched)
    panel.rows.value = 32
    panel.button.click()  # nothing changed since: not captured again
    assert len(seen) == 1 and "Working" in seen[0]
    assert "Done" in panel.status.value


def test_controls_have_names_and_no_output_widget_hides_errors() -> None:
    import ipywidgets

    panel = graph_panel(ATTENTION, (4, 16, 8))
    names = [panel.editor, panel.batch, panel.rows, panel.width_, panel.dtype, panel.switch]
    assert all(control.description for control in names)
    assert not any(isinstance(w, ipywidgets.Output) for w in panel.children)
