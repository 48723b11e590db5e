"""From a Python function to machine code as one picture, and what is live on this machine."""

from __future__ import annotations

import html
import importlib.util
import re
from dataclasses import dataclass

from helpers.display import View, art_html, table_text, wrap

# In pixels: a box and the space beside it; the column of names; around and between lanes.
_WIDTH, _HEIGHT, _GAP, _LEFT, _PAD, _BETWEEN = 168, 76, 26, 158, 12, 24


@dataclass(frozen=True)
class Machine:
    """What decides how much is live: a usable CUDA card, the Triton compiler, a C++ compiler."""

    cuda: bool
    triton: bool
    compiler: bool

    @classmethod
    def here(cls) -> Machine:
        """Looks at this machine: torch for the card, the import path for Triton, PATH for g++."""
        import torch

        from helpers.machine import find_compiler

        triton = importlib.util.find_spec("triton") is not None
        return cls(torch.cuda.is_available(), triton, find_compiler() is not None)

    def gpu_code(self) -> str:
        """Returns the origin of GPU code on this machine."""
        return "live" if self.cuda else "cross-target" if self.triton else "recorded"


@dataclass(frozen=True)
class Stage:
    """One thing that the compiler makes: its name, what it is in plain words, its status here."""

    name: str
    meaning: str
    status: str


@dataclass(frozen=True)
class Lane:
    """One part of the compiler, what it does, and its stages in one or more rows."""

    maker: str
    does: str
    rows: tuple[tuple[Stage, ...], ...]


STATUSES = {
    "live": "made on this machine when you run a cell",
    "cross-target": "made on this machine, for a GPU that is not here; no times",
    "recorded": "made earlier on a real GPU and stored with the lessons",
    "missing": "needs a C++ compiler, and none was found here",
}
SIGNS = {
    "live": "● live", "cross-target": "◐ cross-target", "recorded": "○ recorded",
    "missing": "! no compiler",
}  # fmt: skip
_LOOKS = {
    "live": ("good", "none"), "cross-target": ("note", "7 4"), "recorded": ("warn", "2 3"),
    "missing": ("bad", "1 5"),
}  # fmt: skip


def stages(machine: Machine | None = None) -> tuple[Lane, ...]:
    """Returns the lanes of the pipeline, one per part of the compiler."""
    machine = machine or Machine.here()
    gpu, cpu = machine.gpu_code(), "live" if machine.compiler else "missing"
    return (
        Lane("TorchDynamo", "reads your Python", ((
            Stage("Python function", "what you wrote", "live"),
            Stage("bytecode", "what Python really runs", "live"),
            Stage("FX graph + guards", "operations; when to reuse", "live")),)),
        Lane("AOTAutograd", "adds the gradients", ((
            Stage("joint graph", "forward and backward", "live"),
            Stage("forward graph", "results, what to keep", "live"),
            Stage("backward graph", "gradients, for training", "live")),)),
        Lane("TorchInductor", "writes the kernels", ((
            Stage("Triton kernels", "GPU code that reads well", gpu),
            Stage("PTX", "assembly for NVIDIA GPUs", gpu),
            Stage("SASS", "what one GPU executes", gpu),
            Stage("GPU times", "how long it takes there", "live" if machine.cuda else "recorded")),
            (Stage("C++ kernels", "CPU code that reads well", cpu),
             Stage("machine code", "what your CPU executes", cpu),
             Stage("CPU times", "how long it takes here", cpu)))),
    )  # fmt: skip


def _sentence(lanes: tuple[Lane, ...]) -> str:
    found: dict[str, list[str]] = {}
    for stage in (stage for lane in lanes for row in lane.rows for stage in row):
        found.setdefault(stage.status, []).append(stage.name)
    return "\n".join(
        f"{SIGNS[status]}: {', '.join(found[status])} ({meaning})"
        for status, meaning in STATUSES.items()
        if status in found
    )


