"""Results made earlier on a named machine: JSON files, each stamped with what it was made on.

Without a GPU the lessons show these instead of live figures; every result that comes from here
has the origin `recorded`, so that it can never pass for a live one.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.files import write_whole
from helpers.origin import Origin

SCHEMA = 1
STAMP_FIELDS = ("device", "driver", "torch", "triton", "python", "date", "helpers")


class RecordingError(ValueError):
    """A recording that cannot be saved or trusted; the message says why and what to do."""


@dataclass(frozen=True)
class Recording:
    """A recording as loaded: `data` as saved, `origin` (kind `recorded`), `stamp`, `name`."""

    name: str
    data: Any
    origin: Origin
    stamp: dict[str, str]

    def __str__(self) -> str:
        return f"recording {self.name!r}, {self.origin.text()}"

    def __repr__(self) -> str:
        return f"<Recording {self.name!r}>"


def recordings_folder() -> Path:
    """Returns the folder notebooks/recordings of this checkout."""
    return Path(__file__).resolve().parent.parent / "notebooks" / "recordings"


def recording_parser(description: str) -> argparse.ArgumentParser:
    """Returns the options that every script which records for a lesson takes."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--folder", type=Path, help="write there instead (needed for a CPU)")
    return parser


def recording_device(given: argparse.Namespace, lesson: str) -> str | None:
    """Returns the device to record on, None (said on stderr) where a CPU would pass for a GPU.

    With a folder given, what is saved from then on goes there.
    """
    global recordings_folder
    from helpers.environment import choose_device

    device = choose_device(given.device)
    if device == "cpu" and given.folder is None:
        print(f"No usable GPU here, and lesson {lesson} shows what a GPU recorded. To try this "
              "script on a CPU, say where to write: --folder NAME.", file=sys.stderr)  # fmt: skip
        return None
    if given.folder is not None:
        recordings_folder = lambda: given.folder  # noqa: E731
    return device


def stamp() -> dict[str, str]:
    """Returns what a recording made here and now is stamped with: STAMP_FIELDS, all texts.

    device: the card's name, or the processor's; driver: that of the card, or "none".
    """
    from helpers import __version__
    from helpers.environment import describe_environment

    here = describe_environment()
    return {
        "device": here.gpu or here.cpu,
        "driver": here.driver or "none",
        "torch": here.torch,
        "triton": here.triton or "none",
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
        "helpers": __version__,
    }


def _path(name: str) -> Path:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9_]+", name):
        raise RecordingError(
            f"A recording's name has only letters, digits and underscores; got {name!r}."
        )
    return recordings_folder() / f"{name}.json"


def save(name: str, data: Any, origin: Origin) -> Path:
    """Saves `data` (what JSON can hold) as notebooks/recordings/NAME.json and returns its path.

    origin: that of the data, of kind `live`: a recording of something else would get a stamp
    of a machine that did not make it. Raises RecordingError, OSError if it cannot be written.
    """
    path = _path(name)
    if origin.kind != "live":
        raise RecordingError(
            f"Only live results can be recorded, and {name!r} is {origin.kind}: saving it would "
            "stamp it with a machine that did not measure it. Run it live, then save that."
        )
    content = {"schema": SCHEMA, "name": name, "stamp": stamp(), "made_on": origin.device}
    try:
        text = json.dumps({**content, "data": data}, indent=1, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RecordingError(
            f"{name!r} holds something that JSON cannot keep ({error}). Turn it into numbers "
            "(no NaN, no infinity), texts, lists and dictionaries first."
        ) from None
    write_whole(path, text + "\n")
    return path


def load(name: str) -> Recording:
    """Loads notebooks/recordings/NAME.json with the origin `recorded`; else RecordingError."""
    path = _path(name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = sorted(file.stem for file in recordings_folder().glob("*.json"))
        raise RecordingError(
            f"There is no recording {name!r}; there are: {', '.join(known) or 'none yet'}."
        ) from None
    except ValueError:
        raise RecordingError(
            f"{path.name} is not whole JSON; restore it from the repository or record it again."
        ) from None
    return _checked(name, path.name, content)


def _checked(name: str, file: str, content: Any) -> Recording:
    """Returns a Recording if the file says which machine, versions and day it comes from."""
    found = content.get("stamp") if isinstance(content, dict) else None
    found = found if isinstance(found, dict) else {}
    missing = [field for field in STAMP_FIELDS if not found.get(field)]
    if missing:
        raise RecordingError(
            f"{file} has no stamp of {', '.join(missing)}, so nobody can tell where its figures "
            "come from, and it is not shown; record it again with helpers.recordings.save."
        )
    if content.get("schema") != SCHEMA or "data" not in content:
        raise RecordingError(
            f"{file} has schema {content.get('schema')!r}, and these helpers read schema "
            f"{SCHEMA}; record it again."
        )
    details = [f"driver {found['driver']}"] if found["driver"] != "none" else []
    details += [f"triton {found['triton']}"] if found["triton"] != "none" else []
    device = content.get("made_on") or found["device"]
    origin = Origin("recorded", device, found["torch"], found["date"], ", ".join(details))
    return Recording(name, content["data"], origin, found)
