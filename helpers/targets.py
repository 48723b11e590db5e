"""The GPUs that code can be generated for on a machine that has none of them.

To add one, add a `Target` to `_ALL` below: its key (lower case, no spaces), what
`torch.cuda.get_device_properties(0)` says on such a card, the peaks of its data sheet without
sparsity, and for each group of figures where it is from. Where you have the card, print
`torch.cuda.get_device_properties(0)` on it; else take a `deviceQuery` dump for "card" and NVIDIA's
tuning guide of the architecture for "limits". Fill every field: Inductor computes with them, and
an invented 0 gives other code than the card's. `tests/unit/test_targets.py` checks how the
figures hang together.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass, field

_KIB, _MIB, _GIGA, _TERA = 1024, 1024**2, 10**9, 10**12


@dataclass(frozen=True)
class Target:
    """One model of GPU, as CUDA describes it and as its data sheet rates it.

    Sizes in bytes, clocks in kHz, bandwidth in bytes/s, peaks in floating-point operations/s:
    dense (no sparsity), boost clock. `peak_tf32` is None where the card has no TF32.
    `peak_half` is for fp16 tensor cores with fp32 accumulation, and for bf16 from compute
    capability 8.0 on. sources: group of figures ("card", "limits", "peaks") to where it is from.
    """

    key: str
    name: str
    capability: tuple[int, int]
    multi_processor_count: int
    max_threads_per_multi_processor: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    l2_cache_size: int
    total_memory: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    memory_bandwidth: float
    peak_fp32: float
    peak_tf32: float | None
    peak_half: float
    sources: Mapping[str, str] = field(repr=False)
    # The same for every capability from 7.5 to 10.0 (CUDA C++ Programming Guide, table
    # "Technical Specifications per Compute Capability").
    warp_size: int = 32
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 48 * _KIB

    @property
    def compute_capability(self) -> int:
        """Major and minor as one number, as Triton and Inductor write it: 90 for (9, 0)."""
        return self.capability[0] * 10 + self.capability[1]

    def properties(self) -> types.SimpleNamespace:
        """What stands in for `torch.cuda.get_device_properties(0)`, with torch's field names."""
        return types.SimpleNamespace(
            name=self.name,
            major=self.capability[0],
            minor=self.capability[1],
            multi_processor_count=self.multi_processor_count,
            warp_size=self.warp_size,
            max_threads_per_block=self.max_threads_per_block,
            max_threads_per_multi_processor=self.max_threads_per_multi_processor,
            regs_per_multiprocessor=self.regs_per_multiprocessor,
            shared_memory_per_block=self.shared_memory_per_block,
            shared_memory_per_block_optin=self.shared_memory_per_block_optin,
            shared_memory_per_multiprocessor=self.shared_memory_per_multiprocessor,
            total_memory=self.total_memory,
            L2_cache_size=self.l2_cache_size,
            clock_rate=self.clock_rate,
            memory_clock_rate=self.memory_clock_rate,
            memory_bus_width=self.memory_bus_width,
            gcnArchName="",
            uuid="",
            pci_bus_id=0,
            pci_device_id=0,
            pci_domain_id=0,
            is_multi_gpu_board=0,
            is_integrated=0,
        )


_DUMP = "deviceQuery on the card (NVIDIA cuda-samples), as published in public repositories"
_GUIDE = "NVIDIA, {} Tuning Guide, https://docs.nvidia.com/cuda/{}-tuning-guide/"
_SPARSE = "; it gives tensor figures with sparsity, halved here"
_HOPPER = "NVIDIA H{0} data sheet, SXM, https://www.nvidia.com/en-us/data-center/h{0}/"

_T4 = Target(
    key="t4",
    name="Tesla T4",
    capability=(7, 5),
    multi_processor_count=40,
    max_threads_per_multi_processor=1024,
    shared_memory_per_block_optin=64 * _KIB,
    shared_memory_per_multiprocessor=64 * _KIB,
    l2_cache_size=4 * _MIB,
    total_memory=15843721216,
    clock_rate=1_590_000,
    memory_clock_rate=5_001_000,
    memory_bus_width=256,
    memory_bandwidth=320 * _GIGA,
    peak_fp32=8.1 * _TERA,
    peak_tf32=None,
    peak_half=65 * _TERA,
    sources={
        "card": _DUMP,
        "limits": _GUIDE.format("Turing", "turing"),
        "peaks": "NVIDIA T4 data sheet, https://www.nvidia.com/en-us/data-center/tesla-t4/; "
        "bandwidth also as clock times bus width",
    },
)

_A100 = Target(
    key="a100",
    name="NVIDIA A100-SXM4-80GB",
    capability=(8, 0),
    multi_processor_count=108,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block_optin=163 * _KIB,
    shared_memory_per_multiprocessor=164 * _KIB,
    l2_cache_size=40 * _MIB,
    total_memory=84987740160,
    clock_rate=1_410_000,
    memory_clock_rate=1_593_000,
    memory_bus_width=5120,
    memory_bandwidth=2039 * _GIGA,
    peak_fp32=19.5 * _TERA,
    peak_tf32=156 * _TERA,
    peak_half=312 * _TERA,
    sources={
        "card": _DUMP,
        "limits": _GUIDE.format("Ampere", "ampere"),
        "peaks": "NVIDIA A100 data sheet, 80GB SXM, https://www.nvidia.com/content/dam/en-zz/"
        "Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf",
    },
)

