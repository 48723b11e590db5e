"""The tests of the tests: what must turn them red does, in the way that make test calls them."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from helpers import authoring, execution, lessons, run, testing
from helpers.lesson_run import run_notebook

ROOT = Path(__file__).resolve().parents[2]
SANITIZE = ROOT / "tests" / "nbval_sanitize.cfg"
# What make test gives to pytest for nbval, but on a notebook of ours and with full paths.
NBVAL = [
    str(SANITIZE) if part.endswith(".cfg") else part
    for option in testing.LAYERS["nbval"]
    if not option.endswith(".ipynb")
    for part in option.split("=", 1)
]


def pytest_run(folder: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.fixture
def stored(tiny_repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a tiny lesson's notebook, really executed and stored."""
    machine = {"device": "a tiny card", "torch": "2.11.0"}
    monkeypatch.setattr(execution, "describe_machine", lambda device, root: machine)
    assert authoring.main(["execute"], tiny_repository) == 0
    return tiny_repository / "notebooks" / "00_add_numbers.ipynb"


def test_nbval_is_called_so_that_only_checked_cells_count():
    options = testing.LAYERS["nbval"]
    assert "--nbval-lax" in options and "--nbval" not in options
    assert "--nbval-current-env" in options
    assert "notebooks/*.ipynb" in options


def test_nbval_passes_a_true_notebook_and_fails_a_mutated_fact(stored):
    code, shown = pytest_run(stored.parents[1], *NBVAL, str(stored))
    assert code == 0, shown
    edit(stored, "the sum is 2", "the sum is 3")
    code, shown = pytest_run(stored.parents[1], *NBVAL, str(stored))
    assert code == 1
    assert "the sum is 3" in shown and "1 failed" in shown


def test_nbval_fails_an_error_hidden_in_a_widget(stored):
    notebook = nbformat.read(stored, as_version=4)
    notebook.cells[
        -1
    ].source = "import ipywidgets\npanel = ipywidgets.Output()\nwith panel:\n    1 / 0\n"
    nbformat.write(notebook, stored)
    code, shown = pytest_run(stored.parents[1], *NBVAL, str(stored))
    assert code == 1 and "ZeroDivisionError" in shown


def test_a_renamed_parameter_turns_papermill_and_the_runner_red(tiny_repository, tmp_path, capsys):
    source = tiny_repository / "notebooks/src/00_add_numbers.py"
    edit(source, 'device = "auto"', 'devices = "auto"')
    edit(source, "device=device", "devices=devices")
    authoring.build(tiny_repository)
    (lesson,) = lessons.find_lessons(tiny_repository)
    output, log = tmp_path / "out.ipynb", tmp_path / "log"
    values = {"device": "cpu"}
    done = run_notebook(lesson.notebook, output, log, values, root=tiny_repository)
    assert "lesson 00 has no parameter 'device'; it has devices, size, mode" in done.reason
    assert run.main(["-p", "device", "cpu"], tiny_repository) == 2
    assert "no parameter 'device'" in capsys.readouterr().err


def sanitized(text: str) -> str:
    """Does to a text what nbval does: each regular expression of the file, in order."""
    rules = configparser.RawConfigParser()
    rules.read(SANITIZE, encoding="utf-8")
    for section in rules.sections():
        text = re.sub(rules.get(section, "regex"), rules.get(section, "replace"), text)
    return text


@pytest.mark.parametrize(
    ("stored", "fresh"),
    [
        (
            "live: made when this cell ran (NVIDIA H200, torch 2.11.0, 2026-01-02)",
            "live: made when this cell ran (Intel(R) Xeon(R), torch 2.7.1, 2027-03-04, here)",
        ),
        ("cell.py:3", "/tmp/ipykernel_12/345.py:3"),
        ("site-packages/torch/nn.py", "/a/lib/python3.12/site-packages/torch/nn.py"),
        ("TMP/torchinductor/ab/cab.py", "/tmp/torchinductor_me/xy/cxy.py"),
        ("took 3.2 s and 41 ms", "took 12 s and 3.05 ms"),
        ("<function f at 0x7f41ed3cfc30>", "<function f at 0x7f00aa3cfc30>"),
    ],
)
def test_what_differs_between_machines_is_not_compared(stored, fresh):
    assert stored != fresh
    assert sanitized(stored) == sanitized(fresh)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("graphs: 1", "graphs: 2"),
        ("line 2: torch.relu", "line 3: torch.relu"),
        ("agree: True", "agree: False"),
        ("new: ['torch.triu']", "new: []"),
        ("0x2", "0x3"),
    ],
)
def test_facts_are_compared(one, other):
    assert sanitized(one) != sanitized(other)


@pytest.fixture
def marked(tmp_path: Path) -> Path:
    """A folder with our conftest.py and one test per marker that would pass."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "test_marked.py").write_text(
        "import pytest\n\n@pytest.mark.browser\ndef test_browser():\n    pass\n\n"
        "@pytest.mark.cuda\ndef test_cuda():\n    pass\n\n"
        "@pytest.mark.browser\n@pytest.mark.xfail\ndef test_known():\n    assert False\n\n"
        "def test_plain():\n    pytest.skip('for a reason')\n"
    )
    return tmp_path


def test_without_a_browser_its_tests_skip_with_a_reason_and_fail_if_required(marked):
    path = str(Path(sys.executable).parent)
    arguments = ("-rs", "-k", "browser or known or plain", "test_marked.py")
    code, shown = pytest_run(marked, *arguments, PATH=path, REQUIRE_BROWSER="")
    assert code == 0 and "3 skipped" in shown and "no chromium on the path" in shown
    code, shown = pytest_run(marked, *arguments, PATH=path, REQUIRE_BROWSER="1")
    assert code == 1 and "1 skipped" in shown and "2 errors" in shown
    assert "REQUIRE_BROWSER=1, but this test was skipped: " in shown
    # With a browser, all is well again; an expected failure is no skip.
    (marked / "chromium").write_text("#!/bin/sh\n")
    (marked / "chromium").chmod(0o755)
    path = f"{path}{os.pathsep}{marked}"
    code, shown = pytest_run(marked, *arguments, PATH=path, REQUIRE_BROWSER="1")
    assert code == 0 and "1 passed, 1 skipped" in shown and "1 xfailed" in shown


def test_without_a_card_its_tests_skip_with_a_reason_and_fail_if_required(marked):
    arguments = ("-rs", "-k", "cuda", "test_marked.py")
    code, shown = pytest_run(marked, *arguments, CUDA_VISIBLE_DEVICES="", REQUIRE_CUDA="")
    assert code == 0 and "1 skipped" in shown and "no CUDA GPU" in shown
    code, shown = pytest_run(marked, *arguments, CUDA_VISIBLE_DEVICES="", REQUIRE_CUDA="1")
    assert code == 1 and "REQUIRE_CUDA=1, but this test was skipped" in shown


def test_each_session_has_an_inductor_cache_of_its_own_unless_given(tmp_path):
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_cache.py").write_text(
        "import os\n\ndef test_it():\n    print('at', os.environ['TORCHINDUCTOR_CACHE_DIR'])\n"
    )
    arguments = ("-s", "-q", "test_cache.py")
    found = [
        re.search(r"at (\S+)", pytest_run(tmp_path, *arguments, TORCHINDUCTOR_CACHE_DIR=given)[1])[
            1
        ]
        for given in ("", "", "/given")
    ]
    assert found[2] == "/given"
    assert len(set(found)) == 3
    assert not any(Path(one).exists() for one in found)
