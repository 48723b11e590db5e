"""Our causes of graph breaks: every snippet runs on the installed torch, and so does its repair."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from helpers import GraphBreak, explain_graph_breaks
from helpers.break_causes import Cause, Clean, find_cause, load_causes, load_clean
from helpers.break_events import EFFECTS
from helpers.machine import SUPPORTED_TORCH
from tests.unit.break_variations import VARIATIONS

TORCH = torch.__version__.split("+")[0]
MARK = "# breaks here"
REGISTRY = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
CAUSES = {cause.id: cause for cause in load_causes()}
# In the snippet the except clause is lost, which is what the entry warns of.
CHANGES_BEHAVIOUR = ("attribute-a-tensor-lacks",)

Load = Callable[[str], ModuleType]


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Returns a function that imports a text as a module in a file of its own."""
    numbers, names = itertools.count(), []

    def imported(source: str) -> ModuleType:
        path = tmp_path / f"program_{next(numbers)}.py"
        path.write_text(source, encoding="utf-8")
        names.append(path.stem)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    hook = sys.breakpointhook
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield imported
    sys.breakpointhook = hook
    for name in names:
        del sys.modules[name]


def eager(module: ModuleType) -> Any:
    torch.manual_seed(0)
    return module.fn(*module.inputs())


def place(found: GraphBreak) -> tuple[str, int]:
    """The learner's own line: the one that led there, if the break lies in torch's code."""
    return found.entry[:2] if found.in_framework else (found.filename, found.lineno)


def by_id(entries: tuple[Cause, ...] | tuple[Clean, ...]) -> dict[str, Any]:
    return {"argvalues": entries, "ids": [entry.id for entry in entries]}


@pytest.mark.parametrize("cause", **by_id(load_causes()))
def test_the_snippet_breaks_where_it_says_and_the_repaired_one_does_not(
    cause: Cause, load: Load
) -> None:
    broken, repaired = load(cause.snippet), load(cause.repaired)
    torch.testing.assert_close(eager(broken), eager(repaired))

    found = explain_graph_breaks(broken.fn, *broken.inputs())
    if TORCH in cause.breaks_on:
        [one] = found
        lines = cause.snippet.splitlines()
        [marked] = [n for n, line in enumerate(lines, 1) if line.endswith(MARK)]
        assert (place(one), one.cause) == ((broken.__file__, marked), cause.id)
        assert one.title == cause.title and cause.fix in one.fix
        assert one.change == cause.change
        assert one.effect == (cause.effect or one.effect)
        assert (found.changes_behaviour is not None) == (cause.id in CHANGES_BEHAVIOUR)
    elif TORCH in SUPPORTED_TORCH:
        assert len(found) == 0 and found.changes_behaviour is None

    whole = explain_graph_breaks(repaired.fn, *repaired.inputs())
    assert (len(whole), whole.graphs, whole.changes_behaviour) == (0, 1, None)


def test_every_cause_has_a_variation() -> None:
    assert set(VARIATIONS) == set(CAUSES)


@pytest.mark.parametrize("name", VARIATIONS)
def test_another_program_of_the_same_kind_has_the_same_cause(name: str, load: Load) -> None:
    module = load(f"import torch\n\n{VARIATIONS[name]}")
    inputs = getattr(module, "inputs", lambda: (torch.ones(3),))()
    found = explain_graph_breaks(module.fn, *inputs)
    if TORCH in CAUSES[name].breaks_on:
        assert [one.cause for one in found] == [name]
    else:
        assert {one.cause for one in found} <= {name}


@pytest.mark.parametrize("clean", **by_id(load_clean()))
def test_what_looks_like_a_break_is_none(clean: Clean, load: Load) -> None:
    module = load(clean.snippet)
    found = explain_graph_breaks(module.fn, *module.inputs())
    assert (len(found), found.graphs, found.changes_behaviour) == (0, 1, None)
    torch.testing.assert_close(found.result, eager(module))


@pytest.mark.parametrize("cause", **by_id(load_causes()))
def test_an_entry_is_complete(cause: Cause) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", cause.id)
    assert cause.title and not cause.title.endswith(".")
    assert cause.explanation.endswith((".", ".)")) and cause.fix.endswith((".", ".)"))
    assert cause.change and not cause.change.endswith(".")
    assert cause.breaks_on and set(cause.breaks_on) <= set(SUPPORTED_TORCH)
    assert cause.effect in ("", *EFFECTS)
    assert cause.snippet.count(MARK) == 1 and MARK not in cause.repaired
    assert cause.patterns and cause.gb_types


def test_ids_are_unique() -> None:
    ids = [entry.id for entry in (*load_causes(), *load_clean())]
    assert len(ids) == len(set(ids)) >= 60


@pytest.mark.skipif(not REGISTRY.exists(), reason="this torch has no registry")
def test_every_cause_that_breaks_here_is_in_torchs_registry() -> None:
    data = json.loads(REGISTRY.read_text(encoding="utf-8"))
    titles = {wording["Gb_type"] for wordings in data.values() for wording in wordings}
    here = [cause for cause in load_causes() if TORCH in cause.breaks_on]
    assert [cause.id for cause in here if titles.isdisjoint(cause.gb_types)] == []


def test_an_unknown_message_has_no_cause() -> None:
    assert find_cause("Something that torch has never said", "y = f(x)") is None
    assert find_cause("", "") is None


def test_a_comment_is_no_code() -> None:
    message = "Data-dependent branching\n  Explanation: Detected data-dependent branching"
    assert find_cause(message, "if t > 0:  # unlike isnan(t)").id == "branch-on-tensor"
    assert find_cause(message, "if t.isnan().any():  # quick").id == "check-for-nan"


def test_the_learners_line_tells_apart_what_torchs_own_line_cannot() -> None:
    message, line = "Call to `torch._dynamo.graph_break()`", "torch._dynamo.graph_break()"
    assert find_cause(message, line).id == "graph-break-asked-for"
    assert find_cause(message, line, "self.optimizer.step()").id == "optimizer-step"


def test_code_that_torch_quotes_below_its_message_decides_nothing() -> None:
    message = (
        "Unsupported method call\n  Developer debug context: call_method X frob [] {}\n"
        "Stack variable source attribution:\n  NullVariable originated from:\n  copy.deepcopy(x)"
    )
    assert find_cause(message, "x.frob()").id == "method-not-read"
    called = '\nfrom user code:\n  File "a.py", line 3, in fn\n    return copy.deepcopy(f(x))'
    advice = "\n  Hint: Use copy.deepcopy outside.\n"
    computed = '\n        # File "a.py", line 4, in fn, code: y = copy.deepcopy(x)\n'
    for aside in (called, advice, computed):
        assert find_cause("Data-dependent branching" + aside, "if y:").id == "branch-on-tensor"
        assert find_cause("Never seen before" + aside, "if y:") is None