_L4 = Target(
    key="l4",
    name="NVIDIA L4",
    capability=(8, 9),
    multi_processor_count=58,
    max_threads_per_multi_processor=1536,
    shared_memory_per_block_optin=99 * _KIB,
    shared_memory_per_multiprocessor=100 * _KIB,
    l2_cache_size=48 * _MIB,
    total_memory=23612293120,
    clock_rate=2_040_000,
    memory_clock_rate=6_251_000,
    memory_bus_width=192,
    memory_bandwidth=300 * _GIGA,
    peak_fp32=30.3 * _TERA,
    peak_tf32=60 * _TERA,
    peak_half=121 * _TERA,
    sources={
        "card": _DUMP,
        "limits": _GUIDE.format("Ada", "ada"),
        "peaks": "NVIDIA L4 data sheet, https://www.nvidia.com/en-us/data-center/l4/" + _SPARSE,
    },
)

_RTX4090 = Target(
    key="rtx4090",
    name="NVIDIA GeForce RTX 4090",
    capability=(8, 9),
    multi_processor_count=128,
    max_threads_per_multi_processor=1536,
    shared_memory_per_block_optin=99 * _KIB,
    shared_memory_per_multiprocessor=100 * _KIB,
    l2_cache_size=72 * _MIB,
    total_memory=25756696576,
    clock_rate=2_520_000,
    memory_clock_rate=10_501_000,
    memory_bus_width=384,
    memory_bandwidth=1008 * _GIGA,
    peak_fp32=82.6 * _TERA,
    peak_tf32=82.6 * _TERA,
    peak_half=165.2 * _TERA,
    sources={
        "card": _DUMP + "; NVIDIA/nvbench#207 prints the same",
        "limits": _GUIDE.format("Ada", "ada"),
        "peaks": "NVIDIA Ada GPU architecture whitepaper, as listed at "
        "https://waredb.com/processor/nvidia-geforce-rtx-4090; dense, fp32 accumulation",
    },
)

_H100 = Target(
    key="h100",
    name="NVIDIA H100 80GB HBM3",
    capability=(9, 0),
    multi_processor_count=132,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block_optin=227 * _KIB,
    shared_memory_per_multiprocessor=228 * _KIB,
    l2_cache_size=50 * _MIB,
    total_memory=85045477376,
    clock_rate=1_980_000,
    memory_clock_rate=2_619_000,
    memory_bus_width=5120,
    memory_bandwidth=3350 * _GIGA,
    peak_fp32=67 * _TERA,
    peak_tf32=494.5 * _TERA,
    peak_half=989.5 * _TERA,
    sources={
        "card": _DUMP,
        "limits": _GUIDE.format("Hopper", "hopper"),
        "peaks": _HOPPER.format(100) + _SPARSE,
    },
)

_H200 = Target(
    key="h200",
    name="NVIDIA H200",
    capability=(9, 0),
    multi_processor_count=132,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block_optin=227 * _KIB,
    shared_memory_per_multiprocessor=228 * _KIB,
    l2_cache_size=60 * _MIB,
    total_memory=150109880320,
    clock_rate=1_980_000,
    memory_clock_rate=3_201_000,
    memory_bus_width=6016,
    memory_bandwidth=4800 * _GIGA,
    peak_fp32=67 * _TERA,
    peak_tf32=494.5 * _TERA,
    peak_half=989.5 * _TERA,
    sources={
        "card": "torch.cuda.get_device_properties(0) on an H200, torch 2.11.0, "
        "driver 580.159.04, 2026-11-30",
        "limits": "the same",
        "peaks": _HOPPER.format(200) + _SPARSE,
    },
)

_B200 = Target(
    key="b200",
    name="NVIDIA B200",
    capability=(10, 0),
    multi_processor_count=148,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block_optin=227 * _KIB,
    shared_memory_per_multiprocessor=228 * _KIB,
    l2_cache_size=253 * _MIB // 2,
    total_memory=182642 * _MIB,
    clock_rate=1_980_000,
    memory_clock_rate=3_996_000,
    memory_bus_width=7680,
    memory_bandwidth=7672 * _GIGA,
    peak_fp32=75 * _TERA,
    peak_tf32=1100 * _TERA,
    peak_half=2250 * _TERA,
    sources={
        "card": "CUDA properties printed on a B200 in https://github.com/pytorch/ao/pull/4002; "
        "total memory from a torch.cuda.get_device_properties print in a public repository; "
        "SM clock worked out from peak_fp32",
        "limits": _GUIDE.format("Blackwell", "blackwell"),
        "peaks": "HGX B200 at 1000 W, one GPU, as listed at "
        "https://glennklockwood.com/garden/processors/B200 (tensor) and "
        "https://hmc-tech.com/gpus/nvidia-b200-vs-nvidia-gb200 (fp32); bandwidth measured bus "
        "times clock in pytorch/ao#4002, where announcements round it to 8 TB/s",
    },
)

_ALL = (_T4, _A100, _L4, _RTX4090, _H100, _H200, _B200)

TARGETS: Mapping[str, Target] = types.MappingProxyType({one.key: one for one in _ALL})


def find_target(name: str) -> Target:
    """The target of that name; case, spaces, hyphens and underscores do not matter.

    ValueError, listing the names and the nearest one, where there is none.
    """
    wanted = re.sub(r"[\s_-]+", "", str(name)).lower()
    for target in TARGETS.values():
        if wanted in (target.key, re.sub(r"[\s_-]+", "", target.name).lower()):
            return target
    known = ", ".join(TARGETS)
    near = difflib.get_close_matches(wanted, TARGETS, n=1, cutoff=0.3)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise ValueError(f"There is no target {name!r}: choose one of {known}{hint}")
