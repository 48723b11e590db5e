"""Generates the code of the list's functions: `python -m tests.fidelity.generate OUT NAME ...`.

Two such processes share the list, each with a compile worker of its own, so that two cores are
busy. What came of each function is pickled to OUT.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROCESSES = 2


@dataclass(frozen=True)
class Generated:
    """What `generated_code` gave for one function: graphs, error (""), why there is no result.

    captures: False where torch itself captures nothing of the function on this version.
    """

    graphs: tuple[Any, ...]
    error: str = ""
    no_result: str = ""
    captures: bool = True


def generate(name: str) -> Generated:
    """Generates the code of one function of the list for the H200."""
    import torch

    from helpers import CannotGenerate, generated_code
    from tests.fidelity import functions, wrapper_parts

    make = functions.build if name in functions.NAMES else functions.build_cuda_only
    case = make("cpu", [name])[name]
    options = {"dynamic": case.dynamic} if case.dynamic is not None else {}
    try:
        with torch.set_grad_enabled(case.grad):
            code = generated_code(
                case.fn, *case.args, target="h200", backward=case.grad,
                compile_options=options | case.options,
            )  # fmt: skip
    except CannotGenerate as failure:
        return Generated((), f"CannotGenerate: {failure}", captures=_captures(case))
    except Exception as failure:
        return Generated((), f"{type(failure).__name__}: {failure}")
    for index, graph in enumerate(code.graphs):
        texts = [text.source.strip() for text in wrapper_parts.parts(graph.wrapper).kernels]
        shown = [k.source.strip() for k in code.kernels if k.graph_index == index]
        if texts != shown:
            return Generated(code.graphs, f"graph {index}: .kernels are not its wrapper's")
    return Generated(code.graphs, no_result=code.unavailable.get("result", ""))


def _captures(case: Any) -> bool:
    import torch

    graphs = []
    torch._dynamo.reset()
    torch.compile(case.fn, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)(*case.args)
    return bool(graphs)


def generate_all(names: Sequence[str]) -> dict[str, Generated]:
    """Generates the code of these functions, in processes side by side."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder, f"{number}.pickle") for number in range(PROCESSES)]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.fidelity.generate", str(out), *names[i::PROCESSES]],
                cwd=ROOT, env=os.environ | {"PYTHONPATH": path},
            )
            for i, out in enumerate(outs)
        ]  # fmt: skip
        ends = [process.wait() for process in running]
        if any(ends):
            raise RuntimeError(f"a process that generates code ended with {max(ends)}")
        made = [pickle.loads(out.read_bytes()) for out in outs]
    return {name: Generated(**fields) for part in made for name, fields in part.items()}


if __name__ == "__main__":
    # As plain fields: this module goes by another name in the process that reads them.
    Path(sys.argv[1]).write_bytes(
        pickle.dumps({name: vars(generate(name)) for name in sys.argv[2:]})
    )
