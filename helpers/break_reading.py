"""Reads breaks off what Dynamo did: the place as a person names it, cause, effect and repair."""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
from dataclasses import replace

from helpers.break_causes import find_cause
from helpers.break_events import EFFECTS, TORCH_FOLDER, BreakEvent, BreakNotes, Place
from helpers.break_reports import GraphBreak
from helpers.class_names import with_class
from helpers.words import file_name

_REGISTRY_ID = re.compile(r"/gb(\d+)\.html")
_PART = re.compile(r"^\s*(Explanation|Hint|Developer debug context):\s*(.*)$")
_LOOP_FIX = " As it stands in a loop, you can also compile the loop's body alone, and loop outside."
_PUT_OFF = re.compile(r"GetAttrVariable\(TensorVariable\(\), (\w+)\)")
_TEXT_PUT_OFF = re.compile(r"StringFormatVariable|'str' has no len")
_TEXT = r"""\bf["']|\.format\("""
# torch.func's transforms run in eager after a break inside them, and complain once more.
_AFTER_EFFECT = re.compile(r"functorch tracing attempt")
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = tuple({sysconfig.get_paths()[name] for name in ("purelib", "platlib")})
# What stands between a call and what it calls: Dynamo's own, modules' __call__, no_grad's wrapper.
_BETWEEN = tuple(
    os.path.join(TORCH_FOLDER, *parts)
    for parts in (("_dynamo", ""), ("nn", "modules", "module.py"), ("utils", "_contextlib.py"))
)


def read_breaks(notes: BreakNotes) -> tuple[GraphBreak, ...]:
    """Returns one break per innermost source line from what Dynamo did (see `break_events`)."""
    found: dict[tuple[str, int], GraphBreak] = {}
    for event in notes.events:
        if found and _AFTER_EFFECT.search(event.message):
            continue
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
    paid["fix"] = max(old.fix, new.fix, key=len) if old.cause == new.cause else clearer.fix
    if old.cause and new.cause and new.title not in old.title and old.cause != new.cause:
        # Two causes on one line, as in log.info(x.item()): Python works from the inside out.
        paid["title"] = f"{old.title}; then: {new.title}"
        paid["explanation"] = f"{old.explanation} And then: {new.explanation}"
        paid["fix"] = f"{new.fix} If the line stays: {old.fix}"
        paid["change"] = new.change or old.change
        paid["cause"] = new.cause
    return replace(clearer, **paid, count=old.count + 1, call_paths=longest)


def _left_out(event: BreakEvent, tried: set[tuple[str, str]]) -> Place | None:
    """Returns the function that runs in eager as a whole because of a break, None if none does.

    Python runs what a broken call leads to, and Dynamo tries each function again on its own; but
    never torch's own modules (nn.Sequential), and with them goes what they call in between, nor
    what torch calls for the learner where no compiling is allowed (torch.utils.checkpoint).
    """
    for place in event.stack[-event.read :][1:]:
        counts = place.function == "forward" or not (
            _passed_through(place.filename) or place.filename.startswith(TORCH_FOLDER)
        )
        if counts and (place.filename, place.function) not in tried:
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
    """Returns the line that made a value, where Dynamo stopped only on the value's first use.

    Reading an attribute that a tensor may not have is put off, and so is the text of an f-string;
    what Dynamo then reports is the line that needs it.
    """
    attribute = _PUT_OFF.search(message)
    read = rf"\.{attribute[1]}\b" if attribute else _TEXT if _TEXT_PUT_OFF.search(message) else ""
    if not read or re.search(read, _text(place)):
        return place
    for lineno in range(place.lineno - 1, 0, -1):
        line = linecache.getline(place.filename, lineno)
        if re.search(read, line):
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
    where = f"{file_name(entry.filename)}, line {entry.lineno}: {_text(entry)}"
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
