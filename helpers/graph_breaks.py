"""Graph breaks: where Dynamo stopped capturing, why, what it costs, and how to mend it."""

from __future__ import annotations

import inspect
import linecache
import os
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from helpers.break_causes import find_cause
from helpers.break_events import EFFECTS, TORCH_FOLDER, BreakEvent, BreakNotes, Place
from helpers.class_names import with_class
from helpers.isolation import Inspection
from helpers.origin import Origin
from helpers.tracing import NOTHING, Backend, TracedCall, counted, device_of, traced_call

_REGISTRY_ID = re.compile(r"/gb(\d+)\.html")
_PART = re.compile(r"^\s*(Explanation|Hint|Developer debug context):\s*(.*)$")
_STANDS_IN = {
    "loop": ": the break stands in a loop, and Dynamo cannot go on in the middle of one",
    "with": ": the break stands in a with block that Dynamo cannot enter again",
    "": ": it stands where Dynamo cannot go on (inside try, a generator, half an expression)",
}
_LOOP_FIX = " As it stands in a loop, you can also compile the loop's body alone, and loop outside."
_PUT_OFF = re.compile(r"GetAttrVariable\(TensorVariable\(\), (\w+)\)")
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = tuple({sysconfig.get_paths()[name] for name in ("purelib", "platlib")})
# What stands between a call and what it calls: Dynamo's own, modules' __call__, no_grad's wrapper.
_BETWEEN = tuple(
    os.path.join(TORCH_FOLDER, *parts)
    for parts in (("_dynamo", ""), ("nn", "modules", "module.py"), ("utils", "_contextlib.py"))
)


@dataclass(frozen=True)
class GraphBreak:
    """One place where capture stopped: the innermost source line, as a person counts causes.

    Lines of Python's own library do not count: the place is then the line that called into it.

    reason: torch's title of what stopped it, in one line; title: the same in plain words; gb_id:
    the id in torch's registry ("GB0059"; empty where the installed torch names none); filename,
    lineno, source_line: the place; effect: "split" (two graphs), "rest_eager" (compiled up to
    here, the rest of the function is not) or "frame_skipped" (nothing of the function is
    compiled), the costliest that it had; explanation, fix: never empty; change: the smallest
    change of code (empty where none can be named); cause: the id in our list of causes (empty if
    it is in none); function: the one that pays for it; stands_in: "loop" or "with" if that kept
    Dynamo from going on after the break; call_paths: the functions called to get there; count:
    how often Dynamo met it; in_framework: the line lies in torch's own code; entry: the learner's
    innermost line, as (filename, lineno, text); message: torch's whole text.
    """

    reason: str
    gb_id: str
    filename: str
    lineno: int
    source_line: str
    effect: str
    explanation: str
    fix: str
    call_paths: tuple[tuple[str, ...], ...]
    count: int
    in_framework: bool
    title: str = ""
    change: str = ""
    cause: str = ""
    entry: tuple[str, int, str] = ("", 0, "")
    function: str = ""
    stands_in: str = ""
    message: str = field(default="", repr=False)

    def __str__(self) -> str:
        where = f"{os.path.basename(self.filename)}:{self.lineno}"
        return (
            f"{where}: {self.source_line}\n    {self.title}. {self.explanation}\n"
            f"    {self.effect_words}\n    {self.fix}"
        )

    @property
    def effect_words(self) -> str:
        """What became of the function, as a sentence."""
        name = self.function
        return {
            "split": f"{name} is compiled in pieces: what comes before, and what comes after.",
            "rest_eager": f"{name} is compiled up to here; the rest of it runs in eager.",
            "frame_skipped": f"Nothing of {name} itself is compiled, not even what comes before"
            f"{_STANDS_IN[self.stands_in]}.",
        }[self.effect]


@dataclass(frozen=True)
class GraphBreaks:
    """The graph breaks of one call, in the order in which Dynamo met them; len, index, iterate.

    result: what the call returned; changes_behaviour: the error that the compiled run raised
    although eager ran (the result is then eager's), else None; graphs: how many graphs were
    captured; notes: what else is to be known, a sentence each.
    """

    breaks: tuple[GraphBreak, ...]
    result: Any = field(repr=False)
    changes_behaviour: Exception | None
    graphs: int
    notes: tuple[str, ...]
    origin: Origin

    def __len__(self) -> int:
        return len(self.breaks)

    def __iter__(self) -> Iterator[GraphBreak]:
        return iter(self.breaks)

    def __getitem__(self, index: int) -> GraphBreak:
        return self.breaks[index]

    def summary(self) -> str:
        """Returns one or two sentences: how many breaks and graphs, and what costs most."""
        graphs = counted(self.graphs, "graph")
        text = f"{counted(len(self), 'graph break')}, {graphs}." if self.breaks else (
            f"No graph break, {graphs}."
        )  # fmt: skip
        skipped = sum(found.effect == "frame_skipped" for found in self)
        if skipped:
            text += f" {counted(skipped, 'break')} cost a whole function its compilation."
        if self.changes_behaviour is not None:
            error = self.changes_behaviour
            first = (str(error).strip().splitlines() or [""])[0]
            text += f" The compiled run stopped with {type(error).__name__}: {first}"
            text += " Eager runs: compiling changes what this code does."
        return text

    def __str__(self) -> str:
        return "\n\n".join([self.summary(), *map(str, self), *self.notes, self.origin.text()])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from helpers import break_views

        return break_views.breaks_html(self)


