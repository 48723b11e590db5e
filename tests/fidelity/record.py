"""Records what torch.compile really generates on a CUDA machine for the fidelity list.

`python -m tests.fidelity.record [OUT]`, from the repository's root. Nothing of the suite's own is
used: each function is compiled and run as a user would, and Inductor's own hook for its output
code is listened to. The cases are shared among processes. Where Inductor measured to decide (the
padding of matmuls) the case is recorded again afterwards, with nothing else on the card and
nothing remembered, in two rounds: the card does not always decide alike. Where the second round
differs, it is kept beside the first, under "variants".
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any
from unittest import mock

from tests.fidelity.compare import normalised
from tests.fidelity.wrapper_parts import parts

HERE = Path(__file__).parent
RECORDING = HERE / "h200.json"
ROUNDS = 2  # of the cases in which Inductor measured
_MEASURED = "pad_mm_bench"  # Inductor's counter of the measurements it made to decide on padding


def record_case(case: Any) -> dict[str, Any]:
    """Compiles and runs one case; returns its wrappers, counters, and error ("" if none)."""
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    from tests.fidelity.case import loss_of

    wrappers: list[str] = []
    error = ""
    torch._dynamo.reset()
    counters.clear()
    with (
        config.patch(force_disable_caches=True),
        mock.patch.object(GraphLowering, "save_output_code", wrappers.append),
    ):
        try:
            compiled = torch.compile(case.fn, dynamic=case.dynamic, **case.options)
            with torch.set_grad_enabled(case.grad):
                outputs = compiled(*case.args)
            if case.grad:
                loss_of(outputs).backward()
        except Exception as failure:  # one that fails is noted, and the others still recorded
            error = f"{type(failure).__name__}: {str(failure)[:2000]}"
    graphs = [_graph(wrapper) for wrapper in wrappers]
    first = min((graph["number"] for graph in graphs), default=0)
    for graph in graphs:  # the process counts them; what matters is which belong together
        graph["number"] -= first
    return {
        "graphs": graphs,
        "counters": {name: int(count) for name, count in sorted(counters["inductor"].items())},
        "error": error,
    }


def _graph(wrapper: str) -> dict[str, Any]:
    found = parts(wrapper)
    return {
        "phase": found.phase,
        "number": found.number,
        "kernels": [{"name": kernel.name, "source": kernel.source} for kernel in found.kernels],
        "calls": list(found.calls),
    }


def record(names: Collection[str], device: str, out: Path) -> None:
    """Records these cases one after the other, and writes `out` after each."""
    from tests.fidelity.functions import NAMES, build, build_cuda_only

    cases: dict[str, Any] = {}
    for count, name in enumerate(names, 1):
        began = time.perf_counter()
        make = build if name in NAMES else build_cuda_only
        try:
            cases[name] = record_case(make(device, (name,))[name])
        except Exception as failure:
            error = f"{type(failure).__name__}: {str(failure)[:2000]}"
            cases[name] = {"graphs": [], "counters": {}, "error": error}
        kernels = sum(len(graph["kernels"]) for graph in cases[name]["graphs"])
        took = time.perf_counter() - began
        print(
            f"{count}/{len(names)} {name}: {kernels} kernels, {took:.1f} s"
            f"{'  ERROR ' + cases[name]['error'][:200] if cases[name]['error'] else ''}",
            flush=True,
        )
        beside = out.with_suffix(".new")  # so that what is there is whole when this is ended
        beside.write_text(json.dumps({"machine": machine(device), "cases": cases}))
        beside.replace(out)


def machine(device: str) -> dict[str, Any]:
    """Returns where a recording was made: versions, date, and what the card says of itself."""
    import torch

    said: dict[str, Any] = {
        "torch": torch.__version__,
        "device": device,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    if device == "cuda":
        import triton

        said["triton"] = triton.__version__
        said["gpu"] = torch.cuda.get_device_name(0)
        said["driver"] = _driver()
        said["properties"] = _properties(torch.cuda.get_device_properties(0))
    return said


def _properties(properties: Any) -> dict[str, Any]:
    """The plain fields; the ids of the one card are left out, for they say nothing of its kind."""
    fields = (name for name in dir(properties) if not name.startswith(("_", "pci_", "uuid")))
    values = {name: getattr(properties, name) for name in fields}
    return {name: value for name, value in values.items() if isinstance(value, (int, str))}


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=30)
    except OSError:
        return ""
    return done.stdout.split("\n")[0].strip()


def shared(names: list[str], device: str, jobs: int, until: float) -> dict[str, Any]:
    """Records in `jobs` processes; returns all their cases, and the machine.

    until: when they are ended, in seconds of `time.monotonic`; what is recorded by then is kept.
    """
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    together: dict[str, Any] = {"machine": {}, "cases": {}}
    with tempfile.TemporaryDirectory() as folder:
        # What Inductor measured, it remembers on disk, whatever force_disable_caches says.
        settings = {"TORCHINDUCTOR_COMPILE_THREADS": threads, "TORCHINDUCTOR_CACHE_DIR": folder}
        environment = os.environ | settings
        outs = [Path(folder, f"{job}.json") for job in range(min(jobs, len(names)))]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(out), "--worker", "--device", device,
                 "--only", *names[job :: len(outs)]],
                env=environment,
            )
            for job, out in enumerate(outs)
        ]  # fmt: skip
        for process in running:
            try:
                process.wait(max(1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for out in filter(Path.exists, outs):
            found = json.loads(out.read_text())
            together["machine"] = found["machine"]
            together["cases"] |= found["cases"]
    for name in sorted(set(names) - set(together["cases"])):
        print(f"not recorded, its process ended before: {name}", flush=True)
    return together


def merged(first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns a case with what another round of it gave instead, if that says something else."""

    def said(graphs: list[dict[str, Any]]) -> list[Any]:
        return [
            (g["phase"], g["calls"], [normalised(k["source"]) for k in g["kernels"]])
            for g in graphs
        ]  # fmt: skip

    known = [first["graphs"], *first.get("variants", [])]
    if said(other["graphs"]) in map(said, known):
        return first
    return first | {"variants": [*first.get("variants", []), other["graphs"]]}


