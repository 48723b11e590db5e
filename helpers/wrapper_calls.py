"""What the wrapper of one graph sets off, with the memory that each call is given.

Names of a wrapper are tensors: views of a piece of memory, its storage. A storage that is handed
on ("# reuse") keeps its identity, and begins a new life. Sizes are those of this call: Inductor
writes them into the module's own benchmark, for open (dynamic) sizes too.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from helpers.generated import Kernel
from helpers.kernel_accesses import Signature, read_signature
from helpers.wrapper_tensors import DTYPES, TRITON_DTYPES, Call, Storage, Tensor

_LIBRARIES = ("extern_kernels.", "torch.ops.", "aten.", "inductor_ops.", "prims.", "quantized.")
_VIEWS = (
    "view", "_unsafe_view", "as_strided", "expand", "permute", "t", "transpose", "alias", "detach",
    "unsqueeze", "squeeze", "select", "slice", "view_as_real", "view_as_complex", "_conj", "set_",
)  # fmt: skip
_ATTENTION = ("_scaled_dot_product_", "_flash_attention_forward", "_efficient_attention_forward")
_WITH_INDICES = ("sort", "topk", "kthvalue", "mode", "median", "max_pool2d_with_indices",
                 "max_pool3d_with_indices", "adaptive_max_pool2d", "cummax", "cummin")  # fmt: skip
_SAME_TENSOR = ("copy_if_misaligned", "copy_misaligned")  # a copy only where memory is unaligned
_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow, ast.Div: operator.truediv,
}  # fmt: skip


class Wrapper:
    """Reads the text of a wrapper: `calls` in order, and `returned` tensors.

    ValueError where the text is not the Python that Inductor writes.
    """

    def __init__(self, text: str, kernels: Mapping[str, Kernel]) -> None:
        self.kernels, self.lines = kernels, text.splitlines()
        self.signatures: dict[str, Signature | None] = {}
        self.numbers: dict[str, int] = {}
        self.tensors: dict[str, Tensor] = {}
        self.several: dict[str, list[Tensor]] = {}  # what library calls with several results made
        self._calls: list[tuple[Call, list[Tensor]]] = []
        self.returned: tuple[Tensor, ...] = ()
        try:
            module = ast.parse(text)
        except SyntaxError:
            raise ValueError("bytes are counted from Inductor's Python wrapper, not C++") from None
        functions = {n.name: n for n in ast.walk(module) if isinstance(n, ast.FunctionDef)}
        if "call" not in functions:
            raise ValueError("this wrapper has no function `call` to read launches from")
        self.partitions = {n: f for n, f in functions.items() if n.startswith("partition_")}
        for name in ("benchmark_compiled_module", "get_args"):
            if name in functions:
                self._run(functions[name])
        self._calls.clear()
        self._run(functions["call"], returns=True)
        self.calls = tuple(replace(call, made=tuple(made)) for call, made in self._calls)

    def _run(self, function: ast.FunctionDef, returns: bool = False) -> None:
        for statement in _statements(function):
            if isinstance(statement, ast.Return):
                found = self._arguments([statement.value] if returns and statement.value else [])
                self.returned += tuple(found)
            elif isinstance(statement, ast.Assign):
                self._assign(statement)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._called("", statement.value)

    def _assign(self, statement: ast.Assign) -> None:
        target, value = statement.targets[0], statement.value
        if isinstance(value, ast.Call):
            name = target.id if isinstance(target, ast.Name) else ""
            self._called(name, value, "# reuse" in self.lines[statement.lineno - 1])
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Name):
            for one in target.elts:  # the arguments of the wrapper
                if isinstance(one, ast.Name) and one.id not in {*self.tensors, *self.numbers}:
                    self.tensors[one.id] = Tensor(one.id, Storage(one.id, is_input=True))
        elif isinstance(target, ast.Name):
            self._name(target.id, value, "# reuse" in self.lines[statement.lineno - 1])

    def _name(self, name: str, value: ast.expr, is_reuse: bool) -> None:
        if isinstance(value, ast.Name) and value.id in self.tensors:
            self._alias(name, self.tensors[value.id], is_reuse)
        elif isinstance(value, ast.Subscript) and ast.unparse(value.value) in self.several:
            made = self.several[ast.unparse(value.value)]
            dtype = _part_dtype(made[0].storage, self.number(value.slice))
            self.tensors[name] = Tensor(name, Storage(name, made_from=dtype))
            made.append(self.tensors[name])
        elif (number := self.number(value)) is not None:
            self.numbers[name] = number

    def _alias(self, name: str, tensor: Tensor, is_reuse: bool) -> None:
        if is_reuse:
            tensor.storage.life += 1
            tensor = replace(tensor, life=tensor.storage.life)
        self.tensors[name] = replace(tensor, name=name)

    def _called(self, target: str, call: ast.Call, is_reuse: bool = False) -> None:
        name = ast.unparse(call.func)
        last = name.rpartition(".")[2]
        if last.startswith("empty_strided") or last == "rand_strided":
            self._allocate(target, call, is_input=last == "rand_strided")
        elif last.startswith(("assert_size_stride", "assert_tensor_metadata")):
            self._asserted(call)
        elif last == "reinterpret_tensor" or last in _SAME_TENSOR or last.startswith("alloc_from"):
            if (tensor := self._tensor(call)) is not None:
                self._alias(target, tensor, is_reuse)
        elif ".partitions[" in name:
            self._run(self.partitions[f"partition_{self.number(call.func.slice)}"])
        elif name.removesuffix(".run") in self.kernels:
            self._launch(self.kernels[name.removesuffix(".run")], call)
        elif name.startswith(_LIBRARIES) or self._receiver(call) is not None:
            self._library(target, name, call)
        elif target and (number := self.number(call)) is not None:
            self.numbers[target] = number

    def _receiver(self, call: ast.Call) -> Tensor | None:
        """Returns the tensor whose method is called to change it, as in `buf0.copy_(arg0_1)`."""
        if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
            return self._tensor(call.func.value)
        return None

    def _allocate(self, target: str, call: ast.Call, is_input: bool) -> None:
        shape, strides = self._sizes(call.args[0]), self._sizes(call.args[1])
        kinds = [*call.args[2:], *(one.value for one in call.keywords)]
        dtypes = [ast.unparse(one).removeprefix("torch.") for one in kinds]
        dtype = next((one for one in dtypes if one in DTYPES), "")
        storage = Storage(target, _extent(shape, strides), dtype, is_input)
        self.tensors[target] = Tensor(target, storage, shape, strides or ())

    def _asserted(self, call: ast.Call) -> None:
        """Learns shapes of what is not known yet: results of libraries, sizes by name."""
        is_many = isinstance(call.args[0], ast.Tuple)
        columns = [arg.elts if is_many else [arg] for arg in call.args[:3]]
        dtype = ast.unparse(call.args[3]).removeprefix("torch.") if len(call.args) > 3 else ""
        for one, shape, strides in zip(*columns, strict=True):
            if not isinstance(one, ast.Name) or one.id not in self.tensors:
                continue
            tensor = self.tensors[one.id]
            if tensor.shape is not None:
                for size, number in zip(getattr(shape, "elts", ()), tensor.shape, strict=False):
                    if isinstance(size, ast.Name):
                        self.numbers.setdefault(size.id, number)
                continue
            sizes, steps = self._sizes(shape), self._sizes(strides)
            tensor.storage.size = tensor.storage.size or _extent(sizes, steps)
            tensor.storage.dtype = tensor.storage.dtype or (dtype if dtype in DTYPES else "")
            self.tensors[one.id] = known = replace(tensor, shape=sizes, strides=steps or ())
            for _, made in self._calls:
                made[:] = [known if other is tensor else other for other in made]

    def _launch(self, kernel: Kernel, call: ast.Call) -> None:
        if kernel.name not in self.signatures:
            self.signatures[kernel.name] = read_signature(kernel.source)
        signature = self.signatures[kernel.name]
        values = [self._tensor(one) or self.number(one) for one in call.args]
        names = signature.parameters if signature else tuple(_cpp_parameters(kernel.source))
        if len(names) < len(values):
            names = (*names, *[""] * (len(values) - len(names)))
        given = [(n, v) for n, v in zip(names, values, strict=False) if isinstance(v, Tensor)]
        tensors = [tensor for _, tensor in given]
        if signature and len(signature.pointers) == len(tensors):
            given = list(zip(signature.pointers, tensors, strict=True))
        itemsizes = {}
        for name, tensor in given if signature else ():
            of_triton = signature.types.get(name, "").removeprefix("*")
            if dtype := TRITON_DTYPES.get(of_triton, ""):
                itemsizes[name] = DTYPES[dtype]
                tensor.storage.dtype = tensor.storage.dtype or dtype
        numbers = {n: v for n, v in zip(names, values, strict=False) if isinstance(v, int)}
        launch = Call(kernel.name, kernel, tuple(given), numbers, itemsizes=itemsizes)
        self._calls.append((launch, []))

    def _library(self, target: str, name: str, call: ast.Call) -> None:
        op = name.removeprefix("torch.ops.").split(".")
        op = op[1] if len(op) > 1 else op[0]
        out = [one.value for one in call.keywords if one.arg == "out"]
        rest = [one.value for one in call.keywords if one.arg != "out"]
        given, made = self._arguments([*call.args, *rest]), self._arguments(out)
        if (receiver := self._receiver(call)) is not None:
            in_place = [receiver]
        else:
            in_place = given[:1] if op.endswith("_") and not op.startswith("_") else []
        if op in _VIEWS or op.startswith("_reinterpret"):
            if target and given:
                self._alias(target, given[0], False)
            return
        if target:
            source = next((one.storage for one in given if "float" in one.storage.dtype), None)
            kind = (source.dtype or source.made_from) if source else ""
            self.tensors[target] = Tensor(target, Storage(target, made_from=kind, made_by=op))
            made = [self.tensors[target]]
            self.several[target] = made
        reads = tuple(("", one) for one in given)
        self._calls.append((Call(name, None, reads, {}, (), tuple(in_place)), made))

    def _arguments(self, nodes: list[ast.expr]) -> list[Tensor]:
        """Returns the tensors in some expressions, inside lists and tuples too."""
        found = []
        for node in nodes:
            if isinstance(node, (ast.List, ast.Tuple)):
                found += self._arguments(node.elts)
            elif (tensor := self._tensor(node)) is not None:
                found.append(tensor)
        return found

    def _tensor(self, node: ast.expr) -> Tensor | None:
        if isinstance(node, ast.Name):
            return self.tensors.get(node.id)
        if not isinstance(node, ast.Call) or not node.args:
            return None
        name = ast.unparse(node.func).rpartition(".")[2]
        inner = self._tensor(node.args[0])
        if inner is None or name in _SAME_TENSOR:
            return inner
        if name != "reinterpret_tensor":
            return None
        shape, strides = self._sizes(node.args[1]), self._sizes(node.args[2])
        further = self.number(node.args[3]) if len(node.args) > 3 else 0
        return replace(
            inner, shape=shape, strides=strides or (), offset=inner.offset + (further or 0)
        )

    def _sizes(self, node: ast.expr) -> tuple[int, ...] | None:
        values = [self.number(one) for one in getattr(node, "elts", ())]
        return None if any(value is None for value in values) else tuple(values)

    def number(self, node: Any) -> int | None:
        """Returns an integer expression's value in this call, None where only the run knows."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int) else None
        if isinstance(node, ast.Name):
            return self.numbers.get(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.number(node.operand)
            return None if inner is None else -inner
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self.number(node.left), self.number(node.right)
            if left is None or right is None:
                return None
            return int(_ARITHMETIC[type(node.op)](left, right))
        if isinstance(node, ast.Call):
            values = [self.number(one) for one in node.args]
            known = {"max": max, "min": min, "int": int, "abs": abs}.get(ast.unparse(node.func))
            return known(*values) if known and values and None not in values else None
        return None


def _part_dtype(whole: Storage, at: int | None) -> str:
    """Returns the dtype of one of a library call's results, where the wrapper does not say it."""
    if at and whole.made_by.startswith(_ATTENTION):  # 1: log of sums; further: seeds, sizes
        return "float32" if at == 1 else "int64"
    return "int64" if at and whole.made_by in _WITH_INDICES else whole.made_from


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    for statement in node.body:  # type: ignore[attr-defined]
        if isinstance(statement, (ast.With, ast.If, ast.For, ast.Try)):
            yield from _statements(statement)
        else:
            yield statement


def _extent(shape: tuple[int, ...] | None, strides: tuple[int, ...] | None) -> int:
    """Returns how many elements the memory of such a tensor spans."""
    if shape is None or strides is None:
        return 0
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))


def _cpp_parameters(source: str) -> Iterator[str]:
    """Yields the names of a C++ kernel's parameters."""
    _, found, rest = source.partition("void ")
    head = rest.partition("(")[2].partition(")")[0] if found else ""
    for parameter in head.split(","):
        if parameter.strip():
            yield parameter.split()[-1].lstrip("*&")
