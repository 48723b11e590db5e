"""What all tests share: markers, what a missing GPU or browser means, and a tiny repository."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REQUIRED_BY = {"cuda": "REQUIRE_CUDA", "browser": "REQUIRE_BROWSER"}

TINY_LESSON = """\
# ---
# title: Add two numbers
# minutes: 5
# needs: nothing
# ---

# %% [markdown]
# # Add two numbers
#
# {{facts}}

# %% [markdown]
# {{lessons}}
#
# {{routes}}

# %% tags=["parameters"]
device = "auto"
size = 3
mode = "default"  # one of: default, fast

# %%
from helpers import begin_lesson

chosen = begin_lesson("00", device=device, size=size, mode=mode)

# %% tags=["nbval-check-output"]
print("the sum is", 1 + 1)

# %%
import json, pathlib, tempfile, nbformat

print(pathlib.Path("x").resolve(), json.__file__, nbformat.__file__)
print(tempfile.gettempdir() + "/torchinductor_somebody/ab.py", pathlib.Path.home() / "mine.txt")

# %%
"the value of the last line"
"""

# Stands in for helpers.environment, so that the tests of the machinery need not import torch.
_TINY_ENVIRONMENT = """\
def remember_vector_isa():
    pass


def choose_device(device):
    return "cpu"


def describe_environment():
    return "a tiny machine"
"""


def pytest_configure(config: pytest.Config) -> None:
    if not os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        # A cache left by an earlier session would hide a compile that no longer works.
        folder = tempfile.mkdtemp(prefix="inductor-cache-")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None))


def pytest_runtest_setup(item: pytest.Item) -> None:
    missing = {"cuda": missing_cuda, "browser": missing_browser}
    for marker, reason in missing.items():
        if item.get_closest_marker(marker) and reason():
            pytest.skip(reason())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    """Where the GPU or the browser is required, turns any skip of such a test into a failure."""
    report = yield
    for marker, variable in REQUIRED_BY.items():
        required = os.environ.get(variable) == "1" and item.get_closest_marker(marker)
        if report.skipped and required and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "skipped"
            report.outcome = "failed"
            report.longrepr = f"{variable}=1, but this test was skipped: {reason}"
    return report


@functools.cache
def missing_cuda() -> str:
    """Returns why no CUDA test can run here, or ""."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    return "" if torch.cuda.is_available() else "no CUDA GPU that this torch can use"


@functools.cache
def missing_browser() -> str:
    """Returns why no browser test can run here, or ""."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed"
    return "" if shutil.which("chromium") else "no chromium on the path (apt-get install chromium)"


@pytest.fixture
def tiny_repository(tmp_path: Path) -> Path:
    """A repository of one quick lesson that needs no torch, with helpers/ as they are here."""
    root = tmp_path / "repository"
    ignore = shutil.ignore_patterns("__pycache__", "static")
    shutil.copytree(ROOT / "helpers", root / "helpers", ignore=ignore)
    (root / "helpers" / "environment.py").write_text(_TINY_ENVIRONMENT)
    (root / "notebooks" / "src").mkdir(parents=True)
    (root / "notebooks" / "src" / "00_add_numbers.py").write_text(TINY_LESSON)
    (root / "README.md").write_text("# Tiny\n\n<!-- lessons -->\n<!-- /lessons -->\n\nThe end.\n")
    return root
