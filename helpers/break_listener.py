"""Notes each place where Dynamo stops capturing, at the moment it does.

No list that torch keeps is complete: a break on which a whole frame is given up is in no counter,
and of a function that is compiled only up to a break torch's list names the wrong line. So this
listens where Dynamo decides: when it ends a graph early (`compile_subgraph`), when it gives up
the rest of a function (`step_graph_break`), and when it hands a frame back uncompiled.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import itertools
import os
import re
import sys
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from torch._dynamo import convert_frame, exc, output_graph, symbolic_convert
from torch._dynamo.bytecode_transformation import is_generator
from torch._guards import TracingContext

from helpers.break_events import TORCH_FOLDER, BreakEvent, BreakNotes, Place, original_name

_OWN_FOLDER = os.path.dirname(__file__) + os.sep
_REFUSED = tuple(
    kind for name in ("Unsupported", "UserError") if (kind := getattr(exc, name, None)) is not None
)
_LOOP = "Skipping frame because there is a graph break in a for/while loop"  # torch 2.7
# What torch says around the cause when it gives a frame up.
_WITHIN = {"graph break in loop": "loop", "Graph break under GenericContext": "with"}
# Said of a generator in which something broke, in place of what broke.
_GENERATOR = re.compile("Generator reconstruction|Cannot reconstruct a generator")
# How the refusal at a limit is named: its own error, and from torch 2.9 on the text of another.
_REFUSALS = ("RecompileLimitExceeded", "FailOnRecompileLimitHit")
_REFUSED_TEXT = ("recompile limit exceeded", "cache limit exceeded")


@dataclass
class _Frame:
    """A frame that is being converted: what calls it, and how its last attempt ended."""

    code: types.CodeType
    above: list[Place]
    ended: tuple[Any, str] | None = None  # what stopped it (_Stop), and the effect
    given_up: Any = None  # what stopped the attempt whose rest stays eager
    failed: Any = None  # what stopped the attempt before this one
    without_operations: bool = False

    @property
    def resumed(self) -> bool:
        """True if Dynamo goes on here after a break."""
        return original_name(self.code.co_name) != self.code.co_name


@dataclass(frozen=True)
class _Stop:
    message: str
    stack: list[Any]
    stands_in: str = ""


@contextlib.contextmanager
def noting_breaks() -> Iterator[BreakNotes]:
    """Notes, while its body runs, each place where Dynamo stops capturing."""
    notes = BreakNotes()
    listener = _Listener(notes, sys._getframe(2))
    with contextlib.ExitStack() as stack:
        for owner, name, wrapper in listener.hooks():
            stack.enter_context(mock.patch.object(owner, name, wrapper(getattr(owner, name))))
        yield notes


class _Listener:
    """The hooks, and what they know of the frame that is being converted."""

    def __init__(self, notes: BreakNotes, base: types.FrameType) -> None:
        self._notes = notes
        self._base = base  # frames from here outwards are not the learner's call
        self._frames: list[_Frame] = []
        self._last: _Stop | None = None  # what Dynamo could not do, most recently
        self._failed: dict[int, tuple[Any, _Stop | None]] = {}  # by speculation

    def hooks(self) -> Iterator[tuple[Any, str, Any]]:
        """Yields owner, name and what wraps the original."""
        for kind in _REFUSED:
            if "__init__" in vars(kind):
                yield kind, "__init__", self._refusal
        if hasattr(symbolic_convert, "log_graph_break"):  # torch 2.7: jumps raise nothing
            yield symbolic_convert, "log_graph_break", self._logged
        yield exc.SkipFrame, "__init__", self._skipping
        yield symbolic_convert.SpeculationEntry, "fail_and_restart_analysis", self._failure
        yield symbolic_convert.InstructionTranslatorBase, "step_graph_break", self._giving_up
        yield output_graph.OutputGraph, "compile_subgraph", self._graph_end
        yield convert_frame.ConvertFrameAssert, "__call__", self._conversion

    def _refusal(self, original: Any) -> Any:
        def init(error: Exception, *args: Any, **kwargs: Any) -> None:
            original(error, *args, **kwargs)
            stack = getattr(error, "real_stack", None) or TracingContext.extract_stack()
            error._noted_stack = stack
            self._last = _Stop(str(error), stack)

        return init

    def _skipping(self, original: Any) -> Any:
        def init(error: Exception, *args: Any, **kwargs: Any) -> None:
            original(error, *args, **kwargs)
            # Torch 2.7 says nothing where a generator breaks.
            within = {_LOOP: "loop", "": ""}.get(str(error).partition("\n")[0])
            frame = self._frames[-1] if self._frames else None
            if frame and within is not None and self._last:
                frame.ended = replace(self._last, stands_in=within), _effect_of_skipping(frame)
            elif frame:
                frame.without_operations = True

        return init

    def _logged(self, original: Any) -> Any:
        def log(
            options: Any, reason: str = "", exc_info: bool = False, user_stack: Any = None
        ) -> Any:
            stack = user_stack or TracingContext.extract_stack()
            self._last = _Stop(reason, list(stack))
            return original(options, reason, exc_info, user_stack)

        return log

    def _failure(self, original: Any) -> Any:
        def fail(entry: Any, *args: Any, **kwargs: Any) -> None:
            self._failed[id(entry)] = (entry, self._last)
            if self._frames:
                self._frames[-1].failed = self._last
            original(entry, *args, **kwargs)

        return fail

    def _giving_up(self, original: Any) -> Any:
        def give_up(translator: Any, *args: Any, **kwargs: Any) -> Any:
            _, stop = self._failed.get(id(translator.current_speculation), (None, None))
            if self._frames:
                self._frames[-1].given_up = stop
            return original(translator, *args, **kwargs)

        return give_up

    def _graph_end(self, original: Any) -> Any:
        def compile_subgraph(graph: Any, *args: Any, **kwargs: Any) -> Any:
            for reason in (*args, *kwargs.values()):
                if isinstance(reason, output_graph.GraphCompileReason) and self._frames:
                    self._frames[-1].ended = self._ended(reason, self._frames[-1])
            return original(graph, *args, **kwargs)

        return compile_subgraph

    def _ended(self, reason: Any, frame: _Frame) -> tuple[_Stop, str] | None:
        if not reason.graph_break:
            return None
        if reason.reason == "step_unsupported":
            return frame.given_up or _Stop(reason.reason, reason.user_stack), "rest_eager"
        if reason.reason.startswith("generic_jump") and self._last is not None:
            return self._last, "split"
        return _Stop(reason.reason, reason.user_stack), "split"

    def _conversion(self, original: Any) -> Any:
        def convert(converter: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
            self._last = None
            noted = _Frame(frame.f_code, self._above(sys._getframe(1)))
            self._frames.append(noted)
            name = original_name(frame.f_code.co_name)
            self._notes.tried.add((frame.f_code.co_filename, name))
            try:
                result = original(converter, frame, *args, **kwargs)
            except Exception as error:
                noted.ended = self._skipped(error, noted)
                raise
            finally:
                self._frames.pop()
                self._keep(noted)
            if result.guarded_code is None and noted.ended is None:
                self._not_traced(noted)
            return result

        return convert

    def _not_traced(self, frame: _Frame) -> None:
        """After a break Dynamo does not go on where no variable holds a tensor."""
        if not frame.resumed or frame.without_operations or not _goes_on(frame.code):
            return
        events, own = (
            self._notes.events,
            (frame.code.co_filename, original_name(frame.code.co_name)),
        )
        for index in reversed(range(len(events))):
            if (events[index].frame.filename, events[index].frame.function) == own:
                if events[index].effect == "split":
                    events[index] = replace(events[index], effect="rest_eager")
                return

    def _skipped(self, error: Exception, frame: _Frame) -> tuple[_Stop, str] | None:
        """Returns what made Dynamo hand the frame back, None if that was no graph break."""
        if not isinstance(error, _REFUSED) or _never_compiled(frame.code):
            return None
        if refused_at_limit(error):
            self._notes.refused_at_limit.append(frame.code.co_name)
            return None
        root = error
        while isinstance(root.__cause__, _REFUSED):
            root = root.__cause__
        within = next((name for words, name in _WITHIN.items() if words in str(error)), "")
        stop = _Stop(str(root), root._noted_stack, within)
        if _GENERATOR.match(stop.message) and frame.failed:
            stop = frame.failed
        return stop, _effect_of_skipping(frame)

    def _keep(self, frame: _Frame) -> None:
        if frame.ended is None:
            return
        stop, effect = frame.ended
        inner = [Place(f.filename, f.lineno or 0, original_name(f.name)) for f in stop.stack]
        code = frame.code
        start = Place(code.co_filename, code.co_firstlineno, original_name(code.co_name))
        inner = inner or [start]
        stack = tuple(_without_repeats([*frame.above, *inner]))
        self._notes.events.append(
            BreakEvent(stop.message, effect, start, stack, stop.stands_in, len(inner))
        )

    def _above(self, frame: types.FrameType | None) -> list[Place]:
        """Returns the lines that called the frame being converted, the learner's call first."""
        found = []
        for outer, lineno in traceback.walk_stack(frame):
            if outer is self._base:
                break
            name, code = outer.f_code.co_filename, outer.f_code
            if not name.startswith((_OWN_FOLDER, os.path.join(TORCH_FOLDER, "_dynamo"))):
                found.append(Place(name, lineno or 0, original_name(code.co_name)))
        return found[::-1]


