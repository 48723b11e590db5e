"""The runner of the test layers: what turns it red, and that nothing passes for nothing."""

from __future__ import annotations

import shutil

import nbformat
import pytest

from helpers import testing

GOOD = "def test_good():\n    assert 1 + 1 == 2\n"
BAD = "def test_bad():\n    assert 1 + 1 == 3\n"
SKIPPED = "import pytest\n\n@pytest.mark.skip(reason='no card')\ndef test_skipped():\n    pass\n"
BROKEN = "import a_module_that_is_not_there\n"


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """run(layer="source of a test file", ...) gives exit code and what was printed."""
    monkeypatch.setenv("LAYERS", "")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to load

    def call(**sources: str) -> tuple[int, str]:
        for name, source in sources.items():
            (tmp_path / f"test_{name}.py").write_text(source)
        layers = {name: (f"test_{name}.py",) for name in sources}
        code = testing.main(["-p", "no:cacheprovider"], layers, tmp_path)
        printed = capfd.readouterr()
        return code, printed.out + printed.err

    return call


def test_all_green(run, tmp_path):
    code, printed = run(unit=GOOD + SKIPPED, browser=GOOD)
    assert code == 0
    assert printed.rstrip().splitlines()[-1] == "2 passed, 0 failed, 1 skipped"
    assert len(list(tmp_path.glob("runs/tests/torch-*/*.xml"))) == 2


def test_a_failing_layer_does_not_stop_the_next(run):
    code, printed = run(unit=BAD + GOOD, browser=GOOD)
    assert code == 1
    assert "=== layer browser (2 of 2)" in printed
    assert "FAILED: 1 tests failed" in printed
    assert printed.rstrip().splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


def test_a_layer_that_collects_nothing_fails(run):
    code, printed = run(unit=GOOD, papermill="# no test here\n")
    assert code == 1
    assert "FAILED: it collected no test" in printed


def test_a_layer_that_cannot_be_imported_fails(run):
    code, printed = run(unit=BROKEN)
    assert code == 1 and "0 passed, 1 failed" in printed


def test_a_layer_whose_files_are_gone_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LAYERS", "")
    assert testing.main([], {"nbval": ("--nbval-lax", "notebooks/*.ipynb")}, tmp_path) == 1
    assert "there is nothing at notebooks/*.ipynb" in capsys.readouterr().out


def test_pytest_that_does_not_start_fails(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("LAYERS", "")
    (tmp_path / "test_it.py").write_text(GOOD)
    assert testing.main(["--no-such-option"], {"unit": ("test_it.py",)}, tmp_path) == 1
    assert "pytest stopped with exit code 4" in capfd.readouterr().out


def test_an_old_report_is_not_read_again(run):
    assert run(unit=GOOD)[0] == 0
    code, printed = run(unit="import os\n\nos._exit(3)\n")
    assert code == 1 and "pytest stopped with exit code 3" in printed


def test_the_slowest_tests_are_listed_across_layers(run):
    slow = "import time\n\ndef test_slow():\n    time.sleep(0.2)\n"
    _, printed = run(unit=GOOD, browser=slow)
    listed = printed.split("Slowest tests\n")[1].splitlines()
    assert listed[0].endswith("test_slow") and listed[1].endswith("test_good")


def test_nbval_layer_compares_stored_facts(tmp_path, monkeypatch, capfd):
    """The layer as it is, on one notebook that tells the truth and one whose fact was changed."""
    monkeypatch.setenv("LAYERS", "nbval")
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(testing.ROOT / "tests" / "nbval_sanitize.cfg", tmp_path / "tests")
    for name, stored in (("00_true", "2\n"), ("01_mutated", "3\n")):
        output = nbformat.v4.new_output("stream", name="stdout", text=stored)
        cell = nbformat.v4.new_code_cell("print(1 + 1)", outputs=[output], execution_count=1)
        cell.metadata.tags = ["nbval-check-output"]
        notebook = nbformat.v4.new_notebook(cells=[cell])
        nbformat.write(notebook, tmp_path / "notebooks" / f"{name}.ipynb")
    assert testing.main(["-p", "no:cacheprovider"], root=tmp_path) == 1
    printed = capfd.readouterr().out
    assert printed.rstrip().splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
    assert "01_mutated.ipynb" in printed.split("short test summary")[1]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ("", ["static", "unit", "nbval", "papermill", "browser"]),
        ("papermill unit", ["unit", "papermill"]),
        ("unit,browser", ["unit", "browser"]),
    ],
)
def test_layers_come_from_cheap_to_dear(asked, chosen):
    assert testing.choose_layers(asked) == chosen


def test_an_unknown_layer_is_a_wrong_call(monkeypatch, capsys):
    monkeypatch.setenv("LAYERS", "unit papermil")
    assert testing.main([]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "no layer 'papermil': choose from static unit nbval papermill browser" in said.err
