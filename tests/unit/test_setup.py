"""The set-up, with stand-ins for pip, disk, network, cards and root: nothing is installed here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helpers import install, machine, pip_runner, setup, wheels
from helpers.install import Target
from helpers.pip_runner import SetupError

ROOT = Path(__file__).resolve().parents[2]
A100 = machine.Card("NVIDIA A100", "550.54.15", (8, 0), 40960)
H200 = machine.Card("NVIDIA H200", "580.65.06", (9, 0), 143771)
GTX_1080 = machine.Card("GTX 1080", "580.65.06", (6, 1), 8192)


@pytest.fixture
def target(tmp_path) -> Target:
    """A repository with the real pins, and no environment yet."""
    root = tmp_path / "suite"
    root.mkdir()
    (root / "requirements.txt").write_text((ROOT / "requirements.txt").read_text())
    return Target(root=root)


@pytest.fixture
def pip(monkeypatch):
    """Stands in for pip, venv, disk and network; records pip's command lines in order."""
    calls: list[list[str]] = []

    def fake_create(target: Target) -> None:
        if target.venv.exists():
            install.shutil.rmtree(target.venv)
        subprocess.run(
            [sys._base_executable, "-m", "venv", "--without-pip", str(target.venv)], check=True
        )
        (packages_of(target) / "pip").mkdir()
        (packages_of(target) / "pip" / "__init__.py").touch()
        calls.append(["create"])

    def fake_pip(command, log, download_gb, installed_gb, temporary):
        calls.append(command[3:])
        if "-r" in command:
            for name in ("torch", "jupyterlab", "pytest"):
                (packages_of_python(command[0]) / f"{name}.py").write_text("__version__ = '2.11.0'")
        if "-e" in command:
            (packages_of_python(command[0]) / "helpers.py").touch()

    monkeypatch.setattr(install, "create", fake_create)
    monkeypatch.setattr(install, "run_pip", fake_pip)
    monkeypatch.setattr(install, "check_network", lambda *_: calls.append(["network"]))
    monkeypatch.setattr(machine, "free_gb", lambda path: 100.0)
    return calls


def packages_of(target: Target) -> Path:
    return next(target.venv.glob("lib/python*/site-packages"))


def packages_of_python(python: str) -> Path:
    return next(Path(python).parent.parent.glob("lib/python*/site-packages"))


def one_line(capsys) -> str:
    """The one line on stderr."""
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    return said


# --- wrong calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "COMMAND"),
        (["lap"], "invalid choice: 'lap'"),
        (["lab", "--torch", "2.9.0"], "choose from"),
        (["lab", "--no-browser"], "--no-browser (what Jupyter gets comes after --)"),
        (["wheels"], "such as: make wheels DIR=wheels"),
        (["wheels", "a", "b"], "one folder"),
        (["install", "extra"], "install takes only options of the set-up, and extra is none"),
        (["install", "--", "extra"], "install takes only options of the set-up"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(capsys, arguments, says):
    with pytest.raises(SystemExit) as stopped:
        setup.main(arguments)
    assert stopped.value.code == 2
    assert says in one_line(capsys)


def test_what_belongs_to_the_command_keeps_its_order():
    options = setup.parse(["run", "--torch", "2.7.1", "00", "--", "-p", "device", "--torch"])
    assert (options.command, options.torch) == ("run", "2.7.1")
    assert options.rest == ["00", "-p", "device", "--torch"]


@pytest.fixture
def fresh(target, monkeypatch):
    """A clone with lessons 00 and 03 and no environment; setting one up fails the test."""
    for folder in ("notebooks/src", "notebooks"):
        (target.root / folder).mkdir(exist_ok=True, parents=True)
    for name in ("00_first", "03_other"):
        header = f"# ---\n# title: {name}\n# minutes: 5\n# needs: nothing\n# ---\n"
        cell = '\n# %% tags=["parameters"]\ndevice = "auto"\n'
        (target.root / "notebooks/src" / f"{name}.py").write_text(header + cell)
        (target.root / "notebooks" / f"{name}.ipynb").write_text('{"cells": []}')
    monkeypatch.setattr(setup, "Target", lambda **given: Target(root=target.root, **given))
    monkeypatch.setattr(setup, "make", lambda target: pytest.fail("this sets up"))
    for name in ("check_compiler", "check_cards"):
        monkeypatch.setattr(setup, name, lambda *_: None)
    return target


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["reset"], "say which one: reset LESSON=03"),
        (["reset", "LESSON=99"], "there is no lesson '99'; there are: 00, 03"),
        (["reset", "--", "LAB=01"], "there is no lab '01'"),
        (["run", "99"], "there is no lesson '99'; the lessons are 00, 03"),
        (["run", "--", "00", "-p", "sise", "3"], "lesson 00 has no parameter 'sise'"),
        (["execute", "99"], "there is no lesson '99'"),
        (["record", "--", "--device", "cpu", "--cell-timeout", "9", "98"], "no lesson '98'"),
        (["build", "--", "--help"], "to see the options of build, set up first"),
    ],
)
def test_a_wrong_call_on_a_fresh_clone_sets_nothing_up(fresh, capsys, arguments, says):
    assert setup.main(arguments) == 2
    assert says in one_line(capsys)
    assert sorted(path.name for path in fresh.root.iterdir()) == ["notebooks", "requirements.txt"]


