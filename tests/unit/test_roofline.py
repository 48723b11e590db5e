"""Bytes that must move: truths computed by hand, sets by listing, and the H200's own kernels."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from helpers import address_sets as sets
from helpers import count_bytes, count_bytes_of, generated_code, predicted_ms
from helpers.byte_counts import ByteCount
from helpers.byte_views import size_text
from helpers.index_reach import addressed
from helpers.index_values import Root, Value, apply, const, evaluate, place
from helpers.kernel_accesses import read_accesses, read_signature
from helpers.targets import TARGETS
from tests.unit.kernel_on_numpy import Unable, touched

pytestmark = pytest.mark.timeout(300)
RECORDING = Path(__file__).parents[1] / "fidelity" / "h200.json"


def counted(fn: Any, *args: Any, **kwargs: Any) -> ByteCount:
    return count_bytes(fn, *args, **({"target": "h200"} | kwargs))


def moved(count: ByteCount, phase: str | None = None) -> int:
    return sum(one.total for one in count.kernels if phase in (None, one.phase))


def test_one_kernel_reads_two_and_writes_one_where_two_would_move_five() -> None:
    x, r = torch.randn(64, 1000), torch.randn(64, 1000)
    n = x.numel()
    count = counted(lambda x, r: torch.relu(x) + r, x, r)
    (kernel,) = count.kernels
    assert (kernel.read, kernel.written, kernel.total) == (2 * 4 * n, 4 * n, 3 * 4 * n)
    assert (kernel.kind, kernel.graph_index, kernel.phase) == ("pointwise", 0, "inference")
    assert count.total == count.least == 3 * 4 * n
    apart = counted(torch.relu, x).total + counted(torch.add, x, r).total
    assert apart == 5 * 4 * n
    assert [buffer.use for buffer in kernel.buffers] == ["read", "read", "written"]
    assert {buffer.bytes for buffer in kernel.buffers} == {4 * n}
    assert {(buffer.shape, buffer.dtype) for buffer in kernel.buffers} == {((64, 1000), "float32")}


def test_a_broadcast_counts_what_is_stored() -> None:
    x, bias, column = torch.randn(64, 1000), torch.randn(1000), torch.randn(64, 1)
    count = counted(lambda x, b, c: x * c + b, x, bias, column)
    assert count.total == 4 * (2 * 64_000 + 1000 + 64)
    expanded = torch.randn(1000).expand(64, 1000)
    assert counted(lambda x: x * 2, expanded).kernels[0].read == 4 * 1000


def test_half_the_bytes_in_bfloat16_and_one_for_a_bool() -> None:
    x = torch.randn(64, 1000, dtype=torch.bfloat16)
    assert counted(lambda x: x.cos(), x).total == 2 * 2 * 64_000
    assert counted(lambda x: x > 0, x).total == (2 + 1) * 64_000
    assert counted(lambda x: x.double(), x).total == (2 + 8) * 64_000


def test_a_softmax_in_one_pass_reads_once_and_writes_once() -> None:
    count = counted(lambda x: torch.softmax(x, -1), torch.randn(512, 512))
    (kernel,) = count.kernels
    assert kernel.kind == "persistent_reduction" and not kernel.notes
    assert (kernel.read, kernel.written) == (4 * 512 * 512, 4 * 512 * 512)


def test_a_loop_that_reads_again_counts_once_and_says_so() -> None:
    x = torch.randn(2048, 5000)
    count = counted(lambda x: torch.softmax(x, -1), x)
    (kernel,) = count.kernels
    assert kernel.kind == "reduction"
    assert (kernel.read, kernel.written) == (4 * x.numel(), 4 * x.numel())
    assert "in more than one of its loops" in kernel.notes[0] and kernel.notes[0] in str(count)
    assert "loops, counted once" in kernel.buffers[0].note


def test_a_sum_in_two_kernels_moves_the_partial_sums_twice() -> None:
    count = counted(lambda x: x.sum(), torch.randn(1000, 3003))  # does not split evenly
    first, second = count.kernels
    assert first.read == 4 * 3_003_000 and not first.is_at_most
    assert first.written == second.read and second.written == 4
    assert count.graphs[0].least == 4 * 3_003_000 + 4
    assert count.graphs[0].moved == count.total == count.least + 2 * first.written


def test_layer_norm_forward_and_backward() -> None:
    norm = torch.nn.LayerNorm(1000)
    count = counted(norm, torch.randn(64, 1000, requires_grad=True))
    rows, n = 4 * 64, 4 * 64_000
    forward = [one for one in count.kernels if one.phase == "forward"]
    assert sum(one.read for one in forward) == n + 2 * 4000
    assert sum(one.written for one in forward) == n + 2 * rows  # mean and rsqrt are saved
    front, back = count.graphs
    assert (front.phase, back.phase) == ("forward", "backward")
    assert (front.read, front.written) == (n + 2 * 4000, n + 2 * rows)
    assert back.read == 2 * n + 2 * rows + 4000  # gradient, input, statistics, weight
    assert back.written == n + 2 * 4000


def test_a_matmul_is_a_library_call_and_its_epilogue_a_kernel() -> None:
    a, b, bias = torch.randn(100, 300), torch.randn(300, 200), torch.randn(200)
    count = counted(lambda a, b, c: torch.relu(a @ b) * c, a, b, bias)
    call, kernel = count.kernels
    assert call.is_library_call and call.name == "extern_kernels.mm"
    assert (call.read, call.written) == (4 * (30_000 + 60_000), 4 * 20_000)
    assert not kernel.is_library_call
    assert (kernel.read, kernel.written) == (4 * (20_000 + 200), 4 * 20_000)
    assert count.least == 4 * (30_000 + 60_000 + 200 + 20_000)
    assert "library call" in str(count) and "library call" in count._repr_html_()


def test_a_transpose_and_a_slice_count_their_elements() -> None:
    x = torch.randn(300, 200)
    assert counted(lambda x: x.t().contiguous(), x).total == 2 * 4 * 60_000
    assert counted(lambda x: x[::3, :50] * 2, x).total == 2 * 4 * 100 * 50
    overlapping = counted(lambda x: x[:, :150] + x[:, 50:], x)  # together the whole of x
    assert overlapping.kernels[0].read == 4 * 60_000
    apart = counted(lambda x: x[:, :50] + x[:, 150:], x)
    assert apart.kernels[0].read == 4 * 300 * 100


def test_two_views_of_one_buffer_count_once() -> None:
    x = torch.randn(64, 64)
    assert counted(lambda x: x + x.t(), x).total == 2 * 4 * 4096


def test_a_view_that_is_returned_moves_nothing() -> None:
    count = counted(lambda x: (x.view(-1), x.t()), torch.randn(8, 8))
    assert count.total == count.least == 0 and not count.kernels

    def doubled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        return y, y.view(-1)

    both = counted(doubled, torch.randn(8, 8))
    assert both.total == both.least == 2 * 4 * 64


def test_in_place_is_one_read_and_one_write() -> None:
    count = counted(lambda x: x.add_(1), torch.randn(1000))
    (kernel,) = count.kernels
    (buffer,) = kernel.buffers
    assert (buffer.use, buffer.read, buffer.written) == ("both", 4000, 4000)
    assert count.least == 8000


def test_cat_reads_each_part_and_nothing_behind_its_masks() -> None:
    a, b = torch.randn(64, 50), torch.randn(64, 90)
    count = counted(lambda a, b: torch.cat([a, b * 2], 1), a, b)
    assert count.total == 2 * 4 * 64 * 140 and not count.kernels[0].is_at_most
    padded = counted(lambda x: F.pad(x, (3, 4)) * 2, a)
    assert (padded.kernels[0].read, padded.kernels[0].written) == (4 * 64 * 50, 4 * 64 * 57)


@pytest.mark.parametrize(("rows", "table"), [(28, 1000), (5000, 100)])
def test_an_embedding_counts_the_most_that_can_be_touched(rows: int, table: int) -> None:
    weight, places = torch.randn(table, 64), torch.randint(0, table, (rows,))
    (kernel,) = counted(lambda w, i: F.embedding(i, w) * 2, weight, places).kernels
    by_shape = {buffer.shape: buffer for buffer in kernel.buffers}
    assert by_shape[table, 64].read == 4 * 64 * min(rows, table)
    assert by_shape[rows,].read == 8 * rows and not by_shape[rows,].is_at_most
    assert kernel.written == 4 * 64 * rows
    if rows < table:
        assert by_shape[table, 64].is_at_most and "depends on data" in kernel.notes[0]


def test_batch_norm_updates_its_statistics_in_place() -> None:
    norm = torch.nn.BatchNorm2d(8)
    count = counted(norm, torch.randn(4, 8, 16, 16))
    (front, _) = count.graphs
    n = 4 * 4 * 8 * 256
    # x, weight, bias, running mean and variance come in, and the count of batches
    assert front.read == n + 4 * 4 * 8 + 8
    changed = {b.name: b for b in front.buffers if b.use == "both"}
    assert sorted(b.total for b in changed.values()) == [16, 64, 64]
    assert front.written >= n + 2 * 4 * 8 + 8
    assert front.moved >= front.least


def test_max_pool_reads_the_windows_together_once() -> None:
    count = counted(lambda x: F.max_pool2d(x, 3, 2), torch.randn(4, 8, 64, 64))
    assert count.kernels[0].read == 4 * 32 * 63 * 63  # the last row and column are in no window
    assert count.kernels[0].written == 4 * 32 * 31 * 31


def test_attention_counts_inputs_and_outputs_of_the_call() -> None:
    q, k, v = (torch.randn(2, 4, 128, 64, dtype=torch.float16) for _ in range(3))
    count = counted(F.scaled_dot_product_attention, q, k, v)
    call = next(one for one in count.kernels if "attention" in one.name)
    assert call.is_library_call and call.read == 3 * 2 * q.numel()
    assert call.written >= 2 * q.numel()


def test_open_sizes_are_those_of_the_call() -> None:
    x, r = torch.randn(64, 100), torch.randn(64, 100)
    open_sizes = {"dynamic": True}
    count = counted(lambda x, r: torch.relu(x) + r, x, r, compile_options=open_sizes)
    assert count.total == 3 * 4 * 6400 and not count.kernels[0].is_at_most
    rows = counted(lambda x, r: torch.softmax(x + r, -1), x, r, compile_options=open_sizes)
    assert rows.least == 3 * 4 * 6400


def test_two_graphs_each_have_their_own_count() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x.cos()

    count = counted(broken, torch.randn(1000))
    assert [(one.index, one.least, one.moved) for one in count.graphs] == [
        (0, 8000, 8000),
        (1, 8000, 8000),
    ]
    assert count.total == count.least == 16_000
    (second,) = count.of(count.kernels[1].name, 1)
    assert second is count.kernels[1] and second.graph_index == 1


def test_it_reads_code_that_is_there_and_launches_of_one_kernel_apart() -> None:
    code = generated_code(lambda x: torch.sort(x * 2)[0] + 1, torch.randn(4, 70_000), target="a100")
    count = count_bytes_of(code)
    assert count.target == "a100" and count.origin == code.origin
    assert any(one.is_library_call and "sort" in one.name for one in count.kernels)
    sort = next(one for one in count.kernels if "sort" in one.name)
    assert sort.read == 4 * 280_000


def test_several_kernels_in_one_launch_count_together() -> None:
    parameters = [torch.randn(n) for n in (1000, 37, 5000)]
    count = counted(lambda *p: torch._foreach_add(list(p), 1.0), *parameters)
    (kernel,) = count.kernels
    assert kernel.kind == "foreach" and kernel.total == 2 * 4 * 6037


def test_cpp_is_counted_whole_and_says_so() -> None:
    count = counted(lambda x: torch.relu(x) + 1, torch.randn(64, 100), target="cpu")
    assert count.total == 2 * 4 * 6400
    assert count.kernels[0].is_at_most and "C++" in count.kernels[0].notes[0]


def test_a_prediction_is_bytes_over_bandwidth() -> None:
    count = counted(lambda x: x.cos(), torch.randn(1000, 1000))
    predicted = predicted_ms(count, "H200")
    assert predicted.ms == float(predicted) == pytest.approx(8e6 / 4.8e12 * 1e3)
    assert predicted.origin.kind == "predicted" and predicted.origin.device == "NVIDIA H200"
    assert "At least 0.001667 ms" in str(predicted) and "4,800 GB/s" in predicted._repr_html_()
    slower = predicted_ms(count, TARGETS["t4"])
    assert slower.ms / predicted.ms == pytest.approx(4800 / 320)
    with pytest.raises(ValueError, match="no target 'h2000'"):
        predicted_ms(count, "h2000")


def test_the_views_say_the_same() -> None:
    count = counted(lambda x: x.cos(), torch.randn(1000, 1000))
    text = "8.00 MB must move for 1 kernel launch in 1 graph"
    assert text in str(count) and text in count._repr_html_()
    assert [size_text(n) for n in (0, 999, 1000, 99_949, 4_090_000_000)] == [
        "0 B", "999 B", "1.00 kB", "99.9 kB", "4.09 GB",
    ]  # fmt: skip


def test_a_wrapper_in_cpp_is_refused_in_one_sentence() -> None:
    import dataclasses

    code = generated_code(lambda x: x.cos(), torch.randn(8), target="h200")
    graph = dataclasses.replace(code.graphs[0], wrapper="#include <torch/csrc/x.h>\nint main() {}")
    with pytest.raises(ValueError, match="Python wrapper"):
        count_bytes_of(dataclasses.replace(code, graphs=(graph,)))


# The sets behind the counts, against listing them.


def _random_set(rng: random.Random, shared: list) -> tuple[sets.Reach, set[int]]:
    steps = [0, 1, 2, 3, 4, 6, 8, 12, 40, -3]
    parts = [*shared, *((rng.choice(steps), rng.randint(1, 6)) for _ in range(rng.randint(0, 2)))]
    if rng.random() < 0.4:
        parts.append(np.array([rng.randint(0, 30) for _ in range(rng.randint(1, 5))]))
    base = rng.randint(200, 260)
    points = {base}
    for part in parts:
        offsets = part if isinstance(part, np.ndarray) else [part[0] * i for i in range(part[1])]
        points = {one + int(offset) for one in points for offset in offsets}
    return sets.reach(base, parts), points


@pytest.mark.parametrize("limit", [1 << 22, 0])
def test_unions_of_sets_are_what_listing_gives(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    rng = random.Random(1)
    exact = 0
    for _ in range(1500):
        shared = [(rng.choice([1, 2, 3, 5, 40, 100, -7]), rng.randint(1, 5)) for _ in range(2)]
        pairs = [_random_set(rng, shared) for _ in range(rng.randint(1, 4))]
        monkeypatch.setattr(sets, "LIMIT", limit)
        count, is_exact = sets.union_size([one for one, _ in pairs], 10**9)
        monkeypatch.undo()
        truth = len(set().union(*(points for _, points in pairs)))
        assert count == truth if is_exact else count >= truth
        exact += is_exact
    assert exact == 1500 if limit else exact > 100


def test_a_set_of_billions_is_not_listed() -> None:
    rows = sets.reach(0, [(1, 64), (128, 2**30)])
    other = rows.moved(64)
    assert sets.union_size([rows, other], 2**37) == (2**37, True)
    assert sets.union_size([rows, rows.moved(32)], 2**37) == (96 * 2**30, True)


def _sum(rng: random.Random, places: list[Value]) -> Value:
    total = const(rng.randint(-3, 3))
    for _ in range(rng.randint(1, 3)):
        term = apply("mul", rng.choice(places), const(rng.choice([1, 1, 2, 3, 7, 12, 60])))
        total = apply(rng.choice(["add", "add", "sub"]), total, term)
    return total


def test_addresses_under_masks_are_what_listing_gives() -> None:
    rng = random.Random(3)
    for _ in range(1500):
        x, r = Root("x", rng.choice([12, 24, 60, 13])), Root("r", rng.choice([1, 5, 7, 8]))
        tens = apply("mod", apply("floordiv", place(x), const(2)), const(rng.choice([2, 3, 6])))
        places = [place(x), place(r), tens]
        places.append(apply("floordiv", place(x), const(rng.choice([2, 3, 4, 12]))))
        places.append(apply("mod", place(x), const(rng.choice([2, 3, 4, 5, 12]))))
        index, mask = _sum(rng, places), const(True)
        if rng.random() < 0.3:
            index = apply("add", index, apply("mod", _sum(rng, places), const(5)))
        for _ in range(rng.randint(0, 3)):
            left = rng.choice([_sum(rng, places), rng.choice(places), index])
            op = rng.choice(["lt", "ge", "le", "gt"])
            mask = apply("and", mask, apply(op, left, const(rng.randint(-2, 20))))
        grid = dict(
            zip("xr", np.meshgrid(range(x.size), range(r.size), indexing="ij"), strict=True)
        )

        def at(one: Any, grid: dict = grid) -> np.ndarray:
            number = grid[one.root.name] // one.div
            return number if one.mod is None else number % one.mod

        kept = np.broadcast_to(np.asarray(evaluate(mask, at), bool), (x.size, r.size))
        truth = np.unique(np.broadcast_to(evaluate(index, at), kept.shape)[kept])
        assert sets.union_size([addressed(index, mask)], 10**9) == (len(truth), True)


def test_what_kernels_of_the_h200_touch_is_what_running_them_touches() -> None:
    texts = json.loads(RECORDING.read_text())["texts"]
    ran, exact = 0, 0
    for text in texts:
        signature = read_signature(text)
        assert signature is not None
        try:
            loaded, stored = touched(text, dict(signature.types))
        except Unable:
            continue
        ran += 1
        accesses = read_accesses(text, {})
        for truth, kinds in ((loaded, ("load", "atomic")), (stored, ("store", "atomic"))):
            for name in signature.pointers:
                found = [one for one in accesses if one.pointer == name and one.kind in kinds]
                reaches = [addressed(one.index, one.mask) for one in found]
                count, is_exact = sets.union_size(reaches, 10**12)
                there = truth.get(name, 0)
                assert count == there if is_exact else count >= there, (name, text)
                exact += is_exact
    print(f"{ran} of {len(texts)} kernels ran, {exact} counts were exact")
    assert ran > 0.5 * len(texts) and exact > 5 * ran
