"""What a case of the fidelity list is, and how a module of cases puts its functions on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

Maker = Callable[[str], tuple[Callable[..., Any], tuple[Any, ...]]]


@dataclass(frozen=True)
class Case:
    """One function that is compiled, with what it is called with.

    fn: a function or a module; args: its arguments, on the device asked for; grad: True = train
    (grad mode on, then backward of `loss_of`), False = called under `torch.no_grad()`; dynamic:
    as in `torch.compile`; what: one line; options: more arguments of `torch.compile`.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    grad: bool
    dynamic: bool | None
    what: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """How one case is made: `make(device)` gives its function and arguments."""

    make: Maker
    what: str
    grad: bool
    dynamic: bool | None
    options: dict[str, Any]

    def case(self, device: str) -> Case:
        """Makes the case on `device`, from the same seed each time."""
        torch.manual_seed(0)
        fn, args = self.make(device)
        return Case(fn, args, self.grad, self.dynamic, self.what, self.options)


class Entries(dict[str, Entry]):
    """The cases of one module by name: the name of the function that makes each."""

    def add(
        self, what: str, *, grad: bool = False, dynamic: bool | None = None, **options: Any
    ) -> Callable[[Maker], Maker]:
        """Returns a decorator that puts its function on the list; a name twice is an error."""

        def decorate(make: Maker) -> Maker:
            if make.__name__ in self:
                raise ValueError(f"two cases are named {make.__name__}")
            self[make.__name__] = Entry(make, what, grad, dynamic, options)
            return make

        return decorate


def loss_of(outputs: Any) -> torch.Tensor:
    """Returns the sum of the floating-point outputs that require grad; an error if none does."""
    tensors = [
        leaf
        for leaf in torch.utils._pytree.tree_leaves(outputs)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.requires_grad
    ]
    if not tensors:
        raise ValueError("no output requires grad, so there is nothing to go backward from")
    return sum((tensor.sum() for tensor in tensors[1:]), start=tensors[0].sum())


def randn(
    *shape: int, device: str, dtype: torch.dtype = torch.float32, grad: bool = False
) -> torch.Tensor:
    """Returns normal random numbers made on `device`."""
    return torch.randn(*shape, device=device, dtype=dtype, requires_grad=grad)


def integers(high: int, *shape: int, device: str) -> torch.Tensor:
    """Returns random int64 numbers from 0 to `high` - 1, made on `device`."""
    return torch.randint(0, high, shape, device=device)
