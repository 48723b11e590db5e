"""Graph breaks: where Dynamo stopped capturing, as far as Dynamo itself tells."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

_TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
_REGISTRY_ID = re.compile(r"/gb(\d+)\.html")
_PART = re.compile(r"^\s*(Explanation|Hint|Developer debug context):\s*(.*)$")
# Reasons that torch gives in its own shorthand: what it starts with, reason, explanation, fix.
_SHORTHAND = (
    (
        "generic_jump",
        "Branch on the value of a tensor",
        "Which way Python goes depends on numbers that exist only when the code runs, so one "
        "graph cannot hold both ways.",
        "Say it with tensors (torch.where), or with torch.cond; or branch on what is known "
        "before the call (a shape, a flag).",
    ),
    (
        "Tensor.item",
        "Tensor.item() turns a tensor into a Python number",
        "The number exists only when the code runs, and Python needs it to go on.",
        "Keep the value a tensor, or set torch._dynamo.config.capture_scalar_outputs = True.",
    ),
)
_PRINT = (
    "print is Python's: it cannot be part of a graph",
    "What it writes has to appear at this place, between the operations before and after it, so "
    "one graph cannot hold both.",
    "Take the print out, or move it before or after the compiled function.",
)


@dataclass(frozen=True)
class GraphBreak:
    """One place where capture stopped: the innermost source line, as a person counts causes.

    reason: what stopped it, in one line; gb_id: the id in torch's registry ("GB0059"; empty where
    torch names none); filename, lineno, source_line: that line; effect: "split", "rest_eager" or
    "frame_skipped"; explanation, fix: never empty; call_paths: the functions called to get there;
    count: how often Dynamo met it; in_framework: the line lies in torch's own code.
    """

    reason: str
    gb_id: str
    filename: str
    lineno: int
    source_line: str
    effect: str
    explanation: str
    fix: str
    call_paths: tuple[tuple[str, ...], ...]
    count: int
    in_framework: bool

    def __str__(self) -> str:
        where = f"{os.path.basename(self.filename)}:{self.lineno}"
        return f"{where}: {self.source_line}\n    {self.reason}. {self.explanation}\n    {self.fix}"


def read_breaks(reasons: Iterable[Any]) -> tuple[GraphBreak, ...]:
    """Returns one break per innermost line from what Dynamo noted (torch's GraphCompileReason)."""
    found: dict[tuple[str, int], GraphBreak] = {}
    for reason in reasons:
        if reason.graph_break and reason.user_stack:
            new = _read(reason)
            key = (new.filename, new.lineno)
            old = found.get(key)
            found[key] = _merged(old, new) if old else new
    return tuple(found.values())


def _merged(old: GraphBreak, new: GraphBreak) -> GraphBreak:
    paths = tuple(dict.fromkeys(old.call_paths + new.call_paths))
    return replace(old, count=old.count + 1, call_paths=paths)


def _read(reason: Any) -> GraphBreak:
    line = reason.user_stack[-1]
    source = linecache.getline(line.filename, line.lineno).strip()
    registry = _REGISTRY_ID.search(reason.reason)
    what, explanation, fix = _in_words(reason.reason)
    path = tuple(re.sub(r"^torch_dynamo_resume_in_(.+)_at_\d+$", r"\1", f.name)
                 for f in reason.user_stack)  # fmt: skip
    return GraphBreak(
        reason=what,
        gb_id=f"GB{registry[1]}" if registry else "",
        filename=line.filename,
        lineno=line.lineno,
        source_line=source,
        effect="split",
        explanation=explanation,
        fix=fix,
        call_paths=(path,),
        count=1,
        in_framework=line.filename.startswith(_TORCH_FOLDER),
    )


def _in_words(text: str) -> tuple[str, str, str]:
    """Returns reason, explanation and fix, none of them empty, from Dynamo's message."""
    for start, *words in _SHORTHAND:
        if text.startswith(start):
            return tuple(words)
    if text.startswith("Failed to trace builtin operator") and "`print`" in text:
        return _PRINT
    parts: dict[str, list[str]] = {"Explanation": [], "Hint": []}
    for line in text.splitlines():
        match = _PART.match(line)
        if match and match[1] in parts:
            parts[match[1]].append(match[2].strip())
    first = text.strip().splitlines()[0].strip().rstrip(".")
    explanation = " ".join(parts["Explanation"]) or "Dynamo gives no further explanation."
    fix = " Or: ".join(parts["Hint"]) or (
        "Dynamo names no repair. Move this line out of the compiled function, or leave the break."
    )
    return first, explanation, fix
