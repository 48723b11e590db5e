"""A GPU that is not here, as Inductor and Triton see it. (Private names of both; see DESIGN 4.)

While `pretended_driver(target)` holds, what Inductor and Triton ask about the card is answered
from `target`, but only in the thread that is inside: every other thread gets the real answers.
What they memoise is forgotten on the way in and on the way out, so nothing learned from the
pretended card outlives it. (Memoised answers are the process's: a thread that compiles for real
at the same moment can still read one, which is why the worker process is the usual way.)

`torch.cuda.is_available` has to be among the answers. Inductor asks it while it lowers: whether
bf16 atomic adds fall back (cards before 9.0), whether TMA and Blackwell templates exist, how the
persistent reductions' configurations are chosen, whether it is a B200, and more. Tracing must
not see it: Dynamo would go on to real CUDA calls. So hold this around lowering and compiling
only, never around `torch.compile`'s tracing.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from helpers.targets import Target

# One pretence at a time; nested use in the same thread is fine.
_lock = threading.RLock()
_inside: list[Target] = []
_owner: int | None = None

# Modules and the names in them (None: all) that memoise an answer about the card.
_MEMOS: dict[str, tuple[str, ...] | None] = {
    "torch.utils._triton": None,
    "torch._inductor.utils": (
        "is_big_gpu",
        "get_max_num_sms",
        "using_b200",
        "get_backend_num_stages",
        "get_device_tflops",
        "get_gpu_dram_gbps",
        "get_gpu_type",
        "_triton_supported_fp8_dtypes",
    ),
    "torch._inductor.runtime.hints": ("DeviceProperties.create",),
    "torch._inductor.codecache": ("CacheBase.get_system",),
    "torch._inductor.comm_analysis": ("get_gpu_type", "_has_nvlink"),
    "torch._dynamo.debug_utils": ("_cuda_system_info_comment",),
    "torch._inductor.compile_fx": ("_warn_tf32_disabled",),
    "torch._inductor.fx_passes.fuse_attention": ("_warn_tf32_disabled",),
    "torch._inductor.kernel.mm": ("_is_sm7x_or_older_gpu",),
    "torch._inductor.select_algorithm": ("get_num_workers",),
    "torch._inductor.codegen.cuda.cuda_env": ("get_cuda_arch", "is_datacenter_blackwell_arch"),
}


def current_target() -> Target | None:
    """The target that this thread pretends to have, innermost first; None outside."""
    return _inside[-1] if _inside and _owner == threading.get_ident() else None


class _Driver:
    """What Triton asks of its driver while it only compiles; the real one in other threads."""

    def __init__(self, config: Any, slot: str, previous: Any) -> None:
        vars(self).update(_config=config, _slot=slot, _previous=previous)

    def _real(self) -> Any:
        previous = vars(self)["_previous"]
        return previous if previous is not None else vars(self)["_config"].default

    @property
    def __class__(self) -> type:
        # `isinstance(driver.active, ...)` decides elsewhere whether the real driver is active.
        return _Driver if current_target() else type(self._real())

    def __getattr__(self, name: str) -> Any:
        target = current_target()
        if target is None:
            return getattr(self._real(), name)
        answers = _driver_answers(target)
        if name not in answers:
            raise AttributeError(f"the driver of a pretended {target.name} has no {name!r}")
        return answers[name]


class _Utils:
    def __init__(self, target: Target) -> None:
        self._target = target

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        target = self._target
        return {
            "max_shared_mem": target.shared_memory_per_block_optin,
            "max_num_regs": target.regs_per_multiprocessor,
            "multiprocessor_count": target.multi_processor_count,
            "warpSize": target.warp_size,
            "sm_clock_rate": target.clock_rate,
            "mem_clock_rate": target.memory_clock_rate,
            "mem_bus_width": target.memory_bus_width,
        }


def _driver_answers(target: Target) -> dict[str, Any]:
    import torch
    from triton.backends.compiler import GPUTarget

    gpu = GPUTarget("cuda", target.compute_capability, target.warp_size)

    def no_times(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{target.name} is not here, so nothing can be timed on it.")

    return {
        "utils": _Utils(target),
        "is_active": lambda: True,
        "get_current_target": lambda: gpu,
        "get_current_device": lambda: 0,
        "set_current_device": lambda device: None,
        "get_current_stream": lambda device=None: 0,
        "get_device_capability": lambda device=0: target.capability,
        "get_active_torch_device": lambda: torch.device("cuda", 0),
        "get_device_interface": lambda: torch.cuda,
        "get_benchmarker": lambda: no_times,
        "map_python_to_cpp_type": lambda kind: "void*",
    }


_Answer = Callable[..., Any]  # gets the target, then the arguments of the call


def _constant(value: Any) -> _Answer:
    return lambda target, *args, **kwargs: value


def _bf16(target: Target, including_emulation: bool = True) -> bool:
    return target.capability >= (8, 0) or including_emulation


_NOTHING, _ZERO, _YES = _constant(None), _constant(0), _constant(True)

# Asked of torch.cuda and of Dynamo's interface to it alike.
_BOTH: dict[str, _Answer] = {
    "get_device_properties": lambda target, *_, **__: target.properties(),
    "current_device": _ZERO,
    "set_device": _NOTHING,
    "device_count": _constant(1),
    "is_available": _YES,
    "is_bf16_supported": _bf16,
    "synchronize": _NOTHING,
    "memory_allocated": _ZERO,
}
_INTERFACE: dict[str, _Answer] = {
    **_BOTH,
    "get_compute_capability": lambda target, *_, **__: target.compute_capability,
    "is_triton_capable": _YES,
    "raise_if_triton_unavailable": _NOTHING,
    "exchange_device": _ZERO,
    "maybe_exchange_device": _ZERO,
    "get_raw_stream": _ZERO,
}
_WORKER = {name: _BOTH[name] for name in ("get_device_properties", "current_device", "set_device")}


def _cuda_answers() -> dict[str, _Answer]:
    import torch

    return {
        **_BOTH,
        "get_device_capability": lambda target, *_, **__: target.capability,
        "get_device_name": lambda target, *_, **__: target.name,
        "is_tf32_supported": lambda target, *_, **__: target.capability >= (8, 0),
        "mem_get_info": lambda target, *_, **__: (target.total_memory,) * 2,
        "max_memory_allocated": _ZERO,
        "_exchange_device": _ZERO,
        "_maybe_exchange_device": _ZERO,
        "_lazy_init": _NOTHING,
        "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8, device="cpu"),
        "set_rng_state": _NOTHING,
    }


def _answers() -> Iterator[tuple[Any, str, _Answer]]:
    """(owner, name, answer) for all that is asked about the card."""
    import torch
    import torch._subclasses.fake_tensor as fake_tensor
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.runtime import triton_helpers

    tables = {
        torch.cuda: _cuda_answers(),
        CudaInterface: _INTERFACE,
        CudaInterface.Worker: _WORKER,
        triton_helpers: {"set_driver_to_gpu": _NOTHING},
        # A fake tensor on cuda would else initialise CUDA.
        fake_tensor: {"init_gpu_context": _NOTHING},
    }
    for owner, table in tables.items():
        for name, answer in table.items():
            yield owner, name, answer


_MISSING = object()


def _told(real: Any, answer: _Answer) -> Callable[..., Any]:
    def told(*args: Any, **kwargs: Any) -> Any:
        target = current_target()
        return real(*args, **kwargs) if target is None else answer(target, *args, **kwargs)

    return told


class _Replacements:
    """What was replaced and by what it was there before; `undo` may be called again."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, vars(owner).get(name, _MISSING)))
        setattr(owner, name, value)

    def answer(self, owner: Any, name: str, answer: _Answer) -> None:
        if hasattr(owner, name):
            told = _told(getattr(owner, name), answer)
            self.put(owner, name, staticmethod(told) if isinstance(owner, type) else told)

    def undo(self) -> None:
        while self._before:
            owner, name, value = self._before[-1]
            if value is not _MISSING:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)
            self._before.pop()

    def all(self) -> None:
        import torch
        from triton.runtime import driver

        for owner, name, answer in _answers():
            self.answer(owner, name, answer)
        if not hasattr(torch._C, "_cuda_getCurrentRawStream"):  # torch's wheel without CUDA
            self.put(torch._C, "_cuda_getCurrentRawStream", lambda device: 0)
        slot = "_active" if "_active" in vars(driver) else "active"
        self.put(driver, slot, _Driver(driver, slot, vars(driver)[slot]))


