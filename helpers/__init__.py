"""The engine of the suite: every public name imports as `from helpers import NAME`.

Names are looked up on first use, so that importing this package costs nothing over the
standard library: it also serves the set-up, which runs before anything is installed.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULE_OF = {
    "Capture": "dynamo",
    "MeasurementRefused": "benchmarking",
    "Origin": "origin",
    "Timing": "benchmarking",
    "begin_lesson": "lessons",
    "capture_graphs": "dynamo",
    "choose_device": "environment",
    "describe_environment": "environment",
    "expect_error": "display",
    "graph_panel": "widgets",
    "graph_view": "views",
    "lesson_table": "lessons",
    "measure": "benchmarking",
    "pipeline_picture": "pictures",
    "preflight": "environment",
    "progress": "display",
    "require_cuda": "environment",
    "reset_compiler": "environment",
    "routes": "lessons",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'helpers' has no name {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"helpers.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
