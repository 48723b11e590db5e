"""Snapshot: what it reaches, and that it writes only where something changed."""

import collections

import numpy as np
import pytest
import torch

from helpers.snapshot import Snapshot


class Slotted:
    __slots__ = ("state",)


def test_containers_and_objects_are_put_back_into_the_same_objects():
    slotted, queue = Slotted(), collections.deque([1, 2])
    slotted.state = [1]
    value = {
        "list": [1, [2]],
        "set": {1},
        "queue": queue,
        "slots": slotted,
        "bytes": bytearray(b"a"),
    }
    inner = value["list"][1]
    snapshot = Snapshot(value)
    inner.append(3)
    value["list"].clear()
    value["set"].add(2)
    queue.append(3)
    slotted.state.append(2)
    slotted.state = None
    value["bytes"] += b"b"
    value["new"] = value.pop("set")
    snapshot.restore()
    assert list(value) == ["list", "set", "queue", "slots", "bytes"]
    assert value["list"] == [1, [2]]
    assert value["list"][1] is inner
    assert value["set"] == {1}
    assert value["queue"] is queue
    assert list(queue) == [1, 2]
    assert slotted.state == [1]
    assert value["bytes"] == b"a"


def test_what_did_not_change_is_not_written():
    weight = torch.nn.Parameter(torch.ones(2))
    version = weight._version
    array = np.ones(2)
    array.flags.writeable = False
    Snapshot(weight, array).restore()
    assert weight._version == version


def test_layout_dtype_and_views_are_put_back():
    base = torch.arange(6.0)
    view = base[2:4]
    snapshot = Snapshot(base, view)
    view.mul_(-1)
    base.data = base.data.to(torch.float64).reshape(2, 3)
    snapshot.restore()
    assert base.dtype == torch.float32
    assert base.tolist() == [0, 1, 2, 3, 4, 5]


def test_an_optimizer_given_as_an_argument_is_put_back():
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([weight])
    snapshot = Snapshot(optimizer)
    weight.grad = torch.ones(2)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 5
    snapshot.restore()
    assert weight.tolist() == [1, 1]
    assert weight.grad is None
    assert len(optimizer.state) == 0
    assert optimizer.param_groups[0]["lr"] == 1e-3


def test_unusual_tensors_and_arrays_are_survived_without_a_word(recwarn):
    array, negative = np.arange(6.0), torch._neg_view(torch.ones(2))
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    snapshot = Snapshot(array, negative, nested)
    array.shape = (3, 2)
    snapshot.restore()
    assert array.shape == (6,)
    assert not [w for w in recwarn.list if "could not be put back" in str(w.message)]


def test_what_cannot_be_put_back_is_named_and_the_rest_still_is():
    class Stubborn(list):
        def clear(self):
            raise RuntimeError("no")

    stubborn, plain = Stubborn([1]), [1]
    snapshot = Snapshot(stubborn, plain)
    stubborn.append(2)
    plain.append(2)
    with pytest.warns(UserWarning, match="could not be put back .RuntimeError: no"):
        snapshot.restore()
    assert plain == [1]


def test_attributes_of_containers_and_the_base_of_a_view_are_put_back():
    class Named(list):
        pass

    named, base = Named([1]), torch.zeros(4)
    named.label = "a"
    snapshot = Snapshot(named, base[2:])
    named.label = "b"
    base.add_(1)
    snapshot.restore()
    assert named.label == "a"
    assert base.tolist() == [0, 0, 0, 0]


def test_protect_copies_only_what_will_be_rewritten():
    changed, kept = torch.zeros(2), torch.zeros(2)
    snapshot = Snapshot(changed, kept)
    changed.add_(1)
    first, second = snapshot.protect((changed, kept))
    snapshot.restore()
    assert first.tolist() == [1, 1]
    assert second is kept


def test_inference_meta_and_sparse_tensors_are_survived():
    with torch.inference_mode():
        inference = torch.ones(2)
    sparse = torch.eye(2).to_sparse()
    complex_ones = torch.ones(2, dtype=torch.complex64)
    snapshot = Snapshot(inference, sparse, complex_ones, torch.ones(2, device="meta"))
    with torch.inference_mode():
        inference.add_(1)
    complex_ones.mul_(1j)
    snapshot.restore()
    assert inference.tolist() == [1, 1]
    assert sparse.to_dense().tolist() == [[1, 0], [0, 1]]  # left alone, and no error
    assert complex_ones.tolist() == [1, 1]