def explain_graph_breaks(
    fn: Callable[..., Any],
    *args: Any,
    kwargs: Mapping[str, Any] = NOTHING,
    compile_options: Mapping[str, Any] = NOTHING,
) -> GraphBreaks:
    """Calls `fn(*args, **kwargs)` once under Dynamo and returns each place where capture stopped.

    fn: function, module, bound method, or something already compiled (it is unwrapped). The call
    is compiled as `compile_options` say (`dynamic`, ...), in the grad mode and train or eval mode
    that are set; the graphs run as they are unless `backend` names another; `fullgraph` is left
    out, since it makes Dynamo treat some breaks otherwise. Leaves no trace (see `isolation`).
    `fn` runs once; a second time, in eager, if the compiled run raised, and then an error of the
    learner's own code reaches the caller as it is. TypeError if `fn` is not callable or
    `compile_options` has what `torch.compile` does not take.
    """
    options = dict(compile_options)
    strict = options.pop("fullgraph", False)
    made: list[torch.fx.GraphModule] = []

    def counting(inspection: Inspection, inner: Backend | None) -> Backend:
        def backend(graph: torch.fx.GraphModule, inputs: list[Any], **more: Any) -> Any:
            made.append(graph)
            return inner(graph, inputs, **more) if inner else graph.forward

        return backend

    with traced_call("explain_graph_breaks", fn, args, kwargs, options, counting) as call:
        breaks = read_breaks(call.notes)
        notes = [] if made or breaks or call.error else [_why_nothing(call)]
    if strict:
        notes.append(
            "fullgraph=True was left out: it stops at the first break, and reads .item() and masks "
            "differently."
        )
    for name in dict.fromkeys(call.notes.refused_at_limit):
        notes.append(
            f"{name} was compiled so often in this one call that torch gave up and ran it in "
            "eager (the recompile limit): trace_recompiles says why."
        )
    origin = Origin.live(device_of(args, kwargs))
    return GraphBreaks(breaks, call.result, call.error, len(made), tuple(notes), origin)


def read_breaks(notes: BreakNotes) -> tuple[GraphBreak, ...]:
    """Returns one break per innermost source line from what Dynamo did (see `break_events`)."""
    found: dict[tuple[str, int], GraphBreak] = {}
    for event in notes.events:
        new = _read(event, notes.tried)
        key = (new.filename, new.lineno)
        found[key] = _merged(found[key], new) if key in found else new
    return tuple(found.values())


def _merged(old: GraphBreak, new: GraphBreak) -> GraphBreak:
    costlier = max(old, new, key=lambda one: EFFECTS.index(one.effect))
    paths = dict.fromkeys(old.call_paths + new.call_paths)
    # A function that broke is met once more on its own, called by what Dynamo left of its caller.
    longest = tuple(p for p in paths if not any(p != q and q[-len(p) :] == p for q in paths))
    clearer = old if old.cause or not new.cause else new
    paid = {name: getattr(costlier, name) for name in ("effect", "function", "stands_in")}
    fix = max(old.fix, new.fix, key=len) if old.cause == new.cause else clearer.fix
    return replace(clearer, **paid, fix=fix, count=old.count + 1, call_paths=longest)


def _left_out(event: BreakEvent, tried: set[tuple[str, str]]) -> Place | None:
    """Returns the forward that runs in eager as a whole because of a break, None if none does.

    Python runs what a broken call leads to, and Dynamo tries each function again on its own; but
    never torch's own modules (nn.Sequential), and with them goes what they call in between.
    """
    for place in event.stack[-event.read :][1:]:
        own = (place.filename, place.function)
        if place.function == "forward" and own not in tried:
            return place
    return None


