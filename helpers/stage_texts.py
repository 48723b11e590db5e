"""The texts of a Triton kernel's stages made readable: short file names, no debug sections."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

# A path in quotes, up to a Python file: only the end of it says something.
_PACKAGES = ("triton", "torch")
_PYTHON_FILE = re.compile(r'(?<=")[^"\n]*?([^"/\n]+\.py)(?=")')
_FOLDER_THEN_FILE = re.compile(r'"[^"\n]*"(,?\s+)"([^"/\n]+\.py)"')
_DI_FILE = re.compile(r'(DIFile\(filename: ")([^"\n]*)(", directory: ")([^"\n]*)(")')


def _short(path: str) -> str:
    """A path from its package on ("triton/language/standard.py"), or the file's name alone."""
    parts = path.replace("\\", "/").split("/")
    for package in _PACKAGES:
        if package in parts:
            return "/".join(parts[len(parts) - 1 - parts[::-1].index(package) :])
    return parts[-1]


def _shorten_paths(text: str) -> str:
    """Every path to a Python file in quotes made short; PTX and LLVM keep folder and name apart."""

    def di_file(found: re.Match[str]) -> str:
        short = _short(f"{found[4]}/{found[2]}")
        return f"{found[1]}{short}{found[3]}{found[5]}"

    def apart(found: re.Match[str]) -> str:
        folder = found[0].split('"')[1]
        return f'"{_short(f"{folder}/{found[2]}")}"'

    text = _DI_FILE.sub(di_file, text)
    text = _FOLDER_THEN_FILE.sub(apart, text)
    return _PYTHON_FILE.sub(lambda found: _short(found[0]), text)


def _without_debug_sections(ptx: str) -> str:
    """PTX without its `.section .debug_*` blocks: hundreds of byte values, paths among them."""
    kept: list[str] = []
    inside = False
    for line in ptx.splitlines():
        if line.lstrip().startswith(".section") and ".debug" in line:
            inside = True
        elif inside and line.strip() == "}":
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def _without_encodings(sass: str) -> str:
    """SASS without hexadecimal encodings, section headers' directives and empty repetitions."""
    kept: list[str] = []
    for line in sass.splitlines():
        line = re.sub(r"\s*/\*\s*0x[0-9a-f]+\s*\*/", "", line).rstrip()
        if re.match(r"\s*\.(headerflags|elftype|align|sectionflags|sectioninfo|size|type)\b", line):
            continue
        if line.startswith("//----") and " SYMBOLS " in line:
            break
        if line or (kept and kept[-1]):
            kept.append(line)
    return "\n".join(kept)


def readable(text: str, stage: str) -> str:
    """The text of a stage with short file names; the marks that lead to source lines stay.

    Those are `loc(...)` in TTIR and TTGIR, `!DILocation` in LLIR, `.loc` in PTX and `//##` in
    SASS. Left out: debug sections (PTX), encodings and section directives (SASS).
    """
    if stage == "ptx":
        text = _without_debug_sections(text)
    elif stage == "sass":
        text = _without_encodings(text)
    return _shorten_paths(text).strip() + "\n"


def _nvdisasm() -> Path | None:
    given = os.environ.get("TRITON_NVDISASM_PATH")
    if given:
        return Path(given)
    import triton.backends.nvidia as nvidia

    for place in nvidia.__path__:
        tool = Path(place) / "bin" / "nvdisasm"
        if tool.is_file():
            return tool
    return None


def disassemble(cubin: Path) -> tuple[str, str]:
    """(SASS with line marks, "") of a cubin, or ("", the reason why not in one sentence)."""
    tool = _nvdisasm()
    if tool is None:
        return "", "There is no nvdisasm in the installed Triton wheel, so no SASS."
    command = [str(tool), "--print-line-info-inline", "--print-code", str(cubin)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"nvdisasm could not be run ({type(error).__name__}), so there is no SASS."
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        return "", f"nvdisasm could not read the binary: {said[-1] if said else 'no message'}."
    return done.stdout, ""