def _with_graphs(case: dict[str, Any], change: Callable[[list[Any]], list[Any]]) -> dict[str, Any]:
    variants = [change(graphs) for graphs in case.get("variants", [])]
    return case | {"graphs": change(case["graphs"])} | ({"variants": variants} if variants else {})


def packed(recording: dict[str, Any]) -> dict[str, Any]:
    """Returns the recording with each distinct kernel's text kept once, by a number."""
    number: dict[str, int] = {}

    def by_number(graphs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            graph | {"kernels": [
                {"name": kernel["name"], "text": number.setdefault(kernel["source"], len(number))}
                for kernel in graph["kernels"]
            ]}
            for graph in graphs
        ]  # fmt: skip

    cases = {
        name: _with_graphs(case, by_number) for name, case in sorted(recording["cases"].items())
    }
    return {"machine": recording["machine"], "cases": cases, "texts": list(number)}


def unpacked(stored: dict[str, Any]) -> dict[str, Any]:
    """Returns the recording with each kernel's text in its place, the opposite of `packed`."""

    def by_text(graphs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [
            graph | {"kernels": [
                {"name": kernel["name"], "source": stored["texts"][kernel["text"]]}
                for kernel in graph["kernels"]
            ]}
            for graph in graphs
        ]  # fmt: skip

    cases = {name: _with_graphs(case, by_text) for name, case in stored["cases"].items()}
    return {"machine": stored["machine"], "cases": cases}


def load(path: Path = RECORDING) -> dict[str, Any]:
    """Returns a recording; one that is missing is a FileNotFoundError that says how to make it."""
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no {path.name}: on the CUDA machine run python -m tests.fidelity.record"
        )
    return unpacked(json.loads(path.read_text(encoding="utf-8")))


def save(path: Path, recording: dict[str, Any]) -> None:
    """Writes a recording, one case and one kernel's text a line, so that changes are readable."""
    stored = packed(recording)
    compact = {"separators": (",", ":")}
    cases = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(case, **compact)}"
        for name, case in stored["cases"].items()
    )
    texts = ",\n".join(json.dumps(text, ensure_ascii=False) for text in stored["texts"])
    head = json.dumps(stored["machine"], sort_keys=True)
    whole = f'{{"machine":{head},\n"cases":{{\n{cases}\n}},\n"texts":[\n{texts}\n]}}\n'
    path.write_text(whole, encoding="utf-8")


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=RECORDING)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these cases only")
    parser.add_argument("--missing", action="store_true", help="only those not yet in OUT")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--jobs", type=int, default=4, help="processes at a time (default 4)")
    parser.add_argument("--limit", type=float, default=540, help="end after so many seconds")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """Records into OUT, keeping there what is not recorded anew; 1 if a case gave an error."""
    from tests.fidelity.functions import CUDA_ONLY_NAMES, NAMES

    arguments = _arguments(given)
    names = arguments.only or [*NAMES, *CUDA_ONLY_NAMES]
    unknown = set(names) - {*NAMES, *CUDA_ONLY_NAMES}
    if unknown:
        print("unknown cases:", ", ".join(sorted(unknown)))
        return 2
    if arguments.worker:
        record(names, arguments.device, arguments.out)
        return 0
    kept = load(arguments.out) if arguments.out.is_file() else {"machine": {}, "cases": {}}
    if arguments.missing:
        names = [name for name in names if name not in kept["cases"]]
    began = time.monotonic()
    until = began + arguments.limit
    new = shared(list(names), arguments.device, arguments.jobs, until)
    kept = {"machine": new["machine"] or kept["machine"], "cases": kept["cases"] | new["cases"]}
    save(arguments.out, kept)
    again = sorted(name for name in new["cases"] if new["cases"][name]["counters"].get(_MEASURED))
    if again and arguments.jobs > 1:
        print(f"Inductor measured in {len(again)}; these again, one after the other", flush=True)
        first = shared(again, arguments.device, 1, until)["cases"]
        for _ in range(ROUNDS - 1):
            others = shared(again, arguments.device, 1, until)["cases"]
            first |= {name: merged(first[name], case) for name, case in others.items()}
        kept["cases"] |= first
        save(arguments.out, kept)
    failed = sorted(name for name, case in kept["cases"].items() if case["error"])
    print(
        f"{len(kept['cases'])} cases, {len(failed)} with an error {failed}, "
        f"{arguments.out.stat().st_size / 1e6:.2f} MB, {time.monotonic() - began:.0f} s"
    )
    return 1 if failed or len(new["cases"]) < len(names) else 0


if __name__ == "__main__":
    raise SystemExit(main())
