"""What lines of Inductor's C++ do, in plain words; and what its kernels call their tensors."""

from __future__ import annotations

import re
from collections.abc import Callable

# (role, pattern at the start of a line, note or what makes it from the match)
Rule = tuple[str, str, "str | Callable[[re.Match[str]], str]"]


def tensor_words(name: str) -> str:
    """Returns what a kernel's parameter is, from its name: input, output, or both."""
    number = re.search(r"(\d+)$", name)
    which = f" {number[1]}" if number else ""
    if name.startswith("in_out"):
        return f"the tensor that is read and then written over (in_out{which})"
    if name.startswith("in_ptr"):
        return f"input{which}"
    return f"output{which}" if name.startswith("out") else f"the work space {name}"


def _cpp_loop(text: str) -> str:
    step = re.search(r"\+= ?\(?(?:static_cast<\w+>\()?(\d+)", text)
    far = f", {step[1]} at a time" if step and step[1] != "1" else ""
    return f"loop over positions{far}"


def _vector(match: re.Match[str]) -> str:
    many = re.search(r"static_cast<int64_t>\((\d+)L?\)\);$", match[3])
    number = f"{many[1]} neighbours" if many else "several neighbours"
    return f"read {number} of {tensor_words(match[2])} into {match[1]} at once (a vector)"


CPP_RULES: tuple[Rule, ...] = (
    ("start", r".*void kernel\(|.*extern \"C\"", "the C++ function that the wrapper calls"),
    ("loop", r"#pragma omp parallel", "start the threads of the CPU"),
    ("loop", r"#pragma omp for", "share the next loop among the threads"),
    ("loop", r"#pragma GCC ivdep|#pragma unroll", "a hint for the compiler about the next loop"),
    ("loop", r"for ?\(", lambda m: _cpp_loop(m.string)),
    ("load", r"auto (tmp\d+) = at::vec::\w+<[\w:]+(?:,\d+)?>::loadu\((\w+) \+(.*)", _vector),
    ("load", r"auto (tmp\d+) = (\w*ptr\d*)\[", lambda m: f"read {tensor_words(m[2])} into {m[1]}"),
    ("store", r"(tmp\d+)\.store\((\w+) \+",
     lambda m: f"write the vector {m[1]} to {tensor_words(m[2])}"),
    ("store", r"(\w*out_ptr\d*)\[.*\] = (\w+)", lambda m: f"write {m[2]} to {tensor_words(m[1])}"),
    ("start", r"#include", "Inductor's own header: vectors and mathematics"),
    ("place", r"int tid = omp_get_thread_num", "which thread am I?"),
    ("calculate", r"auto (tmp\d+) = at::vec::\w+<[^>]*>\((tmp\d+)\);",
     lambda m: f"{m[2]} in every place of a vector"),
    ("calculate", r"auto (tmp\d+) = static_cast<\w+>\(([\d.e+-]+)\);",
     lambda m: f"the constant {m[2]}"),
    ("mask", r"if ?\(C10_LIKELY", "the full vectors; LIKELY: nearly always"),
    ("mask", r"if ?\(C10_UNLIKELY", "what is left over at the end of a row"),
    ("mask", r"if ?\(", "which part: the vectors, or what is left over at the end"),
    ("calculate", r"auto (tmp\d+) = ", "in registers"),
)  # fmt: skip
