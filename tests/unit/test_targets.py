"""The table of GPUs: complete, consistent in itself, and the H200 as the card gave it."""

import dataclasses
import subprocess
import sys

import pytest

from helpers.targets import TARGETS, Target, find_target

# torch.cuda.get_device_properties(0) on the H200 itself (torch 2.11.0, driver 580.159.04).
H200_AS_THE_CARD_SAID = {
    "L2_cache_size": 62914560,
    "clock_rate": 1980000,
    "major": 9,
    "max_threads_per_block": 1024,
    "max_threads_per_multi_processor": 2048,
    "memory_bus_width": 6016,
    "memory_clock_rate": 3201000,
    "minor": 0,
    "multi_processor_count": 132,
    "name": "NVIDIA H200",
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "total_memory": 150109880320,
    "warp_size": 32,
}
EVERY = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def test_the_h200_is_what_the_card_said():
    given = vars(TARGETS["h200"].properties())
    assert {name: given[name] for name in H200_AS_THE_CARD_SAID} == H200_AS_THE_CARD_SAID


def test_the_named_cards_are_there():
    assert set(TARGETS) >= {"t4", "a100", "l4", "rtx4090", "h100", "h200", "b200"}
    with pytest.raises(TypeError):
        TARGETS["mine"] = TARGETS["t4"]


@EVERY
def test_every_figure_is_there_and_has_a_source(target):
    assert TARGETS[target.key] is target
    assert set(target.sources) == {"card", "limits", "peaks"}
    assert all(len(text) > 5 for text in target.sources.values())
    for part in dataclasses.fields(Target):
        value = getattr(target, part.name)
        if part.name == "peak_tf32" and target.capability < (8, 0):
            assert value is None
        else:
            assert value, part.name


@EVERY
def test_bandwidth_is_clock_times_bus_width(target):
    # Two transfers per clock; data sheets round.
    computed = 2 * target.memory_clock_rate * 1000 * target.memory_bus_width / 8
    assert target.memory_bandwidth == pytest.approx(computed, rel=0.01)


@EVERY
def test_peak_fp32_is_cores_times_clock(target):
    # 64 fp32 cores per multiprocessor on Turing and on GA100, 128 on later ones; 2 operations
    # in a fused multiply-add.
    cores = {(7, 5): 64, (8, 0): 64}.get(target.capability, 128)
    computed = target.multi_processor_count * cores * 2 * target.clock_rate * 1000
    assert target.peak_fp32 == pytest.approx(computed, rel=0.01)


@EVERY
def test_sizes_fit_each_other(target):
    assert target.shared_memory_per_block <= target.shared_memory_per_block_optin
    assert target.shared_memory_per_block_optin <= target.shared_memory_per_multiprocessor
    assert target.max_threads_per_block <= target.max_threads_per_multi_processor
    assert target.peak_fp32 <= (target.peak_tf32 or target.peak_half) <= target.peak_half
    assert target.compute_capability == int("".join(map(str, target.capability)))


@EVERY
def test_properties_name_the_card(target):
    given = target.properties()
    assert (given.major, given.minor) == target.capability
    assert given.name == target.name
    given.major = 1
    assert target.properties().major == target.capability[0]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H200", "h200"),
        ("rtx 4090", "rtx4090"),
        ("RTX-4090", "rtx4090"),
        ("rtx_4090", "rtx4090"),
        (" A100 ", "a100"),
        ("NVIDIA H200", "h200"),
        ("Tesla T4", "t4"),
    ],
)
def test_a_name_is_found_in_any_spelling(name, key):
    assert find_target(name) is TARGETS[key]


@pytest.mark.parametrize(
    ("name", "near"), [("h20", "h200"), ("rtx4080", "rtx4090"), ("b20", "b200"), ("A10", "a100")]
)
def test_an_unknown_name_lists_the_targets_and_the_nearest(name, near):
    with pytest.raises(ValueError, match=f"did you mean '{near}'") as caught:
        find_target(name)
    said = str(caught.value)
    assert "\n" not in said and all(key in said for key in TARGETS)


def test_a_name_like_none_of_them_is_refused():
    with pytest.raises(ValueError, match=r"no target 'zzzz': choose one of .*b200\.$"):
        find_target("zzzz")


def test_importing_the_table_imports_no_torch():
    code = "import sys, helpers.targets; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
