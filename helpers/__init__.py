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
    "bytecode_view": "bytecode_table",
    "capture_graphs": "dynamo",
    "capture_panel": "capture_panels",
    "capture_view": "capture_views",
    "changes": "capture_views",
    "choose_device": "environment",
    "compilation_count": "dynamo",
    "compare": "benchmarking",
    "describe_environment": "environment",
    "expect_error": "display",
    "first_calls_panel": "first_calls_panels",
    "first_calls_view": "first_compile",
    "graph_panel": "widgets",
    "graph_view": "views",
    "guards_view": "guards_table",
    "lesson_table": "lessons",
    "measure": "benchmarking",
    "pipeline_picture": "pictures",
    "preflight": "environment",
    "progress": "display",
    "race": "first_compile",
    "require_cuda": "environment",
    "reset_compiler": "environment",
    "routes": "lessons",
    "without_waiting_view": "first_compile",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'helpers' has no name {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"helpers.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
