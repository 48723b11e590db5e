"""The call-queue game without its controls: predictions marked by what the counters say."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.call_queue import CallQueue, build
from helpers.display import (
    View,
    code_html,
    details_html,
    heading_html,
    table_html,
    table_text,
    wrap,
)
from helpers.game_rounds import ROUNDS
from helpers.recompile_views import OUTCOMES, failed_guard, outcomes_legend, why
from helpers.typed_function import explain

COLUMNS = ("call", "what is called", "you said", "what happened", "mark", "why")


@dataclass(frozen=True)
class Mark:
    """One call of a round that has run: the prediction, the real outcome, and why it came.

    predicted: a key of OUTCOMES, or empty if none was made; outcome: as in a RecompileReport.
    """

    label: str
    predicted: str
    outcome: str
    why: str

    @property
    def right(self) -> bool:
        """Whether the prediction came true."""
        return self.predicted == self.outcome

    @property
    def sign(self) -> str:
        """The mark in a sign and a word; empty where nothing was predicted, none for an error."""
        if not self.predicted:
            return ""
        if self.outcome == "error":
            return "no mark"
        return "✓ right" if self.right else "✗ wrong"


def mark_predictions(
    queue: CallQueue, predictions: Sequence[str], device: str = "cpu"
) -> tuple[Mark, ...]:
    """Runs as many calls of a queue as there are predictions, and marks each of them.

    predictions: keys of OUTCOMES, or "" for a call without one; ValueError for another word.
    """
    unknown = set(predictions) - {"", *OUTCOMES}
    if unknown:
        raise ValueError(f"a prediction is one of {', '.join(OUTCOMES)}; got {unknown.pop()!r}")
    if not predictions:
        return ()
    report, skip = queue.run(len(predictions), device), len(queue.made)
    marks = []
    for place, said in enumerate(predictions):
        call, guard = report.calls[skip + place], failed_guard(report, skip + place)
        reason = why(report, skip + place)
        if call.error is not None:
            reason = explain(_own_error(queue, place, device) or call.error, queue.source)
        reason += f" The guard: {guard}" if guard and guard not in reason else ""
        marks.append(Mark(queue.cards[place].label, said, call.outcome, reason))
    return tuple(marks)


def _own_error(queue: CallQueue, place: int, device: str) -> BaseException | None:
    """Returns what the call raises in plain Python: unlike Dynamo's error, it names the line."""
    target = build(queue.source)
    try:
        queue.cards[place].call(target, device)(target)
    except Exception as error:
        return error
    return None


def score_text(marks: Sequence[Mark]) -> str:
    """Returns the score in words."""
    asked = [mark for mark in marks if mark.predicted and mark.outcome != "error"]
    if not asked:
        return "no prediction marked yet"
    return f"{sum(mark.right for mark in asked)} of {len(asked)} right"


def _rows(queue: CallQueue, marks: Sequence[Mark]) -> list[tuple[str, ...]]:
    rows = []
    for place, card in enumerate(queue.cards):
        if place < len(marks):
            one = marks[place]
            rest = (one.predicted, one.outcome, one.sign.replace(" ", "\u00a0"), one.why)
        else:
            rest = ("← next" if place == len(marks) else "", "", "", "")
        rows.append((str(place + 1), card.label, *rest))
    return rows


def queue_html(queue: CallQueue, marks: Sequence[Mark] = (), with_code: bool = True) -> str:
    """Returns function, calls made before, and the queue with the marks so far, as HTML."""
    parts = [code_html(queue.source)] if with_code else []
    words = [queue.hint, queue.made_text]
    parts += [wrap(f"<div>{html.escape(text)}</div>") for text in words if text]
    if queue.cards:
        caption = f"The queue: {len(marks)} of {len(queue.cards)} calls have run"
        parts.append(table_html(COLUMNS, _rows(queue, marks), caption))
    return "".join(parts)


def queue_view(number: int = 1, device: str = "cpu") -> View:
    """Shows a round of the call-queue game to play on paper: the answers are folded below it.

    number: from 1 to the number of rounds, else ValueError. The answers come from really running
    the calls on `device`, without a trace.
    """
    if not 1 <= number <= len(ROUNDS):
        raise ValueError(f"rounds are numbered 1 to {len(ROUNDS)}; got {number}")
    queue = ROUNDS[number - 1]
    marks = mark_predictions(queue, [""] * len(queue.cards), device)
    columns = ("call", "what is called", "what happened", "why")
    rows = [(str(i), one.label, one.outcome, one.why) for i, one in enumerate(marks, start=1)]
    asked = [(str(i), card.label) for i, card in enumerate(queue.cards, start=1)]
    parts = [
        heading_html(f"Round {queue.title}"),
        queue_html(CallQueue(queue.title, queue.source, (), hint=queue.hint,
                             made_text=queue.made_text)),
        table_html(("call", "what is called"), asked, "The queue"),
        details_html("What each outcome means", outcomes_legend()),
        details_html("What really happened", table_html(columns, rows)),
    ]  # fmt: skip
    text = "\n".join([f"Round {queue.title}", queue.source, queue.hint, table_text(columns, rows)])
    return View("".join(parts), text)
