"""What a Triton kernel loads and stores, read from its text: which elements of which argument.

The text is walked statement by statement, as Triton would run it, with `helpers.index_values` in
place of numbers. A pointer that goes anywhere but into `tl.load`, `tl.store` or an atomic, and an
index that is not understood, count as the whole buffer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.index_values import Root, Value, apply, const, place, unknown

_ROOT = re.compile(r"^([xyz]|r\d_)index$")
_OPS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv",
    ast.Mod: "mod", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.Lt: "lt",
    ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne", ast.USub: "neg",
    ast.Invert: "not", ast.Not: "not",
}  # fmt: skip
# Calls by the last part of their name: what they compute, and those that keep the values.
_CALLS = {
    "where": "where", "minimum": "min", "maximum": "max", "abs": "abs", "floor": "floor",
    "ceil": "ceil", "trunc": "trunc", "nearbyint": "rint", "rint": "rint",
    "div_floor_integer": "floordiv", "remainder_integer": "mod",
}  # fmt: skip
_SAME = ("broadcast_to", "reshape", "view", "expand_dims", "trans", "multiple_of", "max_contiguous")
_CASTS = (("int1", "bool"), ("int", "int"), ("uint", "int"), ("float", "float"), ("bf", "float"))


@dataclass(frozen=True)
class Access:
    """One load or store: argument, kind ("load", "store", "atomic", "whole": all of the buffer is
    in reach), index and mask (None: none), and which of the kernel's loops it is in (0: no loop).
    """

    pointer: str
    kind: str
    index: Value
    mask: Value | None = None
    loop: int = 0


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel, in order, and Triton's type of each that has one ("*fp32")."""

    parameters: tuple[str, ...]
    types: Mapping[str, str]
    mutated: tuple[str, ...] = ()

    @property
    def pointers(self) -> tuple[str, ...]:
        """The parameters that point to memory."""
        return tuple(one for one in self.parameters if self.types.get(one, "").startswith("*"))


def read_signature(source: str) -> Signature | None:
    """Returns the parameters of the kernel in a text; None if it holds none that can be read."""
    found = _function(source)
    if found is None:
        return None
    settings = {
        keyword.arg: keyword.value
        for decorator in found.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
    }
    types = _entry(settings.get("triton_meta"), "signature")
    names = tuple(one.arg for one in found.args.args)
    mutated = _entry(settings.get("inductor_meta"), "mutated_arg_names")
    return Signature(names, types or {}, tuple(mutated or ()))


def read_accesses(source: str, numbers: Mapping[str, int]) -> tuple[Access, ...]:
    """Returns what a kernel loads and stores, in order. numbers: its arguments that are integers.

    source: the text of a kernel that Inductor generated, with a signature that can be read.
    """
    signature, function = read_signature(source), _function(source)
    if signature is None or function is None:
        return ()
    walk = _Walk(signature, numbers)
    walk.take_all(function.body)
    return tuple(walk.found)


def _function(source: str) -> ast.FunctionDef | None:
    """Returns the kernel itself: the function whose decorators say how it is launched."""
    try:
        module = ast.parse(source)
    except SyntaxError:
        return None
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    for one in functions:
        if any(isinstance(decorator, ast.Call) for decorator in one.decorator_list):
            return one
    return functions[-1] if functions else None


def _entry(node: ast.expr | None, key: str) -> dict | list | None:
    """Returns one entry of a dictionary that is written out, although others are no literals."""
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                return ast.literal_eval(value)
    return None


