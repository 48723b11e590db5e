"""What counts in the Python module that Inductor writes for a graph: kernels and calls, in order.

It reads the text alone and uses nothing of the suite's own, so that a recording is independent.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

# Methods of Inductor's async_compile that take a kernel's text, as their second argument.
_COMPILERS = ("async_compile.triton", "async_compile.cpp_pybinding")
# A wrapper calls libraries through these; all else that it calls is Python or its own kernels.
_LIBRARIES = ("extern_kernels.", "torch.ops.", "aten.", "inductor_ops.", "quantized.")
_AOT_ID = re.compile(r"^# AOT ID: \['(\d+)_(\w+)'\]", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """A kernel: its name in the wrapper, and the whole text handed to its compiler."""

    name: str
    source: str = field(repr=False)


@dataclass(frozen=True)
class Parts:
    """One graph: phase (inference, forward, backward), number (counts in the process), kernels in
    the order of their text, calls = kernels launched and libraries called, in order, by name.
    """

    phase: str
    number: int
    kernels: tuple[Text, ...]
    calls: tuple[str, ...]

    @property
    def library_calls(self) -> tuple[str, ...]:
        """The calls of libraries alone, as "extern_kernels.mm"."""
        return tuple(call for call in self.calls if is_library_call(call))


def is_library_call(name: str) -> bool:
    """Whether a call in a wrapper is one of a library, by its dotted name."""
    return name.startswith(_LIBRARIES)


def parts(wrapper: str) -> Parts:
    """Reads a wrapper's text; a text that is not Python is a SyntaxError."""
    tree = ast.parse(wrapper)
    kernels = tuple(
        Text(dotted(node.targets[0]), ast.literal_eval(node.value.args[1]))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _is_kernel(node.value)
    )
    names = {kernel.name for kernel in kernels}
    found = [
        (node.lineno, node.col_offset, name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and (name := _counted(dotted(node.func), names))
    ]
    match = _AOT_ID.search(wrapper)
    number, phase = (int(match[1]), match[2]) if match else (0, "inference")
    return Parts(phase, number, kernels, tuple(name for *_, name in sorted(found)))


def dotted(node: ast.expr) -> str:
    """Returns "a.b.c" for that expression, "" for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := dotted(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _is_kernel(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) in _COMPILERS


def _counted(name: str, kernels: set[str]) -> str:
    """The name to note for a call in a wrapper: a library's, or a kernel's own; else ""."""
    if is_library_call(name):
        return name
    owner = name.removesuffix(".run")
    return owner if owner in kernels else ""
