"""The engine of the suite: every public name imports as `from helpers import NAME`.

Names are looked up on first use, so that importing this package costs nothing over the
standard library: it also serves the set-up, which runs before anything is installed.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULE_OF = {
    "TARGETS": "targets",
    "ByteCount": "byte_counts",
    "CannotGenerate": "generated",
    "Capture": "dynamo",
    "GeneratedCode": "generated",
    "GraphBreak": "break_reports",
    "GraphBreaks": "break_reports",
    "MeasurementRefused": "benchmarking",
    "Origin": "origin",
    "SentenceScorer": "sentences",
    "Timing": "benchmarking",
    "begin_lesson": "lessons",
    "break_cost": "break_costs",
    "break_panel": "break_panels",
    "break_view": "break_panels",
    "bucket_lengths": "bucketing",
    "bucketing_view": "bucketing_views",
    "bytecode_view": "bytecode_table",
    "capture_graphs": "dynamo",
    "capture_panel": "capture_panels",
    "capture_view": "capture_views",
    "changes": "capture_views",
    "choose_device": "environment",
    "codegen_panel": "codegen_panels",
    "codegen_view": "codegen_views",
    "compare": "benchmarking",
    "compilation_count": "dynamo",
    "count_bytes": "roofline",
    "count_bytes_of": "roofline",
    "count_plans": "bucketing",
    "describe_environment": "environment",
    "difference_view": "code_changes",
    "explain_graph_breaks": "graph_breaks",
    "expect_error": "display",
    "first_calls_panel": "first_calls_panels",
    "first_calls_view": "first_compile",
    "generated_code": "inductor",
    "graph_break_registry": "break_registry",
    "graph_panel": "widgets",
    "graph_view": "views",
    "guards_view": "guards_table",
    "kernel_view": "kernel_lines",
    "launch_view": "launch_pictures",
    "lesson_table": "lessons",
    "measure": "benchmarking",
    "outcomes_view": "recompile_views",
    "pipeline_picture": "pictures",
    "predicted_ms": "roofline",
    "preflight": "environment",
    "progress": "display",
    "queue_view": "queue_marks",
    "race": "first_compile",
    "recompile_game": "game_panels",
    "recorded_times": "bucketing_times",
    "registry_panel": "registry_panels",
    "registry_view": "break_registry",
    "require_cuda": "environment",
    "reset_compiler": "environment",
    "routes": "lessons",
    "sentence_lengths": "bucketing",
    "sentence_load": "sentences",
    "stage_view": "stage_counts",
    "time_plans": "bucketing_times",
    "trace_recompiles": "recompiles",
    "usual_plans": "bucketing",
    "would_reuse": "reuse",
    "without_waiting_view": "first_compile",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'helpers' has no name {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"helpers.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
