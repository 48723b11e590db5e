"""The call-queue game: foresee what each call of a compiled function does, then run it."""

from __future__ import annotations

import html
from typing import Any

import ipywidgets

from helpers.call_queue import CallCard, CallQueue
from helpers.display import details_html, notice_html, wrap
from helpers.game_rounds import OWN, ROUNDS
from helpers.own_queue import OwnQueue
from helpers.panel_keys import PanelKeys
from helpers.queue_marks import Mark, mark_predictions, queue_html, score_text
from helpers.recompile_views import OUTCOMES, outcomes_legend
from helpers.typed_function import TooLong, explain, running

CHOOSE = "choose …"
# Without it the content is never narrower than its table, and a small window cuts it off.
_NARROWS = "<style>.tcs-controls .widget-html-content{min-width:0}</style>"
_SMALL = {"style": {"description_width": "initial"}}


class RecompileGame(ipywidgets.VBox):
    """A round's function and queue; a prediction and a button; below, the marks of the counters.

    A drop-down and no radio buttons: JupyterLab takes the arrow keys that those need.
    """

    def __init__(self, number: int, device: str) -> None:
        self.device = device
        self.predictions: list[str] = []
        self.marks: tuple[Mark, ...] = ()
        auto = ipywidgets.Layout(width="auto")
        titles = [queue.title for queue in ROUNDS]
        self.round = ipywidgets.Dropdown(
            options=[*titles, OWN.title], value=titles[number - 1], description="Round",
            layout=auto, **_SMALL,
        )  # fmt: skip
        self.again = ipywidgets.Button(description="Start this round again", layout=auto)
        self.prediction = ipywidgets.Dropdown(
            options=[CHOOSE, *OUTCOMES], description="Your prediction", layout=auto, **_SMALL
        )
        self.button = ipywidgets.Button(description="Run this call", layout=auto)
        self.next, self.table, self.status = (ipywidgets.HTML() for _ in range(3))
        self.own = OwnQueue(self._queue_changed)
        row = ipywidgets.Layout(flex_flow="row wrap", grid_gap="2px 16px")
        super().__init__(
            [
                ipywidgets.HTML(_NARROWS),
                ipywidgets.HBox([self.round, self.again], layout=row),
                self.own,
                self.table,
                self.next,
                ipywidgets.HBox([self.prediction, self.button], layout=row),
                self.status,
                ipywidgets.HTML(details_html("What each outcome means", outcomes_legend())),
                PanelKeys(),
            ]
        )
        self.add_class("tcs-controls")
        self.round.observe(self._choose_round, names="value")
        self.again.on_click(self._choose_round)
        self.button.on_click(self._run)
        self._choose_round()

    @property
    def queue(self) -> CallQueue:
        """The round that is chosen; the learner's own queue as far as it was built."""
        if self.round.value == OWN.title:
            return self.own.queue()
        return next(queue for queue in ROUNDS if queue.title == self.round.value)

    def _choose_round(self, _: Any = None) -> None:
        is_own = self.round.value == OWN.title
        self.own.layout.display = "" if is_own else "none"
        self.predictions, self.marks = [], ()
        self._show("Choose a prediction for call 1." if self.queue.cards else "Add a call first.")

    def _queue_changed(self, text: str, start_again: bool) -> None:
        """Takes what was done to the learner's own queue: a call more, or all new."""
        if start_again:
            self.predictions, self.marks = [], ()
        self._show(text)

    def _run(self, _: Any) -> None:
        queue, place = self.queue, len(self.predictions)
        if place >= len(queue.cards):
            self._say(self._over() if queue.cards else "Add a call first.")
            return
        if self.prediction.value == CHOOSE:
            self._say(f"Choose a prediction for call {place + 1} first.")
            return
        self._say(f"Working: running call {place + 1} …")
        said = [*self.predictions, self.prediction.value]
        try:
            with running():
                self.marks = mark_predictions(queue, said, self.device)
        except (Exception, SystemExit, KeyboardInterrupt, TooLong) as error:
            self.status.value = wrap(notice_html(explain(error, queue.source), "error"))
            return
        self.predictions = said
        self.prediction.value = CHOOSE
        happened = f"Call {place + 1}: {_verdict(self.marks[-1])}"
        over = len(said) == len(queue.cards)
        self._show(f"{happened} {self._over() if over else f'So far {score_text(self.marks)}.'}")

    def _over(self) -> str:
        more = "Add another call." if self.round.value == OWN.title else "Choose another round."
        return f"All calls have run: {score_text(self.marks)}. {more}"

    def _show(self, text: str) -> None:
        queue, place = self.queue, len(self.predictions)
        is_own = self.round.value == OWN.title
        self.table.value = queue_html(queue, self.marks, with_code=not is_own)
        self.next.value = _next(queue.cards[place], place) if place < len(queue.cards) else ""
        self._say(text)

    def _say(self, text: str) -> None:
        self.status.value = wrap(f'<span role="status">{html.escape(text)}</span>')


def _verdict(mark: Mark) -> str:
    if mark.outcome == "error":
        return f"it stopped with an error. {mark.why}"
    said = f"{mark.sign}. You said {mark.predicted}"
    return f"{said}." if mark.right else f"{said}; it was {mark.outcome}."


def _next(card: CallCard, place: int) -> str:
    words = f"<b>Call {place + 1}:</b> {html.escape(card.label)}. What will it do?"
    return wrap(f"<div>{words}</div>")


def recompile_game(round: int = 1, device: str = "cpu") -> RecompileGame:
    """Returns the call-queue game: predict each call, run it, and be marked by the counters.

    round: the first to show, from 1; device: where the calls run. Each press runs the queue so far
    on a new copy of the function, without a trace. ValueError for a round that does not exist.
    """
    if not 1 <= round <= len(ROUNDS):
        raise ValueError(f"rounds are numbered 1 to {len(ROUNDS)}; got {round}")
    return RecompileGame(round, device)
