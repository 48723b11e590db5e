"""What Inductor generated, to look at: summary, kernels, library calls, and what is missing."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence

from helpers.display import (
    STYLE,
    details_html,
    heading_html,
    notice_html,
    table_html,
    table_text,
    wrap,
)
from helpers.display import code_html as source_html
from helpers.generated import PHASES, STAGES, GeneratedCode, Kernel
from helpers.views import describe, facts_html
from helpers.words import counted

_MOST_OPEN = 3  # with more kernels than this, each is folded, so that the table stays in sight
_ASKED_FOR = (*STAGES, "result")  # whoever misses these should see why at once
_STYLED = frozenset(re.findall(r"\.tcs \.(\w+)[,{]", STYLE))  # classes of words with a colour
_COLUMNS = ("kernel", "phase", "kind", "operations fused in it", "configurations")


Table = tuple[Sequence[str], Sequence[tuple[str, ...]]]  # columns, rows


def code_html(code: GeneratedCode, table: Table | None = None) -> str:
    """Returns the code as HTML: sentence, table of kernels, each kernel, calls, what is missing.

    table: shown instead of the table of kernels, by who knows more about them.
    """
    if table is None and code.kernels:
        table = (_COLUMNS, kernel_rows(code.kernels))
    parts = [facts_html([summary(code)])]
    parts += [notice_html(note) for note in code.notes]
    parts += [table_html(*table)] if table else []
    is_short = len(code.kernels) <= _MOST_OPEN
    parts += [kernel_html(kernel, is_short) for kernel in code.kernels]
    if code.library_calls:
        parts.append(f"<p>Library calls, in launch order: {_calls_html(code)}</p>")
    for index, graph in enumerate(code.graphs):
        title = f"Wrapper of graph {index} ({graph.phase}): the Python that launches all this"
        parts.append(details_html(title, source_html(launching_part(graph.wrapper), "text")))
    parts += [notice_html(text) for name, text in missing(code).items() if name in _ASKED_FOR]
    rest = [text for name, text in missing(code).items() if name not in _ASKED_FOR]
    if rest:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in rest)
        parts.append(details_html("What cannot be had here, and why", f"<ul>{items}</ul>"))
    return wrap(*map(unstyled, parts), code.origin.html())


def code_text(code: GeneratedCode, table: Table | None = None) -> str:
    """Returns the same as plain text."""
    if table is None and code.kernels:
        table = (_COLUMNS, kernel_rows(code.kernels))
    parts = [summary(code), *(f"Note: {note}" for note in code.notes)]
    parts += [table_text(*table)] if table else []
    parts += [f"\n{kernel.name}:\n{kernel.body}" for kernel in code.kernels]
    if code.library_calls:
        parts.append(f"\nLibrary calls, in launch order: {', '.join(code.library_calls)}")
    return "\n".join([*parts, *missing(code).values(), code.origin.text()])


def summary(code: GeneratedCode) -> str:
    """Returns one sentence: kernels by phase, library calls, graphs, target, and the result."""
    phases = Counter(kernel.phase for kernel in code.kernels)
    split = ", ".join(f"{phases[name]} {name}" for name in PHASES if phases[name])
    text = counted(len(code.kernels), "kernel")
    text += f" ({split})" if len(phases) > 1 else ""
    text += f" and {counted(len(code.library_calls), 'library call')}"
    text += f" in {counted(len(code.graphs), 'graph')}, for {code.target}"
    if "result" in code.unavailable:
        return text + "."
    return f"{text}; the real result: {describe(code.result)}."


def kernel_rows(kernels: Sequence[Kernel]) -> list[tuple[str, ...]]:
    """Returns one row per kernel for a table with name, phase, kind, operations, configurations."""
    return [
        (
            kernel.name,
            kernel.phase,
            kernel.kind.replace("_", " "),
            ", ".join(kernel.ops) or "not said by this torch",
            _configurations(kernel),
        )
        for kernel in kernels
    ]


def _configurations(kernel: Kernel) -> str:
    if not kernel.configs:
        return ""
    shown = f": {kernel.config}" if kernel.config else ""
    return f"{counted(len(kernel.configs), 'candidate')}{shown}"


def kernel_html(kernel: Kernel, is_open: bool = True) -> str:
    """Returns one kernel: its body, and what stands above it, folded; all folded if not open."""
    language = "cpp" if kernel.kind == "cpp" else "python"
    title, body = f"{kernel.name} ({kernel.phase})", source_html(kernel.body, language)
    parts = [heading_html(title), body] if is_open else []
    above = kernel.source.replace(kernel.body, "").strip()
    if above and kernel.body in kernel.source:
        words = f"What stands above {kernel.name} in the text that Triton gets"
        parts.append(details_html(words, source_html(above, "text")))
    made = [name for name in kernel.stages if name != "triton"]
    if made:
        names = ", ".join(made)
        parts.append(f"<p>Also made: {html.escape(names)}; <code>stage_view</code> shows them.</p>")
    return "".join(parts) if is_open else details_html(title, body + "".join(parts))


def launching_part(wrapper: str) -> str:
    """Returns a wrapper without the kernels' texts and without its benchmark: what it launches."""
    _, mark, rest = wrapper.partition("del async_compile")
    part = re.split(r"^(?:def get_args|def benchmark_|if __name__)", rest, flags=re.MULTILINE)[0]
    return part.strip() if mark else wrapper


def unstyled(part: str) -> str:
    """Returns a part without its own style sheet, for a place inside one that has it.

    A view of many parts would else hold the same sheet dozens of times, in the notebook's file.
    """
    return lean(part.replace(STYLE, ""))


def lean(marked: str) -> str:
    """Returns highlighted code without the marks that no rule of the style sheet colours.

    Most names, dots and brackets have one: a third of a kernel's HTML.
    """

    def keep(match: re.Match[str]) -> str:
        return match[0] if match[1] in _STYLED else match[2]

    return re.sub(r'<span class="(\w{1,2})">([^<]*)</span>', keep, marked)


def missing(code: GeneratedCode) -> dict[str, str]:
    """Returns one sentence for each thing that could not be had, with its reason, by its name."""
    return {name: f"No {name}: {reason}" for name, reason in code.unavailable.items()}


def _calls_html(code: GeneratedCode) -> str:
    return ", ".join(f"<code>{html.escape(name)}</code>" for name in code.library_calls)
