"""Every origin says in words what it is, and unknown ones are refused."""

import pytest
import torch

from helpers import Origin
from helpers.origin import KINDS


def test_live_is_stamped_with_device_torch_and_day():
    origin = Origin.live("cpu")
    assert origin.text().startswith("live: made when this cell ran (cpu, torch ")
    assert torch.__version__ in origin.text()
    assert origin.date in origin.html()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_explains_itself_in_words(kind):
    origin = Origin(kind, device="H200 <1>")
    assert KINDS[kind] in origin.text()
    assert "H200 &lt;1&gt;" in origin.html()


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown origin 'measured'"):
        Origin("measured")