def _forget() -> None:
    """Clear what is memoised about the card, in the modules that are imported."""
    for module_name, names in _MEMOS.items():
        module = sys.modules.get(module_name)
        if module is None:
            continue
        for name in vars(module) if names is None else names:
            found: Any = module
            for part in name.split("."):
                found = getattr(found, part, None)
            found = getattr(found, "__func__", found)
            if hasattr(found, "cache_clear"):
                found.cache_clear()


@contextlib.contextmanager
def pretended_driver(target: Target) -> Iterator[Target]:
    """Let Inductor and Triton, in this thread, see a card like `target` until the end of the block.

    Everything is put back whatever happens inside. Nested use works, also with another target;
    another thread that enters waits until this one has left. Needs the triton package
    (ImportError without it).
    """
    global _owner
    importlib.import_module("triton.runtime")
    importlib.import_module("torch._inductor.runtime.triton_heuristics")
    with _lock:
        outermost, replaced = not _inside, _Replacements()
        depth = len(_inside)
        try:
            if outermost:
                _owner = threading.get_ident()
                replaced.all()
            _forget()
            _inside.append(target)
            yield target
        finally:
            try:
                del _inside[depth:]
                replaced.undo()
            finally:  # an interrupt may have cut the above short: each step may be repeated
                del _inside[depth:]
                replaced.undo()
                if outermost:
                    _owner = None
                _forget()
