"""What is noted of a graph break: where Dynamo was reading, what stopped it, and the effect."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

import torch

TORCH_FOLDER = os.path.dirname(torch.__file__) + os.sep
EFFECTS = ("split", "rest_eager", "frame_skipped")  # from what costs least to what costs most
_RESUMED = re.compile(r"^torch_dynamo_resume_in_(?P<name>.+)_at_\d+$")


@dataclass(frozen=True)
class Place:
    """One line of a call stack."""

    filename: str
    lineno: int
    function: str


@dataclass(frozen=True)
class BreakEvent:
    """Dynamo stopped once. stack: from the called function to the innermost line of the break.

    message: torch's whole text; effect: one of EFFECTS, for the frame that was being compiled;
    frame: where its function starts; stands_in: what kept Dynamo from going on after the break,
    "loop" or "with" (empty where torch does not say); read: how many places at the end of `stack`
    Dynamo was reading as one frame.
    """

    message: str
    effect: str
    frame: Place
    stack: tuple[Place, ...]
    stands_in: str = ""
    read: int = 1


@dataclass
class BreakNotes:
    """What `noting_breaks` collected.

    events: in order; refused_at_limit: names of frames that a recompile limit refused; tried:
    (file, function) of each frame that Dynamo tried to compile, on its own.
    """

    events: list[BreakEvent] = field(default_factory=list)
    tried: set[tuple[str, str]] = field(default_factory=set)
    refused_at_limit: list[str] = field(default_factory=list)


def original_name(name: str) -> str:
    """Returns the learner's name of a function that Dynamo resumes under a name of its own."""
    match = _RESUMED.match(name)
    return match["name"] if match else name