class _Walk:
    """Goes through a kernel's statements, and notes what they touch."""

    def __init__(self, signature: Signature, numbers: Mapping[str, int]) -> None:
        self.found: list[Access] = []
        self.loop = self.loops = 0
        self.is_idle = False  # in a branch whose programs have nothing to do
        self.known: dict[str, Value] = {}
        for name in signature.parameters:
            if name in signature.pointers:
                self.known[name] = Value("pointer", (const(0),), name)
            else:
                self.known[name] = const(numbers[name]) if name in numbers else unknown()

    def take_all(self, nodes: list[ast.stmt]) -> None:
        """Takes in statements. Where each program picks its part by `pid`, what follows the choice
        is taken once for each part.
        """
        for at, node in enumerate(nodes):
            if isinstance(node, ast.If) and "pid" in _names(node.test):
                for branch in (node.body, node.orelse):
                    before = dict(self.known), self.is_idle
                    self.take_all([*branch, *nodes[at + 1 :]])
                    self.known, self.is_idle = before
                return
            self.take(node)

    def take(self, node: ast.stmt) -> None:
        """Takes in one statement."""
        if isinstance(node, ast.For):
            self._loop(node)
        elif isinstance(node, (ast.If, ast.While, ast.With)):
            self.take_all([*node.body, *getattr(node, "orelse", [])])
        elif isinstance(node, ast.AugAssign):
            if not _is_root(node.target):  # xindex += XBLOCK: the root runs over all of them
                self._bind(node.target, unknown(self.value(node.target), self.value(node.value)))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if _is_root(targets[0]) and not isinstance(node.value, ast.Name):
                self._bind(targets[0], self._root(targets[0].id))
            else:
                self._bind(targets[0], self.value(node.value))
        elif isinstance(node, (ast.Expr, ast.Return)) and node.value is not None:
            self.value(node.value)

    def _loop(self, node: ast.For) -> None:
        outer = self.loop
        self.loops += 1
        self.loop = self.loops
        self._bind(node.target, unknown())
        self.take_all(node.body)
        self.loop = outer

    def _bind(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.known[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for one in target.elts:
                self._bind(one, unknown(value))

    def _root(self, name: str) -> Value:
        size = self.known.get(f"{name.removesuffix('index')}numel", unknown()).number
        self.is_idle |= size == 0
        return place(Root(name, size)) if isinstance(size, int) and size > 0 else unknown()

    def value(self, node: ast.expr) -> Value:
        """Returns what is known of an expression, and notes what it touches."""
        if isinstance(node, ast.Constant):
            if node.value is None:  # as a mask: none
                return const(True)
            return const(node.value) if isinstance(node.value, (int, float)) else unknown()
        if isinstance(node, ast.Name):
            return self.known.get(node.id, unknown())
        if isinstance(node, ast.Subscript):  # [:, None] keeps the values
            return self.value(node.value)
        if isinstance(node, ast.BinOp):
            return self._apply(node.op, self.value(node.left), self.value(node.right))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self.value(node.left), self.value(node.comparators[0])
            return self._apply(node.ops[0], left, right)
        if isinstance(node, ast.UnaryOp):
            return self._apply(node.op, self.value(node.operand))
        if isinstance(node, ast.Call):
            return self._call(node)
        return self._other([self.value(one) for one in _inner(node)])

    def _apply(self, operation: ast.AST, *args: Value) -> Value:
        op = _OPS.get(type(operation))
        pointers = [one for one in args if one.op == "pointer"]
        if not pointers:
            return apply(op, *args) if op else unknown(*args)
        if op == "add" and len(pointers) == 1:
            offset = args[1] if args[0] is pointers[0] else args[0]
            return Value("pointer", (apply("add", pointers[0].args[0], offset),), pointers[0].what)
        return self._other(list(args))

    def _call(self, node: ast.Call) -> Value:
        name = ast.unparse(node.func).rpartition(".")[2]
        is_method = isinstance(node.func, ast.Attribute) and not _is_module(node.func.value)
        given = [self.value(one) for one in ([node.func.value] if is_method else [])]
        if name == "to" and given and given[0].op != "pointer":
            kind = ast.unparse(node.args[0]).rpartition(".")[2] if node.args else ""
            cast = next((cast for start, cast in _CASTS if kind.startswith(start)), "")
            return apply(cast, given[0]) if cast else unknown(given[0])
        given += [self.value(one) for one in node.args]
        named = {one.arg: self.value(one.value) for one in node.keywords}
        if given and given[0].op == "pointer" and self._touch(name, given, named):
            return unknown(given[0].args[0])
        if name in _SAME and given:
            return given[0]
        if name in ("full", "zeros"):
            return given[1] if name == "full" and len(given) > 1 else const(0)
        if name in _CALLS and not any(one.op == "pointer" for one in given):
            return apply(_CALLS[name], *given[: 3 if name == "where" else 2])
        return self._other([*given, *named.values()])

    def _touch(self, name: str, given: list[Value], named: dict[str, Value]) -> bool:
        """Notes a load, a store or an atomic; False if the call is none of them."""
        if name == "load":
            kind, at = "load", 1
        elif name == "store":
            kind, at = "store", 2
        elif name.startswith("atomic_"):
            kind, at = "atomic", 3 if name == "atomic_cas" else 2
        else:
            return False
        mask = given[at] if len(given) > at else named.get("mask")
        if not self.is_idle:
            self.found.append(Access(given[0].what, kind, given[0].args[0], mask, self.loop))
        return True

    def _other(self, given: list[Value]) -> Value:
        """Returns the outcome of what is not understood; pointers in it can reach anything."""
        for one in given:
            if one.op == "pointer":
                self.found.append(Access(one.what, "whole", unknown(), None, self.loop))
        return unknown(*(one for one in given if one.op != "pointer"))


def _is_root(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and bool(_ROOT.match(target.id))


def _is_module(node: ast.expr) -> bool:
    """Whether it is what functions are looked up in: tl, tl.math, triton_helpers, libdevice."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in (
        "tl", "tl_math", "triton", "triton_helpers", "libdevice", "math",
    )  # fmt: skip


def _names(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _inner(node: ast.expr) -> list[ast.expr]:
    return [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
