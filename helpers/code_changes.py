"""What differs between two generated codes: of two targets, dtypes, shapes or layouts."""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.display import View, details_html, wrap
from helpers.generated import GeneratedCode, Kernel
from helpers.generated_views import unstyled

# What Inductor notes beside a kernel and differs without a difference in what it does.
_NOISE = re.compile(r"'(?:backend_hash|kernel_name|hash)': '?[\w-]*'?,? ?|# kernel path:.*")
_STYLE = (
    "<style>.tcs .tcs-diff span{display:block;white-space:pre-wrap;overflow-wrap:anywhere}"
    ".tcs .tcs-diff .tcs-old{color:var(--tcs-bad)}.tcs .tcs-diff .tcs-new{color:var(--tcs-good)}"
    "</style>"
)
_PARTS = (
    ("device properties", r"DeviceProperties\([^)]*\)"),
    ("dtypes or arguments in the signature", r"'signature': \{[^}]*\}"),
    ("size hints", r"size_hints=\{[^}]*\}"),
    ("alignment of arguments", r"'configs': \[.*?\]\}\]"),
    ("the decorator's kind", r"@triton_heuristics\.\w+"),
)


@dataclass(frozen=True, repr=False)
class DifferenceView(View):
    """What differs, sentence by sentence; same: no kernel's text and no library call differs."""

    sentences: tuple[str, ...] = ()
    same: bool = False


def difference_view(old: GeneratedCode, new: GeneratedCode) -> DifferenceView:
    """Returns what differs between two codes: sentences first, then lines marked + and -.

    Kernels are matched by name, then by phase, kind and order. Hashes and paths are left out.
    """
    names = _labels(old, new)
    pairs = match_kernels(old.kernels, new.kernels)
    compared = [(one, two, *_compare(one, two)) for one, two in pairs if one and two]
    sentences = [_first_sentence(compared, pairs, names)]
    sentences += [f"Only {names[0]} has {one.name}." for one, two in pairs if two is None]
    sentences += [f"Only {names[1]} has {two.name}." for one, two in pairs if one is None]
    if old.library_calls != new.library_calls:
        sentences.append(
            f"Library calls of {names[0]}: {_calls(old)}; of {names[1]}: {_calls(new)}."
        )
    parts, texts = [], []
    for one, _, body, header in compared:
        lines = body or header
        if lines:
            what = "kernel text" if body else "header only"
            parts.append(details_html(f"{one.name}: {what}", _lines_html(lines, names), bool(body)))
            texts += [f"{one.name} ({what}):", *lines]
    same = old.library_calls == new.library_calls and not any(c[2] for c in compared)
    top = "".join(f'<p style="margin:2px 0">{html.escape(line)}</p>' for line in sentences)
    key = (
        f"Lines marked - are only in {names[0]}, lines marked + only in {names[1]}; a register "
        "that only has another number counts as the same."
    )
    key_html = f'<p style="margin:6px 0 2px">{html.escape(key)}</p>' if parts else ""
    return DifferenceView(
        wrap(_STYLE, top, key_html, *map(unstyled, parts)),
        "\n".join([*sentences, *([key] if texts else []), *texts]),
        tuple(sentences),
        same and all(one and two for one, two in pairs),
    )


def _labels(old: GeneratedCode, new: GeneratedCode) -> tuple[str, str]:
    """Returns what to call the two: their targets, or "the first" and "the second"."""
    if old.target != new.target:
        return old.target, new.target
    return "the first", "the second"


def _calls(code: GeneratedCode) -> str:
    return ", ".join(code.library_calls) or "none"


def match_kernels(
    old: Sequence[Kernel], new: Sequence[Kernel]
) -> list[tuple[Kernel | None, Kernel | None]]:
    """Returns pairs, of the same phase: same name first, then name without number, then kind."""
    first, second = list(old), list(new)
    pairs: list[tuple[Kernel | None, Kernel | None]] = []
    for same in (lambda k: k.name, lambda k: k.name.rstrip("0123456789"), lambda k: k.kind):
        for one in tuple(first):
            key = (one.phase, same(one))
            mate = next((two for two in second if (two.phase, same(two)) == key), None)
            if mate is not None:
                first.remove(one)
                second.remove(mate)
                pairs.append((one, mate))
    for one, two in zip(tuple(first), tuple(second), strict=False):  # in order, whatever the kind
        if one.phase == two.phase:
            first.remove(one)
            second.remove(two)
            pairs.append((one, two))
    return [*pairs, *((one, None) for one in first), *((None, two) for two in second)]


