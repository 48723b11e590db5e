"""Private names *: lets Inductor write its code, and stops before anything is built or launched.

A Dynamo backend. Dynamo's graphs run eagerly on the CPU, so that real values come back and what
the learner's Python does between graphs is right; beside that, each graph goes through
AOTAutograd and Inductor, up to the text of its module. The backward follows lazily, as it does
when a program runs: what the forward saves and in which layout is known only then.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch._dynamo
import torch._inductor.compile_fx as compile_fx_module
from torch._dynamo.backends.common import AotAutograd
from torch._functorch._aot_autograd import runtime_wrappers
from torch._guards import compile_context, tracing
from torch._inductor import config
from torch._inductor.graph import GraphLowering

from helpers.generated import OutputCode

_LAZY_INFO = runtime_wrappers.AutogradLazyBackwardCompileInfo


@dataclass
class _Backward:
    """What AOTAutograd keeps so that it can compile a backward when it is first asked for."""

    capture_index: int
    info: Any
    compiler: Callable[..., Any]


class Lowering:
    """A backend for `torch.compile`; `codes` holds what Inductor wrote so far.

    options: Inductor's settings for these graphs; around: a context that each call of Inductor
    runs in; values: turns Dynamo's graph into one that runs here.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
        values: Callable[[torch.fx.GraphModule], Callable[..., Any]] = lambda gm: gm.forward,
    ) -> None:
        self.codes: list[OutputCode] = []
        self.graphs = 0
        self._options = dict(options)
        self._around, self._values = around, values
        self._backwards: list[_Backward] = []
        self._compilers: list[Callable[..., Any]] = []

    def __call__(self, gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        run = self._values(gm)
        with self._stopped_before_launch():
            compile_fx_module.compile_fx(
                gm, inputs, inner_compile=self._inner, config_patches=self._options
            )
        self.graphs += 1
        return run

    def _inner(self, *args: Any, **kwargs: Any) -> Any:
        with self._around():
            return compile_fx_module.compile_fx_inner(*args, **kwargs)

    def backward(self) -> None:
        """Compiles the backward of every graph that has one, last graph first."""
        done = {code.capture_index for code in self.codes if code.phase == "backward"}
        for backward in reversed(self._backwards):
            if backward.capture_index in done:
                continue  # with open sizes AOTAutograd compiles it at once
            self.graphs = backward.capture_index
            info = backward.info
            with (
                self._stopped_before_launch(),
                config.patch(self._options),
                tracing(info.saved_context),
                compile_context(info.saved_compile_context),
                torch._C._DisableAutocast(),
            ):
                backward.compiler(copy.deepcopy(info.bw_module), info.placeholder_list)

    @property
    def has_backward(self) -> bool:
        """True if an output of some graph requires grad."""
        return bool(self._backwards)

    @contextlib.contextmanager
    def _stopped_before_launch(self) -> Iterator[None]:
        note_info, note_compiler = _LAZY_INFO.__init__, AotAutograd.__init__
        here = threading.get_ident()  # another thread's backward may be compiled meanwhile

        def info_made(info: Any, *args: Any, **kwargs: Any) -> None:
            note_info(info, *args, **kwargs)
            if info.saved_context is None or threading.get_ident() != here:
                return  # the former: of a pattern that Inductor traces for its own use
            self._backwards.append(_Backward(self.graphs, info, self._compilers[-1]))

        def aot_made(aot: Any, **kwargs: Any) -> None:
            if threading.get_ident() == here:
                self._compilers.append(kwargs["bw_compiler"])
            note_compiler(aot, **kwargs)

        with (
            mock.patch.object(GraphLowering, "compile_to_module", self._written()),
            mock.patch.object(_LAZY_INFO, "__init__", info_made),
            mock.patch.object(AotAutograd, "__init__", aot_made),
            config.patch(
                force_disable_caches=True,
                compile_threads=1,  # else kernels go to a pool of processes at once
                benchmark_epilogue_fusion=False,  # would be timed on the card
            ),
        ):
            yield

    def _written(self) -> Callable[[GraphLowering], Any]:
        real, here = GraphLowering.compile_to_module, threading.get_ident()

        def compile_to_module(graph: GraphLowering) -> Any:
            if threading.get_ident() != here:
                return real(graph)
            code, *_ = graph.codegen()
            text = getattr(code, "value", code)
            self.codes.append(OutputCode(text, phase_of(graph), self.graphs))
            graph.cache_key, graph.cache_path, graph.cache_linemap = "", "", []
            runner = types.SimpleNamespace(partitions=[], recursively_apply_fns=lambda fns: None)
            return types.SimpleNamespace(call=_never_called, __file__="", runner=runner)

        return compile_to_module


def phase_of(graph: GraphLowering) -> str:
    """Returns which phase a graph belongs to: inference, forward or backward."""
    return "backward" if graph.is_backward else "inference" if graph.is_inference else "forward"


def _never_called(*args: Any) -> None:
    raise AssertionError("generated code is read here, and not run")
