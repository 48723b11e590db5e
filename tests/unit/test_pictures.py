"""helpers.pictures, helpers.layout and helpers.pipeline: what is drawn, and where."""

from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET

import pytest

from helpers.dynamo import Graph, Op
from helpers.layout import lay_out
from helpers.pictures import MOST_OPS, graph_picture, graph_svg, short_name
from helpers.pipeline import Machine, pipeline_picture

SVG = "{http://www.w3.org/2000/svg}"


def call(name: str, inputs: tuple[str, ...], line: int, file: str = "m.py") -> Op:
    source = f"the text of line {line}"
    return Op(name, "call_function", f"torch.{name}", inputs, (2, 3), "float32", file, line, source)


def graph_of(*ops: Op, last: str) -> Graph:
    inputs = (Op("l_x_", "placeholder", "L_x_", shape=(2, 3), dtype="float32"),)
    return Graph("pass", (*inputs, *ops, Op("output", "output", "output", (last,))), "f", 0)


SMALL = graph_of(
    call("relu", ("l_x_",), 2),
    call("exp", ("l_x_",), 3),
    call("add", ("relu", "exp"), 3),
    last="add",
)


def tree(html: str) -> ET.Element:
    """Returns the picture in some HTML, parsed: it must be well-formed."""
    return ET.fromstring(re.search(r"<svg.*?</svg>", html, re.DOTALL)[0])


def words(picture: ET.Element) -> list[str]:
    return ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")]


def test_each_operation_has_a_box_with_name_shape_and_line() -> None:
    texts = words(tree(graph_svg(SMALL)))
    for expected in ("input x", "relu", "exp", "add", "result", "2 × 3 · line 2", "2 × 3 · line 3"):
        assert expected in texts


def test_each_use_has_one_arrow() -> None:
    picture = tree(graph_svg(SMALL))
    arrows = [p for p in picture.iter(f"{SVG}path") if p.get("marker-end")]
    assert len(arrows) == 5


def test_a_line_has_one_colour_and_another_line_another() -> None:
    picture = tree(graph_svg(SMALL))
    fills = {}
    for group in picture.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if rect is not None:
            fills[group.find(f"{SVG}text").text] = rect.get("fill")
    assert fills["exp"] == fills["add"] != fills["relu"]


def test_the_sentence_is_there_for_those_who_do_not_see_the_picture() -> None:
    html = graph_svg(SMALL)
    picture = tree(html)
    sentence = (
        "Graph 0, captured from f: 1 input (x), 3 operations from 2 source lines, "
        "in this order: relu, exp, add."
    )
    assert picture.get("role") == "img"
    assert picture.get("aria-label") == picture.find(f"{SVG}desc").text == sentence
    assert f">{sentence}</p>" in html
    assert "<script" not in html


def test_new_operations_are_marked_in_words() -> None:
    assert "add new" in words(tree(graph_svg(SMALL, {"add"})))
    assert not any("new" in text for text in words(tree(graph_svg(SMALL))))


def test_text_of_the_learner_is_escaped() -> None:
    odd = Op(
        "op", "call_function", "a<b>", ("l_x_",), (1,), "f", "<x>", 1, "<script>alert(1)</script>"
    )
    html = graph_svg(graph_of(odd, last="op"))
    assert "<script>" not in html
    tree(html)


def test_lines_of_two_files_are_kept_apart() -> None:
    graph = graph_of(
        call("a", ("l_x_",), 7, "/x/one.py"), call("b", ("a",), 7, "/x/two.py"), last="b"
    )
    html = graph_svg(graph)
    assert "one.py line 7" in html and "two.py line 7" in html
    assert "2 source lines" in html
    assert "/x/" not in html