@pytest.mark.parametrize("arguments", [["run", "0"], ["execute", "--device", "cpu", "03"]])
def test_a_right_call_on_a_fresh_clone_goes_on_to_the_set_up(fresh, arguments):
    with pytest.raises(pytest.fail.Exception, match="this sets up"):
        setup.main(arguments)


def test_reset_needs_no_environment(fresh, capsys):
    assert setup.main(["reset", "LESSON=3"]) == 0
    assert capsys.readouterr().out == "put back my/notebooks/03_other.ipynb\n"
    assert (fresh.root / "my/notebooks/03_other.ipynb").is_file() and not fresh.venv.exists()


def test_the_options_of_a_command_itself(fresh, capsys):
    with pytest.raises(SystemExit):
        setup.main(["run", "--help"])
    assert "python3 -m helpers.setup run -- --help" in capsys.readouterr().out
    assert setup.main(["run", "--", "--help"]) == 0
    assert "--cell-timeout SECONDS" in capsys.readouterr().out


def test_run_as_a_file_says_how_to_start_it():
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(ROOT / "helpers" / "setup.py"), "lab"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "type: python3 -m helpers.setup lab" in done.stderr


# --- the machine ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "says"),
    [("python3.12", "make lab PYTHON=python3.12"), (None, "install Python 3.12 and type")],
)
def test_unsupported_python(monkeypatch, capsys, found, says):
    monkeypatch.setattr(machine, "find_python", lambda: found)
    assert setup.main(["lab"], version=(3, 9, 18)) == 1
    said = one_line(capsys)
    assert (
        "Python 3.9.18 is not supported; 3.11, 3.12 and, from 3.13.1 on, 3.13" in said
        and says in said
    )


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(machine, "has_python_headers", lambda: True)
    with pytest.raises(SetupError, match=r"no C\+\+ compiler .* type `sudo apt-get install g\+\+"):
        setup.check_compiler()


def test_a_cxx_that_does_not_start(monkeypatch):
    monkeypatch.setenv("CXX", "/nonexist/g++")
    monkeypatch.setattr(machine, "has_python_headers", lambda: True)
    with pytest.raises(SetupError, match=r"CXX=/nonexist/g\+\+ does not start.*`unset CXX`"):
        setup.check_compiler()