def _compare(old: Kernel, new: Kernel) -> tuple[list[str], list[str]]:
    """Returns the differing lines of the bodies and of the headers; names made equal."""
    bodies, headers = [], []
    for kernel in (old, new):
        source = kernel.source.replace(kernel.name, "KERNEL")
        body = kernel.body.replace(kernel.name, "KERNEL")
        bodies.append(body.splitlines())
        header = _NOISE.sub("", source.replace(body, ""))
        # Inductor writes these as one long line each: one entry a line can be compared.
        headers.append(re.sub(r"(, )(?='|\w+=)", ",\n    ", header).splitlines())
    return _diff(*bodies, context=2), _diff(*headers, context=0)


def _diff(old: Sequence[str], new: Sequence[str], context: int) -> list[str]:
    """Returns what differs, marked, with `context` lines around; "…" where lines are left out.

    A register with another number only is no difference: one line more renumbers all later ones.
    """
    keys = [[re.sub(r"\b_?tmp\d+", "tmp", line) for line in lines] for lines in (old, new)]
    found: list[str] = []
    matcher = difflib.SequenceMatcher(a=keys[0], b=keys[1], autojunk=False)
    for group in matcher.get_grouped_opcodes(context):
        found.append("…")
        for tag, start, end, start_new, end_new in group:
            if tag == "equal":
                found += [f"  {line}" for line in old[start:end]]
                continue
            found += [f"- {line}" for line in old[start:end]]
            found += [f"+ {line}" for line in new[start_new:end_new]]
    return found


def _first_sentence(
    compared: Sequence[tuple[Kernel, Kernel, list[str], list[str]]],
    pairs: Sequence[tuple[Kernel | None, Kernel | None]],
    names: tuple[str, str],
) -> str:
    if not pairs:
        return "Neither has a kernel."
    if not compared:
        return "No kernel of one can be matched with one of the other."
    changed = [one.name for one, _, body, _ in compared if body]
    headers = [(one, two) for one, two, body, header in compared if header and not body]
    total = len(compared)
    if changed:
        of = f"in {len(changed)} of the {total} kernels" if total > 1 else "of the one kernel"
        text = f"The text {of} that both have differs."
    elif headers:
        parts = list(dict.fromkeys(part for one, two in headers for part in _parts(one, two)))
        what = ", ".join(parts) or "notes"
        of = f"all {total} kernels" if total > 1 else "the kernel"
        text = f"The text of {of} is the same; only the header differs ({what})."
    else:
        of = f"All {total} kernels are" if total > 1 else "The kernel is"
        text = f"{of} the same, text and header."
    kinds = [
        f"{one.name} is a {one.kind.replace('_', ' ')} for {names[0]}, "
        f"a {two.kind.replace('_', ' ')} for {names[1]}."
        for one, two, *_ in compared
        if one.kind != two.kind
    ]
    return " ".join([text, *kinds])


def _parts(old: Kernel, new: Kernel) -> list[str]:
    """Returns which parts of two headers differ, in words."""
    return [
        words
        for words, pattern in _PARTS
        if re.findall(pattern, old.source) != re.findall(pattern, new.source)
    ]


def _lines_html(lines: Sequence[str], names: tuple[str, str]) -> str:
    said = {"-": ("tcs-old", f"only in {names[0]}: "), "+": ("tcs-new", f"only in {names[1]}: ")}
    rows = []
    for line in lines:
        kind, words = said.get(line[:1], ("", ""))
        hidden = (
            f'<span style="position:absolute;clip-path:inset(50%);width:1px;height:1px;'
            f'overflow:hidden">{html.escape(words)}</span>' if words else ""
        )  # fmt: skip
        rows.append(f'<span class="{kind}">{hidden}{html.escape(line)}</span>')
    return (
        '<pre class="tcs-diff" role="group" tabindex="0" aria-label="differing lines">'
        f"{''.join(rows)}</pre>"
    )
