"""What a wrapper speaks of: pieces of memory, views of them, and the calls that are given them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from helpers.address_sets import Reach, strided, whole
from helpers.generated import Kernel

DTYPES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex32": 4,
    "complex64": 8, "complex128": 16, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
}  # fmt: skip
# Triton's names of the same, as they stand in a kernel's signature.
TRITON_DTYPES = {
    "i1": "bool", "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32",
    "u32": "uint32", "i64": "int64", "u64": "uint64", "fp16": "float16", "bf16": "bfloat16",
    "fp32": "float32", "fp64": "float64", "fp8e4nv": "float8_e4m3fn", "fp8e5": "float8_e5m2",
    "fp8e4b8": "float8_e4m3fnuz", "fp8e5b16": "float8_e5m2fnuz",
}  # fmt: skip


@dataclass(eq=False)
class Storage:
    """A piece of memory: size in elements (0: not known) of dtype ("" not known); which of its
    lives its names of the moment belong to; is_input: it came from outside the graph.
    """

    name: str
    size: int = 0
    dtype: str = ""
    is_input: bool = False
    life: int = 0
    made_from: str = ""  # dtype of what a library made it from, for want of a better word
    made_by: str = ""

    @property
    def itemsize(self) -> int:
        """Bytes per element; 4 if the dtype is not known."""
        return DTYPES.get(self.dtype or self.made_from, 4)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A name in a wrapper: a view of a storage, in one of its lives."""

    name: str
    storage: Storage
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0
    life: int = 0

    @property
    def elements(self) -> Reach:
        """The elements that it shows."""
        if self.shape is None:
            return whole(self.storage.size)
        return strided(self.shape, self.strides).moved(self.offset)


@dataclass(frozen=True)
class Call:
    """One launch of a kernel, or one call of a library (kernel None).

    given: each tensor argument with the parameter that it is for ("" for libraries); numbers:
    integer arguments by parameter; made: tensors that a library call returns or fills; in_place:
    those that it changes; itemsizes: bytes per element of what each parameter points to.
    """

    name: str
    kernel: Kernel | None
    given: tuple[tuple[str, Tensor], ...]
    numbers: Mapping[str, int] = field(default_factory=dict)
    made: tuple[Tensor, ...] = ()
    in_place: tuple[Tensor, ...] = ()
    itemsizes: Mapping[str, int] = field(default_factory=dict)