def test_no_python_headers(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(machine, "find_compiler", lambda: ("g++", "12"))
    monkeypatch.setattr(machine, "has_python_headers", lambda: False)
    with pytest.raises(SetupError, match=r"There is no Python\.h, .*python3-dev"):
        setup.check_compiler()


@pytest.mark.parametrize("missing", ["compiler", "card"])
def test_one_can_go_on_without(monkeypatch, target, missing):
    made = []
    monkeypatch.setattr(setup, "make", made.append)
    monkeypatch.setattr(
        machine, "find_compiler", lambda: None if missing == "compiler" else ("", "")
    )
    cards = (A100,) if missing == "card" else (H200,)
    monkeypatch.setattr(machine, "look_for_cards", lambda: (cards, ""))
    monkeypatch.setattr(machine, "has_python_headers", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(SetupError, match=f"make lab FLAGS=--without-{missing}"):
        setup.prepare(target, setup.parse(["lab"]))
    assert made == []
    setup.prepare(target, setup.parse(["lab", f"--without-{missing}"]))
    assert made == [target]


@pytest.mark.parametrize(
    ("cards", "hidden", "stops", "says"),
    [
        ((A100,), None, True, "make lab TORCH=2.7.1"),
        ((GTX_1080,), None, False, "counts as no GPU"),
        ((GTX_1080, H200), None, False, "NVIDIA H200"),
        ((A100, H200), None, False, "NVIDIA H200"),
        ((), None, False, "No GPU: why not"),
        ((A100,), "", False, "CUDA_VISIBLE_DEVICES hides every card"),
    ],
)
def test_cards(monkeypatch, capsys, cards, hidden, stops, says):
    monkeypatch.setattr(machine, "look_for_cards", lambda: (cards, "" if cards else "why not"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    if stops:
        with pytest.raises(SetupError, match=says):
            setup.check_cards("2.11.0")
    else:
        setup.check_cards("2.11.0")
        assert says in capsys.readouterr().out


def test_disk_too_small(monkeypatch, target, pip):
    monkeypatch.setattr(machine, "free_gb", lambda path: 3.0)
    with pytest.raises(SetupError, match=r"3\.0 GB free and the set-up needs 8\.7 GB: free some"):
        install.make(target)
    assert not target.venv.exists() and pip == []


def test_what_is_installed_needs_no_room_again(monkeypatch, target):
    monkeypatch.setattr(machine, "free_gb", lambda path: 4.0)
    with pytest.raises(SetupError):
        install.check_disk(target, have_gb=0.0)
    install.check_disk(target, have_gb=5.0)


def test_no_network(monkeypatch, target, pip):
    def no_network(*_):
        raise SetupError("The package index does not answer")

    monkeypatch.setattr(install, "check_network", no_network)
    with pytest.raises(SetupError, match="does not answer"):
        install.make(target)
    assert [call for call in pip if call[0] == "install"] == []


def test_the_network_is_asked_through_pip(monkeypatch, tmp_path):
    (tmp_path / "requirements.txt").write_text("torch==2.11.0\niniconfig==2.3.1\n")
    asked = tmp_path / "asked"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$*" > {asked}\nexit $(cat {tmp_path}/code)\n')
    python.chmod(0o755)
    (tmp_path / "code").write_text("0")
    install.check_network(python, tmp_path / "requirements.txt")
    assert asked.read_text().split()[-1] == "iniconfig==2.3.1" and "torch" not in asked.read_text()
    (tmp_path / "code").write_text("1")
    with pytest.raises(SetupError, match=r"no network, .*make lab WHEELS=DIR"):
        install.check_network(python, tmp_path / "requirements.txt")


def test_a_folder_that_cannot_be_written(monkeypatch, target, pip):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(install.os, "open", refuse)
    with pytest.raises(SetupError, match=r"Cannot write in .* copy the repository"):
        install.make(target)


# --- the environment -----------------------------------------------------------------------------


def test_order_of_a_fresh_set_up(target, pip, capsys):
    assert not install.is_ready(target)
    install.make(target)
    steps = [call[0] if call[0] != "install" else call[1:][-1] for call in pip]
    assert steps == ["create", "network", str(target.venv / "requirements.txt"), str(target.root)]
    assert pip[-1][1:3] == ["--no-deps", "--no-build-isolation"]
    assert install.is_ready(target)
    page = json.loads((target.venv / "etc/jupyter/labconfig/page_config.json").read_text())
    assert page["disabledExtensions"] == {"@jupyterlab/apputils-extension:announcements": True}
    said = capsys.readouterr().out
    size = said.index("Downloading about 2.9 GB (4 minutes at 100 Mbit/s)")
    assert size < said.index("Installing `helpers`")


def test_size_is_said_before_pip_starts(monkeypatch, target, pip, capsys):
    said_before = []
    monkeypatch.setattr(install, "run_pip", lambda *_: said_before.append(capsys.readouterr().out))
    with pytest.raises(SetupError):
        install.make(target)
    assert "GB on disk" in said_before[0]


def test_a_finished_set_up_is_skipped(target, pip, monkeypatch):
    install.make(target)
    before = len(pip)
    for name in ("check_compiler", "check_cards", "make"):
        monkeypatch.setattr(setup, name, lambda *_: pytest.fail("nothing should be checked"))
    setup.prepare(target, setup.parse(["lab"]))
    assert len(pip) == before


def test_an_interrupted_install_is_resumed(target, pip, monkeypatch, capsys):
    working = install.run_pip

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "run_pip", killed)
    with pytest.raises(KeyboardInterrupt):
        install.make(target)
    assert not install.is_ready(target)
    half = packages_of(target) / "scipy-1.0.dist-info"
    half.mkdir()
    monkeypatch.setattr(install, "run_pip", working)
    install.make(target)
    assert "Going on with the unfinished .venv" in capsys.readouterr().out
    assert [call[0] for call in pip].count("create") == 1
    assert not half.exists() and install.is_ready(target)


@pytest.mark.parametrize("fault", ["no python", "no pip", "half a marker"])
def test_a_half_made_environment(target, pip, fault):
    install.make(target)
    if fault == "no python":
        target.python.unlink()
    elif fault == "no pip":
        install.shutil.rmtree(packages_of(target) / "pip")
        (target.venv / install.MARKER).unlink()
    else:
        (target.venv / install.MARKER).write_text('{"finger')
    assert not install.is_ready(target)
    install.make(target)
    assert [call[0] for call in pip].count("create") == (1 if fault == "half a marker" else 2)
    assert install.is_ready(target)


@pytest.mark.parametrize("name", ["torch", "jupyterlab", "pytest", "helpers"])
def test_an_environment_that_lost_a_package_is_repaired(target, pip, name):
    install.make(target)
    (packages_of(target) / f"{name}.py").unlink()
    assert not install.is_ready(target)


def test_changed_pins_make_it_unfinished(target, pip):
    install.make(target)
    with (target.root / "requirements.txt").open("a") as pins:
        pins.write("colorama==0.4.6\n")
    assert not install.is_ready(target)


def test_a_changed_comment_does_not(target, pip):
    install.make(target)
    text = (target.root / "requirements.txt").read_text()
    (target.root / "requirements.txt").write_text("# a word\n" + text)
    assert install.is_ready(target)


def test_a_moved_repository_makes_it_unfinished(target, pip):
    """Scripts and the editable install hold absolute paths."""
    install.make(target)
    moved = target.root.with_name("elsewhere")
    target.root.rename(moved)
    assert not install.is_ready(Target(root=moved))
    install.make(Target(root=moved))
    assert [call[0] for call in pip].count("create") == 2


def test_torch_that_does_not_start(target, pip, monkeypatch):
    monkeypatch.setattr(install, "run_pip", lambda *_: None)  # it "installs", and nothing is there
    with pytest.raises(SetupError, match=r"does not start \(ModuleNotFoundError: No module named"):
        install.make(target)
    assert not (target.venv / install.MARKER).exists()


def test_another_torch_gets_an_environment_of_its_own(target):
    other = Target(root=target.root, torch="2.7.1")
    assert (target.venv.name, other.venv.name) == (".venv", ".venv-2.7.1")
    pins = target.requirements().splitlines()
    changed = [
        pair
        for pair in zip(pins, other.requirements().splitlines(), strict=True)
        if len(set(pair)) > 1
    ]
    assert len(changed) == 1
    assert changed[0][0].startswith("torch==2.11.0 ") and changed[0][1].startswith("torch==2.7.1 ")
    assert other.fingerprint() != target.fingerprint()


def test_a_second_set_up_waits_for_the_first(target, pip, monkeypatch):
    waiting = threading.Event()
    monkeypatch.setattr(install, "say", lambda text: "waiting" in text and waiting.set())
    with install._only_one(target):
        second = threading.Thread(target=install.make, args=(target,), daemon=True)
        second.start()
        assert waiting.wait(30)
        assert pip == []
    second.join(60)
    assert install.is_ready(target)


def test_what_pip_left_half_written_is_discarded(target, pip):
    install.make(target)
    packages = packages_of(target)
    for name in ("good-1.0.dist-info", "half-1.0.dist-info", "~umpy", "numpy"):
        (packages / name).mkdir()
    (packages / "good-1.0.dist-info" / "RECORD").touch()
    (target.venv / "tmp" / "pip-unpack-1").mkdir(parents=True)
    assert sorted(install.discard_half_written(target.venv)) == ["half-1.0.dist-info", "~umpy"]
    assert (packages / "good-1.0.dist-info").exists() and (packages / "numpy").exists()
    assert not (target.venv / "tmp").exists()


def test_a_real_virtual_environment_is_made_in_place_of_a_broken_one(target):
    (target.venv / "bin").mkdir(parents=True)
    (target.venv / "bin" / "python").symlink_to("/no/such/python")
    install.create(target)
    assert install._works(target, "pip") and not install._works(target, "pip", "torch")


def test_python_without_ensurepip(target, monkeypatch):
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match="apt-get install python3-venv"):
        install.create(target)


def test_here_names_what_is_missing(target, monkeypatch):
    (target.root / "requirements.txt").write_text("torch==2.11.0\nnothing-of-this-name==1.0\n")
    with pytest.raises(SetupError, match=r"nothing-of-this-name 1\.0|torch 2\.11\.0"):
        install.is_ready(Target(root=target.root, here=True))
    (target.root / "requirements.txt").write_text(f"pytest=={pytest.__version__}\n")
    assert install.missing_pins(f"pytest=={pytest.__version__}\n") == []
    assert install.missing_pins('x==1 ; python_version == "3.10"\n') == []


def test_here_names_all_and_the_torch_that_would_do(target, monkeypatch):
    pins = "".join(f"\nmissing{number}==1.0" for number in range(6))
    here = Target(root=target.root, here=True)
    installed = {"torch": "2.7.1"}
    monkeypatch.setattr(install, "_installed", lambda name: installed.get(name, ""))
    (target.root / "requirements.txt").write_text("torch==2.11.0\n")
    with pytest.raises(SetupError) as error:
        install.is_ready(here)
    assert "packages: torch 2.11.0; its torch 2.7.1 is supported too: add --torch 2.7.1" in (
        str(error.value)
    )
    assert install.is_ready(Target(root=target.root, here=True, torch="2.7.1"))
    (target.root / "requirements.txt").write_text("torch==2.11.0" + pins)
    installed["torch"] = "2.9.0"
    with pytest.raises(SetupError) as error:
        install.is_ready(here)
    named = "torch 2.11.0, missing0 1.0, missing1 1.0, missing2 1.0, missing3 1.0 and 2 more"
    assert named in str(error.value) and "--torch" not in str(error.value)


# --- pip -----------------------------------------------------------------------------------------


def run_fake_pip(tmp_path: Path, code: str) -> str:
    log = tmp_path / "setup.log"
    pip_runner.run_pip([sys.executable, "-c", code], log, 1.0, 1.0, str(tmp_path / "tmp"))
    return log.read_text()


def test_pip_output_is_kept_and_its_temporary_files_are_ours(tmp_path):
    code = "import os; print('TMP', os.environ['TMPDIR'], os.environ['PIP_PROGRESS_BAR'])"
    assert f"TMP {tmp_path / 'tmp'} off" in run_fake_pip(tmp_path, code)


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("ERROR: Could not install: [Errno 28] No space left on device", "The disk is full"),
        ("ERROR: No matching distribution found for scipy==9", "missing where pip looks"),
        ("WARNING: Connection broken\nERROR: could not fetch", "The network failed midway"),
        ("ERROR: something else", "pip stopped: something else"),
    ],
)
def test_a_failing_pip_is_one_line(tmp_path, said, meaning):
    with pytest.raises(SetupError) as error:
        run_fake_pip(tmp_path, f"print({said!r}); raise SystemExit(1)")
    text = str(error.value)
    assert meaning in text and "\n" not in text
    assert "run the same command again" in text and str(tmp_path / "setup.log") in text


