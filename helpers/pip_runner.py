"""Runs pip with a status line, keeps its whole output in a log, and turns failures into one line.

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

_SIZE = re.compile(r"(?:Downloading|Using cached) (\S+?)(?:-[\d.]+\S*)? \(([\d.]+) (kB|MB|GB)\)")
_UNIT = {"kB": 1e-6, "MB": 1e-3, "GB": 1.0}

# What pip says, what it means and what to do; the first that is found counts.
_MEANINGS = (
    ("No space left on device", "The disk is full: free some space"),
    ("Disk quota exceeded", "Your disk quota is used up: free some space"),
    ("Permission denied", "A file there cannot be written: give yourself the folder (chown)"),
    ("No matching distribution", "A package is missing where pip looks: {said}"),
    ("Could not find a version", "A package is missing where pip looks: {said}"),
    ("HASHES", "A download was damaged: it is fetched again"),
    ("Connection", "The network failed midway: see that it is there"),
    ("Read timed out", "The network is too slow or stopped: see that it is there"),
    ("IncompleteRead", "The network failed midway: see that it is there"),
    ("name resolution", "The network failed midway: see that it is there"),
)


class SetupError(Exception):
    """The set-up cannot go on; the message says in one line what, why and what to do."""


def say(text: str) -> None:
    """Prints one line of the set-up's own, at once."""
    print(f"setup: {text}", flush=True)


def run_pip(
    command: list[str], log: Path, download_gb: float, installed_gb: float, temporary: str
) -> None:
    """Runs pip; SetupError says what went wrong.

    download_gb, installed_gb: what to expect, for the percentages (0: none shown);
    temporary: pip's folder for half-written files, on a disk with room for the downloads.
    """
    Path(temporary).mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "TMPDIR": temporary,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": "off",
        "PYTHONUNBUFFERED": "1",
    }
    lines = []
    status = Status(download_gb, installed_gb, temporary)
    with open(str(log), "a", encoding="utf-8") as kept, status:
        kept.write("$ " + " ".join(command) + "\n")
        # close_fds=False: pip inherits the lock on the environment (see install.py).
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=environment, close_fds=False, errors="replace",
        )  # fmt: skip
        try:
            for line in process.stdout or ():
                kept.write(line)
                kept.flush()
                lines.append(line.strip())
                status.read(line)
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        raise SetupError(explain(lines, log))


def explain(lines: list[str], log: Path) -> str:
    """Returns one line for a failed pip: what it means, what to do, where the whole output is."""
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no message"]
    said = errors[-1].replace("ERROR: ", "")
    text = "\n".join(errors if len(errors) > 1 else lines)
    meaning = next((m for sign, m in _MEANINGS if sign in text), "pip stopped: {said}")
    after = "then run the same command again; what is finished is kept"
    return f"{meaning.format(said=said)}, {after} (all that pip said: {log})"


class Status:
    """One line that says how far pip is: rewritten on a terminal, else printed now and then."""

    def __init__(self, download_gb: float, installed_gb: float, folder: str) -> None:
        self._totals = {"downloading": download_gb, "unpacking": installed_gb}
        self._folder = folder
        self._phase, self._item, self._done = "resolving", "", 0.0
        self._coming = 0.0  # what pip downloads right now
        self._free = 0.0
        self._start = self._shown = time.monotonic()
        self._terminal = sys.stdout.isatty()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Status:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()
        if self._terminal:
            print("\r\x1b[K", end="", flush=True)

    def read(self, line: str) -> None:
        """Takes one line of pip's output."""
        found = _SIZE.search(line)
        if found and ".metadata" not in line:
            self._phase, self._item = "downloading", found[1]
            self._done += self._coming
            self._coming = float(found[2]) * _UNIT[found[3]]
        elif line.startswith("Installing collected packages"):
            self._phase, self._item = "unpacking", ""
            self._free = shutil.disk_usage(self._folder).free / 1e9

    def text(self) -> str:
        """Returns the line, such as "downloading torch, 41 %, 62 s"."""
        total = self._totals.get(self._phase, 0.0)
        done = self._done
        if self._phase == "unpacking":
            done = self._free - shutil.disk_usage(self._folder).free / 1e9
        share = f", {min(99, max(0, round(100 * done / total)))} %" if total else ""
        seconds = f"{time.monotonic() - self._start:.0f} s"
        return f"{' '.join(filter(None, [self._phase, self._item]))}{share}, {seconds}"

    def _tick(self) -> None:
        while not self._stop.wait(0.5 if self._terminal else 5):
            if self._terminal:
                print(f"\r\x1b[Ksetup: {self.text()}", end="", flush=True)
            elif time.monotonic() - self._shown >= 15:
                self._shown = time.monotonic()
                say(self.text())
