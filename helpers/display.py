"""How results look: tables, code, notices, progress, expected errors; in HTML and in plain text.

Every piece of HTML carries its own small style sheet, so that it reads the same in JupyterLab,
in an exported page and inside a widget, in light and in dark themes.
"""

from __future__ import annotations

import base64
import contextlib
import html
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from helpers.words import error_line

# Colours: at least 4.5 to 1 against the panel they stand on and against the page
# (white; #111111 and #212121 in JupyterLab's dark theme). tests/unit/test_display.py computes it.
LIGHT = {
    "ink": "#1a1a1a", "soft": "#50565e", "line": "#c4c9d0", "panel": "#f6f7f9", "page": "#ffffff",
    "keyword": "#7a1fa2", "string": "#a31515", "comment": "#57606a", "number": "#0b6b3a",
    "name": "#1747b5", "good": "#0b6b3a", "warn": "#8a4b00", "bad": "#a31515", "note": "#1747b5",
}  # fmt: skip
DARK = {
    "ink": "#ececec", "soft": "#b3bac4", "line": "#5a6069", "panel": "#1e1e1e", "page": "#111111",
    "keyword": "#d7a6ff", "string": "#f2a389", "comment": "#a3aab5", "number": "#8fd6a8",
    "name": "#8ab8ff", "good": "#8fd6a8", "warn": "#f0c070", "bad": "#ffa198", "note": "#8ab8ff",
}  # fmt: skip


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--tcs-{name}:{value}" for name, value in colours.items())


# .tcs.tcs outweighs JupyterLab's own rules for tables and code in outputs.
_RULES = """
.tcs{color:var(--tcs-ink);font-family:var(--jp-content-font-family,system-ui,sans-serif);
font-size:14px;line-height:1.5;margin:6px 0}
.tcs .tcs-scroll{overflow-x:auto;max-width:100%}
.tcs.tcs table{border-collapse:collapse;margin:4px 0;font-size:13px;color:var(--tcs-ink)}
.tcs.tcs caption{text-align:left;font-weight:600;padding:2px 0;
color:var(--tcs-ink);caption-side:top}
.tcs.tcs th,.tcs.tcs td{text-align:left;padding:3px 14px 3px 0;vertical-align:top;
border-bottom:1px solid var(--tcs-line);background:transparent;max-width:60ch;white-space:normal}
.tcs.tcs th{font-weight:600;color:var(--tcs-soft);white-space:nowrap}
.tcs.tcs pre,.tcs.tcs code{font-family:var(--jp-code-font-family,ui-monospace,monospace);
color:var(--tcs-ink);background:transparent;padding:0}
.tcs.tcs pre{background:var(--tcs-panel);border:1px solid var(--tcs-line);border-radius:4px;
padding:8px 10px;margin:4px 0;font-size:13px;line-height:1.45;overflow-x:auto;white-space:pre}
.tcs .k,.tcs .kn,.tcs .kc,.tcs .kd,.tcs .kt,.tcs .ow{color:var(--tcs-keyword)}
.tcs .s,.tcs .s1,.tcs .s2,.tcs .sd,.tcs .sa,.tcs .si,.tcs .se{color:var(--tcs-string)}
.tcs .c,.tcs .c1,.tcs .cm,.tcs .ch{color:var(--tcs-comment);font-style:italic}
.tcs .m,.tcs .mi,.tcs .mf,.tcs .mh{color:var(--tcs-number)}
.tcs .nf,.tcs .nc,.tcs .nb,.tcs .nd,.tcs .bp{color:var(--tcs-name)}
.tcs.tcs tbody tr{background:transparent}
.tcs .tcs-art[hidden]{display:block!important;max-width:100%}
.tcs .tcs-instead{display:none}
.tcs-heading{font-weight:600;font-size:15px;margin:10px 0 2px}
.tcs summary{cursor:pointer;color:var(--tcs-name)}
.tcs-notice{border-left:4px solid;padding:4px 12px;margin:6px 0;white-space:pre-line}
.tcs-note{border-color:var(--tcs-note)}.tcs-ok{border-color:var(--tcs-good)}
.tcs-warning{border-color:var(--tcs-warn)}.tcs-error{border-color:var(--tcs-bad)}
.tcs-note>b:first-child{color:var(--tcs-note)}.tcs-ok>b:first-child{color:var(--tcs-good)}
.tcs-warning>b:first-child{color:var(--tcs-warn)}.tcs-error>b:first-child{color:var(--tcs-bad)}
.tcs-bar{display:inline-block;width:160px;height:9px;border:1px solid var(--tcs-soft);
border-radius:5px;overflow:hidden;vertical-align:baseline;margin:0 8px}
.tcs-bar>i{display:block;height:100%;background:var(--tcs-note)}
"""
STYLE = (
    f"<style>.tcs{{{_variables(LIGHT)}}}"
    f'[data-jp-theme-light="false"] .tcs,.vscode-dark .tcs{{{_variables(DARK)}}}'
    + _RULES.replace("\n", "")
    + "</style>"
)
NOTICES = {"note": "Note", "ok": "OK", "warning": "Look out", "error": "Error"}


