"""The facts about a machine, from stand-ins for nvidia-smi, compilers and disks."""

from __future__ import annotations

import collections
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import machine
from helpers.machine import Card

ROOT = Path(__file__).resolve().parents[2]
Usage = collections.namedtuple("Usage", "total used free")


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Puts shell scripts on an otherwise empty PATH: commands("g++", "echo g++ 12")."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)

    def add(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return add


def nvidia_smi(*rows: str) -> str:
    """A stand-in that prints rows of name, driver, memory, capability when all four are asked."""
    text = "\n".join(rows)
    return f'case "$*" in *compute_cap*) printf "%s\\n" "{text}";; *) exit 9;; esac'


def test_two_cards_are_read(commands):
    commands(
        "nvidia-smi",
        nvidia_smi("NVIDIA H200, 580.65.06, 143771, 9.0", "Tesla T4, 580.65.06, 15360, 7.5"),
    )
    assert machine.find_cards() == (
        Card("NVIDIA H200", "580.65.06", (9, 0), 143771),
        Card("Tesla T4", "580.65.06", (7, 5), 15360),
    )
    assert machine.look_for_cards()[1] == ""


def test_old_driver_that_knows_no_capability(commands):
    commands(
        "nvidia-smi",
        'case "$*" in *compute_cap*) echo "Field compute_cap is not a valid field"; exit 2;;\n'
        '*query-gpu*) echo "Tesla V100-SXM2-16GB, 470.82.01, 16160";; esac',
    )
    assert machine.find_cards() == (Card("Tesla V100-SXM2-16GB", "470.82.01", None, 16160),)


def test_memory_that_the_driver_does_not_tell(commands):
    commands("nvidia-smi", nvidia_smi("NVIDIA GB10, 580.95.05, [N/A], 12.1"))
    assert machine.find_cards() == (Card("NVIDIA GB10", "580.95.05", (12, 1), 0),)


@pytest.mark.parametrize("code", [0, 9])
def test_driver_that_does_not_answer_is_quoted(commands, code):
    commands("nvidia-smi", f"echo 'Failed to initialize NVML: mismatch'; echo more; exit {code}")
    cards, why = machine.look_for_cards()
    assert cards == ()
    assert why == "nvidia-smi finds no card: Failed to initialize NVML: mismatch"


def test_a_driver_that_hangs_is_asked_once(commands, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "ANSWER_S", 0.5)
    log = tmp_path / "asked"
    commands("nvidia-smi", f"echo x >> {log}; exec /bin/sleep 600")
    cards, why = machine.look_for_cards()
    assert cards == () and why == "nvidia-smi did not answer in 0.5 s"
    assert log.read_text() == "x\n"


def test_no_driver_is_said_in_one_line(commands):
    cards, why = machine.look_for_cards()
    assert cards == () and "any other GPU counts as none" in why and "\n" not in why


ADVICE = [
    # name, driver, capability, torch, served, what the line says
    ("NVIDIA A100", "550.54.15", (8, 0), "2.11.0", False, "Type: make lab TORCH=2.7.1"),
    ("NVIDIA A100", "550.54.15", (8, 0), "2.14.1", False, "Type: make lab TORCH=2.7.1"),
    ("NVIDIA A100", "550.54.15", (8, 0), "2.7.1", True, "CUDA 12.6"),
    ("NVIDIA A100", "470.82.01", (8, 0), "2.11.0", False, "Update the NVIDIA driver to 580"),
    ("NVIDIA A100", "470.82.01", (8, 0), "2.7.1", False, "Update the NVIDIA driver to 525"),
    ("NVIDIA H200", "580.65.06", (9, 0), "2.11.0", True, "CUDA 13.0"),
    ("NVIDIA B200", "570.10", (10, 0), "2.11.0", False, "Update the NVIDIA driver to 580"),
    ("NVIDIA B200", "580.65.06", (10, 0), "2.7.1", False, "Type: make lab"),
    ("NVIDIA B200", "580.65.06", (10, 0), "2.14.1", True, "CUDA 13.0"),
    ("RTX 5090", "590.1", (12, 0), "2.11.0", True, "CUDA 13.0"),
    ("Tesla V100", "580.65.06", (7, 0), "2.11.0", False, "Type: make lab TORCH=2.7.1"),
    ("Tesla V100", "470.82.01", (7, 0), "2.11.0", False, "to 525 or newer, then type: make lab"),
    ("Tesla T4", "580.65.06", (7, 5), "2.11.0", True, "CUDA 13.0"),
    ("GTX 1080", "580.65.06", (6, 1), "2.11.0", False, "counts as no GPU"),
    ("GTX 1080", "580.65.06", (6, 1), "2.7.1", False, "counts as no GPU"),
    ("Tesla V100", "470.82.01", None, "2.11.0", False, "Update the NVIDIA driver to 580"),
]


@pytest.mark.parametrize(("name", "driver", "capability", "torch", "served", "says"), ADVICE)
def test_advice(monkeypatch, name, driver, capability, torch, served, says):
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    advice = machine.advice(Card(name, driver, capability, 1), torch)
    assert advice.ok is served
    assert says in advice.line and name in advice.line and "\n" not in advice.line
    assert bool(advice.fix) == (not served and "counts as no GPU" not in says)
    assert advice.line.endswith(advice.fix)


def test_advice_leads_to_a_torch_that_serves_the_card(monkeypatch):
    """Whatever the advice says to type is itself good advice, for every row of the table."""
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    followed = 0
    for name, driver, capability, torch, *_ in ADVICE:
        found = re.match(r"Type: make lab(?: TORCH=(\S+))?$", machine.advice(
            Card(name, driver, capability, 1), torch).fix)  # fmt: skip
        if found:
            followed += 1
            then = found[1] or machine.DEFAULT_TORCH
            assert machine.advice(Card(name, driver, capability, 1), then).ok
    assert followed >= 4


def test_cuda_12_is_not_offered_where_the_index_has_none(monkeypatch):
    monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64")
    card = Card("NVIDIA GH200", "550.54.15", (9, 0), 1)
    assert machine.advice(card).fix == "Update the NVIDIA driver to 580 or newer"
    assert "without CUDA" in machine.advice(card, "2.7.1").line


def test_advice_refuses_an_unknown_torch():
    with pytest.raises(ValueError, match=r"2\.9\.0 is not one of 2\.7\.1"):
        machine.advice(Card("NVIDIA A100", "580", (8, 0), 1), "2.9.0")


def test_table_agrees_with_the_torch_that_is_installed():
    version = Path(importlib.util.find_spec("torch").origin).with_name("version.py").read_text()
    torch = re.search(r"__version__ = '([\d.]+)", version)[1]
    cuda = re.search(r"cuda: Optional\[str\] = '([\d.]+)'|cuda = '([\d.]+)'", version)
    if cuda is None:
        pytest.skip("this torch is built without CUDA")
    assert machine.TORCH_BUILDS[torch].cuda == (cuda[1] or cuda[2])


@pytest.mark.parametrize(
    ("version", "ok"),
    [
        ((3, 10, 13), False),
        ((3, 11, 7), True),
        ((3, 13, 0), False),
        ((3, 13, 1), True),
        ((3, 14, 0), False),
    ],
)
def test_supported_pythons(version, ok):
    assert machine.python_ok(version) is ok


def test_newest_supported_python_that_starts_is_found(commands):
    assert machine.find_python() is None
    commands("python3.11", "echo Python 3.11.9")
    commands("python3.13", "exit 127")  # such as a version manager's stand-in
    commands("python3.14", "echo Python 3.14.0")
    assert machine.find_python() == "python3.11"


def test_compiler_is_found_in_the_order_of_inductor(commands, monkeypatch):
    assert machine.find_compiler() is None
    clang = commands("clang++", "echo clang version 14")
    assert machine.find_compiler() == (str(clang), "clang version 14")
    gcc = commands("g++", "echo 'g++ 12.2.0'; echo more")
    assert machine.find_compiler() == (str(gcc), "g++ 12.2.0")
    mine = commands("my-g++", "echo mine 1.0")
    monkeypatch.setenv("CXX", "my-g++")
    assert machine.find_compiler() == (str(mine), "mine 1.0")


@pytest.mark.parametrize("value", ["/nonexist/g++", "", "ccache g++", "broken-g++"])
def test_a_cxx_that_does_not_start_is_not_passed_over(commands, monkeypatch, value):
    commands("g++", "echo g++ 12")
    commands("broken-g++", "exit 1")
    assert machine.broken_cxx() == ""
    monkeypatch.setenv("CXX", value)
    assert machine.find_compiler() is None  # Inductor takes $CXX and nothing else
    said = machine.broken_cxx()
    assert said.startswith(f"CXX={value} does not start") and "`unset CXX`" in said
    monkeypatch.setenv("CXX", "g++")
    assert machine.broken_cxx() == ""


def test_compiler_that_does_not_start_is_none(commands):
    commands("g++", "exit 1")
    assert machine.find_compiler() is None


def test_python_headers(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.sys, "platform", "linux")
    monkeypatch.setattr(machine.sysconfig, "get_path", lambda name: str(tmp_path))
    assert not machine.has_python_headers()
    (tmp_path / "Python.h").touch()
    assert machine.has_python_headers()


def test_free_space_of_a_folder_that_is_not_there_yet(monkeypatch, tmp_path):
    asked = []

    def usage(path):
        asked.append(path)
        return Usage(0, 0, 7_000_000_000)

    monkeypatch.setattr(machine.shutil, "disk_usage", usage)
    assert machine.free_gb(tmp_path / "a" / "b") == 7.0
    assert asked == [str(tmp_path)]


def test_set_up_imports_only_the_standard_library():
    modules = "machine, install, wheels, pip_runner, setup"
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from helpers import {modules}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", ["__init__", "machine", "install", "wheels", "pip_runner", "setup"]
)
def test_old_python_can_read_the_set_up(name):
    """It has to start there, to say which Python to use."""
    import ast

    ast.parse((ROOT / "helpers" / f"{name}.py").read_text(), feature_version=(3, 8))
