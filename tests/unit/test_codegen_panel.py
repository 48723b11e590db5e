"""The panel of lesson 06: what each control does to the code that is generated."""

from __future__ import annotations

import re

import ipywidgets
import pytest
import torch

from helpers import code_bytes, codegen_panels, codegen_view, codegen_views, inductor
from helpers.codegen_panels import codegen_panel
from helpers.codegen_views import CodegenView
from helpers.inductor import generated_code
from helpers.targets import TARGETS

pytestmark = pytest.mark.timeout(300)
SCALED = """\
def scaled(x, r, norm=True):
    if norm:
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
    return F.silu(x) + r
"""


def test_the_panel_shows_what_the_pure_function_returns() -> None:
    panel = codegen_panel(SCALED, (64, 1024), target="h200")
    view = codegen_view(SCALED, (64, 1024), target="h200")
    assert panel.output.value == view.html
    assert view.capture is not None and view.capture.target == "h200"
    assert view.text.startswith("Graph 0 (inference): 1 launch, 1 of generated kernels")
    assert "persistent reduction" in view.text and "tl.program_id" in view.text
    assert "Done: tensors of 64 x 1024, float32." in panel.status.value


def test_every_control_changes_what_is_shown() -> None:
    panel = codegen_panel(SCALED, (64, 1024), target="h200")
    assert "xnumel = 64" in str(panel.view)
    panel.rows.value = 96
    assert "xnumel = 96" in str(panel.view)
    panel.width_.value = 4096
    assert "for r0_offset in" in str(panel.view) and "persistent" not in str(panel.view)
    panel.dtype.value = "bfloat16"
    assert ".to(tl.float32)" in str(panel.view)
    panel.switch.value = False
    assert "pointwise" in str(panel.view) and "aten.mean" not in str(panel.view)
    panel.backward.value = True
    assert "Graph 1 (backward)" in panel.output.value
    panel.backward.value = False
    panel.target.value = "a100"
    assert panel.view.capture.target == "a100"
    panel.other.value = "l4"
    assert "Difference: a100 beside l4" in panel.output.value
    panel.other.value = ""
    panel.editor.value = "def f(x, y):\n    return torch.relu(x @ y.T)"
    assert "extern_kernels.mm" in panel.output.value


def test_backward_is_shown_where_gradients_are_switched_off() -> None:
    with torch.no_grad():
        view = codegen_view(SCALED, (64, 64), target="h200", backward=True)
        assert not torch.is_grad_enabled()
    assert "Graph 1 (backward)" in view.text


def test_the_text_of_two_targets_is_compared() -> None:
    view = codegen_view(SCALED, (64, 1024), target="h200", other="t4")
    same = "The text of the kernel is the same; only the header differs (device properties)."
    assert same in view.text
    assert "Difference" not in codegen_view(SCALED, (64, 1024), target="h200", other="h200").text


def test_what_the_second_target_cannot_do_leaves_the_first_one_shown() -> None:
    view = codegen_view(SCALED, (64, 64), "bfloat16", target="h200", other="t4")  # no bf16 there
    assert view.capture is not None and "tl.program_id" in view.text
    assert re.search(r"Look out: nothing to compare with: \w+", view.text)


def test_a_stage_is_shown_for_the_first_kernel() -> None:
    view = codegen_view(SCALED, (64, 1024), target="h200", stage="ttgir")
    assert "First kernel: ttgir" in view.text and "loads: 2, stores: 1" in view.text
    text = "def f(x, y):\n    return x @ y.T"
    assert "no kernel of its own" in codegen_view(text, (64, 64), target="h200", stage="ptx").text


def test_a_stage_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    real = codegen_view(SCALED, (64, 64), target="h200").capture

    def without_tools(*_: object, **__: object) -> object:
        import dataclasses

        return dataclasses.replace(real, unavailable={"sass": "The tool is missing."})

    monkeypatch.setattr(codegen_views, "generated_code", without_tools)
    assert "No sass: The tool is missing." in codegen_view(SCALED, stage="sass").text


def test_bytes_that_must_move_are_shown_for_each_launch() -> None:
    view = codegen_view("def f(x, y):\n    return torch.relu(x @ y.T)", (64, 64), target="h200")
    # 64 * 64 numbers of 4 bytes are 16,384 bytes; the product reads two such, all else is one.
    assert "81.9 kB must move for 1 kernel launch and 1 library call in 1 graph" in view.text
    assert "inputs and outputs once are 49.2 kB" in view.text
    text, page = (part.replace("\xa0", " ") for part in (view.text, view.html))
    rows = {line.split()[0]: line for line in text.splitlines() if " kB  " in line}
    assert "32.8 kB  16.4 kB  49.2 kB" in rows["extern_kernels.mm"]
    assert "library call" in rows["extern_kernels.mm"]
    assert "16.4 kB  16.4 kB  32.8 kB" in rows["triton_poi_fused_relu_0"]
    assert "<td>49.2 kB</td>" in page and "must move</th>" in page


def test_bytes_of_a_smaller_dtype_are_half() -> None:
    for dtype, size in (("float32", "786 kB"), ("bfloat16", "393 kB")):
        text = codegen_view(SCALED, (64, 1024), dtype, target="h200").text
        assert f"{size} must move for 1 kernel launch in 1 graph" in text


