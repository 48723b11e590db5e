"""Small words of sentences: counts and names."""

from __future__ import annotations

import os


def counted(number: int, noun: str) -> str:
    """Returns "1 graph", "2 graphs"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def file_name(filename: str) -> str:
    """Returns what a person calls a file: its name, or "cell" for code typed in a notebook."""
    return "cell" if "ipykernel" in filename else os.path.basename(filename)


def error_line(error: BaseException) -> str:
    """Returns "ValueError: what it says first"; the type alone where an error says nothing."""
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
