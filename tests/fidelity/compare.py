"""Compares generated GPU code with a recording: kernel by kernel, to the letter.

Graphs are matched in order (forward before backward, each in the order of the captures), kernels
by their position in the graph. A kernel too many or too few counts as one that is not identical.

What `normalised` leaves out of a kernel's text, and why:

- the argument `inductor_meta` of its decorator: it holds the hash of the installed Triton
  (`backend_hash`), which settings of caches were on, and hints for tuning; none of it is part of
  the kernel's function. What differs in it is named apart, by key, in `KernelResult.meta`.

All else counts: the kernel's name, the card's properties in `triton_meta`, size hints, comments.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.fidelity.wrapper_parts import Parts, is_library_call, parts

IDENTICAL, DIFFERENT, MISSING, EXTRA = "identical", "different", "missing", "extra"


class Graph(Protocol):
    """What is asked of a generated graph; helpers.generated.GeneratedGraph has it."""

    wrapper: str
    phase: str
    capture_index: int


@dataclass(frozen=True)
class KernelResult:
    """One kernel's place (graph and position, from 0), status, and the difference as a diff.

    meta: keys of `inductor_meta` that differ although they say nothing of caches.
    """

    graph: int
    position: int
    name: str
    status: str
    diff: str = field(repr=False, default="")
    meta: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaseResult:
    """What became of one case; error: of the generation, "" if none; live_error: of the recording.

    phases: whether both sides have the same graphs; calls: whether libraries are called alike.
    """

    name: str
    kernels: tuple[KernelResult, ...]
    phases_equal: bool
    calls_equal: bool
    calls_diff: str = field(repr=False, default="")
    error: str = ""
    live_error: str = ""

    @property
    def identical(self) -> int:
        """How many kernels are identical."""
        return sum(kernel.status == IDENTICAL for kernel in self.kernels)

    @property
    def exact(self) -> bool:
        """Whether nothing at all differs."""
        return (
            self.identical == len(self.kernels)
            and self.phases_equal
            and self.calls_equal
            and not self.error
        )

    @property
    def first_difference(self) -> str:
        """The diff of the first kernel that differs, else of the library calls, else ""."""
        diffs = (kernel.diff for kernel in self.kernels if kernel.status != IDENTICAL)
        return next(diffs, self.calls_diff)


def normalised(source: str) -> str:
    """Returns a kernel's text without what cannot matter; a text not in Python comes unchanged."""
    keyword = _meta_keyword(source)
    if keyword is None:
        return source
    lines = source.encode().splitlines(keepends=True)
    first, last = keyword.lineno - 1, keyword.value.end_lineno - 1
    before = lines[first][: keyword.col_offset]
    after = lines[last][keyword.value.end_col_offset :]
    return b"".join([*lines[:first], before, after, *lines[last + 1 :]]).decode()


def meta(source: str) -> dict[str, str]:
    """Returns `inductor_meta` of a kernel's text by key, without the keys about caches."""
    keyword = _meta_keyword(source)
    if keyword is None or not isinstance(keyword.value, ast.Dict):
        return {}
    pairs = zip(keyword.value.keys, keyword.value.values, strict=True)
    found = {ast.unparse(key).strip("'"): ast.unparse(value) for key, value in pairs if key}
    return {key: value for key, value in found.items() if not _about_caches(key)}


def _about_caches(key: str) -> bool:
    return key == "backend_hash" or "cache" in key


def _meta_keyword(source: str) -> ast.keyword | None:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # C++
        return None
    for function in tree.body:
        for decorator in getattr(function, "decorator_list", ()):
            for keyword in getattr(decorator, "keywords", ()):
                if keyword.arg == "inductor_meta":
                    return keyword
    return None


def compare(
    name: str, recorded: dict[str, Any], graphs: Sequence[Graph], error: str = ""
) -> CaseResult:
    """Compares one recorded case with the graphs generated for it.

    recorded: a case of `record.load()`; where the card gave different code from round to round,
    the nearest counts; error: why nothing, or not all, was generated.
    """
    results = [
        _compare(name, recorded | {"graphs": live}, graphs, error)
        for live in (recorded["graphs"], *recorded.get("variants", []))
    ]
    return max(results, key=lambda result: (result.exact, result.identical / len(result.kernels)
                                            if result.kernels else 1.0))  # fmt: skip


