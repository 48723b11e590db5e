"""Importing helpers costs nothing but the standard library; every public name resolves."""

import subprocess
import sys

import pytest

import helpers


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "module", ["helpers", "helpers.setup", "helpers.machine", "helpers.lessons", "helpers.my"]
)
def test_only_the_standard_library_is_loaded(module):
    loaded = loaded_after(f"import {module}") - loaded_after("pass")
    assert loaded - set(sys.stdlib_module_names) - {"__mp_main__"} == {"helpers"}


@pytest.mark.parametrize("name", helpers.__all__)
def test_every_public_name_resolves(name):
    assert getattr(helpers, name) is not None


def test_an_unknown_name_is_an_attribute_error_that_lists_what_there_is():
    with pytest.raises(AttributeError, match=r"no name 'capture_graph'.*capture_graphs"):
        helpers.capture_graph  # noqa: B018
