"""From a kernel's text to TTIR, TTGIR, LLIR, PTX and SASS for cards that are not here."""

import linecache
import os
import re
import tempfile
import threading
from pathlib import Path

import pytest
import torch

from helpers.targets import TARGETS
from helpers.triton_stages import STAGES, compile_kernel, config_text, pretended_driver

pytest.importorskip("triton", reason="there is no Triton wheel on this platform")

HEAD = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import (
    AutotuneHint, ReductionHint, TileHint, DeviceProperties)
triton_helpers.set_driver_to_gpu()
"""
DEVICE = (
    "DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, "
    "regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=32)"
)


def _meta(signature, divisible):
    marks = {(place,): [["tt.divisibility", 16]] for place in divisible}
    return (
        f"triton_meta={{'signature': {signature!r}, 'device': {DEVICE}, 'constants': {{}}, "
        f"'configs': [{marks!r}]}}, filename=__file__,"
    )


ONE_EACH = {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}
POINTWISE = f"""{HEAD}
@triton_heuristics.pointwise(
    size_hints={{'x': 1048576}},
    {_meta(ONE_EACH, (0, 1))}
    inductor_meta={{'grid_type': 'Grid1D', 'autotune_hints': set(), 'num_load': 1,
                   'kernel_name': 'triton_poi_gelu', 'mutated_arg_names': [],
                   'num_reduction': 0, 'autotune_pointwise': True}},
    min_elem_per_thread=0,
)
@triton.jit
def triton_poi_gelu(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 1000000
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tmp1 = libdevice.erf(tmp0 * 0.7071067811865476) + 1.0
    tl.store(out_ptr0 + (xindex), tmp0 * 0.5 * tmp1, xmask)
"""

REDUCTION = f"""{HEAD}
@triton_heuristics.persistent_reduction(
    size_hints={{'x': 4096, 'r0_': 1024}},
    reduction_hint=ReductionHint.INNER,
    {
    _meta(
        {
            "in_ptr0": "*bf16",
            "out_ptr0": "*fp32",
            "xnumel": "i32",
            "r0_numel": "i32",
            "XBLOCK": "constexpr",
        },
        (0, 1),
    )
}
    inductor_meta={{'grid_type': 'Grid1D', 'autotune_hints': set(), 'num_load': 1,
                   'kernel_name': 'triton_per_sum', 'mutated_arg_names': [],
                   'num_reduction': 1}},
)
@triton.jit
def triton_per_sum(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr):
    xnumel = 4096
    R0_BLOCK: tl.constexpr = 1024
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 1024 * xindex), xmask, other=0.0).to(tl.float32)
    tmp1 = tl.sum(tmp0, 1)[:, None]
    tl.store(out_ptr0 + (xindex), tmp1, xmask)
"""


def _user_kernel(configs, signature, body, divisible=(0, 1)):
    return f"""{HEAD}
@triton_heuristics.user_autotune(
    configs={configs!r},
    inductor_meta={{'grid_type': 'FixedGrid', 'fixed_grid': ['_grid_0', '_grid_1', '_grid_2'],
                   'kernel_name': 'mine'}},
    {_meta(signature, divisible)}
    custom_kernel=True,
)
@triton.jit
{body}
"""


USER = _user_kernel(
    [
        {"BLOCK": 256, "num_warps": 4, "num_stages": 3},
        {"BLOCK": 1024, "num_warps": 8, "num_stages": 2},
    ],
    {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
    """def mine(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, helper(tl.load(x_ptr + i, mask=i < n)), mask=i < n)

@triton.jit
def helper(x):
    return x * x + 1
""",
)

# Only cards from 8.9 on have this 8-bit floating-point type.
FP8 = _user_kernel(
    [{"BLOCK": 256, "num_warps": 4, "num_stages": 1}],
    {"x_ptr": "*fp8e4nv", "y_ptr": "*fp32", "BLOCK": "constexpr"},
    """def mine(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i).to(tl.float32))
