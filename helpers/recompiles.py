"""A history of calls under Dynamo: which were reused, which compiled again, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo

from helpers.advice_words import Advice, Setting, shown
from helpers.guard_texts import Failure
from helpers.isolation import no_trace
from helpers.kept_changes import KeptChanges
from helpers.origin import Origin
from helpers.recompile_advice import advise, advise_on_all, ambient_name
from helpers.recompile_events import Compilation, Watch
from helpers.recompile_notes import PastCalls, notes_on
from helpers.recompile_report import Call, LimitHit, Recompile, RecompileReport
from helpers.reuse import History
from helpers.tracing import NOTHING, callable_target, device_of, named_backend, without_remarks
from helpers.words import error_line

_LIMIT_FIX = (
    "Seen cases stay compiled; a larger limit only postpones this while new values keep coming."
)


def trace_recompiles(
    fn: Callable[..., Any],
    calls: Sequence[Any],
    *,
    compile_options: Mapping[str, Any] = NOTHING,
) -> RecompileReport:
    """Makes the calls one after the other, each exactly once, and returns what each compiled.

    fn: function, module, bound method, callable object, or something already compiled (it is
    unwrapped). calls: a list; each entry is a tuple of arguments, or a callable that receives the
    compiled object and does what it likes (an optimizer step, a call under no_grad). The graphs
    run as they are; another backend runs only if `compile_options` names it. Leaves no trace (see
    `isolation`): what the argument tuples' calls changed in `fn` and its arguments is put back at
    the end; what the callables changed stays changed. A call that raises is kept as an error, and
    the history goes on. TypeError if `fn` is not callable or an entry is neither.
    """
    target = callable_target("trace_recompiles", fn)
    entries = _checked(calls)
    options = dict(compile_options)
    watch = Watch(target, named_backend(options))
    given = [entry for entry in entries if isinstance(entry, tuple)]
    errors: list[Exception | None] = []
    kept, past = KeptChanges(target, given), PastCalls()
    with no_trace(target, *given) as inspection:
        compiled = torch.compile(target, backend=watch.backend, **options)
        with watch.watching(), past.noting_modes(), without_remarks():
            for entry in entries:
                errors.append(_made(entry, compiled, watch, inspection, kept, past))
        history = History(target, watch, dict(compile_options))
    kept.apply()
    return _report(entries, watch, errors, options, history, past)


def _checked(calls: Any) -> list[Any]:
    if not isinstance(calls, (list, tuple)) or hasattr(calls, "_fields"):
        raise TypeError(
            "calls is a list, each entry a tuple of arguments or a callable that receives the "
            f"compiled function; got {type(calls).__name__}"
        )
    for i, entry in enumerate(calls):
        check_entry(entry, f"calls[{i}]")
    return list(calls)


def check_entry(entry: Any, name: str) -> None:
    """Raises TypeError, in one sentence, if `entry` is no tuple of arguments and no callable."""
    if isinstance(entry, tuple) or callable(entry):
        return
    raise TypeError(
        f"{name} is a {type(entry).__name__}; write a tuple of arguments, such as (x,) for one, "
        "or a callable that receives the compiled function, such as lambda c: c(x, scale=2)"
    )


def _made(
    entry: Any,
    compiled: Any,
    watch: Watch,
    inspection: Any,
    kept: KeptChanges,
    past: PastCalls,
) -> Exception | None:
    """Makes one call; returns what it raised."""
    watch.begin()
    try:
        with watch.seeing_eager():
            if isinstance(entry, tuple):
                compiled(*inspection.arguments(entry))
            else:
                with kept.noting(), past.noting_methods():
                    entry(compiled)
    except Exception as error:
        return error.with_traceback(None)
    return None


def _report(
    entries: list[Any],
    watch: Watch,
    errors: list[Exception | None],
    options: dict[str, Any],
    history: History,
    past: PastCalls,
) -> RecompileReport:
    recompiles, limits = [], []
    for compilation in watch.compilations:
        if compilation.again and compilation.kept:
            recompiles.append(_recompile(compilation, options))
        elif compilation.refused and compilation.code not in {code for code, _ in limits}:
            limits.append((compilation.code, _limit_hit(compilation, options)))
    calls = tuple(
        _call(i, entry, watch, errors[i], [r for r in recompiles if r.call_index == i])
        for i, entry in enumerate(entries)
    )
    hits = tuple(hit for _, hit in limits)
    return RecompileReport(
        calls,
        tuple(recompiles),
        hits[0] if hits else None,
        Origin.live(device_of([entry for entry in entries if isinstance(entry, tuple)])),
        hits,
        notes_on(calls, watch, past),
        history,
    )


def _recompile(compilation: Compilation, options: dict[str, Any]) -> Recompile:
    promoted = bool(compilation.promoted)
    failure, advice = _nearest(compilation, options)
    return Recompile(
        compilation.call,
        compilation.function,
        failure.text,
        tuple(failures[0].text for failures in compilation.failures if failures),
        source_of(failure),
        advice.reason,
        advice.fix,
        advice.will_repeat,
        promoted,
    )


def _nearest(compilation: Compilation, options: dict[str, Any]) -> tuple[Failure, Advice]:
    """Returns the first failing guard of the entry that came closest, and what to say of it all."""
    told = [failures for failures in compilation.failures if failures]
    if not told:
        unknown = Failure("other", "", "torch names no guard that failed")
        return unknown, advise(unknown, Setting(compilation.code))
    closest = min(told, key=len)  # the newest of several
    setting = Setting(compilation.code, compilation.symbolic, options)
    return closest[0], advise_on_all(closest, setting)


def source_of(failure: Failure) -> str:
    """Returns what a failed guard protects, as the learner calls it."""
    return ambient_name(failure) if failure.what == "surroundings" else failure.source


def _limit_hit(compilation: Compilation, options: dict[str, Any]) -> LimitHit:
    failure, advice = _nearest(compilation, options)
    limit = compilation.limit
    return LimitHit(
        compilation.call,
        compilation.function,
        limit,
        getattr(torch._dynamo.config, limit),
        failure.text,
        tuple(failures[0].text for failures in compilation.failures if failures),
        source_of(failure),
        advice.reason,
        f"{advice.fix} {_LIMIT_FIX}",
    )


def _call(
    i: int, entry: Any, watch: Watch, error: Exception | None, recompiles: list[Recompile]
) -> Call:
    met = [c for c in watch.compilations if c.call == i]
    kept = [c for c in met if c.kept]
    outcome, why = _outcome(met, recompiles, watch.ran[i], watch.eager_limited[i], error)
    text = ", ".join(map(shown, entry)) if isinstance(entry, tuple) else shown(entry)
    return Call(i, outcome, why, len(kept), watch.graphs[i], len(watch.ran[i]), text, error)


def _outcome(
    met: list[Compilation],
    recompiles: list[Recompile],
    ran: list[int],
    limited: list[str],
    error: Exception | None,
) -> tuple[str, str]:
    if error is not None:
        return "error", _error_words(error, any(c.refused for c in met))
    if limited:
        names = ", ".join(dict.fromkeys(limited))
        return "eager", f"{names} is at its recompile limit, and no earlier graph fits."
    kept = [c for c in met if c.kept]
    if recompiles:
        plain = [r for r in recompiles if not r.promoted]
        return ("recompiled", plain[0].reason) if plain else ("promoted", recompiles[0].reason)
    if any(c.graphs for c in kept):
        names = ", ".join(dict.fromkeys(c.function for c in kept if c.graphs))
        return "compiled", f"First compilation of {names}."
    if ran:
        return "reused", "All guards hold."
    if not met:
        return "eager", (
            "No compiled code was entered: the call went past the compiled object, or what it "
            "enters is left to Python."
        )
    return "eager", "Dynamo captured no graph: it runs as ordinary Python."


def _error_words(error: Exception, refused: bool) -> str:
    words = error_line(error)
    if refused:
        words += (
            ". The recompile limit was hit, and fullgraph=True (or "
            "torch._dynamo.config.fail_on_recompile_limit_hit) makes that an error."
        )
    return words