def test_status_counts_what_came(tmp_path):
    status = pip_runner.Status(2.0, 4.0, str(tmp_path))
    assert status.text().startswith("resolving, 0 s")
    status.read("  Downloading scipy-1.17.1-cp311-x86_64.whl.metadata (62 kB)")
    assert status.text().startswith("resolving")
    status.read("  Downloading torch-2.11.0-cp311-x86_64.whl (500.0 MB)")
    assert status.text().startswith("downloading torch, 0 %")
    status.read("  Downloading nvidia_cudnn_cu13-9.19-py3-none.whl (366.0 MB)")
    assert status.text().startswith("downloading nvidia_cudnn_cu13, 25 %")
    status.read("Installing collected packages: a, b")
    assert status.text().startswith("unpacking, 0 %")


# --- wheels --------------------------------------------------------------------------------------


def test_wheels_are_downloaded_checked_and_sealed(target, pip, monkeypatch, tmp_path):
    monkeypatch.setattr(wheels, "create", lambda helper: helper.venv.mkdir())
    monkeypatch.setattr(wheels, "check_network", lambda *_: None)
    monkeypatch.setattr(wheels, "run_pip", lambda command, *_: pip.append(command[3:]))
    folder = tmp_path / "class wheels"
    wheels.download_wheels(Target(root=target.root, torch="2.7.1"), folder)
    download, check = pip
    assert download[:5] == ["download", "-d", str(folder), "--only-binary", ":all:"]
    assert check[0] == "install" and "--dry-run" in check and "--no-index" in check
    assert check[check.index("--find-links") + 1] == str(folder)
    assert sorted(p.name for p in folder.iterdir()) == [wheels.MANIFEST]
    wheels.check_wheels(Target(root=target.root, torch="2.7.1", wheels=folder))
    with pytest.raises(SetupError, match="another torch or other pins"):
        wheels.check_wheels(Target(root=target.root, wheels=folder))


