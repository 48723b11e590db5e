"""helpers.authoring and helpers.execution: building, re-attaching, cleaning, stamping."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest

from helpers import authoring, execution, lesson_notebook, lessons, stored_outputs
from helpers.parameters import LessonError

STAMP = {"helpers": "h", "torch": "2.11.0", "device": "NVIDIA H200", "date": "2026-01-02"}


def source_of(root: Path) -> Path:
    return root / "notebooks" / "src" / "00_add_numbers.py"


def notebook_of(root: Path) -> Path:
    return root / "notebooks" / "00_add_numbers.ipynb"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.fixture
def stored(tiny_repository: Path) -> Path:
    """A tiny repository whose lesson has an output per code cell and a stamp."""
    (lesson,) = lessons.find_lessons(tiny_repository)
    executed = lesson_notebook.build_notebook(lesson, None, tiny_repository)
    for number, cell in enumerate(lesson_notebook.code_cells(executed), start=1):
        text = f"output {number}\n"
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)]
    machine = {"device": STAMP["device"], "torch": STAMP["torch"]}
    execution.store(lesson, executed, machine, tiny_repository)
    authoring.build(tiny_repository)
    return tiny_repository


def outputs(root: Path) -> list[tuple[int | None, list[str]]]:
    notebook = nbformat.read(notebook_of(root), as_version=4)
    return [
        (cell.execution_count, [one.text for one in cell.outputs])
        for cell in lesson_notebook.code_cells(notebook)
    ]


def test_building_twice_gives_the_same_bytes(tiny_repository):
    first = authoring.build(tiny_repository)
    assert first == ["wrote notebooks/00_add_numbers.ipynb", "wrote README.md"]
    before = notebook_of(tiny_repository).read_bytes()
    assert authoring.build(tiny_repository) == []
    notebook_of(tiny_repository).unlink()
    authoring.build(tiny_repository)
    assert notebook_of(tiny_repository).read_bytes() == before


def test_a_rebuild_of_a_stored_notebook_changes_nothing(stored):
    before = notebook_of(stored).read_bytes()
    assert authoring.build(stored) == []
    assert notebook_of(stored).read_bytes() == before
    assert [count for count, _ in outputs(stored)] == [1, 2, 3, 4, 5]


def test_ids_follow_the_source_and_repeats_get_a_suffix(tiny_repository):
    def ids() -> list[str]:
        authoring.build(tiny_repository)
        return [cell.id for cell in nbformat.read(notebook_of(tiny_repository), 4).cells]

    before = ids()
    edit(source_of(tiny_repository), "1 + 1", "1 + 2")
    after = ids()
    assert [one == two for one, two in zip(before, after, strict=True)].count(False) == 1
    with source_of(tiny_repository).open("a") as file:
        file.write('\n# %%\n"the value of the last line"\n')
    repeated = ids()
    assert repeated[-1] == f"{repeated[-2]}-2"


def test_metadata_hold_the_policy_and_nothing_else(stored):
    notebook = nbformat.read(notebook_of(stored), as_version=4)
    assert set(notebook.metadata) == {"kernelspec", "language_info", "torch_compile_suite"}
    assert notebook.metadata.kernelspec.name == "python3"
    assert set().union(*(cell.metadata for cell in notebook.cells)) == {"tags"}
    stamp = notebook.metadata.torch_compile_suite.stamp
    assert set(stamp) == {"lesson", "helpers", "torch", "device", "date"}


def test_outputs_stay_before_a_changed_code_cell_and_go_from_it_on(stored):
    edit(source_of(stored), "1 + 1", "1 + 2")
    authoring.build(stored)
    gone = (None, [])
    assert outputs(stored) == [(1, ["output 1\n"]), (2, ["output 2\n"]), gone, gone, gone]


def test_outputs_stay_when_only_prose_changes(stored):
    before = outputs(stored)
    edit(source_of(stored), "{{lessons}}", "Some other words.")
    authoring.build(stored)
    assert outputs(stored) == before


def test_a_new_first_code_cell_drops_every_output(stored):
    edit(source_of(stored), '# %% tags=["parameters"]', '# %%\nx = 1\n\n# %% tags=["parameters"]')
    authoring.build(stored)
    assert outputs(stored) == [(None, [])] * 6


def test_placeholders_are_filled(stored):
    text = notebook_of(stored).read_text()
    facts = "verified on NVIDIA H200, torch 2.11.0, "
    assert f"**5 minutes** · needs: nothing · {facts}" in text
    assert "[Add two numbers](00_add_numbers.ipynb)" in text
    assert "**90 minutes, half a day or a day**" in text
    assert "{{" not in text
    edit(source_of(stored), "1 + 1", "1 + 2")
    authoring.build(stored)
    text = notebook_of(stored).read_text()
    assert facts not in text and "not yet executed since its code last changed" in text


def test_the_readme_keeps_all_but_its_table(tiny_repository):
    authoring.build(tiny_repository)
    assert (tiny_repository / "README.md").read_text() == (
        "# Tiny\n\n<!-- lessons -->\n| no | lesson | minutes |\n|---|---|---|\n"
        "| 00 | [Add two numbers](notebooks/00_add_numbers.ipynb) | 5 |\n"
        "<!-- /lessons -->\n\nThe end.\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"parameters"', '"paramters"', "unknown tag paramters; the tags are check,"),
        ("{{facts}}", "{{fact}}", r"unknown placeholder \{\{fact\}\}; there are facts,"),
        ("# # Add two", "# # Add three", "must start with the heading '# Add two numbers'"),
        ("# %% [markdown]", "# %% [raw]", "no raw cells"),
    ],
)
def test_a_mistake_in_a_source_is_named(tiny_repository, old, new, message, capsys):
    edit(source_of(tiny_repository), old, new)
    with pytest.raises(LessonError, match=message):
        authoring.build(tiny_repository)
    assert authoring.main(["build"], tiny_repository) == 2
    assert capsys.readouterr().err.startswith("00_add_numbers.py")


def test_an_unreadable_notebook_is_not_overwritten(tiny_repository):
    notebook_of(tiny_repository).write_text("{ half a note")
    with pytest.raises(LessonError, match=r"not a readable notebook .* restore it with git"):
        authoring.build(tiny_repository)
    assert notebook_of(tiny_repository).read_text() == "{ half a note"


def test_check_is_quiet_after_build_and_ignores_outputs(stored, capsys):
    assert authoring.check(stored) == []
    edit(notebook_of(stored), "output 3", "output three")
    assert authoring.check(stored) == []
    assert authoring.main(["check"], stored) == 0
    assert "no notebook differs" in capsys.readouterr().out


def change_source(root: Path) -> None:
    edit(source_of(root), "1 + 1", "1 + 2")


def change_prose(root: Path) -> None:
    edit(source_of(root), "{{routes}}", "No routes.")


def change_notebook(root: Path) -> None:
    edit(notebook_of(root), "the sum is", "the total is")


def change_tags(root: Path) -> None:
    edit(notebook_of(root), "nbval-check-output", "nbval-ignore-output")


def change_layout(root: Path) -> None:
    notebook_of(root).write_text(json.dumps(json.loads(notebook_of(root).read_text())))


def remove_notebook(root: Path) -> None:
    notebook_of(root).unlink()


def add_stranger(root: Path) -> None:
    (root / "notebooks" / "99_other.ipynb").write_text(notebook_of(root).read_text())


def change_readme(root: Path) -> None:
    edit(root / "README.md", "| 5 |", "| 6 |")


def add_widget_state(root: Path) -> None:
    edit(notebook_of(root), '"kernelspec"', '"a": {},\n  "kernelspec"')


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (change_source, "differs from its source in cell 1, 5"),  # cell 1: the facts line
        (change_prose, "differs from its source in cell 2"),
        (change_notebook, "differs from its source in cell 5"),
        (change_tags, "differs from its source in cell 5"),
        (change_layout, "not written the way build writes it"),
        (remove_notebook, "does not exist"),
        (add_stranger, "99_other.ipynb has no source"),
        (change_readme, "README.md is not current"),
        (add_widget_state, "its metadata differ"),
    ],
)
def test_check_finds_each_kind_of_drift(stored, change, named, capsys):
    change(stored)
    assert any(named in line for line in authoring.check(stored))
    assert authoring.main(["check"], stored) == 1
    assert named in capsys.readouterr().out


def test_stale_stamps_warn_and_do_not_fail(stored, capsys):
    edit(notebook_of(stored), '"torch": "2.11.0"', '"torch": "1.0.0"')
    authoring.build(stored)
    (stored / "helpers" / "origin.py").open("a").write("# more\n")
    assert authoring.main(["check"], stored) == 0
    shown = capsys.readouterr().out
    assert "helpers/ changed" in shown and "it ran on torch 1.0.0" in shown
    change_source(stored)
    authoring.build(stored)
    assert "its code changed" in authoring.stale_stamps(stored)[0]
    notebook_of(stored).unlink()
    authoring.build(stored)
    assert authoring.stale_stamps(stored) == ["00_add_numbers: it was never executed"]


def test_the_helpers_hash_sees_the_engine_and_not_the_tools(tiny_repository):
    before = lesson_notebook.helpers_hash(tiny_repository)
    (tiny_repository / "helpers" / "my.py").open("a").write("# more\n")
    assert lesson_notebook.helpers_hash(tiny_repository) == before
    (tiny_repository / "helpers" / "origin.py").open("a").write("# more\n")
    assert lesson_notebook.helpers_hash(tiny_repository) != before


def test_paths_of_this_machine_become_short_neutral_forms(tmp_path):
    clean = stored_outputs.clean_text
    assert clean(f"{tmp_path}/notebooks/x.py", tmp_path) == "notebooks/x.py"
    assert clean(f"in {tmp_path}", tmp_path) == "in ."
    assert clean(f"{tmp_path}-2/x", tmp_path) != "-2/x"
    assert clean("/a/lib/python3.12/site-packages/torch/x.py:3", tmp_path) == (
        "site-packages/torch/x.py:3"
    )
    assert clean("/a/b/lib/python3.12/json/x.py", tmp_path) == "python3.12/json/x.py"
    assert clean("/tmp/ipykernel_12/34.py", tmp_path) == "cell.py"
    assert clean("W1130 14:35:28.861000 16016 torch/x.py:1] no", tmp_path) == "W torch/x.py:1] no"
    assert clean(f"{tempfile.gettempdir()}/torchinductor_me/a.py", tmp_path / "r") == (
        "TMP/torchinductor/a.py"
    )
    assert clean(str(Path.home() / "x"), tmp_path) == "~/x"
    assert clean("https://pytorch.org/tmp/x and a/tmp/b", tmp_path) == (
        "https://pytorch.org/tmp/x and a/tmp/b"
    )


def test_outputs_lose_widgets_timing_and_overwritten_lines():
    new = nbformat.v4.new_output
    view = {stored_outputs.WIDGET_VIEW: {"model_id": "abc"}, "text/plain": "HBox(children=())"}
    picture = {"image/png": "AAAA/tmp/AAAA", "text/plain": "<Figure>"}
    raw = [
        new("stream", name="stdout", text="10 %\r"),
        new("stream", name="stdout", text="100 %\ndone\n"),
        new("display_data", data=view, metadata={"started": 1}),
        new("display_data", data=picture),
        new("execute_result", data={"application/json": {"at": ["/tmp/x"]}}, execution_count=7),
    ]
    text, panel, figure, result = stored_outputs.clean_outputs(raw, 2)
    assert text.text == "100 %\ndone\n"
    assert panel.data == {"text/plain": stored_outputs.PANEL_NOTE} and panel.metadata == {}
    assert figure.data["image/png"] == "AAAA/tmp/AAAA"
    assert (result.data["application/json"], result.execution_count) == ({"at": ["TMP/x"]}, 2)
    assert raw[-1].execution_count == 7  # the executed notebook itself is left as it was


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Answers for the fresh process that would import torch to ask what it runs on."""
    answer = {"device": "a tiny card", "torch": "2.11.0"}
    monkeypatch.setattr(execution, "describe_machine", lambda device, root: answer)
    return answer


