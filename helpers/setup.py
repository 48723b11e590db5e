"""Set-up and start from a plain Python: `python3 -m helpers.setup lab` (make lab calls this).

    python3 -m helpers.setup COMMAND [options] [-- arguments]

lab      set up, fill my/ and open JupyterLab on lesson 00; arguments go to `jupyter lab`
test     set up and run the tests; arguments go to pytest
run      set up and run lessons unattended, such as: run 00 -- -p device cuda
install  set up only
wheels   download all packages into a folder, for a class without network: wheels DIR
reset    put a lesson back as delivered, and keep yours: reset LESSON=03
build, check, execute, record   for authors: see helpers/authoring.py

Options of a command itself: python3 -m helpers.setup run -- --help (once it is set up; those of
reset and run: at once). What tests take: pytest's, and LAYERS="unit papermill" before the line.

Standard library only; nothing is installed twice. Ends with 0, 1 (it failed) or 2 (a wrong call).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

try:
    from helpers import machine
    from helpers.install import Target, is_ready, make
    from helpers.pip_runner import SetupError, say
    from helpers.wheels import check_wheels, download_wheels
except ModuleNotFoundError as missing:  # started as a file: its folder is not the repository
    if __name__ != "__main__" or (missing.name or "").split(".")[0] != "helpers":
        raise
    print("setup: in the repository's folder type: python3 -m helpers.setup lab", file=sys.stderr)
    sys.exit(2)

START = "notebooks/00_start_here.ipynb"  # below my/, which is all that JupyterLab shows
# Each command, and the module that does it once the environment is there.
MODULES = {
    "lab": ["jupyterlab"],
    "test": ["helpers.testing"],
    "run": ["helpers.run"],
    "reset": ["helpers.my", "reset"],
    "build": ["helpers.authoring", "build"],
    "check": ["helpers.authoring", "check"],
    "execute": ["helpers.authoring", "execute"],
    "record": ["helpers.authoring", "record"],
}
COMMANDS = (*MODULES, "install", "wheels")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"setup: {message}; see `python3 -m helpers.setup --help`", file=sys.stderr)
        sys.exit(2)


def parse(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line; what belongs to the command itself ends up in `.rest`, in order."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = _Parser(
        prog="python3 -m helpers.setup", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument("--torch", default=machine.DEFAULT_TORCH, choices=machine.SUPPORTED_TORCH)
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="install from here, no network")
    parser.add_argument("--here", action="store_true", help="use this Python as it is (conda, say)")
    parser.add_argument("--without-card", action="store_true", help="go on where no card is served")
    parser.add_argument("--without-compiler", action="store_true", help="go on without one")
    options, own = parser.parse_known_args(arguments[:cut])
    options.rest = own + arguments[cut + 1 :]
    if own and options.command == "lab":
        parser.error(f"lab does not know {own[0]} (what Jupyter gets comes after --)")
    if options.rest and options.command == "install":
        parser.error(f"install takes only options of the set-up, and {options.rest[0]} is none")
    if options.command == "wheels" and (len(options.rest) != 1 or options.wheels):
        parser.error("wheels needs one folder, such as: make wheels DIR=wheels")
    if options.wheels:
        options.wheels = options.wheels.expanduser().resolve()
    return options


def check_python(version: tuple[int, ...] | None = None) -> None:
    """Raises SetupError, with the line to type, if this Python is not supported."""
    if machine.python_ok(version):
        return
    found = ".".join(map(str, tuple(version or sys.version_info)[:3]))
    better = machine.find_python()
    todo = f"type: make lab PYTHON={better}" if better else (
        "install Python 3.12 and type: make lab PYTHON=python3.12")  # fmt: skip
    raise SetupError(f"Python {found} is not supported; 3.11, 3.12 and, from 3.13.1 on, 3.13 are: "
                     f"{todo}")  # fmt: skip


def check_compiler() -> None:
    """Raises SetupError if Inductor could not compile here: no C++ compiler, or no Python.h."""
    broken = machine.broken_cxx()
    if broken:
        raise SetupError(f"{broken} (or go on without Inductor: make lab FLAGS=--without-compiler)")
    missing = [] if machine.find_compiler() else ["C++ compiler (g++)"]
    missing += [] if machine.has_python_headers() else ["Python.h"]
    if missing:
        todo = "xcode-select --install" if sys.platform == "darwin" else (
            "sudo apt-get install g++ python3-dev")  # fmt: skip
        raise SetupError(
            f"There is no {' and no '.join(missing)}, which torch.compile needs: type `{todo}` (or "
            "your system's like), or go without Inductor: make lab FLAGS=--without-compiler"
        )


def check_cards(torch: str) -> None:
    """Says in one line what the cards can do; SetupError where another torch or driver helps."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        say("CUDA_VISIBLE_DEVICES hides every card: lessons run on the CPU")
        return
    cards, why_none = machine.look_for_cards()
    if not cards:
        say(f"No GPU: {why_none}; lessons run on the CPU and show recorded GPU figures as such")
        return
    advices = [machine.advice(card, torch) for card in cards]
    best = min(advices, key=lambda advice: (not advice.ok, not advice.fix))
    if best.fix:
        raise SetupError(f"{best.line} (or go on without it: make lab FLAGS=--without-card)")
    say(best.line)


