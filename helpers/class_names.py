"""Which class a method on a source line belongs to: many models have a `forward` for each part."""

from __future__ import annotations

import ast
import functools
import linecache


def with_class(filename: str, lineno: int, function: str) -> str:
    """Returns "Block.forward" for a method, `function` for what is none or has no source."""
    lines = linecache.getlines(filename)
    for first, last, class_name, name in _methods("".join(lines)) if lines else ():
        if name == function and first <= lineno <= last:
            return f"{class_name}.{function}"
    return function


@functools.lru_cache(maxsize=64)
def _methods(source: str) -> tuple[tuple[int, int, str, str], ...]:
    """Returns (first line, last line, class, name) of each method; none of a text with magics."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return tuple(
        (method.lineno, method.end_lineno or method.lineno, one.name, method.name)
        for one in classes
        for method in one.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