def test_execute_stores_counts_outputs_and_stamp_and_then_skips(tiny_repository, machine, capsys):
    authoring.build(tiny_repository)
    assert authoring.main(["execute"], tiny_repository) == 0
    text = notebook_of(tiny_repository).read_text()
    notebook = nbformat.reads(text, as_version=4)
    cells = lesson_notebook.code_cells(notebook)
    assert [cell.execution_count for cell in cells] == [1, 2, 3, 4, 5]
    assert cells[2].outputs[0].text == "the sum is 2\n"
    assert cells[4].outputs[0].execution_count == 5
    assert lesson_notebook.read_stamp(notebook)["device"] == "a tiny card"
    assert "verified on a tiny card, torch 2.11.0" in text
    assert "notebooks/x python3" in cells[3].outputs[0].text
    assert "TMP/torchinductor/ab.py ~/mine.txt" in cells[3].outputs[0].text
    assert stored_outputs.find_machine_paths(text) == []
    assert not {"widgets", "papermill"} & set(notebook.metadata)
    assert str(tiny_repository) not in text and sys.prefix not in text

    capsys.readouterr()
    before = notebook_of(tiny_repository).read_bytes()
    assert authoring.main(["execute"], tiny_repository) == 0
    assert "skipped" in capsys.readouterr().out
    assert authoring.check(tiny_repository) == []
    assert notebook_of(tiny_repository).read_bytes() == before