def test_what_is_counted_only_at_most_or_only_once_says_so() -> None:
    gathered = "def f(x, y):\n    return x[torch.argsort(y[0])]"
    view = codegen_view(gathered, (64, 64), target="h200")
    assert "At most " in view.text and "touches depends on data: the most is counted" in view.text
    assert "<td>at\xa0most\xa0" in view.html
    looped = codegen_view(SCALED, (64, 4096), target="h200").text
    assert "Note: triton_red_fused" in looped and "in more than one of its loops" in looped
    assert "At most" not in looped


def test_bytes_are_counted_without_generating_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def watched(*args: object, **kwargs: object) -> object:
        made.append(str(kwargs["target"]))
        return generated_code(*args, **kwargs)

    monkeypatch.setattr(codegen_views, "generated_code", watched)
    monkeypatch.setattr(inductor, "generated_code", watched)
    view = codegen_view(SCALED, (64, 64), target="h200", other="l4")
    assert made == ["h200", "l4"]
    assert "Must move: 49.2 kB on h200, 49.2 kB on l4." in view.text


def test_a_count_that_fails_does_not_hide_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(code: object) -> None:
        raise ValueError("the wrapper is not Python")

    monkeypatch.setattr(code_bytes, "count_bytes_of", fails)
    view = codegen_view(SCALED, (64, 64), target="h200", other="l4")
    assert "Bytes are not counted here: ValueError: the wrapper is not Python" in view.text
    assert view.capture is not None and "tl.program_id" in view.text
    assert "Must move:" not in view.text and "persistent reduction" in view.text


def test_an_error_has_its_line_without_a_second_run_here() -> None:
    text = "def f(x):\n    torch.ran_in_this_process = True\n    raise ValueError('no')"
    view = codegen_view(text, (8, 8), target="h200")
    assert view.text.startswith("Error: line 3: ValueError: no\n   3 |     raise ValueError('no')")
    assert not hasattr(torch, "ran_in_this_process")


def test_an_error_that_came_without_a_line_gets_it_by_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def as_on_a_card(*_: object, **__: object) -> None:
        raise RuntimeError("Dynamo failed to run FX node with fake tensors")

    monkeypatch.setattr(codegen_views, "generated_code", as_on_a_card)
    view = codegen_view("def f(x):\n    return x + nothing", (8, 8))
    assert view.text.startswith("Error: line 2: NameError: name 'nothing' is not defined")
    view = codegen_view("def f(x):\n    return x", (8, 8))
    assert "Dynamo failed to run" in view.text


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source": "def f(x):\nreturn x"}, "line 2: Python cannot read this"),
        ({"source": "def f(x):\n    return x + nothing"}, "line 2: NameError: name 'nothing'"),
        ({"dtype": "int64"}, "line 3: RuntimeError: mean(): could not infer output dtype"),
        ({"source": "x = 3"}, "No function found"),
        ({"source": "def f(n=3):\n    return n"}, "no argument without a default"),
        ({"target": "h2000"}, "h2000"),
        ({"stage": "hip"}, "Unknown stage 'hip'"),
        ({"dtype": "int64", "backward": True}, "Tensors of int64 have no gradient"),
        ({"shape": (0, 8)}, "Each size must be 1 or more"),
    ],
)
def test_what_is_wrong_is_one_clear_message(changed: dict, message: str) -> None:
    view = codegen_view(**({"source": SCALED, "shape": (8, 8), "target": "h200"} | changed))
    assert view.capture is None
    assert view.text.startswith("Error: ") and message in view.text
    assert "Traceback" not in view.html


def test_an_error_says_that_there_is_no_code_and_the_next_text_works() -> None:
    panel = codegen_panel(SCALED, (64, 64), target="h200")
    panel.editor.value = "def scaled(x):\n    return torch.relu(x"
    assert "line 2: Python cannot read this" in panel.output.value
    assert "No code: the reason stands below." in panel.status.value
    panel.editor.value = "def f(x):\n    return torch.cos(x)"
    assert "aten.cos" in panel.output.value and "Done" in panel.status.value


def test_working_is_shown_and_the_same_state_is_not_generated_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = codegen_panel(SCALED, (64, 64), target="h200")
    seen: list[str] = []

    def watched(*args: object, **kwargs: object) -> CodegenView:
        seen.append(panel.status.value)
        return codegen_view(*args, **kwargs)

    monkeypatch.setattr(codegen_panels, "codegen_view", watched)
    panel.rows.value = 32
    panel.button.click()
    assert len(seen) == 1 and "Working: Inductor is writing the code" in seen[0]
    panel.target.value = "l4"
    assert len(seen) == 2


def test_controls_have_names_and_every_target_can_be_chosen() -> None:
    panel = codegen_panel(SCALED, (64, 1024), target="H200")
    named = [panel.editor, panel.batch, panel.rows, panel.width_, panel.dtype, panel.switch]
    named += [panel.target, panel.other, panel.stage, panel.backward, panel.button]
    assert all(control.description for control in named)
    assert not any(isinstance(widget, ipywidgets.Output) for widget in panel.children)
    keys = [key for _, key in panel.target.options]
    assert keys == ["auto", *TARGETS] and panel.target.value == "h200"
    assert {100, 1024, 1025} <= set(panel.width_.options) and panel.width_.value == 1024
