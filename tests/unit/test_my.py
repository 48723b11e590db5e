"""helpers.my: copies are filled, renewed and put back, and nothing a learner made is lost."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import nbformat
import pytest

from helpers import files, my

NAME = "notebooks/00_add_numbers.ipynb"
MARK = "stored from NVIDIA H200 on 2026-01-02; run to replace"


def write_lesson(path: Path, outputs: dict[str, str]) -> None:
    """Writes a notebook with one code cell per source; an empty text means no stored output."""
    cells = [nbformat.v4.new_markdown_cell("# A title", id="title")]
    for number, (source, text) in enumerate(outputs.items(), start=1):
        stored = [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []
        cells.append(
            nbformat.v4.new_code_cell(
                source, id=f"c{number}", outputs=stored, execution_count=number
            )
        )
    stamp = {"device": "NVIDIA H200", "date": "2026-01-02"}
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["torch_compile_suite"] = {"stamp": stamp}
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_lesson(tmp_path / NAME, {"print(1)": "1\n", "x = 2": ""})
    write_lesson(tmp_path / "labs/03_repair.ipynb", {"raise NotImplementedError": ""})
    write_lesson(tmp_path / "labs/src/not_copied.ipynb", {"x": ""})
    (tmp_path / "notebooks/figures").mkdir()
    (tmp_path / "notebooks/figures/a.svg").write_text("<svg/>")
    (tmp_path / "notebooks/recordings").mkdir()
    (tmp_path / "notebooks/recordings/a.svg").write_text("<svg/>")
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def all_files(root: Path) -> dict[str, bytes]:
    mine = root / "my"
    found = (path for path in mine.rglob("*") if path.is_file() and path.name != my.MANIFEST)
    return {path.relative_to(mine).as_posix(): path.read_bytes() for path in found}


def test_fill_copies_lessons_labs_and_drawings_once(root):
    assert my.fill(root) == [
        f"new: my/{NAME}",
        "new: my/notebooks/figures/a.svg",
        "new: my/labs/03_repair.ipynb",
    ]
    before = all_files(root)
    assert set(before) == {NAME, "notebooks/figures/a.svg", "labs/03_repair.ipynb"}
    assert my.fill(root) == ["my/ is current: 3 files"]
    assert all_files(root) == before


def tracked_files(root: Path) -> dict[Path, bytes]:
    files = [*(root / "notebooks").rglob("*"), *(root / "labs").rglob("*")]
    return {path: path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("name", ["my", "my/notebooks", "my/notebooks/figures"])
@pytest.mark.parametrize("call", [["fill"], ["reset", "LESSON=00"]])
def test_a_file_or_dead_link_where_a_folder_belongs_is_one_message(root, name, call, capsys):
    for make in (lambda p: p.write_text("mine"), lambda p: p.symlink_to("nowhere")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        make(root / name)
        assert my.main(call, root) == 2
        said = capsys.readouterr().err
        assert said == f"helpers.my: {name} is no folder: move it away and run this again\n"
        (root / name).unlink()


@pytest.mark.parametrize(
    ("name", "target"),
    [("my", "."), ("my", "notebooks"), ("my/notebooks", "../notebooks"),
     ("my/notebooks/figures", "../../notebooks/figures")],
)  # fmt: skip
@pytest.mark.parametrize("call", [["fill"], ["reset", "LESSON=00"]])
def test_a_folder_that_leads_to_the_tracked_files_is_refused(root, name, target, call, capsys):
    before = tracked_files(root)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).symlink_to(target, target_is_directory=True)
    assert my.main(call, root) == 2
    said = capsys.readouterr().err
    assert f"{name} is a link to tracked files" in said and said.count("\n") == 1
    assert tracked_files(root) == before


def test_a_folder_of_ones_own_elsewhere_may_be_linked(root, tmp_path_factory):
    (root / "my").symlink_to(tmp_path_factory.mktemp("elsewhere"), target_is_directory=True)
    assert f"new: my/{NAME}" in my.fill(root)


@pytest.mark.parametrize("kind", ["link", "link to another", "hard link"])
@pytest.mark.parametrize("call", [["fill"], ["reset", "LESSON=00"]])
def test_a_copy_that_is_a_link_to_a_tracked_file_becomes_a_copy(root, kind, call, capsys):
    before, copy = tracked_files(root), root / "my" / NAME
    copy.parent.mkdir(parents=True)
    if kind == "hard link":
        os.link(root / NAME, copy)
    else:
        copy.symlink_to(root / (NAME if kind == "link" else "labs/03_repair.ipynb"))
    assert my.main(call, root) == 0
    assert NAME in capsys.readouterr().out
    assert not copy.is_symlink() and MARK in copy.read_text()
    copy.write_text("an edit")
    assert tracked_files(root) == before
    assert not list(copy.parent.glob("*.kept-*"))


def test_a_folder_named_like_the_lesson_is_said_and_the_others_are_filled(root, capsys):
    (root / "my" / NAME / "mine").mkdir(parents=True)
    said = f"my/{NAME} is a folder and no file: move it away and run this again"
    lines = my.fill(root)
    assert said in lines and "new: my/labs/03_repair.ipynb" in lines
    assert my.main(["reset", "LESSON=00"], root) == 2
    assert capsys.readouterr().err == f"helpers.my: {said}\n"
    assert (root / "my" / NAME / "mine").is_dir()


def test_an_empty_copy_is_filled_again(root):
    for again in (lambda: my.fill(root), lambda: my.reset("00", root)):
        my.fill(root)
        (root / "my" / NAME).write_bytes(b"")
        assert any(f"my/{NAME}" in line for line in again())
        assert MARK in (root / "my" / NAME).read_text()
        assert not list((root / "my/notebooks").glob("*.kept-*"))
    (root / "my" / NAME).write_bytes(b"")
    assert f"in place of an empty file: my/{NAME}" in my.fill(root)


def test_reset_without_a_lesson_is_one_line(root, capsys):
    assert my.main(["reset"], root) == 2
    assert capsys.readouterr().err == (
        "helpers.my: say which one: reset LESSON=03, or reset LAB=03\n"
    )


def test_only_cells_with_stored_outputs_are_marked_and_the_mark_comes_first(root):
    my.fill(root)
    notebook = nbformat.read(root / "my" / NAME, as_version=4)
    nbformat.validate(notebook)
    _, stored, silent = notebook.cells
    assert stored.outputs[0].data["text/plain"] == MARK
    assert MARK in stored.outputs[0].data["text/html"]
    assert stored.outputs[1].text == "1\n"
    assert silent.outputs == []
    assert MARK not in (root / NAME).read_text()


def test_answers_are_folded_between_predict_and_explain(root):
    path = root / NAME
    notebook = nbformat.read(path, as_version=4)
    cells = []
    for text in (
        "**Predict.** What?",
        "**Inspect.** Look.",
        "**Explain.** So.",
        "**Predict.** And?",
    ):
        cells.append(nbformat.v4.new_markdown_cell(text))
        outputs = [nbformat.v4.new_output("stream", name="stdout", text="1\n")]
        cells.append(nbformat.v4.new_code_cell("print(1)", outputs=outputs, execution_count=1))
    notebook.cells = cells
    nbformat.write(notebook, path)
    my.fill(root)
    copied = nbformat.read(root / "my" / NAME, as_version=4).cells
    hidden = [c.metadata.get("jupyter", {}).get("outputs_hidden", False) for c in copied[1::2]]
    assert hidden == [True, True, False, True]


def test_the_copy_is_signed_so_that_jupyterlab_shows_its_stored_styles(root, tmp_path, monkeypatch):
    from nbformat.sign import NotebookNotary

    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    my.fill(root)
    copy = nbformat.read(root / "my" / NAME, as_version=4)
    assert NotebookNotary().check_signature(copy)


def test_an_untouched_copy_is_renewed_when_the_lesson_is_newer(root):
    my.fill(root)
    edit(root / NAME, "print(1)", "print(10)")
    (line,) = my.fill(root)
    assert line.startswith(f"renewed my/{NAME}")
    assert "print(10)" in (root / "my" / NAME).read_text()
    assert my.fill(root) == ["my/ is current: 3 files"]


def test_saving_in_jupyterlab_without_a_change_is_not_a_change(root):
    my.fill(root)
    copy = root / "my" / NAME
    notebook = json.loads(copy.read_text())
    notebook["metadata"]["language_info"] = {"name": "python", "version": "3.12.1"}
    copy.write_text(json.dumps(notebook))
    edit(root / NAME, "print(1)", "print(10)")
    assert my.fill(root)[0].startswith("renewed")


@pytest.mark.parametrize("change", [("print(1)", "print(3)"), ('"1\\n"', '"one\\n"')])
def test_a_changed_copy_stays_and_the_newer_version_is_announced(root, change):
    my.fill(root)
    edit(root / "my" / NAME, *change)  # the source, or an output: what the learner's run gave
    before = all_files(root)
    assert my.fill(root) == ["my/ is current: 3 files"]
    edit(root / NAME, "x = 2", "x = 20")
    (line,) = my.fill(root)
    assert line.startswith(f"kept my/{NAME}, which you changed")
    assert "make reset LESSON=00" in line
    assert all_files(root) == before


def test_a_changed_lab_names_the_lab_to_reset(root):
    my.fill(root)
    edit(root / "my/labs/03_repair.ipynb", "NotImplementedError", "ValueError")
    edit(root / "labs/03_repair.ipynb", "# A title", "# Another")
    assert "make reset LAB=03" in my.fill(root)[0]


def test_files_of_the_learner_are_never_touched(root):
    own = root / "my" / NAME
    own.parent.mkdir(parents=True)
    own.write_text("my own notes under the same name")
    (root / "my/notebooks/other.ipynb").write_text("{}")
    lines = my.fill(root)
    assert f"kept my/{NAME}: it is not a copy made here" in lines
    my.reset("00", root)
    mine = all_files(root)
    assert mine["notebooks/other.ipynb"] == b"{}"
    kept = [name for name in mine if ".kept-" in name]
    assert [mine[name] for name in kept] == [b"my own notes under the same name"]


def test_a_damaged_manifest_loses_nothing(root):
    my.fill(root)
    edit(root / "my" / NAME, "print(1)", "print(3)")
    before = all_files(root)
    (root / "my" / my.MANIFEST).write_text('{"half')
    lines = my.fill(root)
    assert "was damaged and is made anew" in lines[0]
    assert f"kept my/{NAME}: it is not a copy made here" in lines
    assert "found my/labs/03_repair.ipynb, as delivered" in lines
    assert all_files(root) == before
    assert my.reset("00", root)[0].startswith("kept yours as")


def test_a_half_written_copy_is_discarded_and_a_running_write_is_not(root):
    my.fill(root)
    folder = root / "my/notebooks"
    dead = folder / ".00_add_numbers.ipynb.4194305.part"  # above the largest process id of Linux
    alive = folder / f".00_add_numbers.ipynb.{os.getppid()}.part"
    own = folder / ".notes.part"
    for path in (dead, alive, own):
        path.write_text("half")
    assert my.fill(root) == [f"discarded {dead.name}, half-written"]
    assert [path.exists() for path in (dead, alive, own)] == [False, True, True]


def test_a_full_disk_leaves_no_half_file_and_the_next_fill_goes_on(root, monkeypatch, capsys):
    real, calls = os.fsync, []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        assert my.main(["fill"], root) == 1
    assert "No space left on device; what was finished is kept" in capsys.readouterr().err
    assert set(all_files(root)) == {NAME}
    assert my.main(["fill"], root) == 0
    assert len(all_files(root)) == 3


def test_reset_puts_back_and_keeps_every_old_copy(root):
    my.fill(root)
    copy = root / "my" / NAME
    delivered = copy.read_bytes()
    assert my.reset("00", root) == [f"my/{NAME} is as delivered; nothing to put back"]
    for version in ("first", "second"):
        edit(copy, "print(1)", f"print('{version}')")
        lines = my.reset("0", root)
        assert copy.read_bytes() == delivered
        assert re.fullmatch(r"kept yours as my/notebooks/\S+\.kept-[\d-]+-\d\.ipynb", lines[0])
    kept = sorted(text for name, text in all_files(root).items() if ".kept-" in name)
    assert len(kept) == 2
    assert b"first" in kept[0] and b"second" in kept[1]


def test_reset_also_works_without_hard_links(root, monkeypatch):
    def refuse(*_args):
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(my.os, "link", refuse)
    test_reset_puts_back_and_keeps_every_old_copy(root)


def test_reset_of_a_lesson_that_was_renewed_meanwhile_gets_the_newest(root):
    my.fill(root)
    edit(root / "my" / NAME, "print(1)", "print(3)")
    edit(root / NAME, "x = 2", "x = 20")
    my.reset("00_add_numbers", root)
    assert "x = 20" in (root / "my" / NAME).read_text()
    assert my.fill(root) == ["my/ is current: 3 files"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reset", "LESSON=07"], "there is no lesson '07'; there are: 00"),
        (["reset", "LAB=07"], "there is no lab '07'; there are: 03"),
        (["reset", "LESSON="], "say which one"),
        (["reset", "PAGE=1"], "say which one"),
    ],
)
def test_a_wrong_call_ends_in_one_message(root, arguments, message, capsys):
    assert my.main(arguments, root) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.out == "" and shown.err.count("\n") == 1


@pytest.mark.parametrize("argument", ["LESSON=00", "00", "0", "00_add_numbers"])
def test_the_command_line_takes_a_lesson_in_each_form(root, argument, capsys):
    assert my.main(["reset", argument], root) == 0
    assert f"put back my/{NAME}" in capsys.readouterr().out


def test_no_lessons_at_all_is_an_error(tmp_path, capsys):
    assert my.main(["fill"], tmp_path) == 2
    assert "no lesson in notebooks/" in capsys.readouterr().err


def test_a_tracked_file_that_is_no_notebook_is_named(root, capsys):
    (root / NAME).write_text("{ half")
    assert my.main(["fill"], root) == 2
    assert "00_add_numbers.ipynb is not a readable notebook" in capsys.readouterr().err
