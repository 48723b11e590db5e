"""Where the boxes of a layered picture go: longest-path layers, few crossings, straight lines.

The usual four steps (Sugiyama, Tagawa, Toda 1981): layers, stand-ins for edges that cross a
layer, an order within each layer, and positions. networkx gives the layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

Point = tuple[float, float]
_LANE = 14.0  # width kept free where an edge passes a layer, in pixels


@dataclass(frozen=True)
class Layout:
    """Positions in pixels: `centres` of boxes, `paths` of edges, `width` and `height` of all."""

    centres: dict[str, Point]
    paths: dict[tuple[str, str], str]
    width: float
    height: float


def lay_out(
    sizes: Mapping[str, tuple[float, float]],
    edges: Sequence[tuple[str, str]],
    gap: tuple[float, float] = (18.0, 26.0),
) -> Layout:
    """Places boxes of the given sizes (width, height) so that edges run downwards.

    `gap`: free pixels between neighbours and between layers. Raises ValueError on a cycle.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(sizes)
    graph.add_edges_from(edges)
    if not nx.is_directed_acyclic_graph(graph):
        raise ValueError("a layered picture needs a graph without cycles")
    rank = _ranks(graph)
    chains = _chains(graph, rank)
    layers, links = _layers(sizes, rank, chains)
    widths = {
        name: sizes[name][0] if name in sizes else _LANE for layer in layers for name in layer
    }
    _reduce_crossings(layers, links)
    x = _positions(layers, links, widths, gap[0])
    heights = [max((sizes[n][1] for n in layer if n in sizes), default=0.0) for layer in layers]
    tops = [sum(heights[:i]) + gap[1] * i for i in range(len(heights))]
    left = min((x[n] - widths[n] / 2 for n in x), default=0.0)
    centres = {n: (x[n] - left, tops[rank[n]] + heights[rank[n]] / 2) for n in sizes}
    paths = {
        edge: _path([(x[n] - left, tops[rank[edge[0]] + i], heights[rank[edge[0]] + i])
                     for i, n in enumerate(chain)])
        for edge, chain in chains.items()
    }  # fmt: skip
    width = max((x[n] - left + widths[n] / 2 for n in x), default=0.0)
    return Layout(centres, paths, width, (tops[-1] + heights[-1]) if tops else 0.0)


def _ranks(graph: nx.DiGraph) -> dict[str, int]:
    rank = {n: i for i, layer in enumerate(nx.topological_generations(graph)) for n in layer}
    for node in graph:
        # An input stands just above its first use, not at the far top.
        if graph.in_degree(node) == 0 and graph.out_degree(node):
            rank[node] = min(rank[after] for after in graph.successors(node)) - 1
    return rank


def _chains(graph: nx.DiGraph, rank: Mapping[str, int]) -> dict[tuple[str, str], list[str]]:
    """Returns, for each edge, its way through the layers, with stand-ins in between."""
    return {
        (a, b): [a, *(f"{a}|{b}|{i}" for i in range(rank[a] + 1, rank[b])), b]
        for a, b in graph.edges
    }


def _layers(
    sizes: Mapping[str, tuple[float, float]],
    rank: Mapping[str, int],
    chains: Mapping[tuple[str, str], list[str]],
) -> tuple[list[list[str]], list[tuple[str, str]]]:
    layers: list[list[str]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for name in sizes:
        layers[rank[name]].append(name)
    links = []
    for (start, _), chain in chains.items():
        for i, (a, b) in enumerate(itertools.pairwise(chain)):
            links.append((a, b))
            if b not in sizes:
                layers[rank[start] + i + 1].append(b)
    return layers, links


def _neighbours(links: Sequence[tuple[str, str]], down: bool) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for a, b in links:
        found.setdefault(b if down else a, []).append(a if down else b)
    return found


def _reduce_crossings(layers: list[list[str]], links: Sequence[tuple[str, str]]) -> None:
    """Orders each layer by the mean place of its neighbours, sweeping down and up."""
    for sweep in range(6):
        down = sweep % 2 == 0
        near = _neighbours(links, down)
        order = layers if down else layers[::-1]
        for fixed, layer in itertools.pairwise(order):
            place = {name: i for i, name in enumerate(fixed)}
            own = {name: i for i, name in enumerate(layer)}

            def mean(name: str, place: dict = place, own: dict = own, near: dict = near) -> float:
                spots = [place[n] for n in near.get(name, ()) if n in place]
                return sum(spots) / len(spots) if spots else own[name]

            layer.sort(key=mean)


def _positions(
    layers: Sequence[Sequence[str]],
    links: Sequence[tuple[str, str]],
    widths: Mapping[str, float],
    gap: float,
) -> dict[str, float]:
    """Moves each box towards the mean of its neighbours, keeping order and distance."""
    x: dict[str, float] = {}
    for layer in layers:
        x.update(_spread([0.0] * len(layer), layer, widths, gap))
    for sweep in range(8):
        down = sweep % 2 == 0
        near = _neighbours(links, down)
        for layer in layers if down else layers[::-1]:
            wish = [
                sum(x[n] for n in near[name]) / len(near[name]) if name in near else x[name]
                for name in layer
            ]
            x.update(_spread(wish, layer, widths, gap))
    return x


def _spread(
    wish: Sequence[float], layer: Sequence[str], widths: Mapping[str, float], gap: float
) -> dict[str, float]:
    """Returns the places nearest to `wish` (least squares) at which no two boxes overlap."""
    offsets = [0.0]
    for a, b in itertools.pairwise(layer):
        offsets.append(offsets[-1] + (widths[a] + widths[b]) / 2 + gap)
    blocks: list[list[float]] = []  # pool adjacent violators: [sum of wishes, count]
    for want, offset in zip(wish, offsets, strict=True):
        blocks.append([want - offset, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    flat = [total / count for total, count in blocks for _ in range(int(count))]
    return {name: flat[i] + offsets[i] for i, name in enumerate(layer)}


def _path(stops: Sequence[tuple[float, float, float]]) -> str:
    """Returns SVG path data through stops (x, top, height of the layer), smooth in between."""
    x, top, height = stops[0]
    y = top + height
    parts = [f"M{x:.1f} {y:.1f}"]
    for i, (next_x, next_top, next_height) in enumerate(stops[1:], 1):
        middle = (y + next_top) / 2
        parts.append(f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_top:.1f}")
        x, y = next_x, next_top
        if i < len(stops) - 1:
            y = next_top + next_height
            parts.append(f"V{y:.1f}")
    return "".join(parts)
