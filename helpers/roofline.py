"""Bytes that must move between memory and chip, counted from the code that Inductor generated.

The count reads texts that every `GeneratedCode` holds: the wrapper says which memory each kernel
and library call is given (`wrapper_calls`), and the kernel's own loads and stores say which
elements of it they touch (`kernel_accesses`, `index_reach`, `address_sets`). Inductor's scheduler
could be asked instead, but only while it lowers, in another process or on another machine, through
names that change with each version; and what it sums is whole buffers: a slice counts as all of
its tensor, two views of one buffer count twice. The text is what runs.

What is counted: every element that a launch touches, once for reading and once for writing, however
often the kernel asks for it; what a kernel reads back after writing it is not read from memory. So
this is the floor of the traffic: what does not stay in the caches between two passes moves again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from helpers.address_sets import Reach, union_size, whole
from helpers.byte_counts import (
    LIBRARY,
    BufferBytes,
    ByteCount,
    GraphBytes,
    KernelBytes,
    Prediction,
)
from helpers.generated import GeneratedCode, Kernel
from helpers.index_reach import addressed
from helpers.kernel_accesses import read_accesses, read_signature
from helpers.origin import Origin
from helpers.targets import Target, find_target
from helpers.wrapper_calls import Wrapper
from helpers.wrapper_tensors import Call, Storage, Tensor

__all__ = ["ByteCount", "Prediction", "count_bytes", "count_bytes_of", "predicted_ms"]

_NOTHING: Mapping[str, Any] = {}
# Library calls that read (gather) or write (scatter) only some of their first tensor, by data.
_GATHERS = ("index", "embedding", "gather", "index_select", "take", "_embedding_bag")
_SCATTERS = ("index_put_", "_index_put_impl_", "scatter_", "scatter_add_", "scatter_reduce_",
             "index_add_", "index_copy_", "index_fill_", "masked_scatter_")  # fmt: skip
_SEVERAL_LOOPS = (
    "{kernel} loads {names} in more than one of its loops: these bytes must move once and are "
    "counted once; what does not stay in the caches from one loop to the next moves again."
)
_BY_DATA = "Which elements of {names} {kernel} touches depends on data: the most is counted."
_BOUND = "{kernel} may touch less of {names} than is counted: its text does not say how much."
_CPP = "{kernel} is C++: the buffers that it is given are counted whole, which is the most."
_TEMPLATE = "{kernel} is a template or your own kernel: what it is given is counted whole."
_UNSEEN = "{kernel} works on tensors whose sizes only the run knows: those are not counted."


def count_bytes(
    fn: Callable[..., Any],
    *args: Any,
    target: str = "auto",
    backward: bool | None = None,
    kwargs: Mapping[str, Any] = _NOTHING,
    compile_options: Mapping[str, Any] = _NOTHING,
) -> ByteCount:
    """Returns the bytes that must move for one call of `fn`, per kernel and per graph.

    Arguments and errors as of `generated_code`, which makes the code that is read. Open (dynamic)
    sizes are counted as in this call. ValueError where the wrapper is not Python (cpp_wrapper).
    """
    from helpers.inductor import generated_code

    made = generated_code(
        fn, *args, target=target, backward=backward, kwargs=kwargs, compile_options=compile_options
    )
    return count_bytes_of(made)


def count_bytes_of(code: GeneratedCode) -> ByteCount:
    """Returns the bytes that must move for the code of one call, without compiling again.

    ValueError where the wrapper is not Python.
    """
    kernels: list[KernelBytes] = []
    graphs = []
    for index, graph in enumerate(code.graphs):
        named = {one.name: one for one in code.kernels if one.graph_index == index}
        wrapper = Wrapper(graph.wrapper, named)
        outer = _Traffic()
        here = [_launch(call, index, graph.phase, outer) for call in wrapper.calls]
        moved = sum(one.total for one in here)
        graphs.append(GraphBytes(index, graph.phase, moved, outer.of_graph(wrapper.returned)))
        kernels += here
    return ByteCount(code.target, code.origin, tuple(kernels), tuple(graphs), code.notes)


def predicted_ms(count: ByteCount, target: Target | str) -> Prediction:
    """Returns the milliseconds that the bytes take at a target's full memory bandwidth.

    target: a `Target` or its name (ValueError if there is none); bandwidth from its data sheet.
    No launch, no arithmetic and no cache is in it: a floor for kernels larger than the caches.
    """
    card = find_target(target) if isinstance(target, str) else target
    to_ms = 1e3 / card.memory_bandwidth
    each = tuple((one.name, one.total * to_ms) for one in count.kernels)
    detail = f"bandwidth: {card.sources['peaks']}"
    origin = Origin("predicted", card.name, count.origin.torch, count.origin.date, detail)
    return Prediction(count.total * to_ms, count.total, card.memory_bandwidth, origin, each)


class _Account:
    """What is read and written of one storage, in elements."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.storage = tensor, tensor.storage
        self.seen: list[Reach] = []
        self.written: dict[int, list[Reach]] = {}  # by life
        self.read = 0
        self.is_exact = True
        self.loops: set[int] = set()

    def load(self, elements: Reach) -> None:
        """Counts elements that are read, except those read or written before."""
        before, _ = union_size(self.seen, self.storage.size)
        self.seen.append(elements)
        after, exact = union_size(self.seen, self.storage.size)
        self.read += max(0, after - before)
        self.is_exact &= exact

    def store(self, elements: Reach, life: int) -> None:
        """Counts elements that are written."""
        self.seen.append(elements)
        self.written.setdefault(life, []).append(elements)

    def stored(self, lives: Iterable[int]) -> tuple[int, bool]:
        """Returns how many elements were written in these lives, and if that is exact."""
        sets = [one for life in lives for one in self.written.get(life, [])]
        return union_size(sets, self.storage.size)

    def buffer(self, lives: Iterable[int], read: bool = True, note: str = "") -> BufferBytes:
        """Returns the account in bytes; read=False: only what was written."""
        written, exact = self.stored(lives)
        size = self.storage.itemsize
        shape, dtype = self.tensor.shape, self.storage.dtype or self.storage.made_from
        is_at_most = not (exact and (self.is_exact or not read))
        got = self.read * size if read else 0
        return BufferBytes(self.tensor.name, shape, dtype, got, written * size, is_at_most, note)