@pytest.mark.parametrize(
    ("count", "joined"), [(MOST_OPS, False), (MOST_OPS + 1, True), (900, True)]
)
def test_a_big_graph_is_summed_up_and_says_so(count: int, joined: bool) -> None:
    ops, last = [], "l_x_"
    for i in range(count):
        ops.append(call(f"op{i}", (last,), i // 2))
        last = f"op{i}"
    html = graph_svg(graph_of(*ops, last=last))
    boxes = list(tree(html).iter(f"{SVG}rect"))
    assert ("joins neighbours" in html) is joined
    assert len(boxes) <= 14 if joined else len(boxes) == count + 2
    if joined:
        counted = [int(n) for n in re.findall(r">(\d+) ops", html)]
        assert sum(counted) == count


def test_the_names_that_dynamo_gives_are_made_readable() -> None:
    def named(name: str) -> str:
        return short_name(Op(name, "placeholder", name))

    assert named("l_q_") == "input q"
    assert named("L_self_modules_up_parameters_weight_") == "input self.up.weight"
    assert named("s77") == "input s77"
    assert short_name(Op("m", "call_method", "torch.Tensor.mean")) == "mean"


def test_the_text_form_is_a_table() -> None:
    text = str(graph_picture(SMALL))
    assert "add" in text.splitlines()[-2]
    assert "relu, exp" in text


def test_an_empty_graph_is_drawn() -> None:
    tree(graph_svg(Graph("pass", (Op("output", "output", "output", ()),), "f", 0)))


@pytest.mark.parametrize("seed", range(8))
def test_boxes_never_overlap_and_arrows_run_down(seed: int) -> None:
    dice = random.Random(seed)
    names = [f"n{i}" for i in range(40)]
    sizes = {name: (dice.uniform(40, 200), 40.0) for name in names}
    edges = [
        (names[dice.randrange(max(0, i - 9), i)], names[i]) for i in range(1, 40) for _ in range(2)
    ]
    plan = lay_out(sizes, edges)
    for i, one in enumerate(names):
        (x, y), (width, _) = plan.centres[one], sizes[one]
        assert width / 2 - 1e-6 <= x <= plan.width - width / 2 + 1e-6
        for two in names[:i]:
            other_x, other_y = plan.centres[two]
            if y == other_y:
                assert abs(x - other_x) >= (width + sizes[two][0]) / 2 + 18 - 1e-6
    assert all(plan.centres[a][1] < plan.centres[b][1] for a, b in edges)
    assert set(plan.paths) == set(edges)


def test_an_input_stands_just_above_its_first_use() -> None:
    plan = lay_out(
        dict.fromkeys("abcdx", (50.0, 40.0)), [("a", "b"), ("b", "c"), ("c", "d"), ("x", "d")]
    )
    assert plan.centres["x"][1] == plan.centres["c"][1]


def test_a_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="without cycles"):
        lay_out({"a": (9, 9), "b": (9, 9)}, [("a", "b"), ("b", "a")])


STAGES = [
    "Python function", "bytecode", "FX graph + guards", "joint graph", "forward graph",
    "backward graph", "Triton kernels", "PTX", "SASS", "C++ kernels",
]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "triton", "times", "cpp"),
    [
        (Machine(cuda=True, triton=True, compiler=True), "● live", "● live", "● live"),
        (Machine(False, True, True), "◐ cross-target", "○ recorded", "● live"),
        (Machine(False, False, False), "○ recorded", "○ recorded", "! no compiler"),
    ],
)
def test_the_pipeline_says_what_is_live(
    machine: Machine, triton: str, times: str, cpp: str
) -> None:
    view = pipeline_picture(machine)
    texts = words(tree(view.html))
    for stage in STAGES:
        assert stage in texts and stage in str(view)
    after = {
        name: texts[i + 2] for i, name in enumerate(texts[:-2]) if name in [*STAGES, "GPU times"]
    }
    assert (after["Triton kernels"], after["GPU times"], after["C++ kernels"]) == (
        triton,
        times,
        cpp,
    )
    assert after["FX graph + guards"] == "● live"
    assert re.search(rf"{re.escape(triton)}.*Triton kernels", str(view))


def test_this_machine_is_looked_at() -> None:
    pytest.importorskip("torch")
    assert "● live" in str(pipeline_picture())
