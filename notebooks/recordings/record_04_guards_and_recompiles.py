"""Records the times of lesson 04 on this machine's GPU: `python THIS_FILE` (about two minutes).

Writes notebooks/recordings/04_guards_and_recompiles.json: for each way to serve sentences of many
lengths, the time per real token.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # also where nothing is installed

from helpers import recordings
from helpers.bucketing import count_plans, sentence_lengths, usual_plans
from helpers.bucketing_times import RECORDING, keep, time_plans
from helpers.environment import remember_vector_isa
from helpers.sentences import sentence_load


def main(arguments: list[str] | None = None) -> int:
    """Records; exit code 0, or 2 where there is no GPU and none was waived."""
    parser = recordings.recording_parser(__doc__ or "")
    parser.add_argument("--calls", type=int, default=120)
    given = parser.parse_args(arguments)
    device = recordings.recording_device(given, "04")
    if device is None:
        return 2
    remember_vector_isa()
    torch.manual_seed(0)
    load = sentence_load(device)
    scorer, plans = load.scorer(), usual_plans(sentence_lengths(given.calls))
    # As in the lesson: a plan that hits the limit has no compiled code to time.
    counted = count_plans(scorer, load.padded, plans)
    fit = [one.plan for one in counted if not one.eager_calls]
    what = f"{given.calls} calls: {load.words}, in one process"
    found = time_plans(scorer, load.padded, fit, rows=load.rows, what=what)
    for name, one in found.times.items():
        print(f"{name}: {one.words} {one.refused}")
    print(recordings.save(RECORDING, keep(found), found.origin))
    return 0


if __name__ == "__main__":
    sys.exit(main())
