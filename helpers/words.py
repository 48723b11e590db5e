"""Small words of sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Returns "1 graph", "2 graphs"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
