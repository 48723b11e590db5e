"""What is installed, built and run by others: the lists agree, and the files are well-formed."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers import machine, testing
from helpers.machine import DEFAULT_TORCH, FAULTY_PYTHON, PYTHONS, SUPPORTED_TORCH

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHON_VERSIONS = ["{}.{}".format(*version) for version in PYTHONS]
# What torch brings and pins itself: it differs from one torch to the next.
COMPANIONS = re.compile(r"(nvidia-(?!ml-py)|cuda-|triton).*")


def pins(part: slice = slice(None)) -> dict[str, Requirement]:
    """The pins of requirements.txt by name; part: lines to read (the direct ones come first)."""
    lines = [line.split(" #")[0].strip() for line in requirement_lines()[part]]
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def requirement_lines() -> list[str]:
    return (ROOT / "requirements.txt").read_text().splitlines()


def direct_pins() -> dict[str, Requirement]:
    end = next(i for i, line in enumerate(requirement_lines()) if "bring along" in line)
    return pins(slice(0, end))


def pinned_version(requirement: Requirement) -> Version:
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", f"{requirement} is not pinned"
    return Version(specifier.version)


def declared() -> dict[str, Requirement]:
    """What pyproject.toml asks for, extras included."""
    extras = PROJECT["optional-dependencies"].values()
    texts = [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]
    return {canonicalize_name(r.name): r for r in map(Requirement, texts)}


def test_direct_pins_are_what_pyproject_declares():
    assert set(direct_pins()) == set(declared())


@pytest.mark.parametrize("name", sorted(declared()))
def test_pin_lies_in_the_range(name):
    pin = pinned_version(direct_pins()[name])
    assert declared()[name].specifier.contains(pin, prereleases=True)


def test_every_supported_torch_lies_in_the_range():
    assert str(pins()["torch"].specifier) == f"=={DEFAULT_TORCH}"
    for version in SUPPORTED_TORCH:
        assert declared()["torch"].specifier.contains(version)


def test_torch_companions_are_not_pinned():
    assert [name for name in pins() if COMPANIONS.fullmatch(name)] == []


def test_every_pin_is_exact_and_stands_once():
    lines = [line for line in requirement_lines() if re.match(r"\w", line)]
    assert len(lines) == len(pins()) > 100
    assert all(pinned_version(requirement) for requirement in pins().values())


def test_each_direct_pin_says_why():
    lines = [line for line in requirement_lines() if re.match(r"\w", line)]
    assert all(re.search(r"  # \w", line) for line in lines[: len(direct_pins())])


def closure(python: str) -> set[tuple[str, str]]:
    """All that the direct pins need on that Python, as (name, specifier)."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    todo = [(name, frozenset(r.extras)) for name, r in direct_pins().items()]
    seen, needed = set(), set()
    while todo:
        name, extras = todo.pop()
        if (name, extras) in seen or COMPANIONS.fullmatch(name):
            continue
        seen.add((name, extras))
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # needed on another Python only; it must be pinned all the same
        for requirement in map(Requirement, requires):
            holds = requirement.marker is None or any(
                requirement.marker.evaluate({**environment, "extra": extra})
                for extra in (extras or {""})
            )
            if holds:
                needed.add((canonicalize_name(requirement.name), str(requirement.specifier)))
                todo.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return needed


@pytest.mark.parametrize("python", PYTHON_VERSIONS)
def test_all_that_is_needed_is_pinned_on_each_python(python):
    """Walks the metadata of what is installed, with the markers evaluated for that Python."""
    valid = {
        name: pinned_version(requirement)
        for name, requirement in pins().items()
        if requirement.marker is None or requirement.marker.evaluate({"python_version": python})
    }
    needed = {entry for entry in closure(python) if not COMPANIONS.fullmatch(entry[0])}
    assert len(needed) > 100
    assert sorted({name for name, _ in needed} - set(valid)) == []
    wrong = [
        f"{name}{specifier}"
        for name, specifier in needed
        if not Requirement(f"{name}{specifier}").specifier.contains(valid[name], prereleases=True)
    ]
    assert wrong == []


def test_conda_gets_the_same_set():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [entry for entry in conda["dependencies"] if isinstance(entry, str)]
    (pip_part,) = [entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict)]
    assert pip_part == ["-r requirements.txt", "-e ."]
    (python,) = [entry for entry in plain if entry.startswith("python=")]
    assert python.removeprefix("python=") in PYTHON_VERSIONS
    names = {canonicalize_name(re.split("[=<>]", entry)[0]) for entry in plain}
    assert names & set(pins()) == set(), "a package from both conda and pip"
    assert {"pip", "cxx-compiler"} <= names


