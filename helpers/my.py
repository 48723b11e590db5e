"""The learner's own copies: `python -m helpers.my fill` and `... reset LESSON=03`.

Lessons and labs are opened from my/, which git ignores, so that nothing a learner does touches a
tracked file, and nothing here overwrites what a learner made. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import html
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from helpers.files import discard_parts, write_whole
from helpers.lessons import ROOT

MANIFEST = ".manifest.json"
_PREDICT, _EXPLAIN = "**Predict", "**Explain"
FOLDERS = ("notebooks", "labs")
_COPIED = (".ipynb", ".svg")  # lessons, labs, and the drawings that they show
_NOT_COPIED = {"src", "checks", "recordings", ".ipynb_checkpoints", "__pycache__"}


class MyError(ValueError):
    """A wrong call or a folder that is not as it should be; the message says what to do."""


def fill(root: Path = ROOT) -> list[str]:
    """Fills my/ from notebooks/ and labs/ without overwriting anything a learner changed.

    Returns one line per thing done or worth knowing. A copy that the learner never changed is
    renewed when the tracked file is newer; a changed one stays. OSError if a file can't be written.
    """
    mine = _check_folders(root)
    lines = [f"discarded {part.name}, half-written" for part in _discard(mine)]
    manifest, trouble = _read_manifest(mine)
    lines += trouble
    names = list(_tracked(root))
    if not any(name.startswith("notebooks/") and name.endswith(".ipynb") for name in names):
        raise MyError("there is no lesson in notebooks/; is this the whole repository?")
    for name in names:
        tracked, copy = root / name, mine / name
        line = _fill_one(name, tracked, copy, manifest, root)
        if line:
            lines.append(line)
            _write_manifest(mine, manifest)
    return lines or [f"my/ is current: {len(names)} files"]


def reset(lesson: str, root: Path = ROOT, folder: str = "notebooks") -> list[str]:
    """Puts one lesson (or, with folder="labs", lab) back in my/ and keeps the learner's copy.

    The copy kept is named by date and a counter; none is ever overwritten. MyError if unknown.
    """
    mine, name = _check_folders(root), _find(lesson, root, folder)
    manifest, lines = _read_manifest(mine)
    tracked, copy = root / name, mine / name
    text = _delivered(tracked)
    if copy.is_dir():
        raise MyError(_is_a_folder(name))
    if copy.exists() and not _nothing_of_theirs(tracked, copy, root):
        if content_hash(copy) == _hash_of_text(text):
            return [f"my/{name} is as delivered; nothing to put back"]
        kept = _keep(copy)
        lines.append(f"kept yours as my/{kept.relative_to(mine).as_posix()}")
    _write_copy(copy, text)
    manifest[name] = {"tracked": _file_hash(tracked), "copy": _hash_of_text(text)}
    _write_manifest(mine, manifest)
    return [*lines, f"put back my/{name}"]


def with_markers(tracked: Path) -> str:
    """Returns a tracked notebook's text with each stored output marked as stored.

    Every code cell with outputs gets a first output that names device and date from the stamp; as
    an output, it goes when the cell is run. Between Predict and Explain the outputs are folded.
    MyError if the file is no notebook.
    """
    try:
        notebook = json.loads(tracked.read_text(encoding="utf-8"))
        cells = notebook["cells"]
    except (ValueError, KeyError, TypeError):
        raise MyError(f"{tracked.name} is not a readable notebook; restore it with git") from None
    stamp = notebook.get("metadata", {}).get("torch_compile_suite", {}).get("stamp", {})
    device, date = stamp.get("device", "an unnamed machine"), stamp.get("date", "an unknown day")
    text = f"stored from {device} on {date}; run to replace"
    style = "font-size:0.85em;border-left:3px solid currentColor;padding-left:6px"
    marker = {
        "output_type": "display_data",
        "metadata": {},
        "data": {
            "text/html": f'<div style="{style}">{html.escape(text)}</div>',
            "text/plain": text,
        },
    }
    asked = False
    for cell in cells:
        if cell.get("cell_type") == "markdown":
            prose = "".join(cell.get("source", []))
            asked = _PREDICT in prose or (asked and _EXPLAIN not in prose)
        elif cell.get("cell_type") == "code" and cell.get("outputs"):
            shown = dict(marker)
            if asked:  # JupyterLab folds the answer away, and opens it when the cell is run
                cell.setdefault("metadata", {})["jupyter"] = {"outputs_hidden": True}
                # The line in place of what is folded is the first output's text.
                shown["data"] = {"text/plain": f"{text}. Folded: make your guess first"}
            cell["outputs"].insert(0, shown)
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def content_hash(path: Path) -> str:
    """Returns a hash of what a person can change in a file.

    For a notebook: its cells' kinds, sources and outputs; not the JSON's layout or the metadata,
    which JupyterLab rewrites on opening and saving.
    """
    return _hash_of_text(path.read_bytes().decode("utf-8", errors="surrogateescape"))


def _fill_one(name: str, tracked: Path, copy: Path, manifest: dict[str, Any], root: Path) -> str:
    """Brings one copy up to date if that loses nothing; returns what there is to say, or ""."""
    entry, newest = manifest.get(name), _file_hash(tracked)
    text = _delivered(tracked)
    delivered = {"tracked": newest, "copy": _hash_of_text(text)}
    if copy.is_dir():
        return _is_a_folder(name)
    nothing = _nothing_of_theirs(tracked, copy, root) if copy.exists() else "new"
    if nothing:
        _write_copy(copy, text)
        manifest[name] = delivered
        return f"{nothing}: my/{name}"
    mine = content_hash(copy)
    if entry is None:
        if mine != delivered["copy"]:
            return f"kept my/{name}: it is not a copy made here"
        manifest[name] = delivered
        return f"found my/{name}, as delivered"
    if entry["tracked"] == newest:
        return ""
    if mine == entry["copy"]:
        _write_copy(copy, text)
        manifest[name] = delivered
        return f"renewed my/{name}: there is a newer version, and you had not changed yours"
    return f"kept my/{name}, which you changed; there is a newer version: {_advice(name)}"


def _check_folders(root: Path) -> Path:
    """Returns my/; MyError if it, or a folder in it, is a file or leads to the tracked ones."""
    mine = root / "my"
    inner = {inside for name in _tracked(root) for inside in PurePosixPath(name).parents}
    for folder in sorted(mine / inside for inside in {PurePosixPath("."), *inner}):
        shown = folder.relative_to(root).as_posix()
        if os.path.lexists(folder) and not folder.is_dir():
            raise MyError(f"{shown} is no folder: move it away and run this again")
        if _is_tracked(folder, root):
            raise MyError(
                f"{shown} is a link to tracked files, which edits would change: remove the link "
                "and run this again"
            )
    return mine


def _is_tracked(path: Path, root: Path) -> bool:
    """Whether a path leads, through links, into a folder that git tracks, or to all of it."""
    real, tracked = path.resolve(), [(root / name).resolve() for name in FOLDERS]
    return real == root.resolve() or any(one in (real, *real.parents) for one in tracked)


def _is_a_folder(name: str) -> str:
    return f"my/{name} is a folder and no file: move it away and run this again"


def _nothing_of_theirs(tracked: Path, copy: Path, root: Path) -> str:
    """Says why a copy may be replaced although it is there, "" if it may hold what a learner made.

    A link to a tracked file goes, because edits would change that file; what it leads to stays.
    """
    if os.path.samefile(tracked, copy) or _is_tracked(copy, root):
        return "a copy in place of a link to a tracked file"
    return "" if copy.stat().st_size else "in place of an empty file"


def _advice(name: str) -> str:
    folder, file = name.split("/", 1)
    if not file.endswith(".ipynb"):
        return f"remove my/{name} and run this again to get it"
    kind = "LAB" if folder == "labs" else "LESSON"
    return f"make reset {kind}={file[:2]} gets it, and keeps yours"


def _delivered(tracked: Path) -> str:
    """Returns the text that the copy of a tracked file gets."""
    return with_markers(tracked) if tracked.suffix == ".ipynb" else tracked.read_text("utf-8")


def _write_copy(copy: Path, text: str) -> None:
    """Writes a copy, and for a notebook tells Jupyter that its stored outputs are ours.

    Without that, JupyterLab shows the stored pictures without their styles until a cell is run.
    """
    write_whole(copy, text)
    if copy.suffix != ".ipynb":
        return
    with contextlib.suppress(ImportError, OSError):  # a convenience: the copy is good without it
        import nbformat
        from nbformat.sign import NotebookNotary

        NotebookNotary().sign(nbformat.reads(text, as_version=4))


def _keep(copy: Path) -> Path:
    """Gives the learner's file a second, new name; returns it."""
    today = datetime.date.today().isoformat()
    for counter in range(1, 10_000):
        kept = copy.with_name(f"{copy.stem}.kept-{today}-{counter}{copy.suffix}")
        try:
            try:
                os.link(copy, kept)
            except PermissionError:  # a file system without hard links
                with open(kept, "xb") as file:
                    file.write(copy.read_bytes())
            return kept
        except FileExistsError:
            continue
    raise MyError(f"there are too many kept copies of {copy.name}; move some away")