def _read(event: BreakEvent, tried: set[tuple[str, str]]) -> GraphBreak:
    counted = [place for place in event.stack if not _passed_through(place.filename)]
    counted = counted or [event.stack[-1]]
    place = counted[-1] = _where_it_began(counted[-1], event.message)
    own = [one for one in counted if not one.filename.startswith(TORCH_FOLDER)]
    entry = own[-1] if own else place
    in_framework = place.filename.startswith(TORCH_FOLDER)
    message = event.message
    registry = _REGISTRY_ID.search(message)
    reason, explanation, fix = _torchs_words(message)
    cause = find_cause(message, _text(place), _text(entry))
    if cause is not None:
        explanation, fix = cause.explanation, cause.fix
    if event.stands_in == "loop":
        fix += _LOOP_FIX
    if in_framework:
        fix = _framework_fix(fix, entry)
    names = [with_class(one.filename, one.lineno, one.function) for one in own]
    names += [place.function] if in_framework else []
    frame, effect = event.frame, event.effect
    if left_out := _left_out(event, tried):
        frame, effect = left_out, "frame_skipped"
    return GraphBreak(
        reason=reason,
        gb_id=f"GB{registry[1]}" if registry else "",
        filename=place.filename,
        lineno=place.lineno,
        source_line=_text(place),
        effect=effect,
        explanation=explanation,
        fix=fix,
        call_paths=(tuple(names),),
        count=1,
        in_framework=in_framework,
        title=cause.title if cause else reason,
        change=cause.change if cause else "",
        cause=cause.id if cause else "",
        function=names[0]
        if _passed_through(frame.filename)
        else with_class(frame.filename, frame.lineno, frame.function),
        stands_in=event.stands_in,
        entry=(entry.filename, entry.lineno, _text(entry)),
        message=message,
    )


def _where_it_began(place: Place, message: str) -> Place:
    """Returns the line that read an attribute, where Dynamo stopped only on the value's first use.

    Reading an attribute that a tensor may not have is put off; what Dynamo then reports is the
    line that needs the value.
    """
    attribute = _PUT_OFF.search(message)
    if attribute is None or f".{attribute[1]}" in _text(place):
        return place
    for lineno in range(place.lineno - 1, 0, -1):
        line = linecache.getline(place.filename, lineno)
        if re.search(rf"\.{attribute[1]}\b", line):
            return replace(place, lineno=lineno)
        if re.match(rf"\s*def {place.function}\b", line):
            break
    return place


def _passed_through(filename: str) -> bool:
    """True for Python's own library and for what stands in between: nobody's place of a break."""
    if filename.startswith(("<frozen ", *_BETWEEN)) or filename == "<string>":
        return True
    return filename.startswith(_LIBRARY) and not filename.startswith((*_PACKAGES, TORCH_FOLDER))


def _text(place: Place) -> str:
    return linecache.getline(place.filename, place.lineno).strip()


def _framework_fix(fix: str, entry: Place) -> str:
    where = f"{os.path.basename(entry.filename)}, line {entry.lineno}: {_text(entry)}"
    if entry.filename.startswith(TORCH_FOLDER):
        return f"The line is torch's own and cannot be mended in your code. {fix}"
    return f"The line is torch's own; your code leads to it at {where}. {fix}"


def _torchs_words(text: str) -> tuple[str, str, str]:
    """Returns title, explanation and fix, none of them empty, from Dynamo's message."""
    parts: dict[str, list[str]] = {"Explanation": [], "Hint": []}
    text = text.partition("*** While handling this graph break")[0]  # what follows is no cause
    for line in text.splitlines():
        match = _PART.match(line)
        if match and match[1] in parts:
            parts[match[1]].append(match[2].strip())
    first = (text.strip().splitlines() or ["Graph break"])[0].strip().rstrip(".")
    explanation = " ".join(parts["Explanation"]) or "Dynamo gives no further explanation."
    fix = " Or: ".join(parts["Hint"]) or (
        "Dynamo names no repair. Move this line out of the compiled function, or leave the break."
    )
    return first, explanation, fix


def _why_nothing(call: TracedCall) -> str:
    """Returns why a call left neither a graph nor a break."""
    start = "Dynamo captured nothing: the whole call ran as ordinary Python. "
    modes = [
        mode
        for mode in _get_current_dispatch_mode_stack()
        if not (hasattr(mode, "is_infra_mode") and mode.is_infra_mode())
    ]
    forward = getattr(call.target, "forward", call.target)
    if modes:
        name = type(modes[-1]).__name__
        return (
            f"{start}While a dispatch mode is active ({name}), Dynamo compiles nothing: leave it."
        )
    if getattr(call.target, "_torchdynamo_disable", False) or getattr(
        forward, "_torchdynamo_disable", False
    ):
        return f"{start}torch.compiler.disable was put on it: take it off to have it compiled."
    if inspect.isgeneratorfunction(forward):
        return f"{start}A generator is not compiled on its own: compile what calls it."
    codes = [code.co_filename for code in call.inspection.entered]
    code = getattr(forward, "__code__", None)
    if code is not None and trace_rules.check(forward) and code.co_filename not in codes:
        return f"{start}It stands in a file that Dynamo leaves alone, {code.co_filename}."
    return f"{start}It met no operation on tensors."
