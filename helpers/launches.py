"""The wrapper that Inductor wrote, read as a list: what is launched, in order, on which buffers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from helpers.generated import GeneratedCode, Kernel
from helpers.kernel_notes import only_copies, plain_op

KINDS = ("kernel", "copy", "library")
_EMPTY = re.compile(r"^empty_strided\w*$")
# Calls in a wrapper that launch nothing.
_ADMINISTRATION = ("size_stride", "alignment", "misaligned", "get_raw_stream", "alloc_from_pool")


@dataclass(frozen=True)
class Buffer:
    """A tensor of the wrapper: name, and shape and strides where the wrapper says them."""

    name: str
    shape: tuple[int | str, ...] | None = None
    strides: tuple[int | str, ...] | None = None

    @property
    def layout(self) -> str:
        """Of a 4-D tensor: "channels-last", "contiguous" or its strides; else empty."""
        if self.shape is None or len(self.shape) != 4 or not self.strides:
            return ""
        if not all(isinstance(size, int) for size in (*self.shape, *self.strides)):
            return ""
        _, c, h, w = self.shape
        if self.strides == (c * h * w, 1, w * c, c):
            return "channels-last"
        return "contiguous" if self.strides == (c * h * w, h * w, w, 1) else f"{self.strides}"

    def __str__(self) -> str:
        if self.shape is None:
            return self.name
        size = " × ".join(map(str, self.shape)) or "one number"
        return f"{self.name} ({size}{', ' + self.layout if self.layout else ''})"


@dataclass(frozen=True)
class Launch:
    """One thing that the wrapper sets off: a kernel, a copy (a kernel that only copies) or a
    library call. after: the places of the launches of the same graph whose results it reads.
    """

    kind: str
    name: str
    graph_index: int
    phase: str
    ops: tuple[str, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    after: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """What it does, as a person says it."""
        if self.kind == "library":
            return self.name.removeprefix("torch.ops.").removesuffix(".default").split(".")[-1]
        names = list(dict.fromkeys(map(plain_op, self.ops)))
        if self.kind == "copy":
            return f"copy for {', '.join(names)}" if names else "copy"
        return ", ".join(names) or self.name


def read_launches(code: GeneratedCode, graph_index: int) -> tuple[Launch, ...]:
    """Returns what the wrapper of one graph launches, in order; empty if it cannot be read."""
    graph = code.graphs[graph_index]
    kernels = {one.name: one for one in code.kernels if one.graph_index == graph_index}
    try:
        tree = ast.parse(graph.wrapper)
    except SyntaxError:
        return ()
    reader = _Reader(kernels, graph_index, graph.phase, graph.wrapper.splitlines())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and re.match(r"call$|partition_\d+$", node.name):
            for statement in _statements(node):
                reader.read(statement)
    return reader.launches()


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for statement in node.body:  # type: ignore[attr-defined]
        if isinstance(statement, (ast.With, ast.If, ast.For, ast.Try)):
            yield from _statements(statement)
        else:
            yield statement


def _names(node: ast.AST) -> list[str]:
    """Returns the variables in an expression, without what it calls."""
    called = {id(one.func) for one in ast.walk(node) if isinstance(one, ast.Call)}
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and id(one) not in called]


def _sizes(node: ast.AST) -> tuple[int | str, ...]:
    parts = node.elts if isinstance(node, ast.Tuple) else []
    return tuple(one.value if isinstance(one, ast.Constant) else ast.unparse(one) for one in parts)


class _Reader:
    """Goes through the statements of a wrapper, and keeps in mind who wrote which buffer."""

    def __init__(
        self, kernels: dict[str, Kernel], graph_index: int, phase: str, lines: list[str]
    ) -> None:
        self.kernels, self.graph_index, self.phase = kernels, graph_index, phase
        self.lines, self.found = lines, []
        self.buffers: dict[str, Buffer] = {}
        self.writers: dict[str, tuple[int, ...]] = {}
        self.view_of: dict[str, str] = {}

    def launches(self) -> tuple[Launch, ...]:
        """Returns what was found; shapes of results stand in the wrapper only after the call."""
        return tuple(
            Launch(kind, name, self.graph_index, self.phase, ops, *map(self._tensors, names), after)
            for kind, name, ops, *names, after in self.found
        )

    def _tensors(self, names: list[str]) -> tuple[Buffer, ...]:
        return tuple(self.buffers.get(one, Buffer(one)) for one in dict.fromkeys(names))

    def read(self, statement: ast.stmt) -> None:
        """Takes in one statement."""
        target = ""
        if isinstance(statement, ast.Assign):
            first = statement.targets[0]
            if isinstance(first, ast.Tuple):  # the arguments of the wrapper
                for name in _names(first):
                    self.buffers.setdefault(name, Buffer(name))
                return
            target = first.id if isinstance(first, ast.Name) else ""
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Call):
            self._call(target, value, statement)
        elif target and isinstance(value, (ast.Name, ast.Subscript)):
            self._alias(target, value, statement)

    def _call(self, target: str, call: ast.Call, statement: ast.stmt) -> None:
        name = ast.unparse(call.func)
        owner = name.removesuffix(".run")
        if _EMPTY.match(name):
            self.buffers[target] = Buffer(target, _sizes(call.args[0]), _sizes(call.args[1]))
        elif name.startswith("assert_size_stride") and isinstance(call.args[0], ast.Name):
            known = call.args[0].id
            self.buffers[known] = Buffer(known, _sizes(call.args[1]), _sizes(call.args[2]))
        elif name.startswith("assert_size_stride") and isinstance(call.args[0], ast.Tuple):
            for one, shape, strides in zip(*(arg.elts for arg in call.args[:3]), strict=True):
                self.buffers[one.id] = Buffer(one.id, _sizes(shape), _sizes(strides))
        elif name == "reinterpret_tensor":
            self._alias(target, call, statement)
            self.buffers[target] = Buffer(target, _sizes(call.args[1]), _sizes(call.args[2]))
        elif owner in self.kernels:
            self._kernel(self.kernels[owner], call.args)
        elif name.startswith(("extern_kernels.", "torch.ops.", "aten.")) or "fallback" in name:
            self._library(target, name, call)

    def _alias(self, target: str, value: ast.expr, statement: ast.stmt) -> None:
        source = next((one for one in _names(value) if one in self.buffers), "")
        if not source:
            return
        self.writers[target] = self.writers.get(source, ())
        if isinstance(value, ast.Name):
            old = self.buffers[source]
            self.buffers[target] = Buffer(target, old.shape, old.strides)
        else:
            self.buffers[target] = Buffer(target)
        if "# reuse" not in self.lines[statement.lineno - 1]:
            self.view_of[target] = source

    def _kernel(self, kernel: Kernel, arguments: list[ast.expr]) -> None:
        reads, writes = [], []
        mutated = re.search(r"'mutated_arg_names': \[([^\]]*)\]", kernel.source)
        for name, value in zip(_parameters(kernel.source), arguments, strict=False):
            found = [one for one in _names(value) if one in self.buffers]
            writes += found if "out_ptr" in name or (mutated and f"'{name}'" in mutated[1]) else []
            is_read = "out_ptr" not in name or f"tl.load({name} " in kernel.source
            reads += found if is_read else []
        kind = "copy" if only_copies(kernel.body) else "kernel"
        self._add(kind, kernel.name, kernel.ops, reads, writes)

    def _library(self, target: str, name: str, call: ast.Call) -> None:
        if any(word in name for word in _ADMINISTRATION):
            return
        out = [one for word in call.keywords if word.arg == "out" for one in _names(word.value)]
        values = [*call.args, *(word.value for word in call.keywords if word.arg != "out")]
        reads = [one for value in values for one in _names(value) if one in self.buffers]
        if target:
            self.buffers[target] = Buffer(target)
        self._add("library", name, (), reads, [*([target] if target else []), *out])

    def _add(
        self, kind: str, name: str, ops: tuple[str, ...], reads: list[str], writes: list[str]
    ) -> None:
        here = len(self.found)
        after = {place for one in reads for place in self.writers.get(one, ())}
        self.found.append((kind, name, ops, reads, writes, tuple(sorted(after))))
        for one in writes:
            self.writers[one] = (here,)
            if one in self.view_of:  # a part of a larger tensor: the others' parts stay
                whole = self.view_of[one]
                self.writers[whole] = (*self.writers.get(whole, ()), here)


def _parameters(source: str) -> list[str]:
    """Returns the names of a kernel's parameters, from its Triton or C++ text."""
    found = re.findall(r"^def \w+\((.*?)\):", source, re.MULTILINE | re.DOTALL)
    if found:
        return [part.split(":")[0].strip() for part in found[-1].split(",")]
    cpp = re.search(r"void\s+\w+\((.*?)\)", source, re.DOTALL)
    return [part.split()[-1].lstrip("*") for part in cpp[1].split(",")] if cpp else []
