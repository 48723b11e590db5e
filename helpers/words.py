"""Small words of sentences: counts and names."""

from __future__ import annotations

import os


def counted(number: int, noun: str) -> str:
    """Returns "1 graph", "2 graphs"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def file_name(filename: str) -> str:
    """Returns what a person calls a file: its name, or "cell" for code typed in a notebook."""
    return "cell" if "ipykernel" in filename else os.path.basename(filename)
