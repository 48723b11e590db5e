"""Outputs as they may be stored: no path of this machine, no widget state, no timing."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from helpers.lessons import ROOT

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
PICTURES = ("image/png", "image/jpeg")  # base64 may hold anything that looks like a path
PANEL_NOTE = "A panel with controls: run this cell to use it."
_PATH = r"/[^\s\"'<>:;,()&]*?"
_GENERAL = (
    (re.compile(rf"(?:{_PATH})?/ipykernel_\d+/\d+\.py"), "cell.py"),
    (re.compile(rf"(?:{_PATH})?/(?:site|dist)-packages(?=/|\b)"), "site-packages"),
    (re.compile(rf"{_PATH}/lib(?:64)?/(python3\.\d+)(?=/)"), r"\1"),
    (re.compile(r"torchinductor_[\w.-]+(?=/)"), "torchinductor"),
    # Time and process in front of torch's log lines.
    (re.compile(r"^([A-Z])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ ", re.MULTILINE), r"\1 "),
)


def clean_outputs(outputs: list[Any], count: int, root: Path = ROOT) -> list[Any]:
    """Returns a cell's outputs ready to be stored, numbered `count`.

    Paths become short neutral forms ("site-packages/...", "TMP/...", "~/..."; those below the
    repository become relative), a widget becomes a note to run the cell, neighbouring stream
    pieces are joined, and a line that was overwritten by carriage returns keeps its last state.
    """
    kept: list[Any] = []
    for output in outputs:
        output = output.copy()
        if output.output_type == "stream":
            if kept and kept[-1].output_type == "stream" and kept[-1].name == output.name:
                kept[-1].text += output.text
                continue
        elif output.output_type == "error":
            output.traceback = [clean_text(line, root) for line in output.traceback]
            output.evalue = clean_text(output.evalue, root)
        else:
            output.metadata = {}
            output.data = _clean_data(output.data, root)
        if "execution_count" in output:
            output.execution_count = count
        kept.append(output)
    for output in kept:
        if output.output_type == "stream":
            output.text = clean_text(_settle(output.text), root)
    return [one for one in kept if one.output_type != "stream" or one.text]


def clean_text(text: str, root: Path = ROOT) -> str:
    """Returns `text` with each path of this machine in a short neutral form."""
    for pattern, short in _GENERAL:
        text = pattern.sub(short, text)
    for folder, short in _folders(root):
        edge = rf"(?<![\w.~-]){re.escape(folder)}"
        text = re.sub(rf"{edge}/", f"{short}/" if short else "", text)
        text = re.sub(rf"{edge}(?![\w-])", short or ".", text)
    return text


def find_machine_paths(text: str) -> list[str]:
    """Returns what looks like an absolute path of some machine in `text` (a few of each kind)."""
    folders = r"home|root|tmp|var|opt|mnt|work|workspace|srv|Users|private|data|scratch"
    return re.findall(rf"(?<![\w.~:/-])/(?:{folders})/[\w.-]+", text)


def _folders(root: Path) -> list[tuple[str, str]]:
    """Returns folders of this machine and what stands for them, the longest first."""
    known = {
        str(root): "",
        str(root.resolve()): "",
        sys.prefix: "PYTHON",
        sys.base_prefix: "PYTHON",
        tempfile.gettempdir(): "TMP",
        str(Path(tempfile.gettempdir()).resolve()): "TMP",
        "/tmp": "TMP",
        str(Path.home()): "~",
    }
    shared = ("", "/", "/usr", "/usr/local")  # the same everywhere, and not only Python's
    usable = [(folder, short) for folder, short in known.items() if folder not in shared]
    return sorted(usable, key=lambda pair: -len(pair[0]))


def _clean_data(data: Any, root: Path) -> dict[str, Any]:
    """Cleans a bundle of MIME types; pictures are left alone, a widget's view becomes a note."""
    data = dict(data)
    if data.pop(WIDGET_VIEW, None) is not None:
        data["text/plain"] = PANEL_NOTE
    return {
        kind: value if kind in PICTURES else _clean(value, root) for kind, value in data.items()
    }


def _clean(value: Any, root: Path) -> Any:
    if isinstance(value, str):
        return clean_text(value, root)
    if isinstance(value, dict):
        return {key: _clean(one, root) for key, one in value.items()}
    if isinstance(value, list):
        return [_clean(one, root) for one in value]
    return value


def _settle(text: str) -> str:
    """Returns the lines of `text` as a terminal would show them in the end."""
    lines = (line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return "\n".join(lines)
