"""Builds every notebook from its source, one way: `python -m helpers.authoring build`.

Sources are notebooks/src/NN_name.py (py:percent, header block as in helpers.lessons). Building
twice gives the same bytes. Outputs already stored stay with a code cell as long as it and all code
cells before it are unchanged. Executing and recording live in helpers.execution.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from helpers.files import write_whole
from helpers.lesson_notebook import (
    build_notebook,
    code_hash,
    helpers_hash,
    read_notebook,
    read_stamp,
    to_text,
)
from helpers.lesson_run import whole_seconds
from helpers.lessons import ROOT, LessonTable, choose_lessons, find_lessons
from helpers.parameters import LessonError

_README_TABLE = re.compile(r"(<!-- lessons\b[^>]*-->\n).*?(<!-- /lessons -->)", re.DOTALL)


def build(root: Path = ROOT) -> list[str]:
    """Writes every notebook and the README's table; returns one line per file that changed."""
    changed = []
    for lesson in choose_lessons([], root):
        text = to_text(build_notebook(lesson, read_notebook(lesson.notebook), root))
        changed += _update(lesson.notebook, text, root)
    readme = root / "README.md"
    if readme.exists():
        changed += _update(readme, _readme(readme, root), root)
    return changed


def check(root: Path = ROOT) -> list[str]:
    """Returns one line for each file that differs from what build would write (outputs aside)."""
    lessons = choose_lessons([], root)
    drift = []
    for lesson in lessons:
        found, name = read_notebook(lesson.notebook), _relative(lesson.notebook, root)
        if found is None:
            drift.append(f"{name} does not exist")
        elif to_text(found) != lesson.notebook.read_text(encoding="utf-8"):
            drift.append(f"{name} is not written the way build writes it")
        else:
            drift += _differences(build_notebook(lesson, found, root), found, name)
    known = {lesson.notebook for lesson in lessons}
    strangers = sorted(set((root / "notebooks").glob("*.ipynb")) - known)
    drift += [f"{_relative(path, root)} has no source in notebooks/src" for path in strangers]
    readme = root / "README.md"
    if not readme.exists():
        drift.append("README.md does not exist")
    elif _readme(readme, root) != readme.read_text(encoding="utf-8"):
        drift.append("the table of lessons in README.md is not current")
    return drift


def stale_stamps(root: Path = ROOT) -> list[str]:
    """Returns one line for each lesson whose stored outputs come from other code or torch."""
    helpers, torch, lines = helpers_hash(root), _installed_torch(), []
    for lesson in find_lessons(root):
        notebook = read_notebook(lesson.notebook)
        if notebook is None:
            continue
        stamp = read_stamp(notebook)
        causes = []
        if not stamp:
            causes.append("it was never executed")
        else:
            causes += ["its code changed"] * (stamp["lesson"] != code_hash(notebook))
            causes += ["helpers/ changed"] * (stamp["helpers"] != helpers)
            other = torch and stamp["torch"].split("+")[0] != torch
            causes += [f"it ran on torch {stamp['torch']}, here is {torch}"] if other else []
        lines += [f"{lesson.name}: {', '.join(causes)}"] if causes else []
    return lines


def _differences(built: Any, found: Any, name: str) -> list[str]:
    def bare(cell: Any) -> dict[str, Any]:
        return {k: v for k, v in cell.items() if k not in ("outputs", "execution_count")}

    if built.metadata != found.metadata:
        return [f"{name}: its metadata differ from what build writes"]
    if len(built.cells) != len(found.cells):
        return [f"{name} has {len(found.cells)} cells, its source has {len(built.cells)}"]
    pairs = enumerate(zip(built.cells, found.cells, strict=True), start=1)
    differing = [str(number) for number, (one, two) in pairs if bare(one) != bare(two)]
    return [f"{name} differs from its source in cell {', '.join(differing)}"] if differing else []


def _readme(path: Path, root: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if not _README_TABLE.search(text):
        raise LessonError("README.md lacks the markers '<!-- lessons -->' and '<!-- /lessons -->'")
    table = LessonTable(find_lessons(root), "notebooks/").markdown()
    return _README_TABLE.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text)


def _update(path: Path, text: str, root: Path) -> list[str]:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return []
    write_whole(path, text)
    return [f"wrote {_relative(path, root)}"]


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _installed_torch() -> str:
    try:
        return metadata.version("torch").split("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Runs build, check, execute or record; returns 0, 1 (a fault), 2 (misuse), 130 (Ctrl-C)."""
    parser = argparse.ArgumentParser(prog="python -m helpers.authoring", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="write every notebook from its source")
    commands.add_parser("check", help="fail if a notebook differs from its source")
    for name, what in (("execute", "run and store lessons"), ("record", "record, then execute")):
        command = commands.add_parser(name, help=what)
        command.add_argument("lessons", nargs="*", metavar="LESSON", help="such as 03; none: all")
        command.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
        command.add_argument("--force", action="store_true", help="also where nothing changed")
        command.add_argument("--cell-timeout", type=whole_seconds, default=600, metavar="SECONDS")
    options = parser.parse_args(arguments)
    try:
        return _run_command(options, root)
    except LessonError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; what was stored stays, and the same call goes on from here")
        return 130


def _run_command(options: argparse.Namespace, root: Path) -> int:
    if options.command == "build":
        print("\n".join(build(root)) or "every notebook is current")
        return 0
    if options.command == "check":
        drift = check(root)
        for line in stale_stamps(root):
            print(f"warning: stored outputs are old: {line} (make execute renews them)")
        print("\n".join([*drift, "run: make build"]) if drift else "no notebook differs")
        return 1 if drift else 0
    from helpers import execution

    chosen = choose_lessons(options.lessons, root)
    if options.command == "record" and not execution.record(root):
        return 1
    return execution.execute(chosen, options.device, options.force, options.cell_timeout, root=root)


if __name__ == "__main__":
    sys.exit(main())
