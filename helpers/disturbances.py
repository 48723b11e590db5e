"""What may have disturbed a measurement: other programs on the processor, the state of the card."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from helpers import card

BUSY_CARD = 10  # percent of NVML's last sample period while we do nothing
SETTLE_S = 1.5  # NVML's sample period is 1/6 to 1 s (nvml.h), so our own work is out of it by then


@dataclass(frozen=True)
class Disturbance:
    """What was found, in a sentence, and whether it makes a comparison of times worthless."""

    sentence: str
    spoils: bool


def idle_state(index: int) -> card.CardState:
    """Returns the card's state once it is idle, or after SETTLE_S if it does not become so.

    Our own work must be over: then a card that stays busy is busy with somebody else's.
    """
    until = time.monotonic() + SETTLE_S
    while True:
        state = card.read(index)
        if (state.utilisation or 0) <= BUSY_CARD or time.monotonic() > until:
            return state
        time.sleep(0.05)


def on_card(index: int, before: card.CardState, after: card.CardState) -> list[Disturbance]:
    """Returns what may have disturbed a measurement between two readings of a card.

    before: from `idle_state`; after: right after the last call. A stranger's process that only
    has memory there is said and spoils nothing; one that keeps the card busy does.
    """
    found = [Disturbance(note, False) for note in after.notes]
    held = tuple(dict.fromkeys((*before.throttle, *after.throttle)))
    if held:
        words = f"The card's clocks were held down by {' and '.join(held)}."
        found.append(Disturbance(words, False))
    if (before.utilisation or 0) > BUSY_CARD:
        words = f"Others kept the card busy before the first call ({before.utilisation} %)."
        found.append(Disturbance(words, True))
    others = card.strangers(before, after)
    if after.present and (others.pids or not others.known):
        found.append(Disturbance(others.sentence, False))
        busy = idle_state(index).utilisation or 0
        if busy > BUSY_CARD:
            words = f"Others kept the card busy after the last call ({busy} %)."
            found.append(Disturbance(words, True))
    return found


class OtherPrograms:
    """Watches how many cores other programs keep busy, from now on."""

    def __init__(self) -> None:
        import psutil

        self.started, self.all, self.own = time.monotonic(), psutil.cpu_times(), os.times()

    def busy_cores(self) -> float | None:
        """Returns that number so far; None for less than 0.2 s, as the system counts in 10 ms."""
        import psutil

        elapsed, now, own = time.monotonic() - self.started, psutil.cpu_times(), os.times()
        if elapsed < 0.2:
            return None
        # Guests are counted a second time in `user` (proc(5)); idle and iowait are not work.
        names = set(now._fields) - {"idle", "iowait", "guest", "guest_nice"}
        busy = sum(getattr(now, name) - getattr(self.all, name) for name in names)
        return max(0.0, busy - sum(own[:4]) + sum(self.own[:4])) / elapsed

    def disturbance(self, needed: int) -> list[Disturbance]:
        """Returns what was found, if the cores left over were fewer than the `needed` ones."""
        cores, busy = os.cpu_count() or 1, self.busy_cores()
        tolerated = max(0.25, 0.1 * cores)
        if busy is None or busy < tolerated or cores - busy >= needed:
            return []
        words = f"Other programs kept {busy:.1f} of {cores} cores busy meanwhile."
        return [Disturbance(words, True)]
