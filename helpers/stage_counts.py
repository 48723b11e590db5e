"""One stage of a kernel, from Triton's own forms down to machine code, with what is in it."""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import dataclass

from helpers.display import View, code_html, details_html, table_html, table_text, wrap
from helpers.generated import STAGES, Kernel
from helpers.generated_views import unstyled
from helpers.words import counted

_WORDS = {
    "triton": "the source that Inductor wrote, in Python",
    "ttir": "Triton's own form: whole blocks, no threads yet",
    "ttgir": "Triton's form for a GPU: which thread holds which part of a block",
    "llir": "LLVM's form: one thread, typed registers",
    "ptx": "NVIDIA's portable assembly: one thread, as many registers as wanted",
    "sass": "the machine code of one kind of card: real registers",
}
# What to count: (words, pattern). Names of instructions as in NVIDIA's PTX ISA and in the table of
# instructions in its CUDA Binary Utilities manual; names of operations as in Triton's dialects.
_DIALECT = (
    ("loads", r"\btt\.load\b"), ("stores", r"\btt\.store\b"),
    ("reductions", r"\"?tt\.reduce\"?\("), ("matrix products", r"\btt(?:ng)?\.\w*dot\w*\b"),
    ("changes of layout between threads", r"\bttg?g?\.convert_layout\b"),
    ("calculations", r"\b(?:arith|math)\.(?!constant)\w+|\btt\.extern_elementwise\b"),
)  # fmt: skip
_PATTERNS: dict[str, tuple[tuple[str, str], ...]] = {
    "triton": (("loads", r"\btl\.load\("), ("stores", r"\btl\.store\("),
               ("reductions", r"\btl\.sum\(|triton_helpers\.(?:max2|min2|welford)\(")),
    "ttir": _DIALECT,
    "ttgir": _DIALECT,
    "llir": (("loads of PTX", r"ld\.global"), ("stores of PTX", r"st\.global"),
             ("calculations on floats", r"= f(?:add|sub|mul|div|neg)\b")),
    "ptx": (
        ("loads from global memory", r"\bld\.global\S*"),
        ("stores to global memory", r"\bst\.global\S*"),
        ("additions to global memory, atomic", r"\b(?:red|atom)\.(?:\w+\.)*global\S*"),
        ("loads from shared memory", r"\b(?:ld\.shared|ldmatrix)\S*"),
        ("stores to shared memory", r"\bst\.shared\S*"),
        ("multiply-adds (FMA)", r"\bfma\.rn\S*"),
        ("tensor-core instructions", r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)\S*"),
        ("exchanges between threads (shuffle)", r"\bshfl\.sync\S*"),
        ("waits of all threads (barrier)", r"\bbar(?:rier)?\.sync\S*"),
    ),
    "sass": (
        ("loads from global memory", r"\bLDG\S*"), ("stores to global memory", r"\bSTG\S*"),
        ("additions to global memory, atomic", r"\b(?:RED|ATOMG)\b\S*"),
        ("loads from shared memory", r"\bLDSM?\b\S*"), ("stores to shared memory", r"\bSTS\b\S*"),
        ("multiply-adds (FMA)", r"\b(?:F|H|D)FMA2?\b\S*"),
        ("tensor-core instructions", r"\b(?:HGMMA|HMMA|IMMA|UTCHMMA|DMMA)\b\S*"),
        ("special functions, such as 1/x and 2^x", r"\bMUFU\S*"),
        ("exchanges between threads (shuffle)", r"\bSHFL\S*"),
        ("waits of all threads (barrier)", r"\bBAR\.\S*"),
    ),
}  # fmt: skip


@dataclass(frozen=True, repr=False)
class StageView(View):
    """One stage of a kernel to look at; counts: how often each kind of instruction stands in it."""

    counts: tuple[tuple[str, int], ...] = ()


def stage_view(kernel: Kernel, stage: str = "ptx") -> StageView:
    """Returns counts of what matters in a stage, above its text, which is folded.

    Counts are of instructions in the text, not of how often they run. ValueError if the stage is
    unknown, or was not asked for when the code was generated.
    """
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}; one of {', '.join(STAGES)}")
    text = kernel.stages.get(stage) or (kernel.source if stage == "triton" else "")
    if not text:
        raise ValueError(
            f"{kernel.name} has no {stage} here, only {', '.join(kernel.stages) or 'triton'}. Ask "
            f"for it with generated_code(..., stages=('triton', {stage!r})); if it was asked for, "
            "the reason stands under .unavailable."
        )
    bare = strip_comments(text, stage)
    counts = tuple((words, len(re.findall(found, bare))) for words, found in _PATTERNS[stage])
    lines = counted(sum(bool(line.strip()) for line in text.splitlines()), "line")
    told = ", ".join(f"{words}: {number}" for words, number in counts if number)
    sentence = f"{kernel.name}, {stage} ({_WORDS[stage]}): {lines}; {told or 'none of these'}."
    if kernel.config and stage != "triton":
        sentence += f" Made for {kernel.config}."
    rows = [(words, number, widths(bare, words, stage)) for words, number in counts if number]
    columns = ("what", "times in the text", "how wide")
    shown = _narrow(text) if stage == "sass" else text
    folded = details_html(
        f"The whole {stage}", code_html(shown, "python" if stage == "triton" else "text")
    )
    return StageView(
        wrap(
            f'<p style="margin:4px 0">{html.escape(sentence)}</p>',
            *map(unstyled, (table_html(columns, rows), folded)),
        ),
        f"{sentence}\n{table_text(columns, rows)}",
        counts,
    )


def _narrow(sass: str) -> str:
    """Returns SASS with less empty space around its addresses: half of each line is nothing else.

    Twelve spaces can go after an address without a word of any length losing its column.
    """
    return re.sub(r"^ {8}(/\*[0-9a-f]+\*/) {12}", r"\1", sass, flags=re.MULTILINE)


def strip_comments(text: str, stage: str) -> str:
    """Returns the text without comments, which may name instructions that are not there."""
    mark = {"triton": "#", "llir": ";", "ptx": "//", "sass": "//"}.get(stage)
    if mark is None:
        return text
    return "\n".join(line.split(mark, 1)[0] for line in text.splitlines())


def widths(text: str, words: str, stage: str) -> str:
    """Returns how many bits each load or store moves per thread, as "128 bits: 3 times"."""
    if stage == "ptx" and "global memory" in words and "atomic" not in words:
        name = "ld" if words.startswith("loads") else "st"
        found = re.findall(rf"\b{name}\.global(?:\.\w+|::\w+)*?(?:\.v(\d))?\.[busf](\d+)\b", text)
        bits = [int(many or 1) * int(each) for many, each in found]
    elif stage == "sass" and "global memory" in words and "atomic" not in words:
        name = "LDG" if words.startswith("loads") else "STG"
        found = re.findall(rf"\b{name}((?:\.\w+)*)", text)
        # Without a number, LDG and STG move 32 bits.
        sizes = [re.search(r"\.[US]?(8|16|64|128|256)\b", one) for one in found]
        bits = [int(size[1]) if size else 32 for size in sizes]
    else:
        return ""
    times = sorted(Counter(bits).items(), reverse=True)
    return ", ".join(f"{size} bits: {counted(number, 'time')}" for size, number in times)