def test_supported_pythons_are_the_same_everywhere():
    lowest, highest = PYTHONS[0], PYTHONS[-1]
    faulty = ".".join(map(str, FAULTY_PYTHON))
    asked = f">={lowest[0]}.{lowest[1]},<{highest[0]}.{highest[1] + 1},!={faulty}"
    assert PROJECT["requires-python"] == asked
    prefix = "Programming Language :: Python :: "
    named = [c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert named == PYTHON_VERSIONS


def test_license():
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "BSD-3-Clause" and text.startswith("BSD 3-Clause License")
    assert "The torch.compile suite authors" in text and "Neither the name" in text


def test_dockerfile_is_clean():
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent) or "hadolint"
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr


def test_the_linter_of_the_dockerfile_lints(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN cd /tmp && sudo apt-get install vim\n")
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent) or "hadolint"
    assert subprocess.run([hadolint, str(tmp_path / "Dockerfile")], capture_output=True).returncode


def test_image_is_not_root_and_keeps_the_token():
    text = (ROOT / "Dockerfile").read_text()
    instructions = re.sub(r"(?m)^#.*\n", "", text)
    user = re.findall(r"(?m)^USER (\S+)", instructions)
    assert user and user[-1] not in ("root", "0")
    assert instructions.index("USER") < instructions.index("helpers.setup")
    assert "HEALTHCHECK" in instructions and "NVIDIA_VISIBLE_DEVICES" in instructions
    assert not re.search(r"allow-root|token=|password", instructions, re.IGNORECASE)
    base = re.search(r"(?m)^FROM python:(\d+\.\d+)-", instructions)
    assert base and base[1] in PYTHON_VERSIONS


def test_image_gets_what_the_set_up_reads():
    """Its first COPY lines must hold all that `helpers.setup install` opens."""
    text = (ROOT / "Dockerfile").read_text()
    before = text[: text.index("RUN python -m helpers.setup install")]
    copied = set(re.findall(r"[\w.]+", " ".join(re.findall(r"COPY --chown=\S+ (.*)", before))))
    assert {"requirements.txt", "pyproject.toml", PROJECT["readme"], "LICENSE", "helpers"} <= copied


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_workflows_call_what_the_readme_calls(name):
    workflow = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert any(re.match(r"bash \.ci/run|make test", command) for command in commands)
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert actions and all(re.search(r"@[0-9a-f]{40}$", action) for action in actions)
    assert job["timeout-minutes"] <= 60 and workflow["permissions"] == {"contents": "read"}


def test_workflows_cover_every_torch_and_python():
    cpu = yaml.safe_load((ROOT / ".github/workflows/cpu.yml").read_text())
    runs = cpu["jobs"]["test"]["strategy"]["matrix"]["include"]
    assert sorted(run["torch"] for run in runs) == sorted(SUPPORTED_TORCH)
    assert sorted(run["python"] for run in runs) == sorted(PYTHON_VERSIONS)
    gpu = yaml.safe_load((ROOT / ".github/workflows/gpu.yml").read_text())["jobs"]["test"]
    assert gpu["env"]["REQUIRE_CUDA"] == "1" and "gpu" in gpu["runs-on"]


