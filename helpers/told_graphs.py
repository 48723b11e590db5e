"""Private names *: which nodes of a graph stay on the CPU, and graphs moved there and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo
import torch._inductor.compile_fx as compile_fx_module
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import PropagateUnbackedSymInts
from torch.utils._pytree import tree_leaves, tree_map

from helpers.told import CARD, CPU, TOLD, inductor_sees_card, set_state

_MIXED = ("two different devices", "same device")  # what torch says of a CPU tensor beside a card's


def graph_replacements() -> Iterator[tuple[Any, str, Any]]:
    """Yields owner, name and replacement of what runs graphs node by node, and of their passes."""
    yield torch._dynamo.utils, "run_node", _dynamo_node(torch._dynamo.utils.run_node)
    yield PropagateUnbackedSymInts, "run_node", _aot_node(PropagateUnbackedSymInts.run_node)
    for passes in (joint_graph, post_grad):
        yield passes, "lazy_init", _patterns_of_cpu(passes.lazy_init)
    joint_passes = compile_fx_module._recursive_joint_graph_passes
    yield compile_fx_module, "_recursive_joint_graph_passes", _folding_on_cpu(joint_passes)


def warm_up() -> None:
    """Lets Inductor trace its patterns once, before anything is told: on fakes of the CPU."""
    for module in (joint_graph, post_grad):
        module.lazy_init()


def _patterns_of_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """The patterns are the same for every device, and a card's cannot be traced here."""
    return lambda device=None: original()  # for whoever asks: they would be registered twice


def _dynamo_node(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_node(tracer: Any, node: Any, args: Any, kwargs: Any, module: Any) -> Any:
        stays = not TOLD.active or _stays_on_cpu(node)
        try:
            with set_state("redirect", not stays):
                return original(tracer, node, args, kwargs, module)
        except Exception as error:
            if TOLD.active and any(words in str(error) for words in _MIXED):
                TOLD.mixed.append(_last_line(node.stack_trace) or str(node))
            raise

    return run_node


def _last_line(trace: str | None) -> str:
    lines = [line.strip() for line in (trace or "").splitlines()]
    said = [line for line in lines if line.strip("^~ ")]  # Python 3.11 marks columns below
    return said[-1] if said else ""


def _aot_node(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_node(self: Any, node: Any) -> Any:
        if not TOLD.redirect:
            return original(self, node)
        with set_state("redirect", not _stays_on_cpu(node)):
            return original(self, node)

    return run_node


def _stays_on_cpu(node: torch.fx.Node) -> bool:
    """True for what the learner puts on the CPU: by name, or by making it without a device."""
    if node.op == "call_method" and node.target == "cpu":
        return True
    named = [v for v in (*node.args, *node.kwargs.values()) if isinstance(v, (torch.device, str))]
    if any(str(value) == "cpu" for value in named):
        return True
    makes = node.op == "call_function" and not any(
        isinstance(inner.meta.get("example_value"), torch.Tensor) for inner in node.all_input_nodes
    )
    return makes and "device" not in node.kwargs and not TOLD.lenient


def _folding_on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """Constants are folded by computing them: on the CPU, and then they are the card's again."""

    def passes(gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        if not TOLD.active:
            return original(gm, *args, **kwargs)
        old = set(gm.graph.nodes)
        theirs = {node for node in old if _names_device(node, CPU)}
        _rename_device(gm, CARD, CPU, theirs)
        with inductor_sees_card():
            out = original(gm, *args, **kwargs)
        result = gm if out is None else out
        _rename_device(result, CPU, CARD, theirs)
        for node in set(result.graph.nodes) - old:  # made by the passes: random numbers, say
            node.meta["val"] = tree_map(_fake_on_card, node.meta.get("val"))
        return out

    return passes


def _names_device(node: torch.fx.Node, device: torch.device) -> bool:
    return any(
        isinstance(value, torch.device) and value.type == device.type
        for value in tree_leaves((node.args, dict(node.kwargs)))
    )


def _rename_device(
    gm: torch.fx.GraphModule, old: torch.device, new: torch.device, but: set[torch.fx.Node]
) -> None:
    def rename(value: Any) -> Any:
        return new if isinstance(value, torch.device) and value.type == old.type else value

    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if node not in but:
                    node.args = tree_map(rename, node.args)
                    node.kwargs = tree_map(rename, dict(node.kwargs))
            module.recompile()


def _fake_on_card(value: Any) -> Any:
    if not isinstance(value, FakeTensor) or value.device != CPU:
        return value
    with value.fake_mode:
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=CARD)


def on_cpu(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Returns a copy of Dynamo's graph that runs on the CPU, for the real values."""
    graph = copy.deepcopy(gm.graph)
    for node in graph.nodes:
        if node.op == "call_method" and node.target == "cuda":
            node.target, node.args, node.kwargs = "cpu", node.args[:1], {}
        node.args = tree_map(_cpu_for_card, node.args)
        node.kwargs = tree_map(_cpu_for_card, dict(node.kwargs))
    moved = torch.fx.GraphModule(gm, graph)
    for name, child in list(moved.named_children()):
        if isinstance(child, torch.fx.GraphModule):
            setattr(moved, name, on_cpu(child))
    return moved


def _cpu_for_card(value: Any) -> Any:
    if isinstance(value, (str, torch.device)) and str(value).startswith("cuda"):
        return CPU if isinstance(value, torch.device) else "cpu"
    return value
