"""Records the times of lesson 04 on this machine's GPU: `python THIS_FILE` (about two minutes).

Writes notebooks/recordings/04_guards_and_recompiles.json: for each way to serve sentences of many
lengths, the time per real token.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # also where nothing is installed

from helpers import recordings
from helpers.bucketing import sentence_lengths, usual_plans
from helpers.bucketing_times import RECORDING, keep, time_plans
from helpers.environment import choose_device, remember_vector_isa


class SentenceScorer(nn.Module):
    """As in the lesson."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.words = heads, nn.Embedding(1000, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        real = tokens != 0
        x = self.words(tokens)
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :])
        scores = self.out(x + y.transpose(1, 2).flatten(2)).squeeze(-1)
        return (scores * real).sum(1) / real.sum(1)


def main(arguments: list[str] | None = None) -> int:
    """Records; exit code 0, or 2 where there is no GPU and none was waived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--folder", type=Path, help="write there instead (needed for a CPU)")
    parser.add_argument("--calls", type=int, default=120)
    given = parser.parse_args(arguments)
    device = choose_device(given.device)
    if device == "cpu" and given.folder is None:
        print("No usable GPU here, and lesson 04 shows what a GPU recorded. To try this script "
              "on a CPU, say where to write: --folder NAME.", file=sys.stderr)  # fmt: skip
        return 2
    if given.folder is not None:
        recordings.recordings_folder = lambda: given.folder
    remember_vector_isa()
    rows, width = (64, 512) if device == "cuda" else (1, 32)  # as in the lesson
    torch.manual_seed(0)
    scorer = SentenceScorer(width).eval().requires_grad_(False).to(device)

    def padded(length: int, size: int) -> tuple[torch.Tensor]:
        tokens = torch.zeros(rows, size, dtype=torch.long, device=device)
        tokens[:, :length] = torch.arange(1, length + 1, device=device)
        return (tokens,)

    plans = usual_plans(sentence_lengths(given.calls))
    what = f"{given.calls} calls of {rows} sentences each, width {width}, float32, in one process"
    found = time_plans(scorer, padded, plans, rows=rows, what=what)
    for name, one in found.times.items():
        print(f"{name}: {one.words} {one.refused}")
    print(recordings.save(RECORDING, keep(found), found.origin))
    return 0


if __name__ == "__main__":
    sys.exit(main())
