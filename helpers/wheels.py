"""The folder of wheels for a class without network: makes it, and checks it before it is used.

Standard library only; `make wheels DIR=...` and `make lab WHEELS=DIR` come here.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path

from helpers import machine
from helpers.install import Target, amount, check_network, create
from helpers.pip_runner import SetupError, run_pip, say

MANIFEST = "torch-compile-suite-wheels.json"


def download_wheels(target: Target, folder: Path) -> None:
    """Downloads every pinned package for this Python and platform, and checks the set complete."""
    build = machine.TORCH_BUILDS[target.torch]
    folder.mkdir(parents=True, exist_ok=True)
    if machine.free_gb(folder) < 2 * build.download_gb:
        raise SetupError(
            f"{folder} has {machine.free_gb(folder):.1f} GB free and the packages need "
            f"{2 * build.download_gb:.1f} GB while they come: free some, or choose another DIR"
        )
    (folder / MANIFEST).unlink(missing_ok=True)  # it comes last: an interrupted set is not used
    with tempfile.TemporaryDirectory(dir=str(folder), prefix=".making-") as temporary:
        helper = Target(root=Path(temporary), torch=target.torch)
        create(helper)
        requirements = Path(temporary) / "requirements.txt"
        requirements.write_text(target.requirements(), encoding="utf-8")
        check_network(helper.python, requirements)
        say(f"Downloading about {amount(build.download_gb)} into {folder}")
        pip = [str(helper.python), "-m", "pip"]
        wanted = ["--only-binary", ":all:", "-r", str(requirements)]
        log = folder / "download.log"
        download = [*pip, "download", "-d", str(folder), *wanted]
        run_pip(download, log, build.download_gb, 0, temporary)
        say("Checking that the folder is complete")
        local = ["--no-index", "--find-links", str(folder), "--dry-run", "--ignore-installed"]
        run_pip([*pip, "install", *local, *wanted], log, 0, 0, temporary)
    manifest = {"made_for": _made_for(), "pins": target.pins_hash()}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    torch = "" if target.torch == machine.DEFAULT_TORCH else f" TORCH={target.torch}"
    say(f"Ready: on the other machines type `make lab{torch} WHEELS={folder}`")


def check_wheels(target: Target) -> None:
    """Raises SetupError unless the folder is finished, and made for this Python, torch and pins."""
    if target.wheels is None:
        return
    try:
        manifest = json.loads((target.wheels / MANIFEST).read_text(encoding="utf-8"))
        made_for, pins = manifest["made_for"], manifest["pins"]
    except (OSError, ValueError, KeyError, TypeError):
        raise SetupError(
            f"{target.wheels} is not a finished folder of wheels: make one with "
            "`make wheels DIR=...` on a machine with network, and copy all of it"
        ) from None
    if made_for != _made_for():
        raise SetupError(
            f"{target.wheels} was made for {made_for} and this is {_made_for()}: use "
            "the same Python (PYTHON=python3.12, say), or make the folder with this one"
        )
    if pins != target.pins_hash():
        raise SetupError(
            f"{target.wheels} was made for another torch or other pins: give the same TORCH=, "
            "or make it again with `make wheels`"
        )


def _made_for() -> str:
    return "Python %d.%d on %s %s" % (
        *sys.version_info[:2], platform.system(), platform.machine()
    )  # fmt: skip
