"""Where a figure or a code listing comes from, said in one way everywhere."""

from __future__ import annotations

import datetime
import html
from dataclasses import dataclass

KINDS = {
    "live": "made when this cell ran",
    "cross-target": "generated now, for a GPU that is not here; no times",
    "recorded": "made earlier, on the machine named here",
    "predicted": "computed from counted bytes and operations, not measured",
    "published": "somebody else's figure",
}


@dataclass(frozen=True)
class Origin:
    """States which of five kinds of source a result has, and on what it was made.

    kind: a key of KINDS; device, torch (version), date (ISO, day): as known, else empty;
    detail: whatever else belongs to it (driver, Triton, source). Unknown kinds raise ValueError.
    """

    kind: str
    device: str = ""
    torch: str = ""
    date: str = ""
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"unknown origin {self.kind!r}; one of {', '.join(KINDS)}")

    @classmethod
    def live(cls, device: str, detail: str = "") -> Origin:
        """Returns the origin of something made now on `device`, stamped with torch and day."""
        import torch

        today = datetime.date.today().isoformat()
        return cls("live", device, torch.__version__, today, detail)

    def text(self) -> str:
        """Returns one line: kind, what it means, device, torch, date."""
        torch = f"torch {self.torch}" if self.torch else ""
        facts = [fact for fact in (self.device, torch, self.date, self.detail) if fact]
        return f"{self.kind}: {KINDS[self.kind]}" + (f" ({', '.join(facts)})" if facts else "")

    def html(self) -> str:
        """Returns the same line as a badge; the kind stands in words, not only in colour."""
        kind, rest = self.text().split(":", 1)
        return (
            '<div class="tcs-origin" style="font-size:0.85em;margin:4px 0">'
            '<span style="border:1px solid currentColor;border-radius:3px;padding:0 5px;'
            f'font-weight:600">{html.escape(kind)}</span> {html.escape(rest.strip())}</div>'
        )

    def __str__(self) -> str:
        return self.text()