def test_an_interrupted_download_leaves_no_seal(target, pip, monkeypatch, tmp_path):
    def killed(*_):
        raise KeyboardInterrupt

    (tmp_path / wheels.MANIFEST).write_text("{}")
    monkeypatch.setattr(wheels, "create", lambda helper: helper.venv.mkdir())
    monkeypatch.setattr(wheels, "check_network", lambda *_: None)
    monkeypatch.setattr(wheels, "run_pip", killed)
    with pytest.raises(KeyboardInterrupt):
        wheels.download_wheels(target, tmp_path)
    with pytest.raises(SetupError, match="not a finished folder of wheels"):
        wheels.check_wheels(Target(root=target.root, wheels=tmp_path))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"made_for": "x"}'])
def test_a_damaged_seal_is_no_seal(target, tmp_path, text):
    (tmp_path / wheels.MANIFEST).write_text(text)
    with pytest.raises(SetupError, match="not a finished folder of wheels"):
        wheels.check_wheels(Target(root=target.root, wheels=tmp_path))


def test_wheels_of_another_python_are_refused(target, tmp_path):
    manifest = {"made_for": "Python 3.8 on Linux x86_64", "pins": ""}
    (tmp_path / wheels.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(SetupError, match=r"was made for Python 3\.8 on Linux x86_64 and this is"):
        wheels.check_wheels(Target(root=target.root, wheels=tmp_path))


def test_installing_from_wheels_asks_no_network(target, pip, tmp_path, capsys):
    local = Target(root=target.root, wheels=tmp_path)
    install.make(local)
    assert ["network"] not in pip
    pips = [call for call in pip if call[0] == "install"]
    assert len(pips) == 2
    for call in pips:
        assert call[1:4] == ["--no-index", "--find-links", str(tmp_path)]
    assert "nothing is downloaded" in capsys.readouterr().out


# --- starting ------------------------------------------------------------------------------------


def test_only_root_gets_allow_root(capsys):
    mine = setup.lab_arguments(ROOT, ["--no-browser"], as_root=False)
    assert "--allow-root" not in mine and capsys.readouterr().out == ""
    root = setup.lab_arguments(ROOT, ["--no-browser"], as_root=True)
    assert root == [*mine, "--allow-root"]
    assert capsys.readouterr().out == "setup: You are root: JupyterLab starts with --allow-root\n"


def test_lab_keeps_token_and_loopback():
    arguments = setup.lab_arguments(ROOT, [], as_root=False)
    assert arguments == [
        f"--ServerApp.root_dir={ROOT / 'my'}",
        "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb",
    ]


@pytest.fixture
def started(fresh, target, pip, monkeypatch):
    """start("run", "00") gives the command line and the variables that the command got."""
    install.make(target)

    def call(*arguments: str) -> tuple[list[str], dict[str, str]]:
        got = []
        monkeypatch.setattr(setup, "Target", lambda **given: Target(root=target.root, **given))
        monkeypatch.setattr(setup.os, "chdir", lambda folder: None)
        monkeypatch.setattr(setup.os, "execve", lambda file, argv, env: got.append((argv, env)))
        setup.main(list(arguments))
        return got[0]

    return call


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["run", "--", "00", "-p", "device", "cuda"], "helpers.run 00 -p device cuda"),
        (["run", "00", "-p", "device", "cuda"], "helpers.run 00 -p device cuda"),
        (["test", "--", "-k", "x"], "helpers.testing -k x"),
        (["reset", "--", "LESSON=03"], "helpers.my reset LESSON=03"),  # where it signs the copy
        (["build"], "helpers.authoring build"),
        (["record", "03"], "helpers.authoring record 03"),
    ],
)
def test_commands_run_in_the_environment(started, target, arguments, command):
    argv, variables = started(*arguments)
    assert argv == [str(target.python), "-m", *command.split()]
    assert variables["PATH"].split(os.pathsep)[0] == str(target.venv / "bin")
    assert variables["VIRTUAL_ENV"] == str(target.venv)


