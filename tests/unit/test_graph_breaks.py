"""explain_graph_breaks: number, place, cause, effect and repair of every break of one call."""

import contextlib
import copy
import dataclasses
import functools
import logging
import sys
import warnings
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from helpers import GraphBreak, capture_graphs, explain_graph_breaks
from helpers.break_events import EFFECTS

log = logging.getLogger("blocks")
# Python 3.13 puts the way out of a loop behind it, where Dynamo can go on.
AT_AN_EXIT = "frame_skipped" if sys.version_info < (3, 13) else "split"


def the_line(marker: str) -> int:
    """Returns the line of this file that ends in `# marker`."""
    with open(__file__) as file:
        [number] = [n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {marker}")]
    return number


def the_break(fn, *args, marker: str, **options) -> GraphBreak:
    """Returns the one break of a call, which must be at the marked line."""
    [found] = explain_graph_breaks(fn, *args, **options)
    assert (found.filename, found.lineno) == (__file__, the_line(marker))
    assert found.source_line.startswith(linetext(found))
    assert found.reason and found.title and found.explanation and found.fix
    assert found.effect in EFFECTS
    return found


def linetext(found: GraphBreak) -> str:
    with open(found.filename) as file:
        return file.readlines()[found.lineno - 1].strip()


def clean(fn, *args) -> None:
    found = explain_graph_breaks(fn, *args)
    assert len(found) == 0
    assert found.graphs == 1
    assert found.changes_behaviour is None
    assert found.notes == ()


# Functions that break in one place


def says(y):
    print("", end="")  # deep
    return y.cos()


def middle(y):
    return says(y.sin()) * 2


def outer(x):
    return middle(x + 1) - 1


def scaled(x):
    return x.sin() * x.sum().item()


def in_a_loop(x):
    for step in range(3):
        x = middle(x + step)
    return x.tan()


def early_exit(x):
    y = x.tanh()
    for _ in range(4):
        new = 0.5 * (y + x)
        if (new - y).abs().max() < 1e-3:  # early exit
            break
        y = new
    return y * 2


def steadies(x):
    y = x.tanh()
    for _ in range(4):
        y = 0.5 * (y + x)
        if y.abs().max() > 0.9:  # in the loop
            y = y / 2
    return y * 2


def early_exit_frozen(x):
    y = x.tanh()
    done = torch.zeros((), dtype=torch.bool)
    for _ in range(4):
        new = 0.5 * (y + x)
        done = done | ((new - y).abs().max() < 1e-3)
        y = torch.where(done, y, new)
    return y * 2


def guarded_read(x):
    h = x.sin()
    try:
        h = h.mask_value  # missing
    except AttributeError:
        h = h * 2
    return h.cos()


def guarded_read_asked(x):
    h = x.sin()
    h = h.mask_value if hasattr(h, "mask_value") else h * 2
    return h.cos()


def in_try(x):
    y = x.sin()
    try:
        y = y * 2
        print("", end="")  # in try
        y = y.cos()
    finally:
        y = y + 1
    return y.tan()


def tiles(x):
    for row in range(3):
        print("", end="")  # in generator
        yield x[row] * (row + 1)


def sums_tiles(x):
    return sum(tiles(x.sin())).cos()


@contextlib.contextmanager
def nothing_special():
    yield


def in_with(x):
    y = x.sin()
    with nothing_special():
        print("", end="")  # in with
        y = y.cos()
    return y.tan()


def keeps_valid(boxes):
    sizes = boxes[:, 2:] - boxes[:, :2]
    kept = sizes[(sizes > 0.1).all(1)]  # mask
    return kept.mean(0)


def copies(x):
    y = copy.deepcopy(x.sin())  # copy
    return y.cos()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(4, 4)

    def forward(self, x):
        y = self.mix(x)
        if y.shape[0] % 4:
            log.debug("odd batch %d", y.shape[0])  # logs
        return y.relu()

    def scaled(self, x):
        return self.mix(x) * x.sum().item()  # method


@torch.compiler.disable
def kept_out(x):
    return x * 2


class KeptOut(nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        return x * 2


@pytest.mark.parametrize(
    ("fn", "marker", "effect", "function", "graphs"),
    [
        (says, "deep", "split", "says", 1),
        (outer, "deep", "split", "outer", None),
        (in_a_loop, "deep", "frame_skipped", "in_a_loop", None),
        (early_exit, "early exit", AT_AN_EXIT, "early_exit", None),
        (steadies, "in the loop", "frame_skipped", "steadies", 0),
        (in_try, "in try", "frame_skipped", "in_try", 0),
        (in_with, "in with", "frame_skipped", "in_with", 0),
        (keeps_valid, "mask", "split", "keeps_valid", 2),
        (copies, "copy", "split", "copies", 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_one_cause_is_one_break_at_its_innermost_line(fn, marker, effect, function, graphs):
    found = the_break(fn, torch.rand(4, 4), marker=marker)
    assert (found.effect, found.function) == (effect, function)
    assert found.function in found.effect_words
    assert not found.in_framework
    assert found.entry[:2] == (found.filename, found.lineno)
    within = {in_a_loop: "loop", steadies: "loop", early_exit: "loop", in_with: "with"}.get(fn, "")
    assert found.stands_in == (within if effect == "frame_skipped" else "")
    if found.stands_in == "loop":
        assert "loop" in found.effect_words and "loop's body" in found.fix
    if graphs is not None:  # how a nested call is split differs between versions
        assert explain_graph_breaks(fn, torch.rand(4, 4)).graphs == graphs


def test_the_number_of_graphs_is_that_of_a_compiled_call():
    made = []
    x = torch.rand(4, 4)
    for fn in (outer, in_a_loop, sums_tiles, keeps_valid, early_exit_frozen):
        torch._dynamo.reset()
        made.clear()
        torch.compile(fn, backend=lambda graph, inputs: made.append(graph) or graph.forward)(x)
        assert explain_graph_breaks(fn, x).graphs == len(made)


def test_call_paths_lead_from_the_called_function_to_the_break():
    found = the_break(outer, torch.rand(4), marker="deep")
    assert found.call_paths == (("outer", "middle", "says"),)
    assert found.count == 3  # in outer's frame, in middle's and in says'

    def also(x):
        return outer(x) + says(x)

    found = the_break(also, torch.rand(4), marker="deep")
    assert set(found.call_paths) == {("also", "outer", "middle", "says"), ("also", "says")}


def test_a_generator_that_breaks_costs_its_caller_the_compilation():
    found = explain_graph_breaks(sums_tiles, torch.rand(3, 4))
    assert len(found) == 1
    assert found.graphs == 0 or found[0].effect == "split"  # 2.7 cannot enter the generator
    if hasattr(torch._dynamo, "error_on_graph_break"):
        the_break(sums_tiles, torch.rand(3, 4), marker="in generator")
        assert found[0].effect == "frame_skipped"


def test_a_break_that_loses_an_except_clause_is_a_change_of_behaviour():
    x = torch.ones(3)
    found = explain_graph_breaks(guarded_read, x)
    assert isinstance(found.changes_behaviour, AttributeError)
    assert [one.lineno for one in found] == [the_line("missing")]
    assert torch.equal(found.result, guarded_read(x))
    assert "AttributeError" in found.summary()
    clean(guarded_read_asked, x)


def test_a_model_a_method_a_library_call_and_a_partial():
    block = Block()
    found = the_break(block, torch.ones(3, 4), marker="logs")
    assert found.call_paths == (("Block.forward",),)
    assert found.function == "Block.forward"
    assert len(explain_graph_breaks(block, torch.ones(4, 4))) == 0  # a multiple of four
    the_break(block.scaled, torch.ones(3, 4), marker="method")
    the_break(torch.compile(block), torch.ones(3, 4), marker="logs")
    the_break(functools.partial(middle), torch.ones(3), marker="deep")
    clean(nn.Linear(4, 2), torch.ones(3, 4))


def test_the_call_is_compiled_as_a_normal_one():
    block = Block()

    def by_mode(x):
        if torch.is_grad_enabled():
            print("", end="")  # with grad
        return block.mix(x)

    the_break(by_mode, torch.ones(3, 4), marker="with grad")
    with torch.no_grad():
        clean(by_mode, torch.ones(3, 4))

    def by_training(x):
        if drop.training:
            print("", end="")  # in training
        return drop(x)

    drop = nn.Dropout()
    the_break(by_training, torch.ones(3), marker="in training")
    drop.eval()
    clean(by_training, torch.ones(3))

    def by_size(x):
        return x.sum() if x.shape[0] > 2 else x.sum().item()  # small

    the_break(by_size, torch.ones(2), marker="small", compile_options={"dynamic": True})


def test_strictness_is_left_out_and_said():
    found = explain_graph_breaks(keeps_valid, torch.rand(4, 4), compile_options={"fullgraph": True})
    assert len(found) == 1
    assert "fullgraph" in found.notes[0]


class Boxes(NamedTuple):
    corners: torch.Tensor
    score: torch.Tensor


@dataclasses.dataclass
class Batch:
    image: torch.Tensor
    shift: float = 0.5


def test_what_only_looks_like_a_break_is_none():
    def dataclass_replaced(batch):
        return dataclasses.replace(batch, image=batch.image - batch.shift).image.mean()

    def numpy_inside(x):
        return torch.from_numpy(x.numpy() * 2).sin()

    def quiet_while_compiling(x):
        if not torch.compiler.is_compiling():
            print("eager")
        return x.cos()

    def checked(x):
        assert x.shape[0] < 100, "too many rows"
        return x.cos()

    clean(dataclass_replaced, Batch(torch.rand(3, 8)))
    clean(numpy_inside, torch.rand(3))
    clean(quiet_while_compiling, torch.rand(3))
    clean(checked, torch.rand(3))


@pytest.mark.skipif(
    not hasattr(torch._dynamo, "error_on_graph_break"), reason="torch before 2.9 breaks on both"
)
def test_records_and_einops_are_traced():
    from einops import rearrange, repeat

    def renamed(boxes):
        boxes = boxes._replace(score=boxes.score.sigmoid())
        return boxes.corners * boxes.score.unsqueeze(-1)

    def heads(x):
        h = rearrange(x.cos(), "b n (h d) -> b h n d", h=2)
        h = h + repeat(x.mean(-1), "b n -> b h n d", h=2, d=h.shape[-1])
        return rearrange(h, "b h n d -> b n (h d)").sin()

    clean(renamed, Boxes(torch.rand(5, 4), torch.randn(5)))
    clean(heads, torch.randn(2, 5, 8))


def test_a_disabled_function_breaks_at_the_call_and_a_disabled_model_at_its_caller():
    kept = KeptOut()

    def calls_function(x):
        return kept_out(x.sin()).cos()  # disabled function

    def calls_model(x):
        return kept(x.sin()).cos()  # disabled model

    the_break(calls_function, torch.ones(3), marker="disabled function")
    the_break(calls_model, torch.ones(3), marker="disabled model")


def test_a_break_inside_torch_names_the_learners_line():
    def makes_a_layer(x):
        return nn.Linear(4, 2)(x)  # makes a layer

    [found] = explain_graph_breaks(makes_a_layer, torch.ones(3, 4))
    assert found.in_framework
    assert found.filename.startswith(torch.__path__[0])
    assert found.entry[:2] == (__file__, the_line("makes a layer"))
    assert f"line {the_line('makes a layer')}" in found.fix


def test_torchs_own_modules_are_never_tried_again_and_take_their_parts_with_them():
    x = torch.ones(2, 3, 4)
    row = nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4, batch_first=True))
    [found] = explain_graph_breaks(row, x)
    assert found.effect == "frame_skipped"
    assert found.function == "Sequential.forward"
    assert explain_graph_breaks(row, x).graphs == 0


def test_a_rest_without_a_tensor_in_hand_stays_eager():
    def bound_method(x, n):
        return x.mul(n.item()).sin() * 2

    def only_returns(x):
        return x.sum().item()

    found = explain_graph_breaks(bound_method, torch.ones(3), torch.tensor(2.0))
    assert [one.effect for one in found] == ["rest_eager"]
    assert any("not searched" in note for note in found.notes)
    kept = []

    def takes_notes(x):
        kept.append(x.sum().item())

    for fn in (only_returns, takes_notes):
        found = explain_graph_breaks(fn, torch.ones(3))
        assert [one.effect for one in found] == ["split"]


def test_after_a_break_the_rest_is_eager_and_what_came_before_is_compiled():
    def then_a_loop(x):
        y = x * 2
        count = int(y.max())
        for _ in range(2):
            y = y + count
            print("", end="")
        return y

    found = explain_graph_breaks(then_a_loop, torch.ones(3))
    assert [one.effect for one in found] == ["split", "rest_eager"]
    assert found[1].stands_in == "loop"
    assert found.graphs == 1


def test_what_a_broken_call_runs_in_eager_as_a_whole_is_named():
    def block(x):
        x = x.sin()
        print("", end="")
        return x.relu()

    def saves_memory(x):
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False).cos()

    [found] = explain_graph_breaks(saves_memory, torch.ones(3))
    assert (found.effect, found.function) == ("frame_skipped", "block")


def test_two_causes_on_one_line_are_one_break_with_both_repairs():
    def logs_a_number(x):
        y = x.sin()
        log.info("%.3f", y.norm().item())
        return y.cos()

    [found] = explain_graph_breaks(logs_a_number, torch.ones(3))
    assert found.cause == "logger"
    assert "item" in found.title and "logger" in found.title
    assert "capture_scalar_outputs" in found.fix and "Log outside" in found.fix


def test_text_that_is_made_late_counts_where_it_is_written():
    def words(x):
        y = x.sin()
        text = f"{y.mean():.3f}"  # written here
        return y, len(text)

    the_break(words, torch.ones(3), marker="written here")


def test_transforms_of_torch_func_break_once():
    def inner(row):
        print("", end="")  # in vmap
        return row * 2

    the_break(lambda x: torch.func.vmap(inner)(x), torch.ones(2, 3), marker="in vmap")


@pytest.mark.skipif(
    not hasattr(torch._dynamo, "error_on_graph_break"), reason="torch before 2.9 does not enter it"
)
def test_a_generator_expression_shows_what_broke_inside():
    def all_positive(rows):
        return all(row.sum() > 0 for row in rows)

    [found] = explain_graph_breaks(all_positive, torch.ones(2, 3))
    assert found.cause == "branch-on-tensor"
    assert found.effect == "frame_skipped"


def test_why_nothing_was_captured():
    def rows(x):
        yield x.sin()

    [note] = explain_graph_breaks(rows, torch.ones(3)).notes
    assert "A generator" in note
    with FlopCounterMode(display=False):
        [note] = explain_graph_breaks(torch.mm, torch.ones(3, 3), torch.ones(3, 3)).notes
    assert "dispatch mode" in note
    [note] = explain_graph_breaks(lambda x: x, 3).notes
    assert "no operation" in note


def test_registry_ids_where_torch_has_a_registry():
    found = the_break(early_exit, torch.rand(4), marker="early exit")
    known = hasattr(torch._dynamo, "error_on_graph_break")
    assert found.gb_id == ("GB0170" if known else "")
    assert "Data-dependent branching" in found.reason


def test_torchs_own_words_serve_where_no_cause_is_known(monkeypatch):
    monkeypatch.setattr("helpers.break_reading.find_cause", lambda *texts: None)
    found = the_break(early_exit, torch.rand(4), marker="early exit")
    assert found.cause == ""
    assert found.title == found.reason
    assert "dynamic control flow" in found.explanation


def test_a_known_cause_brings_plain_words_and_a_change():
    found = the_break(early_exit, torch.rand(4), marker="early exit")
    assert found.cause
    assert found.title != found.reason
    assert found.change


def test_the_learners_own_error_comes_out_as_it_is():
    def wrong(x):
        return x @ torch.ones(7, 7)

    with pytest.raises(RuntimeError, match=r"size|shape"):
        explain_graph_breaks(wrong, torch.ones(3, 4))
    with pytest.raises(TypeError, match="explain_graph_breaks needs a function or a module first"):
        explain_graph_breaks(3)
    with pytest.raises(TypeError, match="colour"):
        explain_graph_breaks(says, torch.ones(3), compile_options={"colour": "red"})


def test_one_call_runs_the_function_once():
    calls = []

    def counted(x):
        calls.append(1)
        return x.sin() * x.sum().item()

    explain_graph_breaks(counted, torch.ones(3))
    assert calls in ([], [1])  # a list that grows is put back, or not reached
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain_graph_breaks(counted, torch.ones(3))


def test_again_and_again_the_same_answer_and_the_learners_own_compile_untouched(capfd):
    made = []
    compiled = torch.compile(
        scaled, backend=lambda graph, inputs: made.append(graph) or graph.forward
    )
    x = torch.rand(4)
    expected = compiled(x)
    before = len(made)
    first = str(explain_graph_breaks(scaled, x))
    assert all(str(explain_graph_breaks(scaled, x)) == first for _ in range(11))
    assert torch.equal(compiled(x), expected)
    assert len(made) == before
    assert capfd.readouterr().err == ""  # torch's remarks on .item() and the like stay away


def test_capture_graphs_reports_the_same_breaks():
    for fn in (outer, early_exit, keeps_valid):
        x = torch.rand(4, 4)
        assert capture_graphs(fn, x).breaks == explain_graph_breaks(fn, x).breaks


def test_a_recompile_limit_is_no_break_but_a_note():
    def step(x, n):
        for _ in range(n):
            x = x.sin()
        return x

    def many(x):
        for n in range(2, 14):
            x = step(x, n)
            print("", end="")  # keeps step a frame of its own
        return x

    found = explain_graph_breaks(many, torch.ones(3))
    assert [one.source_line for one in found] == [linetext(found[0])]
    assert any("step was compiled so often" in note for note in found.notes)


def test_len_index_iterate_and_words():
    def two(x):
        print("", end="")
        return x.sin() if x.sum() > 0 else x.cos()

    found = explain_graph_breaks(two, torch.ones(3))
    assert len(found) == 2
    assert list(found) == [found[0], found[1]]
    assert found.summary().startswith("2 graph breaks, ")
    for one in found:
        assert one.source_line in str(found)
    assert "live" in str(found)