def _tracked(root: Path) -> Iterator[str]:
    """Yields the files to copy, by their path below the repository."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            inside = path.relative_to(root)
            if path.suffix in _COPIED and path.is_file() and not _NOT_COPIED & set(inside.parts):
                yield inside.as_posix()


def _find(lesson: str, root: Path, folder: str) -> str:
    """Returns the path below the repository of a lesson given as 3, 03, or by its name."""
    files = sorted((root / folder).glob("[0-9][0-9]_*.ipynb"))
    key = lesson.zfill(2) if lesson.isdigit() else Path(lesson).name.removesuffix(".ipynb")
    for path in files:
        if key in (path.name[:2], path.stem):
            return path.relative_to(root).as_posix()
    what = "lab" if folder == "labs" else "lesson"
    numbers = ", ".join(path.name[:2] for path in files) or "none"
    raise MyError(f"there is no {what} {lesson!r}; there are: {numbers}")


def _hash_of_text(text: str) -> str:
    def joined(value: Any) -> Any:
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return "".join(value)
        if isinstance(value, dict):
            return {key: joined(one) for key, one in value.items() if key != "metadata"}
        return [joined(one) for one in value] if isinstance(value, list) else value

    try:
        cells = json.loads(text)["cells"]
        parts = [(c["cell_type"], joined(c["source"]), joined(c.get("outputs"))) for c in cells]
        text = json.dumps(parts, sort_keys=True)
    except (ValueError, KeyError, TypeError):
        pass  # not a notebook: every byte counts
    return hashlib.sha256(text.encode("utf-8", errors="surrogateescape")).hexdigest()


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _discard(mine: Path) -> list[Path]:
    return discard_parts(mine) if mine.exists() else []


def _read_manifest(mine: Path) -> tuple[dict[str, Any], list[str]]:
    path = mine / MANIFEST
    if not path.exists():
        return {}, []
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {k: {"tracked": v["tracked"], "copy": v["copy"]} for k, v in entries.items()}, []
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, [f"my/{MANIFEST} was damaged and is made anew; your files are untouched"]


def _write_manifest(mine: Path, manifest: dict[str, Any]) -> None:
    write_whole(mine / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Runs fill or reset; returns 0, 1 (a file could not be written) or 2 (a wrong call)."""
    parser = argparse.ArgumentParser(prog="python -m helpers.my", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fill", help="copy lessons and labs that are new")
    put_back = commands.add_parser("reset", help="put one back, keep yours")
    put_back.add_argument("which", nargs="?", default="", metavar="LESSON=03 | LAB=03")
    options = parser.parse_args(arguments)
    try:
        if options.command == "fill":
            lines = fill(root)
        else:
            kind, _, which = options.which.rpartition("=")
            folders = {"": "notebooks", "LESSON": "notebooks", "LAB": "labs"}
            if kind.upper() not in folders or not which:
                raise MyError("say which one: reset LESSON=03, or reset LAB=03")
            lines = reset(which, root, folders[kind.upper()])
    except MyError as error:
        print(f"helpers.my: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"helpers.my: {error}; what was finished is kept, run it again", file=sys.stderr)
        return 1
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
