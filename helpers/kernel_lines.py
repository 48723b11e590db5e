"""One kernel line by line: its text, and beside each line what it does."""

from __future__ import annotations

import html
import re
from collections import Counter

from helpers.display import View, wrap
from helpers.generated import Kernel
from helpers.generated_views import lean
from helpers.kernel_notes import ROLES, Line, explain_kernel
from helpers.words import counted

# One edge per role, from the palette of the pictures; the role also stands in words.
_EDGES = {
    "start": "#6b7280", "place": "#0072b2", "mask": "#857a00", "loop": "#5a4fb0",
    "load": "#00805c", "calculate": "#b06f00", "reduce": "#a8507f", "store": "#b34700",
}  # fmt: skip
_LONG = 44  # characters that fit beside a note on a page 800 pixels wide; longer lines may wrap
# By place in the box, not by a class of each part: a lesson holds hundreds of such lines.
_STYLE = (
    "<style>.tcs .tcs-lines{border:1px solid var(--tcs-line);border-radius:4px;"
    "background:var(--tcs-panel)}"
    ".tcs .tcs-lines>div{display:flex;flex-wrap:wrap;gap:0 18px;padding:2px 10px;"
    "border-left:5px solid var(--tcs-line)}"
    ".tcs .tcs-lines>div:nth-child(even){background:var(--tcs-page)}"
    # Twice the class: JupyterLab gives code between words a ground of its own.
    ".tcs.tcs .tcs-lines.tcs-lines>div>code{flex:3 1 430px;min-width:0;white-space:pre-wrap;"
    "overflow-wrap:anywhere;font-size:13px;line-height:1.45;background:transparent;padding:0}"
    # A long line that wraps goes on further to the right than it begins: --i is where.
    ".tcs .tcs-lines i{display:block;font-style:normal;padding-left:calc(var(--i)*1ch);"
    "text-indent:calc(var(--i)*-1ch)}"
    ".tcs .tcs-lines>div>span{flex:2 1 280px;min-width:0;font-size:13px;line-height:1.45}"
    ".tcs .tcs-lines b{font-weight:600;color:var(--tcs-soft)}"
    + "".join(
        f".tcs .tcs-lines>.tcs-{role}{{border-left-color:{edge}}}" for role, edge in _EDGES.items()
    )
    + "</style>"
)


def kernel_view(kernel: Kernel) -> View:
    """Returns a kernel with a note beside (on narrow screens below) each line, and its summary.

    A line that no rule knows has no note: nothing is guessed.
    """
    lines = explain_kernel(kernel.body)
    facts = [summary(kernel, lines)]
    if kernel.config:
        several = len(kernel.configs) > 1
        which = f"One of {len(kernel.configs)} candidates" if several else "Configuration"
        facts.append(f"{which}: {kernel.config}.")
    rows = "".join(map(_row, lines))
    top = "".join(f'<p style="margin:2px 0">{html.escape(fact)}</p>' for fact in facts)
    box = f'<div class="tcs-lines" role="group" aria-label="{html.escape(kernel.name)}">'
    return View(wrap(_STYLE, top, box, rows, "</div>"), "\n".join([*facts, _text(lines)]))


def summary(kernel: Kernel, lines: tuple[Line, ...] | None = None) -> str:
    """Returns one sentence: name, kind, and how many loads, stores, reductions and loops it has."""
    lines = explain_kernel(kernel.body) if lines is None else lines
    roles = Counter(line.role for line in lines)
    loops = sum(line.note.startswith("loop") for line in lines)
    parts = [counted(roles["load"], "load"), counted(roles["store"], "store")]
    parts += [counted(roles["reduce"], "reduction step")] if roles["reduce"] else []
    parts += [counted(loops, "loop")] if loops else []
    kind = f" ({kernel.kind.replace('_', ' ')}, {kernel.phase})" if kernel.kind else ""
    return f"{kernel.name}{kind}: {counted(len(lines), 'line')}, {', '.join(parts)}."


def _row(line: Line) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import CppLexer, PythonLexer

    lexer = CppLexer if line.text.rstrip().endswith((";", "{", "}")) else PythonLexer
    rows = []
    for text in line.text.split("\n"):
        marked = lean(
            highlight(text, lexer(stripnl=False), HtmlFormatter(nowrap=True)).rstrip("\n")
        )
        is_long = len(text) > _LONG
        hang = len(text) - len(text.lstrip()) + 4
        rows.append(f'<i style="--i:{hang}">{marked}</i>' if is_long else marked)
    code = re.sub(r"\n?(<i .*?</i>)\n?", r"\1", "\n".join(rows))
    role = f"<b>{line.role}</b> · " if line.role else ""
    kind = f' class="tcs-{line.role}"' if line.role else ""
    return f"<div{kind}><code>{code}</code><span>{role}{html.escape(line.note)}</span></div>"


def _text(lines: tuple[Line, ...]) -> str:
    """Returns each line with its note below it: columns would run past every screen."""
    return "\n".join(
        f"{line.text}\n        # {line.role}: {line.note}" if line.note else line.text
        for line in lines
    )


assert set(_EDGES) == set(ROLES)
