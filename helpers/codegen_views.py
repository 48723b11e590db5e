"""What Inductor makes of a text that a learner typed, for one target or two, as one view."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from helpers.code_bytes import BytesBeside, bytes_beside
from helpers.code_changes import difference_view
from helpers.display import (
    NOTICES,
    View,
    details_html,
    heading_html,
    notice_html,
    sentence_html,
    wrap,
)
from helpers.generated import STAGES, GeneratedCode
from helpers.generated_views import code_html, code_text, unstyled
from helpers.inductor import generated_code
from helpers.launch_pictures import launch_view
from helpers.stage_counts import stage_view
from helpers.typed_function import (
    FILENAME,
    Problem,
    TooLong,
    define_with_inputs,
    explain,
    running,
    source_text,
)
from helpers.views import problem_view

__all__ = ["CodegenView", "codegen_view"]
# Stages to choose from; the others are for the experts' functions.
CHOICES = ("", "ttir", "ttgir", "llir", "ptx", "sass")


@dataclass(frozen=True, repr=False)
class CodegenView(View):
    """What codegen_view shows; capture is the generated code, None where there is a problem."""

    capture: GeneratedCode | None = None


def codegen_view(
    source: str | Callable[..., Any],
    shape: Sequence[int] = (64, 1024),
    dtype: str = "float32",
    switch: bool | None = None,
    target: str = "auto",
    other: str = "",
    stage: str = "",
    backward: bool = False,
    device: str = "cpu",
) -> CodegenView:
    """Generates code for the last function in `source` and returns launches, kernels and changes.

    source, shape, dtype, switch as in `graph_view`; target as in `generated_code`; other: a second
    target to compare with, or ""; stage: of CHOICES, shown for the first kernel; backward: the
    inputs require gradients. Never raises for what the text does: the view says what is wrong.
    """
    text = ""
    try:
        text = source_text(source)
        if stage not in CHOICES:
            raise Problem(f"Unknown stage {stage!r}; one of {', '.join(filter(None, CHOICES))}.")
        made = _generate(text, shape, dtype, switch, target, other, stage, backward, device)
    except (Exception, SystemExit, KeyboardInterrupt, TooLong) as error:
        found = problem_view(_explain(error, text))
        return CodegenView(found.html, found.text)
    return _put_together(made, stage)


@dataclass(frozen=True)
class _Made:
    """The code for the target; that for the other one or why there is none; what was printed."""

    code: GeneratedCode
    other: GeneratedCode | None
    why_not: str
    printed: str


def _generate(
    text: str,
    shape: Sequence[int],
    dtype: str,
    switch: bool | None,
    target: str,
    other: str,
    stage: str,
    backward: bool,
    device: str,
) -> _Made:
    """Generates for one target or two; only what is wrong with the first one is raised."""
    second, why_not = None, ""
    # A lesson may have switched gradients off for all of its cells.
    gradients = torch.enable_grad() if backward else contextlib.nullcontext()
    with running() as printed, gradients:
        fn, tensors, switches = define_with_inputs(text, shape, dtype, switch, device)
        if not tensors:
            raise Problem("The function has no argument without a default, so no tensor goes in.")
        if backward:
            _require_gradients(tensors, dtype)
        given = {**tensors, **switches}
        stages = ("triton", stage) if stage else ("triton",)
        try:
            code = generated_code(fn, kwargs=given, target=target, stages=stages)
        except Exception as error:
            if not _own_lines(error):
                fn(**given)  # on a card of this machine Dynamo raised it: plain Python is clearer
            raise
        said = printed.getvalue()
        if other and other != target:
            try:
                second = generated_code(fn, kwargs=given, target=other)
            except Exception as error:
                why_not = _explain(error, text)
    return _Made(code, second, why_not, said)


def _own_lines(error: BaseException) -> list[int]:
    """Returns the lines of the learner's text in an error that the worker process sent."""
    frames = getattr(error, "worker_frames", ())
    return [frame.lineno for frame in frames if frame.filename == FILENAME]


def _explain(error: BaseException, text: str) -> str:
    """Returns an error in the learner's terms, with their line also if the worker raised it."""
    said, lines, rows = explain(error, text), _own_lines(error), text.splitlines()
    if not lines or lines[-1] > len(rows):
        return said
    return f"line {lines[-1]}: {said}\n{lines[-1]:>4} | {rows[lines[-1] - 1]}"


def _require_gradients(given: dict[str, Any], dtype: str) -> None:
    if not getattr(torch, dtype).is_floating_point:
        raise Problem(f"Tensors of {dtype} have no gradient; choose a floating-point dtype.")
    for tensor in given.values():
        tensor.requires_grad_()


def _put_together(made: _Made, stage: str) -> CodegenView:
    """Puts the parts together: launches, bytes, the difference, one stage, the kernels."""
    code, moved = made.code, bytes_beside(made.code)
    launches = launch_view(code)
    parts, texts = [launches.html], [str(launches)]
    parts.append(sentence_html(moved.sentence))
    texts.append(moved.sentence)
    notices = [("note", note) for note in moved.notes]
    if made.printed:
        notices.append(("note", f"your function printed: {made.printed.strip()[:300]}"))
    if made.why_not:
        notices.append(("warning", f"nothing to compare with: {made.why_not}"))
    parts += [notice_html(words, kind) for kind, words in notices]
    texts += [f"{NOTICES[kind]}: {words}" for kind, words in notices]
    if made.other is not None:
        title = f"Difference: {code.target} beside {made.other.target}"
        changed, compared = difference_view(code, made.other), _two_sizes(moved, made)
        parts += [heading_html(title), changed.html, sentence_html(compared)]
        texts += [title, str(changed), compared]
    if stage:
        html, words = _stage(code, stage)
        parts.append(html)
        texts.append(words)
    title = "Kernels, library calls and wrapper"
    parts.append(details_html(title, code_html(code, moved.table), is_open=True))
    texts.append(code_text(code, moved.table))
    return CodegenView(wrap(*map(unstyled, parts)), "\n".join(texts), code)


def _two_sizes(moved: BytesBeside, made: _Made) -> str:
    """Returns one sentence with the bytes that must move for each of two targets."""
    other = bytes_beside(made.other)
    if not (moved.total and other.total):
        return other.sentence if moved.total else moved.sentence
    return f"Must move: {moved.total} on {made.code.target}, {other.total} on {made.other.target}."


def _stage(code: GeneratedCode, stage: str) -> tuple[str, str]:
    """Returns one stage of the first kernel, or why there is none, as HTML and as text."""
    if not code.kernels:
        words = "Inductor wrote no kernel of its own here, so there is no stage to show."
        return notice_html(words), f"Note: {words}"
    if stage in code.kernels[0].stages:
        view = stage_view(code.kernels[0], stage)
        title = f"First kernel: {stage}"
        return heading_html(title) + view.html, f"{title}\n{view}"
    words = f"No {stage}: {code.unavailable.get(stage, 'it was not made.')}"
    return notice_html(words, "warning"), f"Look out: {words}"


assert set(CHOICES[1:]) <= set(STAGES)
