"""What each line of a generated kernel does, in plain words: Triton, and Inductor's C++."""

from __future__ import annotations

import re
from dataclasses import dataclass

from helpers.cpp_notes import CPP_RULES, Rule, tensor_words

# What a line is for; the order in which a Triton kernel usually has them.
ROLES = ("start", "place", "mask", "loop", "load", "calculate", "reduce", "store")
_NUMBER = re.compile(r"-?[\d.]+(?:e[+-]?\d+)?")
_SIGNS = {
    "+": "plus", "-": "minus", "*": "times", "/": "divided by", "<": "less than", ">": "more than",
    "<=": "at most", ">=": "at least", "==": "equal to", "!=": "not equal to", "&": "and",
    "|": "or", "%": "the remainder of a division by", "//": "divided without remainder by",
}  # fmt: skip
_DTYPES = {
    "float32": "float32", "bfloat16": "bfloat16", "float16": "float16", "float64": "float64",
    "int1": "true or false", "int8": "int8", "int32": "int32", "int64": "int64", "uint8": "uint8",
    "uint32": "uint32", "uint64": "uint64",
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One statement of a kernel: its text, its role (of ROLES, or "") and what it does in words."""

    text: str
    role: str
    note: str


def statements(body: str) -> list[str]:
    """Returns the lines of a kernel; a call that spans several lines is one.

    Empty lines are left out, a brace alone goes to the line before. Brackets within texts are not
    told apart; generated kernels have none there.
    """
    found, depth = [], 0
    for line in body.splitlines():
        if not line.strip():
            continue
        if depth or (found and line.strip() in ("{", "}")):
            found[-1] += "\n" + line
        else:
            found.append(line)
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        depth = 0 if line.rstrip().endswith(("{", "}")) else max(depth, 0)
    return found


def explain_kernel(body: str) -> tuple[Line, ...]:
    """Returns the statements of a kernel with role and note; no note where none would be sure."""
    rules = _TRITON if "tl." in body or "@triton" in body else CPP_RULES
    return tuple(_explain(text, rules) for text in statements(body))


def _explain(text: str, rules: tuple[Rule, ...]) -> Line:
    flat = " ".join(text.split())
    for role, pattern, note in rules:
        match = re.match(pattern, flat)
        if match:
            return Line(text, role, note if isinstance(note, str) else note(match))
    return Line(text, "", "")


def _arguments(match: re.Match[str]) -> str:
    names = [part.split(":")[0].strip() for part in match[2].split(",")]
    pointers = [name for name in names if "ptr" in name]
    sizes = [name for name in names if name.endswith("numel") or name.startswith("ks")]
    blocks = [name for name in names if name.endswith("BLOCK")]
    text = f"the kernel gets {len(pointers)} addresses in memory ({', '.join(pointers)})"
    if sizes:
        text += f", the {'sizes' if len(sizes) > 1 else 'size'} {', '.join(sizes)}"
    if blocks:
        text += (
            f", and {', '.join(blocks)}: how much one program handles, fixed when it is compiled"
        )
    return text


def _split(arguments: str) -> list[str]:
    """Returns the arguments of a call, split at its own commas only."""
    parts, depth = [""], 0
    for sign in arguments:
        depth += (sign in "([") - (sign in ")]")
        if depth < 0:
            break
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _load(match: re.Match[str]) -> str:
    name, pointer, rest = match[1], match[2], match[3]
    _, *others = _split(rest)
    mask = others[0] if others and "=" not in others[0] else "None"
    text = f"read {tensor_words(pointer)} into {name}"
    if mask == "None":
        text += "; no mask: nothing lies past the end"
    else:
        text += f"; where {mask.replace(' & ', ' and ')} is False, nothing is read"
    filler = next((one[6:] for one in others if one.startswith("other=")), "")
    text += f", and {filler} taken" if filler and mask != "None" else ""
    if "'evict_last'" in rest:
        text += "; hint: keep it in the cache, another use is expected"
    if "'evict_first'" in rest:
        text += "; hint: it may leave the cache first, it is not needed again"
    wider = re.search(r"\)\.to\(tl\.(\w+)\)$", rest)
    return text + (f"; then made {_DTYPES.get(wider[1], wider[1])} to calculate" if wider else "")


def _store(match: re.Match[str]) -> str:
    _, value, *mask = _split(match[2])
    where = "" if mask[:1] in ([], ["None"]) else ", only where the mask is True"
    return f"write {value} to {tensor_words(match[1])}{where}"


def _part(match: re.Match[str]) -> str:
    name, source, sign, size = match[1], match[2], match[3], match[4]
    if sign == "%":
        return f"{name}: where in its run of {size} the position lies (the remainder)"
    if sign == "//":
        return f"{name}: in which run of {size} the position lies"
    return f"{name}: the same positions as {source}, under the name that the loads use"


def _operation(match: re.Match[str]) -> str:
    return f"{match[2]} {_SIGNS[match[3]]} {match[4]}"


def _called(match: re.Match[str]) -> str:
    name, arguments = match[2].rsplit(".", 1)[-1], match[3]
    if name == "maximum" and "triton_helpers" in match[2]:
        return f"the larger one of {arguments} (NaN stays NaN)"
    if name == "minimum" and "triton_helpers" in match[2]:
        return f"the smaller one of {arguments} (NaN stays NaN)"
    return f"{name} of {arguments}"


def _reduced(match: re.Match[str]) -> str:
    name = match[2].rsplit(".", 1)[-1].rstrip("2")
    words = {"sum": "add up", "max": "take the largest", "min": "take the smallest"}.get(name)
    what = f"{words} along axis {match[4]} of the block" if words else f"reduce with {name}"
    return f"{what}: the threads of a program work this out together"


_NAME = r"(_?tmp\d+\w*)"
_TRITON: tuple[Rule, ...] = (
    ("start", r"@triton\.jit", "Triton compiles this function; Python never runs it"),
    ("start", r"def (\w+)\((.*)\):", _arguments),
    ("start", r"(\w)numel = ([\d_]+)$",
     lambda m: f"there are {int(m[2]):,} positions along {m[1]}"),
    ("start", r"r0?_?numel = ([\d_]+)$",
     lambda m: f"each result needs {int(m[1]):,} numbers along the reduced axis"),
    ("start", r"R\d?_?BLOCK\s*:\s*tl\.constexpr = ([\d_]+)$",
     lambda m: f"persistent: one program holds a whole row, in a block of {m[1]}; no loop"),
    ("start", r"(rnumel|roffset|rindex|rbase|RBLOCK)\b.*= \w+$", "another name for the same"),
    ("place", r"(\w)offset = tl\.program_id\((\d)\)(?:\.to\(tl\.int64\))? \* (\w+)$",
     lambda m: f"which program am I? My number along {m[1]} times {m[3]}: where my part begins"),
    ("start", r"(\w+)\s*:\s*tl\.constexpr = (\d+)$",
     lambda m: f"fixed when compiled: one program handles {m[2]}"),
    ("place", r"xindex = tl\.full\(\[1\], xoffset", "the one position that this program handles"),
    ("place", r"(\w)offset = .*tl\.program_id",
     lambda m: f"which program am I? Where my part along {m[1]} begins"),
    ("place", r"xindex = tl\.program_id\(0\)", "which program am I? Its number is its position"),
    ("place", r"(\w)index = \woffset \+ tl\.arange\(0, (\w+)\)",
     lambda m: f"my {m[2]} positions along {m[1]}, all at once"),
    ("place", r"r0?_?(?:index|base) = tl\.arange\(0, (\w+)\)",
     lambda m: f"positions 0 to {m[1]} - 1 along the reduced axis"),
    ("place", r"r0?_?index = r0?_?offset \+ ",
     "the positions along the reduced axis in this round"),
    ("place", r"r0?_?offset = 0$", "the reduced axis is begun at 0"),
    ("mask", r"(\w+)mask = tl\.full\(.*True", "always True: no position can lie past the end"),
    ("mask", r"(\w+?)_?mask = \w+index < (\w+)",
     "False for positions past the end, which nothing may read or write"),
    ("place", r"(\w+) = \((\w+index\w*)\s*(%)\s*(\w+)\)$", _part),
    ("place", r"(\w+) = (\w+index)\s*(//)\s*(\w+)$", _part),
    ("place", r"(\w+) = (\w+index)()()$", _part),
    ("place", r"(\w+\d) = \(?.*(?:xindex|yindex|r0_index|rindex)", "a part of the position"),
    ("loop", r"for (\w+) in (?:tl\.)?range\(0, (\w+), (\w+)\)",
     lambda m: f"loop: along the reduced axis, {m[3]} numbers at a time"),
    ("load", _NAME + r" = tl\.load\((\w*ptr\d*) \+ (.*)$", _load),
    ("store", r"tl\.store\((\w*ptr\d*) \+ (.*)\)$", _store),
    ("store", r"tl\.atomic_add\((\w*ptr\d*) \+ ",
     lambda m: f"add to {tensor_words(m[1])}, atomically: several programs may meet there"),
    ("loop", r"(_?tmp\w+) = tl\.(?:full|zeros)\(\[[XYR]\w*, R\w*\]",
     lambda m: f"{m[1]}: a running result for the loop, with its first value"),
    ("calculate", _NAME + r" = tl\.full\(\[[\d, ]*\], ([^,]+), tl\.(\w+)\)",
     lambda m: f"the constant {m[2]} ({_DTYPES.get(m[3], m[3])})"),
    ("calculate", _NAME + r" = (" + _NUMBER.pattern + ")$", lambda m: f"the constant {m[2]}"),
    ("calculate", _NAME + r" = tl\.broadcast_to\(",
     "stretch to the shape of the block; moves nothing"),
    ("calculate", _NAME + r" = tl\.where\((.+), (\w+), ([\w.\"()-]+)\)$",
     lambda m: f"{m[3]} where {m[2].replace(' & ', ' and ')} is True, else {m[4]}"),
    ("reduce", _NAME + r" = (tl\.sum|triton_helpers\.(?:max2|min2|prod|any))\((\w+), (\d)\)",
     _reduced),
    ("reduce", r"[\w, ]+ = triton_helpers\.welford_reduce",
     "take the new numbers into the running mean and spread (Welford's way, safe from rounding)"),
    ("reduce", r"[\w, ]+ = triton_helpers\.welford\(",
     "join the running means and spreads of all threads into one"),
    ("reduce", r".*(?:online_softmax_reduce|online_softmax_combine)",
     "largest number and sum of exponentials in one pass, as softmax needs them"),
    ("calculate", _NAME + r" = (\w+)\.to\(tl\.(\w+)\)$",
     lambda m: f"{m[2]} as {_DTYPES.get(m[3], m[3])}"),
    ("calculate", _NAME + r" = -(\w+)$", lambda m: f"minus {m[2]}"),
    ("calculate", _NAME + r" = \(?(\w+) ([-+*/<>=!&|%]+) (\w+)\)?$", _operation),
    ("calculate", _NAME + r" = ((?:tl|libdevice|tl_math|triton_helpers)\.\w+)\(([^()]*)\)$",
     _called),
    ("calculate", _NAME + r" = (_?tmp\d+)\[:, None\]$",
     lambda m: f"{m[2]} as a column: one value per row"),
    ("calculate", _NAME + r" = ([xyr]\w*)$", lambda m: f"the position {m[2]}, used as a number"),
    ("reduce", _NAME + r" = .*tl\.(sum|reduce|associative_scan)\(",
     "the threads of a program work this out together"),
    ("reduce", r"tmp\w+, = tl\.associative_scan", "a running result over all earlier positions"),
    ("calculate", _NAME + r" = tl\.rand\(", "random numbers, from seed and position"),
    ("calculate", _NAME + r" = ", "in registers"),
    ("start", r"@triton_heuristics", "Inductor's own note: which launch configurations to try"),
    ("start", r"return ", "what this helper function gives back"),
    ("loop", r"tl\.debug_barrier", "all threads of the program wait for each other"),
    ("start", r"tl\.device_assert", "stop with an error if an index lies outside the tensor"),
)  # fmt: skip


def only_copies(body: str) -> bool:
    """Whether a kernel reads one tensor and writes one, and calculates nothing: a copy."""
    roles = [line.role for line in explain_kernel(body)]
    return (
        roles.count("load") == roles.count("store") == 1
        and "calculate" not in roles
        and "reduce" not in roles
    )


def plain_op(op: str) -> str:
    """Returns an ATen operation as a person calls it: "batch_norm" for its inner variants."""
    name = re.sub(r"^(aten|prims)\.", "", op).lstrip("_")
    name = re.sub(r"_legit(_no_training|_functional)*|_no_stats", "", name)
    return re.sub(r"^native_", "", name)