def prepare(target: Target, options: argparse.Namespace) -> None:
    """Makes sure that the environment is there: checks and messages only if there is work to do."""
    if is_ready(target):
        return
    check_wheels(target)
    if not options.without_compiler:
        check_compiler()
    if not options.without_card:
        check_cards(target.torch)
    make(target)


def answer_early(options: argparse.Namespace, target: Target) -> int | None:
    """Returns the exit code of a call that needs no environment, or that is wrong; else None.

    So a mistyped lesson is one line at once, and not one after a download of gigabytes.
    """
    command, rest = options.command, options.rest
    if command == "reset":
        from helpers import my

        # Where there is an environment, it also signs the copy for Jupyter.
        ready = not target.here and is_ready(target)
        return None if ready else my.main(["reset", *rest], target.root)
    if command == "run":
        from helpers import run

        call = run.read_call(rest, target.root)
        return call if isinstance(call, int) else None
    if {"-h", "--help"} & set(rest) and not is_ready(target):
        print(
            f"setup: to see the options of {command}, set up first: make install", file=sys.stderr
        )
        return 2
    if command in ("execute", "record"):
        return _unknown_lesson(rest, target.root)
    return None


def _unknown_lesson(rest: list[str], root: Path) -> int | None:
    """Returns 2, and says so, if one of the lessons named in `rest` does not exist."""
    from helpers.lessons import choose_lessons
    from helpers.parameters import LessonError

    values = ("--device", "--cell-timeout")  # each followed by its value
    pairs = zip(["", *rest], rest)  # noqa: B905  # the first is longer by one
    named = [word for before, word in pairs if before not in values and word[:1] != "-"]
    try:
        choose_lessons(named, root)
    except LessonError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    return None


def lab_arguments(root: Path, rest: list[str], as_root: bool) -> list[str]:
    """Returns what JupyterLab gets: token and loopback stay its defaults; root needs a flag."""
    # As the default page, lesson 00 is also in the address that a server without browser prints.
    page = f"--LabApp.default_url=/lab/tree/{START}"
    arguments = [f"--ServerApp.root_dir={root / 'my'}", page, *rest]
    if as_root:
        say("You are root: JupyterLab starts with --allow-root")
        arguments.append("--allow-root")
    return arguments


def child_environment(target: Target) -> dict[str, str]:
    """Returns the environment variables that activating the virtual environment would set."""
    variables = dict(os.environ)
    if not target.here:
        variables["VIRTUAL_ENV"] = str(target.venv)
        variables["PATH"] = os.pathsep.join([str(target.python.parent), variables.get("PATH", "")])
        variables.pop("PYTHONHOME", None)
    compiler = machine.find_compiler()
    if compiler and "CXX" not in variables and Path(compiler[0]).name == "clang++":
        variables["CXX"] = compiler[0]  # Inductor itself looks for g++ only
    return variables


def start(target: Target, options: argparse.Namespace) -> int:
    """Runs the command in the environment: replaces this process, or returns the exit code."""
    command = [str(target.python), "-m", *MODULES[options.command]]
    variables = child_environment(target)
    if options.command == "lab":
        fill = [str(target.python), "-m", "helpers.my", "fill"]
        code = subprocess.run(fill, cwd=str(target.root), env=variables).returncode
        if code:
            return code
        as_root = hasattr(os, "geteuid") and os.geteuid() == 0
        command += lab_arguments(target.root, options.rest, as_root)
    else:
        command += options.rest
    if os.name == "nt":  # there, exec returns to the shell at once
        return subprocess.run(command, cwd=str(target.root), env=variables).returncode
    os.chdir(str(target.root))
    sys.stdout.flush()
    os.execve(command[0], command, variables)


def main(arguments: list[str] | None = None, version: tuple[int, ...] | None = None) -> int:
    """Runs one command; `version` stands in for the running Python's in tests."""
    try:
        options = parse(sys.argv[1:] if arguments is None else arguments)
        check_python(version)
        target = Target(torch=options.torch, wheels=options.wheels, here=options.here)
        if options.command == "wheels":
            download_wheels(target, Path(options.rest[0]).expanduser().resolve())
            return 0
        code = answer_early(options, target)
        if code is not None:
            return code
        prepare(target, options)
        if options.command == "install":
            say(f"{'This Python' if target.here else target.venv.name} is ready")
            return 0
        return start(target, options)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        say_what = f"{error.strerror or error} ({error.filename})" if error.filename else str(error)
        print(f"setup: {say_what}; put that right and run it again", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nsetup: stopped; what is finished is kept, run it again to go on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