def refused_at_limit(error: BaseException) -> bool:
    """True if Dynamo turned a frame down because it was compiled too often."""
    text = str(getattr(error, "msg", "") or error)
    return type(error).__name__ in _REFUSALS or any(words in text for words in _REFUSED_TEXT)


def _effect_of_skipping(frame: _Frame) -> str:
    """Returns what it costs that Dynamo hands a frame back."""
    return "rest_eager" if frame.resumed else "frame_skipped"


def _goes_on(code: types.CodeType) -> bool:
    """True if a resumed function computes what it returns, and does not only end or take notes."""
    instructions = list(dis.get_instructions(code))
    targets = [one.argval for one in instructions if one.opname.startswith("JUMP_")]
    start = targets[0] if targets else 0  # it first jumps to where the function was left
    rest = [one.opname for one in instructions if one.offset >= start]
    returns = any(
        last == "RETURN_VALUE" and before != "LOAD_CONST"
        for before, last in itertools.pairwise(rest)
    )
    return returns and any(name.startswith(("CALL", "BINARY_")) for name in rest)


def _never_compiled(code: types.CodeType) -> bool:
    """True for generators and bodies of classes: a break counts where they are called."""
    return is_generator(code) or not code.co_flags & inspect.CO_OPTIMIZED


def _without_repeats(stack: list[Place]) -> Iterator[Place]:
    """Leaves out the caller's line where Dynamo resumes the very same function."""
    for place, following in zip(stack, [*stack[1:], None], strict=True):
        same = following and (following.filename, following.function) == (
            place.filename,
            place.function,
        )
        if not same:
            yield place
