"""helpers.first_compile: figures of first and later calls, recorded ones, the panel, the script."""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import ipywidgets
import pytest
import torch

from helpers import first_compile, recordings
from helpers.display import View
from helpers.dynamo import compilation_count
from helpers.first_calls_panels import first_calls_panel
from helpers.first_compile import Case, Figures, first_calls_view
from helpers.origin import Origin

ROOT = Path(__file__).resolve().parents[2]
LIVE = Origin("live", "Test CPU", "2.11.0", "2026-01-02")
SEEN = Figures(2.0, 1000.0, 1.0, LIVE)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No recording, and a compiler that captures only: seconds instead of a minute."""
    monkeypatch.setattr(recordings, "recordings_folder", lambda: tmp_path)
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    return tmp_path


def entry(eager_ms: float, first_s: float, later_ms: float) -> dict[str, Any]:
    def one(wall: float, first: float) -> dict[str, Any]:
        return {"wall_ms": wall, "first_call_s": first, "notes": [], "disturbed": False}

    return {"eager": one(eager_ms, 0.1), "compiled": one(later_ms, first_s)}


def record(**data: Any) -> None:
    recordings.save(first_compile.RECORDING, data, LIVE)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (("huge", 8, "float32"), "size is one of small, medium, large; got 'huge'"),
        (("small", 7, "float32"), "batch is one of 1, 8, 64; got 7"),
        (("small", 8, "int8"), "dtype is one of float32, bfloat16; got 'int8'"),
    ],
)
def test_a_choice_that_is_not_offered(choice: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Case(*choice)
    assert str(first_calls_view(*choice)) == f"Error: ValueError: {message}"


@pytest.mark.parametrize("size", first_compile.SIZES)
@pytest.mark.parametrize("dtype", first_compile.DTYPES)
def test_each_model_runs(size: str, dtype: str) -> None:
    state = torch.random.get_rng_state()
    model, images = Case(size, 1, dtype).make("cpu")
    with torch.no_grad():
        scores = model(images)
    assert (scores.shape, scores.dtype) == ((1, 10), getattr(torch, dtype))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_operations_are_those_that_torch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    case = Case("medium", 8)
    model, images = case.make("cpu")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(images)
    assert case.operations() == pytest.approx(counter.get_total_flops(), rel=0.1)


@pytest.mark.parametrize(
    ("eager", "first", "later", "calls"),
    [(2, 1000, 1, 999), (2, 2, 1, 1), (1, 5, 1, None), (1, 5, 2, None), (3, 1, 1, 1)],
)
def test_paying_back(eager: float, first: float, later: float, calls: int | None) -> None:
    found = first_compile.pay_back_calls(eager, first, later)
    assert found == calls
    if found is not None:
        assert first + (found - 1) * later <= found * eager
        assert found == 1 or first + (found - 2) * later > (found - 1) * eager


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (SEEN, "as long as 1,000 later ones. Compiling has paid back after 999 calls."),
        (Figures(1, 1000, 2, LIVE), "Compiling never pays back: later calls are slower"),
        (Figures(1, 1000, 1.1, LIVE), "No difference shown: two runs of the same code may"),
        (Figures(1.1, 1000, 1, LIVE), "No difference shown: two runs of the same code may"),
        (Figures(9, 1000, 1, LIVE, (), True), "meanwhile: don't count on a difference."),
        (
            Figures(9, 1000, 1, LIVE, (), True, True),
            "compiling has paid back after about 125 calls. Measure again before relying on",
        ),
        (Figures(1, 1000, 9, LIVE, (), True, True), "compiling never pays back here. Measure"),
    ],
)
def test_what_figures_mean_is_said(figures: Figures, words: str) -> None:
    assert words in figures.words()


def test_the_picture_is_logarithmic_and_says_so() -> None:
    view = first_compile.show_figures("a title", {"This machine": SEEN})
    widths = [float(one) for one in re.findall(r'<rect [^>]*width="([\d.]+)"', view.html)]
    eager, first, later = widths[:3]
    decade = (first - later) / 3  # 1 ms to 1000 ms
    assert eager - later == pytest.approx(math.log10(2) * decade, abs=0.2)
    assert min(widths) > 0
    assert "Scale: logarithmic. Each grid line stands for ten times" in view.html
    assert "2 ms" in str(view) and "1 s" in str(view) and "live: made when" in str(view)
    assert 'alt="a title. This machine: An eager call takes 2 ms' in view.html


def test_figures_of_one_size_have_a_picture_too() -> None:
    flat = Figures(1.0, 1.0, 1.0, LIVE)
    assert "<svg" in first_compile.show_figures("t", {"This machine": flat}).html


def test_without_a_recording_one_line_says_so() -> None:
    found = first_compile.recorded_figures("grid", "small/8/float32")
    assert found == "no figures of a GPU have been recorded for this lesson yet."
    assert str(first_compile.without_waiting_view()) == found


def test_a_broken_recording_is_told_in_words(folder: Path) -> None:
    (folder / f"{first_compile.RECORDING}.json").write_text("{")
    assert "is not whole JSON" in str(first_compile.recorded_figures("grid", "x"))
    assert "is not whole JSON" in str(first_compile.without_waiting_view())


def test_recorded_figures_stand_beside_and_are_marked() -> None:
    record(grid={"small/8/float32": entry(3, 4, 1.5)})
    found = first_compile.recorded_figures("grid", "small/8/float32")
    assert isinstance(found, Figures)
    assert (found.values(), found.origin.kind) == ((3, 4000, 1.5), "recorded")
    view = first_compile.show_figures("t", {"This machine": SEEN, "Recorded": found})
    assert view.html.count("<rect") == 6
    assert "recorded: made earlier, on the machine named here (Test CPU" in str(view)
    missing = first_compile.recorded_figures("grid", "large/64/float32")
    assert missing == "This case was not recorded: large/64/float32."


def test_a_clock_that_did_not_wait() -> None:
    record(no_sync={"what": "work", "without_ms": [0.1, 0.1], "with_ms": [5.0, 5.0]})
    text = str(first_compile.without_waiting_view())
    assert "the clock says 0.1 ms without synchronize, and 5 ms with it" in text
    assert "50 times too small" in text and "recorded" in text


def test_the_view_measures_and_leaves_no_trace() -> None:
    model, images = Case().make("cpu")
    compiled = torch.compile(model)
    with torch.no_grad():
        compiled(images)
        before = compilation_count()
        view = first_calls_view("small", 8, "float32")
        compiled(images)
    assert compilation_count() == before
    assert "small vision transformer, batch 8, float32" in str(view)
    assert "The first compiled call takes" in str(view)
    assert "no figures of a GPU have been recorded" in str(view)


def test_the_first_call_compiles_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def counting(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    real = torch.compile.func
    monkeypatch.setattr(torch, "compile", functools.partial(real, backend=counting))
    for expected in (1, 2):
        first_compile.measure_case(Case("small", 1), "cpu", repeats=3)
        assert len(graphs) == expected


def test_what_would_take_minutes_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_compile, "measure_case", lambda *_, **__: pytest.fail("it ran"))
    record(grid={"large/64/float32": entry(3, 4, 1.5)})
    text = str(first_calls_view("large", 64, "float32"))
    assert "Not measured here: on a CPU each call of the large vision transformer" in text
    assert "Recorded: An eager call takes 3 ms" in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("No working C++ compiler found\nmore"), "preflight() says how to get"),
        (torch.OutOfMemoryError("CUDA out of memory."), "Choose a smaller model or batch."),
    ],
)
def test_an_error_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(first_compile, "live_figures", fails)
    view = first_calls_view()
    assert words in str(view) and "more" not in str(view).split()
    assert "<b>Error:</b>" in view.html


def test_a_race_shows_verdict_accuracy_and_what_was_recorded() -> None:
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x / 2

    record(races={"halve": entry(3, 4, 1.5) | {"what": "halve on 9 x 9, float32"}})
    text = str(first_compile.race(halve, torch.ones(3, 4), recorded="halve", repeats=5))
    heading, verdict, *_ = text.splitlines()
    assert heading == "halve on 3 x 4" and verdict.startswith("Verdict here: ")
    assert "compared with a float64 run" in text and "(time of eager / time of compiled = " in text
    assert "The recorded race is halve on 9 x 9, float32." in text
    alone = first_compile.race(halve, torch.ones(3, 4), repeats=5)
    assert "ecorded" not in str(alone)
    assert (alone.eager.label, alone.compiled.label) == ("eager", "compiled")
    assert alone.eager.count == alone.compiled.count == 5


def test_the_verdict_comes_first_and_the_details_are_folded() -> None:
    page = first_compile.show_figures("t", {"This machine": SEEN}, "The verdict.", ["Why so."]).html
    folded = page.index("<details>")
    assert page.index("The verdict.") < page.index("<svg") < folded
    for detail in ("Why so.", "Scale: logarithmic.", "<table>", "made when this cell ran"):
        assert page.index(detail) > folded
    assert page.index("An eager call takes 2 ms, a later") < folded
    assert "<details" not in first_compile.show_figures("t", {"This machine": SEEN}).html


def test_a_race_of_something_without_tensors_or_a_name() -> None:
    shown = str(first_compile.race(functools.partial(torch.ones, 3), repeats=5))
    assert shown.splitlines()[0] == "partial"


def test_the_rows_of_a_run_hold_choice_figures_and_ratio() -> None:
    disturbed = Figures(3.0, 2000.0, 2.0, LIVE, (), True)
    rows = first_compile.run_rows(
        Case("medium", 1), {"This machine": disturbed, "Recorded": SEEN, "Third": "was not made"}
    )
    assert rows == (
        ("medium", "1", "float32", "This machine, disturbed", "3 ms", "2 s", "2 ms", "1.5"),
        ("medium", "1", "float32", "Recorded", "2 ms", "1 s", "1 ms", "2"),
    )
    assert all(len(row) == len(first_compile.RUN_COLUMNS) for row in rows)


@pytest.fixture
def panel(monkeypatch: pytest.MonkeyPatch) -> Any:
    calls = []

    def view(*choice: Any) -> View:
        calls.append(choice)
        return View(f"<p>{choice}</p>", str(choice))

    monkeypatch.setattr(first_compile, "first_calls_view", view)
    made = first_calls_panel(View("<p>the start</p>", ""))
    made.calls = calls
    return made


def test_the_panel_runs_only_when_asked(panel: Any) -> None:
    assert panel.output.value == "<p>the start</p>"
    panel.size.value, panel.batch.value, panel.dtype.value = "medium", 64, "bfloat16"
    assert panel.calls == [] and panel.output.value == "<p>the start</p>"
    assert "Press Run to measure: medium vision transformer, batch 64" in panel.status.value
    panel.button.click()
    assert panel.calls == [("medium", 64, "bfloat16", "cpu")]
    assert panel.output.value == "<p>('medium', 64, 'bfloat16', 'cpu')</p>"
    assert "Done: medium vision transformer, batch 64, bfloat16." in panel.status.value
    assert not panel.button.disabled


def test_the_panel_shows_that_it_works(panel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def view(*_: Any) -> View:
        seen.append((panel.status.value, panel.button.disabled))
        return View("", "")

    monkeypatch.setattr(first_compile, "first_calls_view", view)
    panel.button.click()
    [(status, disabled)] = seen
    assert "Working: compiling and timing the small" in status and disabled


def test_the_panel_keeps_the_figures_of_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def view(size: str, batch: int, dtype: str, _: str) -> View:
        shown = {"This machine": Figures(2.0 * batch, 1000.0, 1.0, LIVE)}
        return first_compile.CallsView("", "", first_compile.run_rows(Case(size, batch), shown))

    monkeypatch.setattr(first_compile, "first_calls_view", view)
    panel = first_calls_panel(view("small", 8, "float32", "cpu"))
    for batch in (64, 1):
        panel.batch.value = batch
        panel.button.click()
    cells = re.findall(r"<td>([^<]*)</td>", panel.table.value)
    columns = len(first_compile.RUN_COLUMNS)
    assert [cells[i + 1] for i in range(0, len(cells), columns)] == ["1", "64", "8"]
    assert [cells[i + 7] for i in range(0, len(cells), columns)] == ["2", "128", "16"]
    assert "Runs so far, newest first" in panel.table.value


def test_a_run_that_failed_leaves_the_table_as_it_was(panel: Any) -> None:
    panel.button.click()
    assert panel.runs == [] and panel.table.value == ""


def test_the_panel_has_names_and_hides_no_error(panel: Any) -> None:
    controls = (panel.size, panel.batch, panel.dtype, panel.button)
    assert all(one.description for one in controls)
    assert not any(isinstance(one, ipywidgets.Output) for one in panel.children)


@pytest.fixture
def script() -> ModuleType:
    path = ROOT / "notebooks" / "recordings" / "record_01_first_compile.py"
    spec = importlib.util.spec_from_file_location("record_01", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_script_records_what_the_lesson_reads(
    script: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # put back afterwards
    monkeypatch.setattr(script, "REPEATS", 3)
    monkeypatch.setattr(script, "remember_vector_isa", lambda: "")  # nothing is generated
    place = folder / "made"
    assert script.main(["--device", "cpu", "--folder", str(place), "--sizes", "small"]) == 0
    assert [one.name for one in place.iterdir()] == ["01_first_compile.json"]
    for batch in first_compile.BATCHES:
        for dtype in first_compile.DTYPES:
            found = first_compile.recorded_figures("grid", f"small/{batch}/{dtype}")
            assert isinstance(found, Figures) and min(found.values()) > 0
    for name in ("rms_norm", "residual"):
        assert isinstance(first_compile.recorded_figures("races", name), Figures)
    raw = recordings.load(first_compile.RECORDING).data["races"]["residual"]["eager"]
    assert len(raw["samples_ms"]) == 3


def test_the_script_stops_where_time_is_spent(script: ModuleType, capsys: Any) -> None:
    assert script.record_grid("cpu", [Case()], until=0.0) == {}
    assert "left out, no time: small vision transformer" in capsys.readouterr().err


def test_the_script_refuses_a_cpu_by_default(script: ModuleType, folder: Path, capsys: Any) -> None:
    assert script.main(["--device", "cpu"]) == 2
    assert "--folder NAME" in capsys.readouterr().err
    assert list(folder.iterdir()) == []
