"""How the calls of a RecompileReport look: what each outcome means, and outcomes side by side."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from helpers.display import View, table, wrap

if TYPE_CHECKING:
    from helpers.recompiles import RecompileReport

# The outcomes that a learner can foresee, and what each means.
OUTCOMES: Mapping[str, str] = {
    "compiled": "the first call: there was nothing to reuse, and nothing to compare with",
    "reused": "the guards of an earlier graph hold: nothing is compiled",
    "recompiled": "no graph fits: one more is compiled, and the old ones stay",
    "promoted": "no graph fits: one more is compiled, and what varied is now left open",
    "eager": "no graph fits and the limit is reached: plain Python runs, nothing is compiled",
}


def why(report: RecompileReport, index: int) -> str:
    """Returns in plain words why call `index` (from 0) of a report had its outcome."""
    call = report.calls[index]
    if call.outcome == "error":
        text = str(call.error).strip().splitlines()
        return f"{type(call.error).__name__}: {text[0] if text else 'no message'}"
    reasons = [one.reason for one in report.recompiles if one.call_index == index]
    if reasons:
        return " ".join(dict.fromkeys(reasons))
    # A text of the report may begin with a function's name, which keeps its letters.
    said = OUTCOMES[call.outcome]
    text = call.why or said[0].upper() + said[1:]
    return f"{text.rstrip('.')}."


def failed_guard(report: RecompileReport, index: int) -> str:
    """Returns the guard that failed in call `index` of the closest entry; empty if none did."""
    guards = [one.guard for one in report.recompiles if one.call_index == index]
    return "; ".join(dict.fromkeys(filter(None, guards)))


def outcomes_view(
    reports: Mapping[str, RecompileReport], calls: Sequence[str], caption: str = ""
) -> View:
    """Returns a table with one row per call and one column per report, totals in the last row.

    reports: by the heading of their column, all over the same calls; calls: how to call each.
    ValueError if the numbers of calls differ.
    """
    counts = {len(report.calls) for report in reports.values()}
    if counts != {len(calls)}:
        raise ValueError(f"{len(calls)} names for reports of {sorted(counts)} calls")
    rows = [
        (name, *(report.calls[i].outcome for report in reports.values()))
        for i, name in enumerate(calls)
    ]
    totals = (sum(call.graphs for call in report.calls) for report in reports.values())
    rows.append(("graphs made in all", *totals))
    return table(("call", *reports), rows, caption)


def outcomes_legend() -> str:
    """Returns what each outcome means, as HTML."""
    items = "".join(
        f"<li><b>{name}</b>: {html.escape(text)}</li>" for name, text in OUTCOMES.items()
    )
    return wrap(f'<ul style="margin:2px 0 6px;padding-left:20px">{items}</ul>')