@pytest.fixture
def ci(tmp_path):
    """Runs .ci/run with stand-ins for make and the like; gives exit code, output, calls."""
    calls = tmp_path / "calls"
    calls.touch()
    scripts = {
        "make": f'[ "$1" = --version ] || echo "$* REQUIRE_BROWSER=$REQUIRE_BROWSER" >> {calls}\n'
        'case "$*" in *"TORCH=$FAILING "*) exit 2;; esac',
        "g++": "echo g++ 12",
        "chromium": "echo Chromium 1",
        "nvidia-smi": "exit 9",
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    def run(*arguments: str, failing: str = "none") -> tuple[int, str, list[str]]:
        path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
        variables = {**os.environ, "PATH": path, "PYTHON": sys._base_executable}
        variables["FAILING"] = failing
        done = subprocess.run(
            ["bash", str(ROOT / ".ci/run"), *arguments],
            capture_output=True, text=True, env=variables, cwd=tmp_path,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr, calls.read_text().splitlines()

    return run


def test_ci_runs_all_layers_on_the_default_and_two_on_the_others(ci):
    code, printed, calls = ci()
    assert code == 0, printed
    assert calls[0] == f"test TORCH={DEFAULT_TORCH} LAYERS= REQUIRE_BROWSER=1"
    assert sorted(calls[1:]) == sorted(  # side by side
        f"test TORCH={version} LAYERS=unit papermill REQUIRE_BROWSER=1"
        for version in SUPPORTED_TORCH
        if version != DEFAULT_TORCH
    )
    assert printed.index("g++ 12") < printed.index("ci: torch")
    assert printed.rstrip().endswith("ci: all passed")


@pytest.mark.parametrize("failing", SUPPORTED_TORCH)
def test_ci_fails_if_one_torch_fails_and_still_runs_the_others(ci, failing):
    code, printed, calls = ci(failing=failing)
    assert code == 1 and len(calls) == len(SUPPORTED_TORCH)
    assert f"ci: FAILED with torch {failing}" in printed


def test_ci_runs_one_torch_on_request(ci):
    code, _, calls = ci("2.7.1")
    assert code == 0
    assert [call.split()[1] for call in calls] == ["TORCH=2.7.1"]


@pytest.mark.parametrize("apt_works", [True, False])
def test_ci_installs_what_is_missing(tmp_path, apt_works):
    """On a PATH without chromium; a stand-in for apt-get writes down what it was asked."""
    for name in ("bash", "dirname", "sed", "id", "nproc", "df", "tail", "head", "env",
                 "mktemp", "cat", "rm"):  # fmt: skip
        (tmp_path / name).symlink_to(shutil.which(name))
    log = tmp_path / "log"
    scripts = {"make": f'echo "make $*" >> {log}', "g++": "echo g++ 12", "sudo": 'exec "$@"'}
    scripts["apt-get"] = f'echo "apt-get $*" >> {log}; exit {0 if apt_works else 100}'
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!{tmp_path}/bash\n{script}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": str(tmp_path), "PYTHON": sys._base_executable}
    done = subprocess.run(
        [str(tmp_path / "bash"), str(ROOT / ".ci/run"), "2.7.1"],
        capture_output=True, text=True, env=variables,
    )  # fmt: skip
    calls = log.read_text().splitlines()
    assert calls[0] == "apt-get update -qq"
    if apt_works:
        assert done.returncode == 0, done.stdout + done.stderr
        assert calls[1].startswith("apt-get install -y") and "chromium" in calls[1].split()
        assert "g++" not in calls[1].split()
        assert calls[-1].startswith("make test TORCH=2.7.1")
    else:
        assert done.returncode == 1 and "ci: could not install chromium" in done.stderr
        assert not [call for call in calls if call.startswith("make test")]


def test_layers_that_ci_names_exist():
    named = re.search(r'layers="(\w[\w ]*)"', (ROOT / ".ci/run").read_text())[1]
    assert set(testing.choose_layers(named)) == {"unit", "papermill"}


def test_git_ignores_what_is_made_here(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    shutil.copy(ROOT / ".gitignore", tmp_path)
    made = [".venv/x", ".venv-2.7.1/x", ".venv.lock", "my/notebooks/a.ipynb", "runs/x", ".whl/x"]
    made += ["helpers/__pycache__/x.pyc", "torch_compile_suite.egg-info/x"]
    for name, code in [*((name, 0) for name in made), ("notebooks/00_start_here.ipynb", 1)]:
        ask = ["git", "-C", str(tmp_path), "check-ignore", "-q", name]
        assert subprocess.run(ask).returncode == code, name


def test_pytest_is_strict():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["xfail_strict"] is True
    assert {"--strict-markers", "--strict-config", "--durations=10"} <= set(
        settings["addopts"].split()
    )
    assert {marker.split(":")[0] for marker in settings["markers"]} == {"cuda", "browser"}


def test_python_is_linted_and_formatted():
    for arguments in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--no-cache", str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_helpers_need_only_what_is_declared():
    """Every import of helpers/ is the standard library, helpers itself or a declared package."""
    modules = metadata.packages_distributions()
    known = set(declared())
    strangers = []
    for path in sorted((ROOT / "helpers").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for top in {name.split(".")[0] for name in names}:
                if top in sys.stdlib_module_names or top in ("helpers", "triton"):
                    continue
                owners = {canonicalize_name(owner) for owner in modules.get(top, [])}
                strangers += [] if owners & known else [f"{path.name}: {top}"]
    assert strangers == []


def test_sizes_are_known_for_every_torch():
    for build in machine.TORCH_BUILDS.values():
        assert 0 < build.download_gb < build.installed_gb < 10
