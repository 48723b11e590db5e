"""Makes the virtual environment of the suite: resumable, checked, and skipped once it is finished.

Standard library only; `helpers.setup` is the command line.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers import machine
from helpers.pip_runner import SetupError, run_pip, say

ROOT = Path(__file__).resolve().parent.parent
MARKER = "torch-compile-suite.json"
_PIN = re.compile(r"^\s*([A-Za-z0-9._-]+)==([^\s;#]+)", re.MULTILINE)


@dataclass(frozen=True)
class Target:
    """The environment to make: which repository, torch, and folder of wheels (None: the index).

    here: use the Python that runs this as it is, and only check that the pins are installed.
    """

    root: Path = ROOT
    torch: str = machine.DEFAULT_TORCH
    wheels: Path | None = None
    here: bool = False

    @property
    def venv(self) -> Path:
        """The folder of the environment: .venv for the default torch, else .venv-TORCH."""
        name = ".venv" if self.torch == machine.DEFAULT_TORCH else f".venv-{self.torch}"
        return self.root / name

    @property
    def python(self) -> Path:
        """The Python to run everything with."""
        if self.here:
            return Path(sys.executable)
        windows = os.name == "nt"
        return self.venv / ("Scripts/python.exe" if windows else "bin/python")

    def requirements(self) -> str:
        """Returns the text of requirements.txt with torch's line for this target."""
        text = (self.root / "requirements.txt").read_text(encoding="utf-8")
        replaced, count = re.subn(r"(?m)^torch==\S+", f"torch=={self.torch}", text)
        if count != 1:
            raise SetupError("requirements.txt needs exactly one line torch==VERSION: restore it")
        return replaced

    def pins_hash(self) -> str:
        """Returns a hash of the requirements, whatever their order and comments."""
        lines = (line.split("#")[0].strip() for line in self.requirements().splitlines())
        return hashlib.sha256("\n".join(sorted(filter(None, lines))).encode()).hexdigest()

    def fingerprint(self) -> str:
        """Returns a hash of all that a finished environment depends on."""
        parts = ["1", self.pins_hash(), str(self.root.resolve()), "%d.%d" % sys.version_info[:2]]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_ready(target: Target) -> bool:
    """Returns whether the environment is finished and current, in a fraction of a second."""
    if target.here:
        missing = missing_pins(target.requirements())
        if missing:
            raise SetupError(_what_is_missing(target, missing))
        return True
    try:
        marker = json.loads((target.venv / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    current = isinstance(marker, dict) and marker.get("fingerprint") == target.fingerprint()
    return current and _works(target, "torch", "jupyterlab", "pytest", "helpers")


def missing_pins(requirements: str) -> list[str]:
    """Returns the pins, as "name version", that the running Python does not have."""
    pins = _PIN.findall(_for_this_python(requirements))
    return [f"{name} {version}" for name, version in pins if _installed(name) != version]


def _installed(name: str) -> str:
    """The version of a package in the running Python without what follows "+"; "" without one."""
    import importlib.metadata  # not at the top: Python 3.7 has to read this file

    try:
        return importlib.metadata.version(name).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return ""


def _what_is_missing(target: Target, missing: list[str]) -> str:
    """One line for --here: the first five of the missing pins by name, and what to type."""
    rest = len(missing) - 5
    names = ", ".join(missing[:5]) + (f" and {rest} more" if rest > 0 else "")
    todo = "type `pip install -r requirements.txt -e .`, or leave out --here"
    here = _installed("torch")
    if here != target.torch and here in machine.SUPPORTED_TORCH:
        todo = f"its torch {here} is supported too: add --torch {here} (TORCH={here}), or {todo}"
    return f"This Python lacks these pinned packages: {names}; {todo}"


def make(target: Target, probe_network: bool = True) -> None:
    """Creates the environment or goes on with an unfinished one; SetupError says what to do."""
    with _only_one(target):
        if is_ready(target):  # another terminal made it while this one waited
            return
        resumed = _works(target, "pip")
        if resumed:
            discard_half_written(target.venv)
        check_disk(target, _size_gb(target.venv) if resumed else 0.0)
        if resumed:
            say(f"Going on with the unfinished {target.venv.name}; what is finished is kept")
        else:
            create(target)
        requirements = target.venv / "requirements.txt"
        requirements.write_text(target.requirements(), encoding="utf-8")
        if target.wheels is None and probe_network:
            check_network(target.python, requirements)
        _announce(target, resumed)
        _install(target, requirements)
        _without_news(target)
        _write_marker(target)
        say(f"Ready: {target.venv.name} with torch {target.torch}")


def discard_half_written(venv: Path) -> list[str]:
    """Removes what a killed pip left half-written, so that the next run installs it again.

    That is: a distribution without RECORD (pip writes it last, but counts one without it as
    installed), folders that pip had set aside ("~name"), and its temporary files.
    """
    shutil.rmtree(venv / "tmp", ignore_errors=True)
    gone = []
    for packages in [*venv.glob("lib/python*/site-packages"), venv / "Lib/site-packages"]:
        aside = list(packages.glob("~*"))
        unrecorded = [p for p in packages.glob("*.dist-info") if not (p / "RECORD").is_file()]
        for path in aside + unrecorded:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            gone.append(path.name)
    return gone


def _works(target: Target, *modules: str) -> bool:
    """Whether the environment was made here, and its Python starts and finds the modules."""
    try:
        made = (target.venv / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return False
    # Its scripts hold its path: one that was moved or copied has to be made anew.
    if not re.search(rf"(?m)^command = .* {re.escape(str(target.venv))}$", made):
        return False
    code = (
        "import sys, importlib.util as u; print(sys.version_info[:2] == %r and sys.prefix !="
        " sys.base_prefix and all(u.find_spec(n) for n in %r))"
    ) % (tuple(sys.version_info[:2]), list(modules))
    try:
        done = subprocess.run(
            [str(target.python), "-I", "-c", code], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "True"


@contextlib.contextmanager
def _only_one(target: Target) -> Iterator[None]:
    """Waits while another process sets up the same environment.

    pip inherits the lock, so that a pip whose parent was killed still keeps others out.
    """
    if os.name == "nt":
        yield
        return
    import fcntl

    lock = target.venv.parent / f"{target.venv.name}.lock"
    try:
        handle = os.open(str(lock), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise SetupError(
            f"Cannot write in {target.root} ({error.strerror}): copy the repository to a folder "
            "of yours"
        ) from None
    os.set_inheritable(handle, True)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Another process is setting up {target.venv.name}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def create(target: Target) -> None:
    """Makes an empty virtual environment, in place of one that does not work."""
    if target.venv.is_symlink():
        target.venv.unlink()
    elif target.venv.exists():
        say(f"{target.venv.name} does not work with this Python; making it anew")
        shutil.rmtree(target.venv)
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            "This Python cannot make virtual environments (no ensurepip): "
            "type `sudo apt-get install python3-venv`, or use another Python: PYTHON=python3.12"
        )
    say(f"Making {target.venv.name} with Python {platform.python_version()}")
    # The base Python: what runs this may be the environment that is made anew.
    base = getattr(sys, "_base_executable", None) or sys.executable
    done = subprocess.run([base, "-m", "venv", str(target.venv)], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise SetupError(
            f"Python could not make {target.venv.name} ({said[-1]}): put that right "
            "and run the same command again, or use another Python: PYTHON=python3.12"
        )


def check_disk(target: Target, have_gb: float = 0.0) -> None:
    """Raises SetupError if the disk lacks room; have_gb: what is installed."""
    build = machine.TORCH_BUILDS[target.torch]
    download = 0.0 if target.wheels else build.download_gb
    need = max(0.5, build.installed_gb - have_gb) + download
    free = machine.free_gb(target.venv)
    if free < need:
        raise SetupError(
            f"The disk of {target.root} has {free:.1f} GB free and the set-up needs {need:.1f} GB: "
            "free some, or move the repository to a larger disk, and run the same command again"
        )


def check_network(python: Path, requirements: Path) -> None:
    """Asks the index that pip is configured for, through pip, for one small package of the pins."""
    pins = _PIN.findall(requirements.read_text(encoding="utf-8"))
    small = next(f"{name}=={version}" for name, version in pins if name == "iniconfig")
    command = [str(python), "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"]
    command += ["--ignore-installed", "--retries", "0", "--timeout", "15", small]
    if subprocess.run(command, capture_output=True).returncode:
        raise SetupError(
            "The package index does not answer (no network, or a proxy that pip does not know): "
            "connect and run the same command again, or, with a folder that `make wheels DIR=...` "
            "made elsewhere, type `make lab WHEELS=DIR`"
        )


def _announce(target: Target, resumed: bool) -> None:
    build = machine.TORCH_BUILDS[target.torch]
    size = f"{build.installed_gb:.1f} GB on disk, about 2 minutes to unpack"
    if target.wheels:
        say(f"Installing from {target.wheels}, nothing is downloaded: {size}")
    else:
        missing = "what is missing of " if resumed else ""
        say(f"Downloading {missing}about {amount(build.download_gb)}; {size}")


def amount(gigabytes: float) -> str:
    """Returns a size with the minutes that it takes at 100 Mbit/s (0.1 gigabits a second)."""
    return f"{gigabytes:.1f} GB ({gigabytes * 8 / 0.1 / 60:.0f} minutes at 100 Mbit/s)"


def _install(target: Target, requirements: Path) -> None:
    build = machine.TORCH_BUILDS[target.torch]
    log = target.venv / "setup.log"
    temporary = str(target.venv / "tmp")  # on the same disk: /tmp may be small
    pip = [str(target.python), "-m", "pip", "install"]
    if target.wheels:
        pip += ["--no-index", "--find-links", str(target.wheels)]
    elif machine.free_gb(Path.home()) < 3 * build.download_gb:
        pip.append("--no-cache-dir")  # pip's cache would hold the downloads a second time
    run_pip([*pip, "-r", str(requirements)], log, build.download_gb, build.installed_gb, temporary)
    say("Installing `helpers` itself, editable")
    editable = ["--no-deps", "--no-build-isolation", "-e", str(target.root)]
    run_pip([*pip, *editable], log, 0, 0, temporary)
    shutil.rmtree(temporary, ignore_errors=True)
    say("Starting torch once to see that it works")
    code = "import torch; print(torch.__version__.split('+')[0])"
    done = subprocess.run([str(target.python), "-c", code], capture_output=True, text=True)
    if done.stdout.strip() != target.torch:
        said = (done.stderr.strip().splitlines() or [f"it is {done.stdout.strip()}"])[-1]
        raise SetupError(
            f"torch {target.torch} is installed but does not start ({said}): delete "
            f"{target.venv.name} and run the same command again"
        )


def _without_news(target: Target) -> None:
    """Keeps JupyterLab's question about news, and its look on the network, off the lessons."""
    folder = target.venv / "etc" / "jupyter" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    page = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (folder / "page_config.json").write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")


def _write_marker(target: Target) -> None:
    """Last of all, and in one step: an environment without it is unfinished."""
    part = target.venv / (MARKER + ".part")
    part.write_text(json.dumps({"fingerprint": target.fingerprint()}) + "\n", encoding="utf-8")
    part.replace(target.venv / MARKER)


def _for_this_python(requirements: str) -> str:
    """Drops the lines whose marker names another Python (the only marker that the pins use)."""
    mine = "%d.%d" % sys.version_info[:2]
    lines = requirements.splitlines()
    marked = re.compile(r';\s*python_version == "([\d.]+)"')
    kept = [line for line in lines if not marked.search(line) or marked.search(line)[1] == mine]
    return "\n".join(kept)


def _size_gb(folder: Path) -> float:
    files = (Path(base) / name for base, _, names in os.walk(folder) for name in names)
    return sum(path.lstat().st_size for path in files) / 1e9
