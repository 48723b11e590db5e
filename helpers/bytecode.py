"""Python bytecode before and after Dynamo, read and set side by side."""

from __future__ import annotations

import difflib
import dis
import linecache
import re
import types
from collections.abc import Sequence
from dataclasses import dataclass

_ADDRESS = re.compile(r"<code object (\S+) at 0x[^>]*>")
_RUNNING = re.compile(r"(__compiled_fn|__resume_at_\d+|__builtins_dict_)_[\w-]+")
_NAME = re.compile(r"(?!to \d)[^\W\d]")  # how an argument starts that is a name, and no jump
_CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}
_FETCHES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_METHOD", "LOAD_ATTR")
_NOISE = {"CACHE", "RESUME", "NOP", "PRECALL", "EXTENDED_ARG", "COPY_FREE_VARS", "MAKE_CELL"}


@dataclass(frozen=True)
class Instruction:
    """One instruction: name and argument as `dis` has them, and the source line (0 if unknown)."""

    name: str
    argument: str
    lineno: int

    def __str__(self) -> str:
        return f"{self.name} {self.argument}".rstrip()


@dataclass(frozen=True)
class Bytecode:
    """The instructions of one code object, in order.

    Left out is what only serves CPython, and the stretches in which Dynamo times itself.
    """

    function: str
    filename: str
    instructions: tuple[Instruction, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The instruction names in order."""
        return tuple(instruction.name for instruction in self.instructions)

    def source_line(self, lineno: int) -> str:
        """Returns the text of a source line, empty if there is none."""
        return linecache.getline(self.filename, lineno).strip() if lineno else ""

    def __str__(self) -> str:
        lines, last = [], None
        for instruction in self.instructions:
            if instruction.lineno != last and instruction.lineno:
                lines.append(f"line {instruction.lineno}: {self.source_line(instruction.lineno)}")
            last = instruction.lineno or last
            lines.append(f"    {instruction}")
        return "\n".join(lines)


def read_bytecode(code: types.CodeType) -> Bytecode:
    """Returns the instructions of a code object, each with the source line it belongs to."""
    lineno, found = 0, []
    for instruction in dis.get_instructions(code):
        positions = instruction.positions
        lineno = (positions.lineno if positions and positions.lineno else lineno) or 0
        if instruction.opname not in _NOISE:
            # Dynamo's running numbers and addresses differ from call to call, and say nothing.
            argument = _ADDRESS.sub(r"<code \1>", _RUNNING.sub(r"\1", instruction.argrepr))
            found.append(Instruction(instruction.opname, argument, lineno))
    return Bytecode(code.co_name, code.co_filename, tuple(_without_timing(found)))


def _without_timing(listing: list[Instruction]) -> list[Instruction]:
    """Returns the instructions without the stretches in which Dynamo times itself.

    torch 2.11 and 2.14 have them, 2.7 has not. One ends with the instruction after its call,
    which keeps or drops what that gave.
    """
    found: list[Instruction] = []
    stretch: list[Instruction] = []
    for i, one in enumerate(listing):
        following = listing[i + 1].argument if i + 1 < len(listing) else ""
        if not stretch and "record_pregraph_bytecode" not in following:
            found.append(one)
            continue
        ended = bool(stretch) and stretch[-1].name == "CALL"
        stretch = [] if ended else [*stretch, one]
    return [*found, *stretch]


def align(before: Bytecode, after: Bytecode) -> tuple[tuple[str, str, str], ...]:
    """Returns rows (before, mark, after): mark "=" where both have the instruction, "-" where only
    `before` has it, "+" where only `after` has it.

    Only what is equal by more than chance stands in one row: instructions with the same name as
    argument, what works on two or more of them, and the return at the end.
    """
    left, right = before.instructions, after.instructions
    same = _same(left, right)
    rows: list[tuple[str, str, str]] = []
    i = j = 0
    for one, two in (*same, (len(left), len(right))):
        rows += [(str(line), "-", "") for line in left[i:one]]
        rows += [("", "+", str(line)) for line in right[j:two]]
        if one < len(left):
            rows.append((str(left[one]), "=", str(right[two])))
        i, j = one + 1, two + 1
    return tuple(rows)


def _same(left: Sequence[Instruction], right: Sequence[Instruction]) -> list[tuple[int, int]]:
    """Returns the places (in left, in right) of instructions that are the same, in order."""
    # One without a name gets a key of its own, which equals no other: it is not paired by chance.
    keys = [
        [(str(one),) if _NAME.match(one.argument) and one.name != "LOAD_CONST" else (side, i)
         for i, one in enumerate(listing)]
        for side, listing in enumerate((left, right))
    ]  # fmt: skip
    found: list[tuple[int, int]] = []
    blocks = difflib.SequenceMatcher(a=keys[0], b=keys[1], autojunk=False).get_matching_blocks()
    for block in blocks:
        found += [(block.a + i, block.b + i) for i in range(block.size)]
        if block.size > 1:
            inside = left[block.a : block.a + block.size]
            i, j = block.a + block.size, block.b + block.size
            if i < len(left) and j < len(right) and str(left[i]) == str(right[j]):
                # A call is the same only if what it calls was fetched here.
                fetched = any(one.name in _FETCHES for one in inside)
                if left[i].name not in _CALLS or fetched:
                    found.append((i, j))
    end = (len(left) - 1, len(right) - 1)
    if left and right and end not in found and str(left[-1]) == str(right[-1]):
        found.append(end)
    return found
