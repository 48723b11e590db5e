"""helpers.run and helpers.lesson_run: what counts as failed, what is kept, and the exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import nbformat
import pytest

from helpers import authoring, environment, lesson_run, run
from helpers.lesson_run import Outcome

PARAMETERS = '# %% tags=["parameters"]\ndevice = "auto"\n'
BEGIN = '# %%\nfrom helpers import begin_lesson\ndevice = begin_lesson("{no}", device=device)\n'


def add_lesson(root: Path, number: str, body: str, head: str = PARAMETERS + BEGIN) -> None:
    title = f"Try number {number}"
    text = f"# ---\n# title: {title}\n# minutes: 5\n# needs: nothing\n# ---\n"
    text += f"# %% [markdown]\n# # {title}\n\n{head.replace('{no}', number)}\n# %%\n{body}\n"
    (root / "notebooks/src" / f"{number}_try.py").write_text(text)


def run_all(root: Path, *arguments: str) -> tuple[int, Path]:
    """Builds and runs a repository's lessons; returns the exit code and the run's folder."""
    authoring.build(root)
    code = run.main(list(arguments), root)
    (folder,) = (root / "runs").iterdir()
    return code, folder


def failures(folder: Path) -> dict[str, str]:
    suite = ET.parse(folder / "junit.xml").getroot()
    cases = {case.get("name"): case.find("failure") for case in suite}
    assert suite.get("tests") == str(len(cases))
    assert suite.get("failures") == str(sum(one is not None for one in cases.values()))
    return {name: one.get("message") if one is not None else "" for name, one in cases.items()}


def test_a_good_run_keeps_notebook_page_log_and_junit(tiny_repository, capsys):
    add_lesson(tiny_repository, "01", 'import sys\nprint("to the log", file=sys.stderr)')
    code, folder = run_all(tiny_repository)
    assert code == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {
        f"{lesson}.{kind}"
        for lesson in ("00_add_numbers", "01_try")
        for kind in ("ipynb", "html", "stderr.log")
    } | {"junit.xml"}
    assert failures(folder) == {"00_add_numbers": "", "01_try": ""}
    assert "the sum is 2" in (folder / "00_add_numbers.html").read_text()
    assert "to the log" in (folder / "01_try.stderr.log").read_text()
    shown = capsys.readouterr().out
    assert "00_add_numbers: ok (" in shown and "slowest cells:" in shown
    assert "2 of 2 lessons ran as they should" in shown


def test_values_reach_the_lesson(tiny_repository):
    values = ["-p", "device", "cpu", "-p", "size", "-7", "-p", "mode", "fast"]
    code, folder = run_all(tiny_repository, "0", *values)
    assert code == 0
    text = lesson_run.visible_text(lesson_run.read_lenient(folder / "00_add_numbers.ipynb"))
    assert "parameters: device='cpu', size=-7, mode='fast'" in text


WIDGET_ERROR = """
import ipywidgets
from IPython.display import display
panel = ipywidgets.Output()
display(panel)
with panel:
    1 / 0