def test_a_chosen_device_reaches_the_lesson_but_leaves_no_cell(tiny_repository, machine):
    authoring.build(tiny_repository)
    assert authoring.main(["execute", "00", "--device", "cpu"], tiny_repository) == 0
    notebook = nbformat.read(notebook_of(tiny_repository), as_version=4)
    cells = lesson_notebook.code_cells(notebook)
    assert "device='cpu'" in cells[1].outputs[0].text
    assert [cell.execution_count for cell in cells] == [1, 2, 3, 4, 5]
    assert authoring.check(tiny_repository) == []


def test_a_lesson_that_fails_keeps_its_old_notebook(stored, machine, capsys):
    edit(source_of(stored), "1 + 1", "1 / 0")
    before = notebook_of(stored).read_bytes()
    assert authoring.main(["execute"], stored) == 1
    assert "FAILED: code cell 3" in capsys.readouterr().out
    assert notebook_of(stored).read_bytes() == before
    assert "ZeroDivisionError" in (stored / "runs/failed/00_add_numbers.ipynb").read_text()


def test_an_interrupted_execution_leaves_the_old_notebook_and_goes_on(stored, machine, monkeypatch):
    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    before = notebook_of(stored).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(execution, "write_whole", interrupt)
        assert authoring.main(["execute", "--force"], stored) == 130
    assert notebook_of(stored).read_bytes() == before
    assert authoring.main(["execute"], stored) == 0
    assert "the sum is 2" in notebook_of(stored).read_text()


def test_record_says_that_there_is_nothing_and_runs_what_there_is(stored, machine, capsys):
    assert execution.record(stored)
    assert "no recording is registered" in capsys.readouterr().out
    folder = stored / "notebooks" / "recordings"
    folder.mkdir()
    (folder / "record_one.py").write_text("open('recorded.txt', 'w').write('yes')\n")
    assert execution.record(stored)
    assert (stored / "recorded.txt").read_text() == "yes"
    (folder / "record_two.py").write_text("raise SystemExit(3)\n")
    assert authoring.main(["record"], stored) == 1
    assert "record_two: FAILED" in capsys.readouterr().out


def test_a_device_that_is_not_here_is_said_in_one_line(tiny_repository, capsys):
    (tiny_repository / "helpers" / "environment.py").write_text(
        "def choose_device(device):\n    raise RuntimeError('there is no CUDA GPU here')\n"
    )
    assert authoring.main(["execute", "--device", "cuda"], tiny_repository) == 2
    shown = capsys.readouterr().err
    assert "cannot execute on 'cuda': RuntimeError: there is no CUDA GPU here" in shown
