"""Records the times of lesson 03 on this machine's GPU: `python THIS_FILE` (about two minutes).

Writes notebooks/recordings/03_graph_breaks.json: the calls that the lesson times, with their breaks
and without. It runs the lesson's own source, so that both always time the same functions.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # also where nothing is installed

from helpers import recordings
from helpers.break_costs import RECORDING
from helpers.origin import Origin

LESSON = Path(__file__).resolve().parents[1] / "src" / "03_graph_breaks.py"
# The name under which the lesson asks for a recording, to the lesson's variable.
TIMED = {"gate": "costs", "gate_small": "small_costs", "triage": "total"}


def run_lesson(device: str) -> dict[str, Any]:
    """Runs the lesson's cells as a script on `device` and returns its names."""
    text = LESSON.read_text(encoding="utf-8")
    parameter = 'device = "auto"\n'
    if parameter not in text:
        raise ValueError(f"{LESSON.name} no longer has the line {parameter.strip()}")
    names: dict[str, Any] = {"__name__": "lesson_03", "__file__": str(LESSON)}
    sys.modules["lesson_03"] = type(sys)("lesson_03")  # dataclasses look for their module
    code = compile(text.replace(parameter, f'device = "{device}"\n'), str(LESSON), "exec")
    exec(code, names)
    return names


def main(arguments: list[str] | None = None) -> int:
    """Records; exit code 0, 1 where a time was refused, or 2 where there is no GPU."""
    parser = recordings.recording_parser(__doc__ or "")
    given = parser.parse_args(arguments)
    device = recordings.recording_device(given, "03")
    if device is None:
        return 2
    names = run_lesson(device)
    found = {name: names[variable] for name, variable in TIMED.items()}
    refused = [f"{name}: {one.refused}" for name, one in found.items() if one.refused]
    if refused:
        print("\n".join(refused), file=sys.stderr)
        return 1
    data = {name: one.to_record() for name, one in found.items()}
    name = torch.cuda.get_device_name() if device == "cuda" else recordings.stamp()["device"]
    print(recordings.save(RECORDING, data, Origin.live(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
