"""Reads the Python text that Inductor writes for one graph: its kernels and what it calls."""

from __future__ import annotations

import ast
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.generated import GeneratedGraph, Kernel, OutputCode

CompileAll = Callable[[list[tuple[str, str]], tuple[str, ...]], Sequence[Any]]
_OPS = re.compile(r"Original ATen: \[(?P<ops>[^\]]*)\]")
_KIND = re.compile(r"@triton_heuristics\.(\w+)\(")
_KERNEL_PATH = re.compile(r"^# kernel path: .*\n", re.MULTILINE)  # a new folder in each process
_CALLERS = ("call", "partition_")  # the functions of the module that launch things
_LIBRARIES = ("extern_kernels.", "torch.ops.", "aten.")
# What Inductor calls to handle memory and no data.
_NO_LIBRARY = ("torch.ops.inductor.", "torch.ops.aten.set_.source_Tensor")


@dataclass(frozen=True)
class WrittenKernel:
    """One kernel as the module holds it: name, kind, text, and the ATen operations fused in it."""

    name: str
    kind: str
    source: str = field(repr=False)
    ops: tuple[str, ...] = ()


def read_kernels(text: str) -> tuple[WrittenKernel, ...]:
    """Returns the kernels of a module in the order of their text: Triton's, and C++."""
    lines = text.splitlines()
    kernels = []
    for node in ast.parse(text).body:
        call = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(call, ast.Call) or not isinstance(node.targets[0], ast.Name):
            continue
        made_by = _dotted(call.func)
        texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
        texts = [value for value in texts if isinstance(value, str)]
        if made_by == "async_compile.triton":
            kind = _KIND.search(texts[1])
            name = kind[1] if kind else ""
            kind_name = {"user_autotune": "user"}.get(name, name)
        elif made_by in ("async_compile.cpp_pybinding", "async_compile.cpp"):
            kind_name = "cpp"
        else:
            continue
        ops = _ops_above(lines, node.lineno - 1)
        kernels.append(WrittenKernel(node.targets[0].id, kind_name, texts[-1], ops))
    return tuple(kernels)


def _ops_above(lines: list[str], at: int) -> tuple[str, ...]:
    """Returns what the comment above a kernel says that it computes."""
    while at > 0 and lines[at - 1].startswith("#"):
        at -= 1
        if found := _OPS.search(lines[at]):
            return tuple(op.strip() for op in found["ops"].split(",") if op.strip())
    return ()


def read_library_calls(text: str) -> tuple[str, ...]:
    """Returns what the module calls of libraries, in order, as "extern_kernels.mm"."""
    calls = [
        (node.lineno, node.col_offset, _dotted(node.func))
        for function in _launchers(ast.parse(text))
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    ]
    return tuple(
        name
        for *_, name in sorted(calls)
        if name.startswith(_LIBRARIES) and not name.startswith(_NO_LIBRARY)
    )


def _launchers(module: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name.startswith(_CALLERS):
            yield node


def _dotted(node: ast.expr) -> str:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def as_graphs(codes: Sequence[OutputCode]) -> tuple[GeneratedGraph, ...]:
    """Returns the modules as `GeneratedGraph`s, without the paths of files that are never there."""
    return tuple(
        GeneratedGraph(
            _KERNEL_PATH.sub("", c.text), c.phase, c.capture_index, read_library_calls(c.text)
        )
        for c in codes
    )


def read_all(
    codes: Sequence[OutputCode],
    stages: tuple[str, ...],
    compile_all: CompileAll | None,
    chosen: Mapping[str, str] = types.MappingProxyType({}),
) -> tuple[tuple[Kernel, ...], dict[str, str]]:
    """Returns the kernels of all modules with their stages, and why stages are missing.

    compile_all: takes (text, configuration or "") of each kernel and the stages below Triton, and
    returns `KernelStages` of each (None where the kernels are C++); chosen: kernel name to the
    configuration that ran.
    """
    written = [(i, code.phase, k) for i, code in enumerate(codes) for k in read_kernels(code.text)]
    if compile_all is None:
        reason = dict.fromkeys(stages, "The CPU's kernels are C++, and have no such stage.")
        return tuple(_kernel(*one) for one in written), reason
    below = tuple(stage for stage in stages if stage != "triton")
    of_card = [one for one in written if one[2].kind != "cpp"]  # a call may compute on the CPU too
    made = compile_all([(k.source, chosen.get(k.name, "")) for *_, k in of_card], below)
    texts_of = dict(zip(map(id, of_card), made, strict=True))
    kernels, unavailable = [], {}
    for one in written:
        if (stage_texts := texts_of.get(id(one))) is None:
            kernels.append(_kernel(*one))
            continue
        texts = {"triton": one[2].source} if "triton" in stages else {}
        first = chosen.get(one[2].name) or stage_texts.config or next(iter(stage_texts.configs), "")
        texts.update(stage_texts.stages)
        kernels.append(_kernel(*one, texts, first, stage_texts.configs))
        unavailable.update(stage_texts.unavailable)
    return tuple(kernels), unavailable


def _kernel(index: int, phase: str, written: WrittenKernel, *rest: Any) -> Kernel:
    return Kernel(written.name, written.source, index, phase, written.kind, written.ops, *rest)