def _compare(
    name: str, recorded: dict[str, Any], graphs: Sequence[Graph], error: str
) -> CaseResult:
    live = sorted(recorded["graphs"], key=lambda g: (g["phase"] == "backward", g["number"]))
    made = sorted(graphs, key=lambda g: (g.phase == "backward", g.capture_index))
    read = [parts(graph.wrapper) for graph in made]
    kernels: list[KernelResult] = []
    for index in range(max(len(live), len(read))):
        ours = read[index] if index < len(read) else None
        theirs = live[index]["kernels"] if index < len(live) else []
        kernels += _kernels(index, theirs, ours)
    said = [_libraries(index, graph["calls"]) for index, graph in enumerate(live)]
    got = [_libraries(index, graph.calls) for index, graph in enumerate(read)]
    return CaseResult(
        name,
        tuple(kernels),
        phases_equal=[g["phase"] for g in live] == [g.phase for g in made],
        calls_equal=said == got,
        calls_diff=_diff("\n".join(said), "\n".join(got)),
        error=error,
        live_error=recorded["error"],
    )


def _libraries(index: int, calls: Sequence[str]) -> str:
    return "\n".join([f"graph {index}", *filter(is_library_call, calls)])


def _kernels(index: int, live: list[dict[str, str]], made: Parts | None) -> list[KernelResult]:
    ours = made.kernels if made else ()
    results = []
    for position in range(max(len(live), len(ours))):
        theirs = live[position] if position < len(live) else None
        kernel = ours[position] if position < len(ours) else None
        name = theirs["name"] if theirs else kernel.name
        old = normalised(theirs["source"]) if theirs else ""
        new = normalised(kernel.source) if kernel else ""
        if theirs is None or kernel is None:
            status = EXTRA if theirs is None else MISSING
        else:
            same = old == new and theirs["name"] == kernel.name
            status = IDENTICAL if same else DIFFERENT
        differing: tuple[str, ...] = ()
        if theirs and kernel:
            a, b = meta(theirs["source"]), meta(kernel.source)
            differing = tuple(sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k)))
        diff = "" if status == IDENTICAL else _diff(old, new)
        results.append(KernelResult(index, position, name, status, diff, differing))
    return results


def _diff(old: str, new: str) -> str:
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), "recorded", "generated", lineterm="", n=1
    )
    return "\n".join(lines)


def share(results: Sequence[CaseResult]) -> float:
    """Returns the share of identical kernels among all of both sides; 0.0 for no kernels."""
    total = sum(len(result.kernels) for result in results)
    return sum(result.identical for result in results) / total if total else 0.0


def summary(results: Sequence[CaseResult]) -> str:
    """Returns the shares, then a table of the cases: those that differ first."""
    kernels = [kernel for result in results for kernel in result.kernels]
    exact = sum(result.exact for result in results)
    count = Counter(kernel.status for kernel in kernels)
    lines = [
        f"kernels identical: {count[IDENTICAL]} of {len(kernels)} ({share(results):.2%})"
        f"; different {count[DIFFERENT]}, missing {count[MISSING]}, extra {count[EXTRA]}",
        f"functions with nothing different: {exact} of {len(results)}"
        f" ({exact / max(1, len(results)):.2%})",
        f"functions whose library calls are equal: {sum(r.calls_equal for r in results)}"
        f" of {len(results)}",
        f"kernels whose inductor_meta differs: {sum(bool(k.meta) for k in kernels)}"
        f" {dict(Counter(key for kernel in kernels for key in kernel.meta).most_common(8))}",
        "",
        f"{'function':36}{'identical':>12}{'share':>8}  {'graphs':8}{'calls':8}",
    ]
    for result in sorted(results, key=lambda r: (r.exact, r.name)):
        lines.append(_row(result))
    return "\n".join(lines)


def _row(result: CaseResult) -> str:
    of = f"{result.identical}/{len(result.kernels)}"
    percent = f"{result.identical / len(result.kernels):.0%}" if result.kernels else "-"
    graphs, calls = (
        "equal" if equal else "differ" for equal in (result.phases_equal, result.calls_equal)
    )
    notes = [f"not generated: {result.error}"] if result.error else []
    notes += [f"live failed: {result.live_error}"] if result.live_error else []
    said = " ".join(notes).replace("\n", " ")[:120]
    return f"{result.name:36}{of:>12}{percent:>8}  {graphs:8}{calls:8}{said}".rstrip()


def differences(results: Sequence[CaseResult], lines: int = 14) -> str:
    """Returns the first difference of each case that is not exact, cut to so many lines."""
    told = []
    for result in results:
        if not result.exact:
            diff = result.first_difference.splitlines()[:lines]
            told.append("\n".join([f"== {result.name} {result.error}".rstrip(), *diff]))
    return "\n\n".join(told)
