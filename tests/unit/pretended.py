"""Asks torch's own C++ about fake tensors on cuda:0 through a CUDA runtime that only pretends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

HERE = Path(__file__).parent


def said_by(script: str, folder: Path, *arguments: str, **environment: str) -> str:
    """Runs a script of this folder with the runtime built into `folder`; returns what it prints."""
    compiler = shutil.which("cc")
    if not compiler or not torch.version.cuda:
        pytest.skip("needs a C compiler and a CUDA build of torch")
    for name, source in (
        ("runtime.so", "pretended_cudart.c"),
        ("libcuda.so.1", "pretended_cuda.c"),
    ):
        command = [compiler, "-shared", "-fPIC", "-o", str(folder / name), str(HERE / source)]
        subprocess.run(command, check=True)
    environment = (
        os.environ
        | environment
        | {
            "LD_PRELOAD": str(folder / "runtime.so"),
            "LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
    )
    command = [sys.executable, str(HERE / script), *arguments]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    return run.stdout


class Record(TorchDispatchMode):
    """Notes each operator that is called, with its arguments as `described` tells a tensor."""

    def __init__(self, described, left_out=()):
        super().__init__()
        self.calls, self.described, self.left_out = [], described, left_out

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func.name() not in ("prim::device", "aten::detach"):
            given = {
                k: v for k, v in (kwargs or {}).items() if v is not None and k not in self.left_out
            }
            self.calls.append((func.name(), repr(tree_map(self.described, (args, given)))))
        return out
