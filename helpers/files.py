"""Files written whole or not at all. Importing this module imports the standard library only."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PART = re.compile(r"\A\..+\.(?P<process>\d+)\.part\Z")


def write_whole(path: Path, text: str) -> None:
    """Writes `text` (UTF-8) so that `path` never holds half of it, also when the disk fills up.

    Missing folders are made. OSError as from any write; the file that was there then stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def discard_parts(folder: Path) -> list[Path]:
    """Removes what writes that were killed midway left below `folder`; returns those files.

    A part whose process still runs is left alone: somebody is writing it right now.
    """
    removed = []
    for part in sorted(folder.rglob(".*.part")):
        match = _PART.match(part.name)
        if match and not _runs(int(match["process"])):
            part.unlink(missing_ok=True)
            removed.append(part)
    return removed


def _runs(process: int) -> bool:
    if process == os.getpid():
        return False  # our own writes are finished whenever this is called
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