class _Traffic:
    """The accounts of all storages that one launch, or one graph, touches."""

    def __init__(self) -> None:
        self.accounts: dict[Storage, _Account] = {}

    def of(self, tensor: Tensor) -> _Account:
        """Returns the account of a tensor's storage."""
        return self.accounts.setdefault(tensor.storage, _Account(tensor))

    def take(self, kind: str, tensor: Tensor, elements: Reach) -> None:
        """Counts one access; an atomic reads and writes."""
        account = self.of(tensor)
        if kind in ("load", "atomic"):
            account.load(elements)
        if kind in ("store", "atomic"):
            account.store(elements, tensor.life)

    def of_graph(self, returned: Iterable[Tensor]) -> tuple[BufferBytes, ...]:
        """Returns what enters a graph (reads of its inputs) and leaves it (outputs, changes)."""
        leaving = {one.storage: {one.life} for one in returned}
        found = []
        for storage, account in self.accounts.items():
            lives = leaving.get(storage, set()) | ({0} if storage.is_input else set())
            found.append(account.buffer(lives, read=storage.is_input))
        return tuple(one for one in found if one.total)


def _launch(call: Call, index: int, phase: str, outer: _Traffic) -> KernelBytes:
    """Counts one launch, and enters it in its graph's account."""
    inner = _Traffic()
    notes = []
    for kind, tensor, elements, loop in _touched(call):
        for traffic in (inner, outer):
            traffic.take(kind, tensor, elements)
        if kind == "load" and loop:
            inner.of(tensor).loops.add(loop)
    buffers = []
    remarks: dict[str, list[str]] = {}
    for account in inner.accounts.values():
        buffer = account.buffer(account.written)
        if buffer.read and len(account.loops) > 1:
            remarks.setdefault(_SEVERAL_LOOPS, []).append(buffer.name)
            note = f"loaded in {len(account.loops)} loops, counted once"
            buffer = replace(buffer, note=note)
        if buffer.is_at_most and not (call.kernel and not _is_read(call.kernel)):
            by_data = any(one.some and not one.is_bound for one in account.seen)
            remarks.setdefault(_BY_DATA if by_data else _BOUND, []).append(buffer.name)
        buffers += [buffer] if buffer.total else []
    for text, names in remarks.items():
        notes.append(text.format(kernel=call.name, names=", ".join(names)))
    if call.kernel and not _is_read(call.kernel):
        notes.append((_CPP if call.kernel.kind == "cpp" else _TEMPLATE).format(kernel=call.name))
    tensors = [*(tensor for _, tensor in call.given), *call.made]
    if any(one.shape is None and not one.storage.size and one.storage.is_input for one in tensors):
        notes.append(_UNSEEN.format(kernel=call.name))
    kind = call.kernel.kind if call.kernel else LIBRARY
    return KernelBytes(call.name, index, phase, kind, tuple(buffers), tuple(notes))


