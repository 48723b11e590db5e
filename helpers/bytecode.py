"""Python bytecode before and after Dynamo, read and set side by side."""

from __future__ import annotations

import difflib
import dis
import linecache
import re
import types
from dataclasses import dataclass

_ADDRESS = re.compile(r"<code object (\S+) at 0x[^>]*>")
_RUNNING = re.compile(r"(__compiled_fn|__resume_at_\d+|__builtins_dict_)_[\w-]+")
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
    """The instructions of one code object, in order, without those that only serve CPython."""

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
    return Bytecode(code.co_name, code.co_filename, tuple(found))


def align(before: Bytecode, after: Bytecode) -> tuple[tuple[str, str, str], ...]:
    """Returns rows (before, mark, after): mark "=" where both have the instruction, "-" where only
    `before` has it, "+" where only `after` has it, "~" where one stands for the other.
    """
    left, right = [list(map(str, listing.instructions)) for listing in (before, after)]
    rows: list[tuple[str, str, str]] = []
    matcher = difflib.SequenceMatcher(a=left, b=right, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        for k in range(max(i2 - i1, j2 - j1)):
            a = left[i1 + k] if i1 + k < i2 else ""
            b = right[j1 + k] if j1 + k < j2 else ""
            mark = "=" if tag == "equal" else "~" if a and b else "-" if a else "+"
            rows.append((a, mark, b))
    return tuple(rows)