""",
)

# 128 by 64 and 64 by 128 numbers of 2 bytes, four of each on their way: more than an L4 has.
LARGE = _user_kernel(
    [{"BLOCK": 128, "num_warps": 4, "num_stages": 5}],
    {"x_ptr": "*fp16", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
    """def mine(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    k = tl.arange(0, 64)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, 64):
        a = tl.load(x_ptr + i[:, None] * 4096 + (start + k)[None, :])
        b = tl.load(x_ptr + (start + k)[:, None] * 4096 + i[None, :])
        total = tl.dot(a, b, total)
    tl.store(y_ptr + i[:, None] * BLOCK + i[None, :], total)
""",
)

ARCHITECTURE = {
    "t4": "sm_75",
    "a100": "sm_80",
    "l4": "sm_89",
    "rtx4090": "sm_89",
    "h100": "sm_90a",
    "h200": "sm_90a",
    "b200": "sm_100a",
}


@pytest.mark.parametrize("key", TARGETS)
def test_ptx_and_sass_are_made_for_the_card_asked_for(key):
    made = compile_kernel(POINTWISE, TARGETS[key], ("ptx", "sass"))
    assert made.unavailable == {}
    assert f".target {ARCHITECTURE[key]}\n" in made.stages["ptx"]
    assert re.search(r"\bld\.global", made.stages["ptx"])
    assert re.search(r"\bLDG\b", made.stages["sass"]) and re.search(r"\bSTG\b", made.stages["sass"])


@pytest.mark.parametrize("source", [POINTWISE, REDUCTION, USER], ids=["poi", "per", "user"])
def test_every_stage_leads_back_to_the_kernels_lines(source):
    made = compile_kernel(source, TARGETS["h200"], STAGES)
    assert set(made.stages) == set(STAGES) and not made.unavailable
    lines = source.splitlines()
    stores = {number for number, line in enumerate(lines, 1) if "tl.store" in line}
    marks = {
        "ttir": r'loc\("kernel\.py":(\d+):',
        "ttgir": r'loc\("kernel\.py":(\d+):',
        "llir": r"!DILocation\(line: (\d+),",
        "ptx": r"// kernel\.py:(\d+):",
        "sass": r'//## File "kernel\.py", line (\d+)',
    }
    for stage, pattern in marks.items():
        found = {int(number) for number in re.findall(pattern, made.stages[stage])}
        assert stores <= found, stage
    assert "tt.divisibility = 16" in made.stages["ttir"]


def test_no_stage_shows_a_path_of_this_machine():
    made = compile_kernel(REDUCTION, TARGETS["h200"], STAGES)
    for stage, text in made.stages.items():
        assert tempfile.gettempdir() not in text
        assert str(Path(torch.__file__).parents[1]) not in text
        for quoted in re.findall(r'"([^"\n]*\.py)"', text):
            assert not os.path.isabs(quoted), (stage, quoted)
    assert '"triton/language/standard.py"' in made.stages["ptx"]
    assert ".debug_" not in made.stages["ptx"]
    assert not re.search(r"/\* 0x[0-9a-f]{16} \*/", made.stages["sass"])


def test_two_cards_get_different_code_and_the_same_card_the_same():
    a100, h200, again = (
        compile_kernel(REDUCTION, TARGETS[key], ("ptx", "sass")) for key in ("a100", "h200", "h200")
    )
    assert a100.stages["ptx"] != h200.stages["ptx"]
    assert a100.stages["sass"] != h200.stages["sass"]
    assert h200.stages == again.stages


def test_the_candidates_are_listed_without_compiling(monkeypatch):
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def refuse(*args, **kwargs):
        raise AssertionError("nothing should be compiled")

    monkeypatch.setattr(CachingAutotuner, "_precompile_config", refuse)
    made = compile_kernel(POINTWISE, TARGETS["h200"], ())
    assert len(made.configs) > 1 and len(set(made.configs)) == len(made.configs)
    assert all(re.fullmatch(r"XBLOCK=\d+, num_warps=\d+, num_stages=1", c) for c in made.configs)
    assert (made.config, dict(made.stages), dict(made.unavailable)) == ("", {}, {})


def test_the_chosen_candidate_is_the_one_compiled():
    for place in (0, 1):
        made = compile_kernel(USER, TARGETS["h200"], ("ptx",), config=place)
        assert made.configs == (
            "BLOCK=256, num_warps=4, num_stages=3",
            "BLOCK=1024, num_warps=8, num_stages=2",
        )
        assert made.config == made.configs[place]
        threads = re.search(r"\.(?:req|max)ntid (\d+)", made.stages["ptx"])[1]
        assert int(threads) == (128, 256)[place]


def test_a_config_says_only_what_is_not_usual():
    triton = pytest.importorskip("triton")
    assert config_text(triton.Config({"A": 2}, num_warps=8, num_stages=2)) == (
        "A=2, num_warps=8, num_stages=2"
    )
    capped = triton.Config({}, num_warps=4, num_stages=1, num_ctas=2, maxnreg=64)
    assert config_text(capped) == "num_warps=4, num_stages=1, num_ctas=2, maxnreg=64"


def test_what_a_card_cannot_do_is_a_reason_and_not_an_error(caplog):
    made = compile_kernel(FP8, TARGETS["a100"], ("ptx", "sass"))
    assert set(made.unavailable) == {"ptx", "sass"} and not made.stages
    assert "a100 (sm_80)" in made.unavailable["ptx"] and "fp8e4nv" in made.unavailable["ptx"]
    assert "\n" not in made.unavailable["ptx"] and not caplog.records
    assert "ptx" in compile_kernel(FP8, TARGETS["h200"], ("ptx",)).stages


def test_a_candidate_that_needs_too_much_shared_memory_is_noted():
    small = compile_kernel(LARGE, TARGETS["l4"], ("ttgir",))
    assert re.search(
        r"needs \d+ bytes of shared memory per block and l4 has 101376", small.notes[0]
    )
    assert compile_kernel(LARGE, TARGETS["h200"], ("ttgir",)).notes == ()


def test_without_a_disassembler_only_sass_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(tmp_path / "nvdisasm"))
    made = compile_kernel(POINTWISE, TARGETS["h200"], ("ptx", "sass"))
    assert set(made.stages) == {"ptx"} and "nvdisasm" in made.unavailable["sass"]


def test_under_tritons_interpreter_the_reason_is_said(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    made = compile_kernel(POINTWISE, TARGETS["h200"], ("ptx",))
    assert "TRITON_INTERPRET" in made.unavailable["ptx"] and made.configs == ()


@pytest.mark.parametrize(
    ("source", "stages", "config", "words"),
    [
        (POINTWISE, ("ptxx",), 0, "no stage 'ptxx': choose from ttir"),
        (POINTWISE, ("ptx",), 9, "no candidate 9: the kernel has 2"),
        ("x = 1", ("ptx",), 0, "defines no kernel"),
        ("import nothing_of_that_name", ("ptx",), 0, "ModuleNotFoundError"),
        ("def (", ("ptx",), 0, "SyntaxError"),
    ],
)
def test_a_wrong_request_is_one_clear_sentence(source, stages, config, words):
    with pytest.raises(ValueError, match=re.escape(words)) as caught:
        compile_kernel(source, TARGETS["h200"], stages, config)
    assert "\n" not in str(caught.value)


def _state():
    """Everything that is replaced while a card is pretended, by identity."""
    import torch._subclasses.fake_tensor as fake_tensor
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import config
    from torch._inductor.runtime import triton_helpers, triton_heuristics
    from triton.compiler import compiler
    from triton.runtime import driver

    owners = (torch.cuda, CudaInterface, CudaInterface.Worker, driver, triton_helpers, fake_tensor)
    kept = {(id(owner), name): value for owner in owners for name, value in vars(owner).items()}
    return {
        **kept,
        "manager": compiler.get_cache_manager,
        "filters": list(triton_heuristics.log.filters),
        "raw stream": getattr(torch._C, "_cuda_getCurrentRawStream", None),
        "launcher": getattr(config, "use_static_cuda_launcher", None),
        "environment": dict(os.environ),
        "available": torch.cuda.is_available(),
        "line cache": linecache.cache.get("kernel.py"),
    }


def _same(before, after):
    changed = [
        name
        for name in before.keys() | after.keys()
        if before.get(name) is not after.get(name) and before.get(name) != after.get(name)
    ]
    return changed == []


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_everything_is_put_back_whatever_happens_inside(error):
    compile_kernel(POINTWISE, TARGETS["h200"], ())  # imports what it needs
    before = _state()
    try:
        with pretended_driver(TARGETS["t4"]):
            assert torch.cuda.is_available() and torch.cuda.get_device_capability() == (7, 5)
            if error:
                raise error("inside")
    except (ValueError, KeyboardInterrupt, SystemExit):
        assert error
    assert _same(before, _state())


def test_compiling_leaves_no_trace(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    compile_kernel(POINTWISE, TARGETS["h200"], ())
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    linecache.cache["kernel.py"] = (1, None, ["mine\n"], "kernel.py")
    try:
        before = _state()
        compile_kernel(POINTWISE, TARGETS["h200"], STAGES)
        compile_kernel(FP8, TARGETS["t4"], STAGES)
        with pytest.raises(ValueError, match="no candidate"):
            compile_kernel(POINTWISE, TARGETS["h200"], STAGES, config=77)
        assert _same(before, _state()) and "TRITON_CACHE_DIR" not in os.environ
        assert linecache.getline("kernel.py", 1) == "mine\n"
    finally:
        linecache.cache.pop("kernel.py")
    assert [path for path in Path(tmp_path).rglob("*") if path.is_file()] == []


def test_nothing_is_remembered_about_the_pretended_card():
    from torch._inductor.runtime.hints import DeviceProperties
    from torch.utils._triton import has_triton

    real = has_triton()
    device = torch.device("cuda", 0)
    with pretended_driver(TARGETS["a100"]):
        assert has_triton() and DeviceProperties.create(device).cc == 80
        with pretended_driver(TARGETS["t4"]):
            assert DeviceProperties.create(device).cc == 75
        assert DeviceProperties.create(device).cc == 80
        assert DeviceProperties.create(device).multi_processor_count == 108
    assert has_triton() == real
    create = DeviceProperties.__dict__["create"].__func__
    assert create.cache_info().currsize == 0


def test_another_thread_sees_the_real_machine_and_waits_for_its_turn():
    real, seen, turns = torch.cuda.is_available(), [], []

    def look():
        seen.append(torch.cuda.is_available())

    def pretend():
        with pretended_driver(TARGETS["b200"]):
            turns.append(torch.cuda.get_device_name())

    with pretended_driver(TARGETS["a100"]):
        looking, pretending = threading.Thread(target=look), threading.Thread(target=pretend)
        looking.start()
        pretending.start()
        looking.join()
        assert seen == [real] and torch.cuda.is_available()
        assert turns == [] and torch.cuda.get_device_name() == TARGETS["a100"].name
    pretending.join()
    assert turns == ["NVIDIA B200"]


def test_threads_that_compile_at_once_each_get_their_own_card():
    keys, made = ("a100", "h200", "t4"), {}

    def work(key):
        made[key] = compile_kernel(REDUCTION, TARGETS[key], ("ptx",)).stages["ptx"]

    threads = [threading.Thread(target=work, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f".target {ARCHITECTURE[key]}\n" in made[key] for key in keys)


def test_tritons_driver_answers_from_the_target():
    from triton.runtime import driver

    with pretended_driver(TARGETS["l4"]):
        active = driver.active
        assert active.get_current_target().arch == 89
        assert active.utils.get_device_properties(0)["max_shared_mem"] == 99 * 1024
        with pytest.raises(RuntimeError, match="nothing can be timed"):
            active.get_benchmarker()(lambda: None)
        with pytest.raises(AttributeError, match="pretended NVIDIA L4"):
            active.launch_kernel_now()