_Touch = tuple[str, Tensor, Reach, int]


def _touched(call: Call) -> list[_Touch]:
    """Returns what a call touches, in order: kind of access, tensor, elements, loop."""
    if call.kernel is None:
        return _of_library(call)
    if not _is_read(call.kernel):
        return _of_whole(call, call.kernel)
    tensors = dict(call.given)
    found: list[_Touch] = []
    for one in read_accesses(call.kernel.source, call.numbers):
        if one.pointer not in tensors:
            continue
        tensor = tensors[one.pointer]
        if one.kind == "whole":
            writes = not one.pointer.startswith("in_ptr")
            every = whole(tensor.storage.size, is_bound=True)
            found.append(("atomic" if writes else "load", tensor, every, one.loop))
        else:
            elements = addressed(one.index, one.mask)
            unclear = elements.some is not None and not one.index.places
            if unclear and not one.index.is_known:  # nothing is known of where it points
                elements = whole(tensor.storage.size, is_bound=True)
            size = call.itemsizes.get(one.pointer, tensor.storage.itemsize)
            elements = elements.resized(size, tensor.storage.itemsize).moved(tensor.offset)
            found.append((one.kind, tensor, elements, one.loop))
    return found


def _is_read(kernel: Kernel) -> bool:
    """Whether a kernel is of Inductor's own making, so that its indices can be read."""
    return kernel.kind not in ("cpp", "template", "user")


def _of_whole(call: Call, kernel: Kernel) -> list[_Touch]:
    """Returns all elements of what a kernel is given; what it writes is told by name."""
    mutated = {name for name, _ in call.given if "out" in name}
    if kernel.kind != "cpp":
        signature = read_signature(kernel.source)
        mutated |= set(signature.mutated if signature else ())
    stored, loaded = [], []
    for name, tensor in call.given:
        elements = replace(tensor.elements, is_bound=True)
        if name in mutated:
            stored.append(("store", tensor, elements, 0))
        if name not in mutated or "in_out" in name or f"load({name}" in kernel.source:
            loaded.append(("load", tensor, elements, 0))
    return [*loaded, *stored]


def _of_library(call: Call) -> list[_Touch]:
    """Returns inputs and outputs of a library call, each once."""
    op = call.name.removeprefix("torch.ops.").split(".")
    op = op[1] if len(op) > 1 else op[0]
    given = [tensor for _, tensor in call.given]
    others = sum(one.elements.points for one in given[1:] if one.shape is not None)
    found: list[_Touch] = []
    for place, tensor in enumerate(given):
        elements = tensor.elements
        if place == 0 and op in _GATHERS and call.made:
            elements = Reach(some=max(one.elements.points for one in call.made))
        if place == 0 and op in _SCATTERS:
            elements = Reach(some=others)
        is_filled = tensor in call.in_place and op in ("copy_", "zero_", "fill_")
        found += [] if is_filled else [("load", tensor, elements, 0)]
    for tensor in call.in_place:
        elements = Reach(some=others) if op in _SCATTERS else tensor.elements
        found.append(("store", tensor, elements, 0))
    if not call.made and not call.in_place:  # it works by what it changes, and does not say what
        found += [("store", one, replace(one.elements, is_bound=True), 0) for one in given]
    return [*found, *(("store", one, one.elements, 0) for one in call.made)]