def test_lab_fills_my_first_and_stops_if_it_cannot(started, monkeypatch):
    filled = []

    class Done:
        returncode = 0

    def run(command, **_):
        filled.append(command[1:])
        return Done

    real = subprocess.run
    monkeypatch.setattr(setup.subprocess, "run", lambda c, **k: (
        run(c) if "helpers.my" in c else real(c, **k)))  # fmt: skip
    monkeypatch.setattr(setup.os, "geteuid", lambda: 1000)
    argv, _ = started("lab", "--", "--no-browser")
    assert filled == [["-m", "helpers.my", "fill"]]
    assert argv[2] == "jupyterlab" and argv[-1] == "--no-browser"
    Done.returncode = 1
    with pytest.raises(IndexError):  # nothing was started
        started("lab")


def test_clang_is_named_to_inductor_where_there_is_no_gcc(target, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(machine, "find_compiler", lambda: ("/usr/bin/clang++", "14"))
    assert setup.child_environment(target)["CXX"] == "/usr/bin/clang++"
    monkeypatch.setattr(machine, "find_compiler", lambda: ("/usr/bin/g++", "12"))
    assert "CXX" not in setup.child_environment(target)


# --- make ----------------------------------------------------------------------------------------


def outside_make() -> dict[str, str]:
    """This environment without what `make test TORCH=...` hands down to the makes below it."""
    handed = {"MFLAGS", "TORCH", "WHEELS", "LESSON", "LAB", "ARGS", "FLAGS", "DIR"}
    return {k: v for k, v in os.environ.items() if k not in handed and not k.startswith("MAKE")}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("lab", "lab --"),
        ("lab TORCH=2.7.1", "lab --torch 2.7.1 --"),
        ("lab WHEELS=/w ARGS=--no-browser", "lab --wheels /w -- --no-browser"),
        ("lab FLAGS=--without-card", "lab --without-card --"),
        ("test TORCH=2.14.1", "test --torch 2.14.1 --"),
        ("run LESSON=00 'ARGS=-p device cuda'", "run -- 00 -p device cuda"),
        ("reset LESSON=03", "reset -- LESSON=03"),
        ("reset LAB=03", "reset -- LAB=03"),
        ("build", "build --"),
        ("execute LESSON=02", "execute -- 02"),
        ("record", "record --"),
        ("wheels DIR=/w", "wheels -- /w"),
        ("install", "install"),
    ],
)
def test_make_calls_the_plain_way(tmp_path, words, command):
    """make TARGET ... runs PYTHON -m helpers.setup with these words; a stand-in prints them."""
    import shlex

    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$*"\n')
    python.chmod(0o755)
    make = [
        "make",
        "-C",
        str(ROOT),
        "--no-print-directory",
        f"PYTHON={python}",
        *shlex.split(words),
    ]
    printed = subprocess.run(
        make, capture_output=True, text=True, check=True, env=outside_make()
    ).stdout
    assert printed.split() == ["-m", "helpers.setup", *command.split()]
    setup.parse(printed.split()[2:])


def test_make_alone_prints_help():
    done = subprocess.run(
        ["make", "-C", str(ROOT)], capture_output=True, text=True, check=True, env=outside_make()
    )
    for target in ("lab", "test", "run", "reset", "wheels", "build", "execute", "record"):
        assert target in done.stdout