@dataclass(frozen=True)
class View:
    """Something to look at: `html` for a notebook, `text` for everywhere else."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.text.splitlines()[0] if self.text else 'empty'}>"


def wrap(*parts: str) -> str:
    """Returns the parts inside one styled block that stands alone in any output."""
    return f'{STYLE}<div class="tcs">{"".join(parts)}</div>'


def art_html(svg: str, label: str, alt: str) -> str:
    """Returns a picture for use inside `wrap`, twice: inline, and as an image that replaces it.

    JupyterLab strips SVG and style sheets, but neither words nor images, from a notebook that it
    does not trust. There the inline labels stay hidden, and the image, on a light ground, shows.
    """
    ground = f"<style>:root{{{_variables(LIGHT)};background:#fff}}</style>"
    opening, rest = svg.split(">", 1)
    image = base64.b64encode(f"{opening}>{ground}{rest}".encode()).decode()
    # The sanitizer drops `hidden` unless it has a value.
    return (
        f'<div class="tcs-art tcs-scroll" hidden="hidden" role="group" tabindex="0" '
        f'aria-label="{html.escape(label, quote=True)}">{svg}</div>'
        f'<div class="tcs-instead"><img src="data:image/svg+xml;base64,{image}" '
        f'alt="{html.escape(alt, quote=True)}"></div>'
    )


def table_html(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """Returns a table that scrolls sideways when it is wide. Cells: anything; text is escaped."""
    head = "".join(f'<th scope="col">{html.escape(str(name))}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    label = html.escape(caption or ", ".join(map(str, columns)), quote=True)
    # A box that scrolls must be reachable by keyboard, and then needs a name.
    return wrap(
        f'<div class="tcs-scroll" role="group" tabindex="0" aria-label="{label}"><table>{title}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def table_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Returns the same table as aligned plain text, one line per row."""
    lines = [[str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> View:
    """Returns the table in both forms, ready to be the last value of a cell."""
    text = table_text(columns, rows)
    return View(table_html(columns, rows, caption), f"{caption}\n{text}" if caption else text)


def code_html(source: str, language: str = "python") -> str:
    """Returns highlighted source text; an unknown `language` is shown plain, never refused."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text", stripnl=False)
    marked = highlight(source.rstrip("\n"), lexer, HtmlFormatter(nowrap=True)).rstrip("\n")
    label = html.escape(f"{language} code", quote=True)
    return wrap(f'<pre role="group" tabindex="0" aria-label="{label}">{marked}</pre>')


def notice_html(text: str, kind: str = "note") -> str:
    """Returns a notice with its kind in words. `kind`: a key of NOTICES, else ValueError."""
    if kind not in NOTICES:
        raise ValueError(f"unknown kind of notice {kind!r}; one of {', '.join(NOTICES)}")
    return wrap(
        f'<div class="tcs-notice tcs-{kind}"><b>{NOTICES[kind]}:</b> {html.escape(text)}</div>'
    )


def heading_html(text: str) -> str:
    """Returns a heading inside an output; no <h> tag, which would join the page's outline."""
    return wrap(f'<div class="tcs-heading">{html.escape(text)}</div>')


def sentence_html(text: str) -> str:
    """Returns one plain sentence in the style of the other parts."""
    return wrap(f"<div>{html.escape(text)}</div>")


def details_html(title: str, inner: str, is_open: bool = False) -> str:
    """Returns `inner` (HTML) behind a title that opens and closes it, without JavaScript."""
    state = " open" if is_open else ""
    return wrap(f"<details{state}><summary>{html.escape(title)}</summary>{inner}</details>")


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@dataclass
class _ProgressLine:
    """Draws one line again and again: in a notebook's output, or on `stream` in a terminal."""

    label: str
    expected_s: float | None
    stream: TextIO | None = None
    started: float = field(default_factory=time.perf_counter)
    handle: Any = None

    def view(self, ended: str = "") -> View:
        elapsed = time.perf_counter() - self.started
        if ended:
            text = f"{self.label}: {ended} {elapsed:.1f} s"
            return View(wrap(html.escape(text)), text)
        text, bar = f"{self.label}: {elapsed:.0f} s", ""
        if self.expected_s:
            # The last twentieth stays empty: only the end itself may look finished.
            share = min(0.95, elapsed / self.expected_s)
            text += f" of about {self.expected_s:.0f} s"
            bar = (
                f'<span class="tcs-bar" aria-hidden="true"><i style="width:{share:.0%}"></i></span>'
            )
        return View(wrap(f'<span role="status">{html.escape(text)}</span>{bar}'), text)

    def draw(self, ended: str = "") -> None:
        view = self.view(ended)
        if self.stream is not None:
            if ended:
                print(f"\r\x1b[K{view}" if self.stream.isatty() else view, file=self.stream)
            elif self.stream.isatty():
                print(f"\r\x1b[K{view}", end="", file=self.stream, flush=True)
        elif self.handle is None:
            from IPython.display import display

            self.handle = display(view, display_id=True)
        else:
            self.handle.update(view)


@contextlib.contextmanager
def progress(label: str, expected_s: float | None = None) -> Iterator[None]:
    """Shows one line with elapsed seconds, and a bar if `expected_s` (seconds) is known.

    Afterwards the line says "done in", or "stopped after" when an error passes through.
    """
    line = _ProgressLine(label, expected_s, None if _in_notebook() else sys.stderr)
    line.draw()
    over = threading.Event()

    def tick() -> None:
        while not over.wait(0.5):
            line.draw()

    thread = threading.Thread(target=tick, name="progress", daemon=True)
    thread.start()
    ended = "stopped after"
    try:
        yield
        ended = "done in"
    finally:
        over.set()
        thread.join()
        line.draw(ended)


@contextlib.contextmanager
def expect_error(name: str) -> Iterator[None]:
    """Prints type and first line of an expected error; fails if none came, or another one.

    `name`: the error's class name or that of one of its base classes, such as "ValueError".
    """
    try:
        yield
    except Exception as error:
        if name not in (kind.__name__ for kind in type(error).__mro__):
            raise
        print(error_line(error))
    else:
        raise AssertionError(f"expected the error {name}, but this ran without one")
