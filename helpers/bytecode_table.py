"""Bytecode to look at: before and after Dynamo, side by side, by source line."""

from __future__ import annotations

import difflib
import html
import itertools
import re
from collections.abc import Sequence

from helpers.bytecode import Bytecode, Instruction, align
from helpers.display import View, table_text, wrap
from helpers.dynamo import Graph
from helpers.guards_table import rich_table
from helpers.words import counted

MARKS = {"=": "= same", "-": "− gone", "+": "+ added"}
_LONG_STRETCH = 5  # added instructions in a row; longer stretches are folded
_KEEPS = {"COPY", "STORE_FAST"}  # Dynamo keeps what it fetched under a name of its own
_OWN = re.compile(r"(?!NULL \+|__|tmp_|graph_out)[^\W\d]\w*$")  # a name of the learner's


def bytecode_view(graph: Graph, previous: Graph | None = None) -> View:
    """Returns the frame's bytecode before and after Dynamo, side by side, by source line.

    Each row has its mark in a sign and a word (MARKS). Long stretches that Dynamo added are
    folded, but never the call of the graph or a change of something of the learner's. Against
    `previous`, instructions after Dynamo that were not there are marked new.
    """
    before, after = graph.bytecode_before, graph.bytecode_after
    pairs = align(before, after)
    new = _new_lines(previous.bytecode_after if previous is not None else after, after)
    changed = write_backs(after)
    columns = ("before: as Python compiled it", "mark", "after: as Dynamo rewrote it")
    rows: list[Sequence[str]] = []
    stretch: list[tuple[str, bool]] = []
    left, right, line = 0, 0, None
    for old, mark, now in (*pairs, ("end", "", "")):
        if old:
            rows += _fold(stretch)
            stretch = []
            if old == "end" and not mark:
                break
            lineno = before.instructions[left].lineno
            left += 1
            if lineno != line:
                line = lineno
                text = html.escape(before.source_line(lineno))
                rows.append([f"line {lineno}: <code>{text}</code>"])
        cell = _after_cell(now, right in new, changed.get(right, "")) if now else ""
        if old:
            rows.append([f"<code>{html.escape(old)}</code>", MARKS[mark], cell])
        else:
            stretch.append((cell, "<b>" in cell or right in changed))
        right += bool(now)
    sentence = _bytecode_sentence(graph)
    top = wrap(f'<p style="margin:2px 0">{html.escape(sentence)}</p>')
    table = rich_table(columns, rows, f"Bytecode of {before.function}, graph {graph.index}")
    text = table_text(("before", "mark", "after"), [(a, MARKS[m], b) for a, m, b in pairs])
    said = dict.fromkeys(name for name in changed.values() if name)
    told = "".join(f"\nThe new bytecode itself changes {name}." for name in said)
    return View(top + table, f"{sentence}{told}\n{text}")


def is_own_name(argument: str) -> bool:
    """Whether an instruction's argument is a name of the learner's and not one Dynamo made."""
    return bool(_OWN.match(argument))


def write_backs(code: Bytecode) -> dict[int, str]:
    """Returns the places of the instructions that change something of the learner's.

    The one that does it has what it changes ("seen", "self.n"); those that lead up to it, "".
    """
    found: dict[int, str] = {}
    owner, start, between = "", 0, []  # what was fetched last, where, and what came since
    setting = False  # attributes of models are set by a call
    for i, one in enumerate(code.instructions):
        changed = ""
        if one.name in ("STORE_GLOBAL", "STORE_DEREF"):
            changed, start = one.argument, i
        elif one.name == "STORE_ATTR":
            changed = f"{owner}.{one.argument}" if owner and set(between) <= _KEEPS else ""
        elif one.name == "STORE_SUBSCR":  # a list is written whole, as a slice
            consts = {"LOAD_CONST", "BUILD_SLICE"}
            whole = "BUILD_SLICE" in between and set(between) <= _KEEPS | consts
            changed = owner if whole else ""
        elif one.argument == "update" and set(between) <= _KEEPS:  # and so is a dict
            changed = owner
        elif one.name == "CALL" and setting:
            name = next((c.argument for c in code.instructions[start:i] if _is_text(c)), "")
            changed = f"{owner}.{name[1:-1]}" if owner and name else ""
            setting = False
        elif one.name.startswith("LOAD_") and one.name != "LOAD_CONST":
            setting = setting or "setattr" in one.argument
            fetched = one.name not in ("LOAD_ATTR", "LOAD_METHOD")
            owner = one.argument if fetched and is_own_name(one.argument) else ""
            start, between = i, []
            continue
        if changed and is_own_name(changed.split(".")[0]):
            found |= dict.fromkeys(range(_value_start(code, start), i), "")
            found[i] = changed
        between.append(one.name)
    return found


def _is_text(one: Instruction) -> bool:
    return one.name == "LOAD_CONST" and one.argument.startswith("'")


def _value_start(code: Bytecode, place: int) -> int:
    """Returns where the constants begin that stand directly before a place: what is written."""
    while place and code.instructions[place - 1].name in ("LOAD_CONST", "BUILD_LIST", "BUILD_MAP"):
        place -= 1
    return place


def _fold(stretch: Sequence[tuple[str, bool]]) -> list[list[str]]:
    """Returns table rows for what Dynamo added, as (cell, keep): kept ones, the others folded."""
    if len(stretch) <= _LONG_STRETCH:
        return [["", MARKS["+"], cell] for cell, _ in stretch]
    rows = []
    for kept, group in itertools.groupby(stretch, key=lambda one: one[1]):
        cells = [cell for cell, _ in group]
        if kept or len(cells) <= 2:
            rows += [["", MARKS["+"], cell] for cell in cells]
        else:
            inner = f"<details><summary>{len(cells)} more, which fetch, keep and hand back"
            rows.append(["", MARKS["+"], f"{inner}</summary>{'<br>'.join(cells)}</details>"])
    return rows


def _after_cell(text: str, is_new: bool, changed: str) -> str:
    cell = f"<code>{html.escape(text)}</code>"
    if "__compiled_fn" in text:
        cell += " <b>← the graph</b>"
    elif "__resume_at" in text:
        cell += " <b>← the rest of your function</b>"
    elif changed:
        cell += f" <b>← changes {html.escape(changed)}</b>"
    return f"{cell} <b>(new)</b>" if is_new else cell


def _new_lines(old: Bytecode, new: Bytecode) -> set[int]:
    """Returns the places in `new` whose instruction `old` does not have there."""
    one, two = ([str(line) for line in code.instructions] for code in (old, new))
    blocks = difflib.SequenceMatcher(a=one, b=two, autojunk=False).get_matching_blocks()
    kept = {block.b + i for block in blocks for i in range(block.size)}
    return set(range(len(two))) - kept


def _bytecode_sentence(graph: Graph) -> str:
    before, after = graph.bytecode_before, graph.bytecode_after
    lines = len({instruction.lineno for instruction in before.instructions})
    size = counted(len(before.instructions), "instruction")
    text = f"Before: {size} from {counted(lines, 'line')}. "
    if not after.instructions:
        return text + "What Dynamo made of it was not kept."
    text += f"After: {counted(len(after.instructions), 'instruction')}"
    arguments = [instruction.argument for instruction in after.instructions]
    if any("__compiled_fn" in argument for argument in arguments):
        text += ", which call the graph"
    if any("__resume_at" in argument for argument in arguments):
        text += ", then a new function with the rest of yours"
    return text + "."