def pipeline_picture(machine: Machine | None = None) -> View:
    """Returns the whole pipeline as one picture, each stage with its status in words.

    `machine`: what to assume; left out, this machine is looked at.
    """
    lanes = stages(machine)
    text = _sentence(lanes)
    rows = [
        (lane.maker, stage.name, stage.meaning, SIGNS[stage.status])
        for lane in lanes for row in lane.rows for stage in row
    ]  # fmt: skip
    return View(
        wrap(
            art_html(_svg(lanes, text), "picture of the stages of the compiler", text),
            *(f'<div style="margin:3px 0">{html.escape(line)}</div>' for line in text.split("\n")),
        ),
        f"{table_text(('part of the compiler', 'stage', 'what it is', 'here'), rows)}\n\n{text}",
    )


def _svg(lanes: tuple[Lane, ...], text: str) -> str:
    across = max(len(row) for lane in lanes for row in lane.rows)
    width = _LEFT + across * (_WIDTH + _GAP) + 2
    parts, top = [], 2
    for i, lane in enumerate(lanes):
        tall = len(lane.rows) * (_HEIGHT + _PAD) + _PAD
        if i:
            parts.append(_arrow(f"M{_LEFT + _WIDTH / 2} {top - _BETWEEN}V{top - 3}"))
        parts.append(_lane(lane, top, width - 4, tall))
        top += tall + _BETWEEN
    return "".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} '
        f'{top - _BETWEEN + 2}" style="display:block;width:100%;min-width:680px;'
        f'max-width:{width}px" font-family="system-ui,sans-serif" '
        f'aria-label="{html.escape(text, quote=True)}">'
        "<title>From a Python function to machine code</title>"
        f"<desc>{html.escape(text)}</desc>",
        *parts, "</svg>",
    ))  # fmt: skip


def _lane(lane: Lane, top: float, width: float, tall: float) -> str:
    parts = [
        f'<rect x="2" y="{top}" width="{width}" height="{tall}" rx="8" '
        'fill="var(--tcs-panel,#f6f7f9)" stroke="var(--tcs-line,#c4c9d0)"/>',
        _text(16, top + tall / 2 - 3, lane.maker, "15", "700", "start"),
        _text(16, top + tall / 2 + 16, lane.does, "12", "400", "start"),
    ]
    for i, row in enumerate(lane.rows):
        y = top + _PAD + i * (_HEIGHT + _PAD)
        for j, stage in enumerate(row):
            x = _LEFT + j * (_WIDTH + _GAP)
            if j:
                parts.append(_arrow(f"M{x - _GAP} {y + _HEIGHT / 2}H{x - 3}"))
            parts.append(_stage(stage, x, y))
    return "".join(parts)


def _stage(stage: Stage, x: float, y: float) -> str:
    colour, dash = _LOOKS[stage.status]
    middle = x + _WIDTH / 2
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
        'fill="var(--tcs-page,#ffffff)" '
        f'stroke="var(--tcs-{colour})" stroke-width="1.8" stroke-dasharray="{dash}"/>'
        + _text(middle, y + 22, stage.name, "14", "700")
        + _text(middle, y + 40, stage.meaning, "11.5", "400")
        + _text(middle, y + 62, SIGNS[stage.status], "12.5", "600", colour=colour)
    )


def _text(
    x: float, y: float, words: str, size: str, weight: str, anchor: str = "middle",
    colour: str = "ink",
) -> str:  # fmt: skip
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="var(--tcs-{colour},#1a1a1a)">{html.escape(words)}</text>'
    )


def _arrow(path: str) -> str:
    """Returns a line with a head; the head is drawn, so that no id has to be unique on a page."""
    x, y = re.findall(r"[\d.]+", path)[-1], path
    start = [float(n) for n in re.findall(r"[\d.]+", path)[:2]]
    end = float(x)
    if "V" in y:
        head = f"M{start[0] - 5} {end - 6}L{start[0]} {end}L{start[0] + 5} {end - 6}"
    else:
        head = f"M{end - 6} {start[1] - 5}L{end} {start[1]}L{end - 6} {start[1] + 5}"
    return (
        f'<path d="{path}{head}" fill="none" stroke="var(--tcs-soft,#50565e)" stroke-width="1.8"/>'
    )