"""
SLOW = "import time\ntime.sleep(60)"
KILLED = "import os, signal, time\nos.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(60)"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("1 / 0", "code cell 3 (1 / 0): ZeroDivisionError: division by zero"),
        (WIDGET_ERROR, "error inside an Output widget: ZeroDivisionError: division by zero"),
        (KILLED, "the kernel died in code cell 3 (import os, signal, time)"),
        (SLOW, "a cell took longer than 8 s and was stopped in code cell 3"),
    ],
)
def test_each_kind_of_failure_is_seen_and_the_others_still_run(tiny_repository, body, reason):
    add_lesson(tiny_repository, "01", body)
    add_lesson(tiny_repository, "02", 'print("reached")')
    code, folder = run_all(tiny_repository, "01", "02", "--cell-timeout", "8")
    assert code == 1
    found = failures(folder)
    assert found["01_try"].startswith(reason)
    assert found["02_try"] == ""
    kept = lesson_run.visible_text(lesson_run.read_lenient(folder / "01_try.ipynb"))
    assert "parameters: device='auto'" in kept  # the notebook so far
    assert (folder / "01_try.html").exists()


def test_a_value_that_never_shows_is_a_failure(tiny_repository):
    add_lesson(tiny_repository, "01", "x = 1", head=PARAMETERS)
    code, folder = run_all(tiny_repository, "01", "-p", "device", "cpu")
    assert code == 1
    assert "value given for device ('cpu') is not seen" in failures(folder)["01_try"]


def test_a_value_that_is_overwritten_is_a_failure(tiny_repository):
    add_lesson(tiny_repository, "01", "x = 1", head=PARAMETERS + '# %%\ndevice = "auto"\n' + BEGIN)
    code, folder = run_all(tiny_repository, "01", "-p", "device", "cpu")
    assert code == 1 and "is not seen" in failures(folder)["01_try"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["07"], "there is no lesson '07'; the lessons are 00"),
        (["--fast"], "unrecognized arguments: --fast"),
        (["-p", "device"], "expected 2 arguments"),
        (["--cell-timeout", "0"], "--cell-timeout: a whole number of seconds from 1 on, not '0'"),
        (["--cell-timeout", "ten"], "a whole number of seconds from 1 on, not 'ten'"),
        (["-p", "sise", "3"], "lesson 00 has no parameter 'sise'; it has device, size, mode"),
        (["-p", "size", "big"], "size = 'big' is not possible here"),
        (["-p", "device", "tpu"], "use one of 'auto', 'cpu', 'cuda'"),
    ],
)
def test_a_wrong_call_runs_nothing(tiny_repository, arguments, message, capsys):
    authoring.build(tiny_repository)
    assert run.main(arguments, tiny_repository) == 2
    assert message in capsys.readouterr().err
    assert not (tiny_repository / "runs").exists()


def test_a_card_that_is_not_usable_is_said_before_anything_starts(
    tiny_repository, capsys, monkeypatch
):
    def no_card():
        raise RuntimeError("This needs an NVIDIA card, and here there is none.")

    monkeypatch.setattr(environment, "require_cuda", no_card)
    authoring.build(tiny_repository)
    assert run.main(["-p", "device", "cuda"], tiny_repository) == 2
    assert capsys.readouterr().err == (
        "helpers.run: This needs an NVIDIA card, and here there is none.\n"
    )
    assert not (tiny_repository / "runs").exists()


def test_a_notebook_without_one_parameters_cell_is_a_wrong_call(tiny_repository, capsys):
    authoring.build(tiny_repository)
    path = tiny_repository / "notebooks/00_add_numbers.ipynb"
    notebook = nbformat.read(path, as_version=4)
    tagged = [cell for cell in notebook.cells if cell.metadata.get("tags") == ["parameters"]]
    tagged[0].metadata = {}
    nbformat.write(notebook, path)
    assert run.main([], tiny_repository) == 2
    assert "has 0 cells tagged parameters; it needs exactly one" in capsys.readouterr().err
    path.unlink()
    assert run.main([], tiny_repository) == 2
    assert "run: make build" in capsys.readouterr().err


def test_a_cell_that_was_not_run_is_a_fault():
    cells = [nbformat.v4.new_code_cell("x = 1", execution_count=1), nbformat.v4.new_code_cell("y")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    assert lesson_run.find_faults(notebook) == ["code cell 2 (y) was not run"]
    cells[1].execution_count = 2
    assert lesson_run.find_faults(notebook) == []


def start_kernels_with(script: str, folder: Path, monkeypatch) -> None:
    """Lets the kernel named python3 be started by a shell script, $1 being its connection file."""
    spec = folder / "kernels/python3/kernel.json"
    spec.parent.mkdir(parents=True)
    argv = ["/bin/sh", "-c", script, "kernel", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "Test", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(folder))


def test_a_kernel_that_never_starts_is_said_in_one_line(tiny_repository, tmp_path, monkeypatch):
    start_kernels_with("echo no port free >&2; exit 1", tmp_path / "jupyter", monkeypatch)
    code, folder = run_all(tiny_repository)
    (reason,) = failures(folder).values()
    assert code == 1
    assert reason.startswith("the kernel did not start, so no cell was run: ")
    assert reason.endswith("; see 00_add_numbers.stderr.log")
    assert (folder / "00_add_numbers.stderr.log").read_text().count("no port free") == 2


def test_a_kernel_that_dies_at_its_start_is_started_again(tiny_repository, tmp_path, monkeypatch):
    once = tmp_path / "once"
    launch = f'exec "{sys.executable}" -m ipykernel_launcher -f "$1"'
    script = f'if [ -e "{once}" ]; then {launch}; fi; touch "{once}"; echo port taken >&2; exit 1'
    start_kernels_with(script, tmp_path / "jupyter", monkeypatch)
    code, folder = run_all(tiny_repository)
    assert code == 0
    assert failures(folder) == {"00_add_numbers": ""}
    assert "port taken" in (folder / "00_add_numbers.stderr.log").read_text()


def test_the_progress_line_names_the_lesson_wherever_its_output_goes(
    tiny_repository, tmp_path, capsys, monkeypatch
):
    add_lesson(tiny_repository, "01", "import time\ntime.sleep(2)")
    authoring.build(tiny_repository)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    source = tiny_repository / "notebooks/01_try.ipynb"
    output, log = tmp_path / "executed.ipynb", tmp_path / "stderr.log"
    assert lesson_run.run_notebook(source, output, log, root=tiny_repository).reason == ""
    shown = capsys.readouterr().err
    assert "01_try [" in shown and "executed" not in shown


def test_junit_survives_what_xml_cannot_hold(tmp_path):
    run.write_junit([Outcome("00_x", "bad \x1b[31m<end> & \x00", 1.5)], tmp_path / "junit.xml")
    assert failures_in(tmp_path) == "bad [31m<end> & "


def failures_in(folder: Path) -> str:
    return ET.parse(folder / "junit.xml").getroot()[0][0].get("message")


def interruptible() -> None:
    """Ctrl-C reaches the child also where this test runs in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_keeps_what_is_finished(tiny_repository):
    add_lesson(tiny_repository, "01", "import time\ntime.sleep(120)")
    add_lesson(tiny_repository, "02", 'print("never reached")')
    authoring.build(tiny_repository)
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers.run"],
        cwd=tiny_repository,
        env={**os.environ, "PYTHONPATH": str(tiny_repository)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )
    for line in process.stdout:
        if line.startswith("01_try: running"):
            break
    time.sleep(3)  # into the cell; the test holds wherever the signal arrives
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "1 of 3 lessons ran as they should" in rest
    (folder,) = (tiny_repository / "runs").iterdir()
    assert failures(folder) == {"00_add_numbers": "", "01_try": "stopped by Ctrl-C"}
    assert (folder / "00_add_numbers.html").exists()
    assert not (folder / "02_try.ipynb").exists()
