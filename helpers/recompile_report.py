"""What `trace_recompiles` found: each call's outcome, each recompilation, a limit that was hit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from helpers.origin import Origin
from helpers.words import counted

if TYPE_CHECKING:
    from helpers.reuse import History

OUTCOMES = ("compiled", "reused", "recompiled", "promoted", "eager", "error")


@dataclass(frozen=True)
class Call:
    """One entry of the history.

    outcome: compiled, reused, recompiled, promoted, eager or error; why: in plain words;
    compiles: compilations that took place; graphs: graphs handed to the backend; ran: runs of
    compiled graphs; error: what it raised, else None; given: the arguments, in short.
    """

    index: int
    outcome: str
    why: str
    compiles: int
    graphs: int
    ran: int
    given: str
    error: Exception | None = None

    def __str__(self) -> str:
        return f"calls[{self.index}] {self.given}: {self.outcome}. {self.why}"


@dataclass(frozen=True)
class Recompile:
    """A further compilation of a code object.

    call_index: which call; function: whose code; guard: the failed guard of the earlier entry
    that came closest to matching; all_guards: one for each earlier entry, newest first; source:
    what it protects ("x", "self.seen", "grad mode"); reason: what was assumed and what came;
    fix: never empty; will_repeat: further new values will compile again and again; promoted: a
    size or number was made dynamic.
    """

    call_index: int
    function: str
    guard: str
    all_guards: tuple[str, ...]
    source: str
    reason: str
    fix: str
    will_repeat: bool
    promoted: bool = False

    def __str__(self) -> str:
        kind = "promoted" if self.promoted else "recompiled"
        repeat = "will go on with new values" if self.will_repeat else "will not go on"
        return (
            f"calls[{self.call_index}] {kind} {self.function} ({repeat})\n"
            f"    guard: {self.guard}\n    why:   {self.reason}\n    fix:   {self.fix}"
        )


@dataclass(frozen=True)
class LimitHit:
    """A compilation that was refused: its function has reached a limit.

    call_index, function: where; limit: name in torch._dynamo.config; number: its value; the rest
    as in Recompile. From then on new cases of this function run eagerly.
    """

    call_index: int
    function: str
    limit: str
    number: int
    guard: str
    all_guards: tuple[str, ...]
    source: str
    reason: str
    fix: str

    def __str__(self) -> str:
        return (
            f"{self.function} has reached torch._dynamo.config.{self.limit} = {self.number} in "
            f"calls[{self.call_index}]: nothing more of it is compiled."
        )


@dataclass(frozen=True)
class RecompileReport:
    """A history of calls: `.calls`, `.recompiles`, `.hit_limit` (None or the first LimitHit).

    limits: every LimitHit, one for each function; notes: what else is to be known, such as why no
    compiled graph ran at all; origin: where and with which torch it ran.
    """

    calls: tuple[Call, ...]
    recompiles: tuple[Recompile, ...]
    hit_limit: LimitHit | None
    origin: Origin
    limits: tuple[LimitHit, ...] = ()
    notes: tuple[str, ...] = ()
    _history: History | None = field(default=None, repr=False, compare=False)

    @property
    def compiles(self) -> int:
        """How many compilations took place in all."""
        return sum(call.compiles for call in self.calls)

    @property
    def eager_calls(self) -> tuple[int, ...]:
        """The indices of the calls that ran eagerly, at least in a function at its limit."""
        return tuple(call.index for call in self.calls if call.outcome == "eager")

    def first_failure(self, call: Any) -> str | None:
        """Returns why `call` would not be reused now, None if it would be (see would_reuse)."""
        from helpers.reuse import first_failure

        return first_failure(self, call)

    def summary(self) -> str:
        """Returns one or two sentences: how many calls of each outcome, and what will go on."""
        if not self.calls:
            return "No calls: nothing was run."
        counts = Counter(call.outcome for call in self.calls)
        parts = [f"{counts[name]} {name}" for name in OUTCOMES if counts[name]]
        text = f"{counted(len(self.calls), 'call')}: {', '.join(parts)}."
        text += f" {counted(self.compiles, 'compilation')} in all."
        going_on = list(dict.fromkeys(r.source for r in self.recompiles if r.will_repeat))
        if going_on:
            text += f" New values of {', '.join(going_on)} will go on compiling."
        return text

    def limit_notice(self) -> str:
        """Returns what to say loudly at a hit limit; empty if none was hit."""
        if not self.limits:
            return ""
        first = self.limits[0]
        kept = [c.index for c in self.calls if c.compiles and c.index < first.call_index]
        after = [c for c in self.calls if c.index > first.call_index]
        compiled = [c.index for c in after if c.outcome not in ("eager", "error")]
        text = " ".join(map(str, self.limits))
        text += f" Run eagerly: {_indices(self.eager_calls)}. What was compiled is kept: calls "
        text += f"like {_indices(kept)} still run compiled"
        text += f", and so did {_indices(compiled)}." if compiled else "."
        return f"{text} {first.reason} {first.fix}"

    def __str__(self) -> str:
        from helpers.display import table_text

        rows = [(c.index, c.given, c.outcome, c.why) for c in self.calls]
        parts = [self.summary()]
        if self.limits:
            parts.append("LIMIT HIT: " + self.limit_notice())
        parts.append(table_text(("call", "given", "outcome", "why"), rows))
        each = map(str, _shortened(self.recompiles))
        return "\n\n".join([*parts, *each, *self.notes, self.origin.text()])

    def __repr__(self) -> str:
        return f"<RecompileReport: {self.summary()}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers import display

        parts = [display.sentence_html(self.summary())]
        if self.limits:
            parts.append(display.notice_html(self.limit_notice(), "error"))
        parts += [display.notice_html(note) for note in self.notes]
        rows = [(c.index, c.given, c.outcome, c.compiles, c.why) for c in self.calls]
        columns = ("call", "given", "outcome", "compilations", "why")
        parts.append(display.table_html(columns, rows, "Call by call"))
        if self.recompiles:
            rows = [_row(one) for one in _shortened(self.recompiles)]
            parts.append(display.table_html(_COLUMNS, rows, "Recompilations"))
        return "".join([*parts, self.origin.html()])


_COLUMNS = ("call", "function", "failed guard", "why", "will go on", "repair")


def _shortened(recompiles: tuple[Recompile, ...]) -> Iterator[Recompile]:
    """Yields the entries, a repair that was told before as a reference to where it was told."""
    told: dict[tuple[str, str, str], int] = {}
    for one in recompiles:
        key = (one.function, one.source, re.sub(r"\d+", "", one.fix))  # the values differ
        first = told.setdefault(key, one.call_index)
        if first == one.call_index:
            yield one
        else:
            what = one.reason.partition(". ")[0].rstrip(".") + "."
            yield replace(one, reason=what, fix=f"as for calls[{first}]")


def _row(recompile: Recompile) -> tuple[Any, ...]:
    return (
        recompile.call_index,
        recompile.function,
        recompile.guard,
        recompile.reason,
        "yes, with new values" if recompile.will_repeat else "no",
        recompile.fix,
    )


def _indices(indices: Any) -> str:
    return ", ".join(f"calls[{i}]" for i in indices) or "none of these calls"
