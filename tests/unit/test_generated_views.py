"""How generated code is said: notes per line, launches, stages, differences, the whole."""

from __future__ import annotations

import dataclasses
import html
import re

import pytest

from helpers import difference_view, kernel_view, launch_view, stage_view
from helpers.display import STYLE, code_html
from helpers.generated import GeneratedCode, GeneratedGraph, Kernel
from helpers.generated_views import launching_part, lean
from helpers.kernel_notes import explain_kernel, only_copies, plain_op
from helpers.launches import Buffer
from helpers.origin import Origin

HEADER = """\
import triton

@triton_heuristics.pointwise(
    size_hints={'x': 2048},
    triton_meta={'device': DeviceProperties(type='cuda', multi_processor_count=132, cc=90)},
    inductor_meta={'kernel_name': 'NAME', 'backend_hash': 'AB12', 'num_load': 2}
)
"""
ADD_RELU = """\
@triton.jit
def triton_poi_fused_add_relu_0(in_ptr0, in_out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 1500
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x0 = (xindex % 15)
    tmp0 = tl.load(in_out_ptr0 + (x2), xmask)
    tmp1 = tl.load(in_ptr0 + (x0), xmask, eviction_policy='evict_last')
    tmp2 = tmp0 + tmp1
    tmp3 = tl.full([1], 0, tl.int32)
    tmp4 = triton_helpers.maximum(tmp3, tmp2)
    tl.store(in_out_ptr0 + (x2), tmp4, xmask)
"""
TRANSPOSE = """\
@triton.jit
def triton_poi_fused_convolution_1(in_ptr0, out_ptr0, ynumel, xnumel, YBLOCK, XBLOCK):
    yoffset = tl.program_id(1) * YBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (x2 + 9*y3), xmask & ymask, eviction_policy='evict_last')
    tl.store(out_ptr0 + (y0 + 64*x2), tmp0, xmask & ymask)
"""
ROWS = """\
@triton.jit
def triton_red_fused_mean_0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK, R0_BLOCK):
    r0_numel = 4096
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        tmp0 = tl.load(in_ptr0 + (r0_1 + 4096*x0), r0_mask & xmask, eviction_policy='evict_first', other=0.0).to(tl.float32)
        tmp3 = _tmp2 + tmp0
        _tmp2 = tl.where(r0_mask & xmask, tmp3, _tmp2)
    tmp2 = tl.sum(_tmp2, 1)[:, None]
    tl.store(out_ptr0 + (x0), tmp2, xmask)
"""  # noqa: E501
WRAPPER = """\
kernels = async_compile.triton('text of kernels')
async_compile.wait(globals())
del async_compile

def call(args):
    arg0_1, arg1_1, arg2_1 = args
    args.clear()
    assert_size_stride(arg0_1, (2, 64, 8, 8), (4096, 64, 8, 1))
    assert_size_stride_grouped((arg1_1, arg2_1), ((64, 64, 3, 3), (15,)), ((576, 9, 3, 1), (1,)))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((64, 64, 3, 3), (576, 1, 192, 64), torch.float32)
        stream0 = get_raw_stream(0)
        triton_poi_fused_convolution_1.run(arg1_1, buf0, 4096, 9, stream=stream0)
        buf1 = extern_kernels.convolution(arg0_1, buf0, stride=(1, 1), bias=None)
        assert_size_stride(buf1, (2, 64, 8, 8), (4096, 1, 512, 64))
        buf2 = buf1; del buf1  # reuse
        triton_poi_fused_add_relu_0.run(arg2_1, buf2, 1500, stream=stream0)
        buf3 = empty_strided_cuda((15, 15), (15, 1), torch.float32)
        extern_kernels.mm(reinterpret_tensor(buf2, (15, 15), (15, 1), 0), arg2_1, out=buf3)
    return (buf2, buf3, )


def benchmark_compiled_module(times=10):
    arg0_1 = rand_strided((2, 64, 8, 8), (4096, 64, 8, 1))
"""
PTX = """\
.target sm_90a
// this comment names ld.global.v4.b32 and fma.rn.f32
	@%p1 ld.global.L1::evict_last.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
	ld.global.b32 { %r5 }, [ %rd2 + 0 ];
	fma.rn.f32 %r6, %r1, %r5, %r2;
	shfl.sync.bfly.b32 %r7, %r6, 16, 31, -1;
	bar.sync 0;
	@%p1 st.global.v2.b32 [ %rd3 + 0 ], { %r6, %r7 };
"""
SASS = """\
        /*0010*/    LDG.E.EL.128 R4, desc[UR6][R8.64] ;
        /*0020*/    LDG.E R3, desc[UR6][R2.64] ;
        /*0030*/    FFMA R5, R4, R3, R5 ;
        /*0040*/    STG.E.64 desc[UR6][R2.64], R4 ;
"""


def kernel(body: str, **changed: object) -> Kernel:
    name = body.split("def ")[1].split("(")[0]
    kind = {"poi": "pointwise", "red": "reduction", "per": "persistent_reduction"}[name[7:10]]
    source = HEADER.replace("NAME", name) + body
    values = {"kind": kind, "ops": ("aten.add", "aten.relu"), "stages": {"triton": source}}
    return Kernel(name, source, 0, "inference", **(values | changed))


@pytest.fixture
def code() -> GeneratedCode:
    kernels = (kernel(TRANSPOSE, ops=("aten.convolution",)), kernel(ADD_RELU))
    calls = ("extern_kernels.convolution", "extern_kernels.mm")
    graph = GeneratedGraph(WRAPPER, "inference", 0, calls)
    origin = Origin("cross-target", "NVIDIA H200", "2.11.0", "2026-11-30")
    away = {"times": "There is no card here.", "sass": "The tool is missing."}
    return GeneratedCode(origin, "h200", kernels, (graph,), calls, 1.5, away, ("A note to read.",))


def note(body: str, part: str) -> tuple[str, str]:
    [line] = [line for line in explain_kernel(body) if part in line.text]
    return line.role, line.note


def test_each_kind_of_line_is_said() -> None:
    assert note(ADD_RELU, "program_id")[1].startswith("which program am I?")
    assert note(ADD_RELU, "xindex < xnumel") == (
        "mask", "False for positions past the end, which nothing may read or write",
    )  # fmt: skip
    assert note(ADD_RELU, "% 15") == (
        "place", "x0: where in its run of 15 the position lies (the remainder)",
    )  # fmt: skip
    role, words = note(ADD_RELU, "tl.load(in_ptr0")
    assert role == "load" and "input 0 into tmp1" in words and "another use is expected" in words
    assert "where xmask is False, nothing is read" in words
    assert note(ADD_RELU, "tmp0 + tmp1") == ("calculate", "tmp0 plus tmp1")
    assert "the larger one of tmp3, tmp2" in note(ADD_RELU, "maximum")[1]
    assert note(ADD_RELU, "tl.store")[1].endswith("only where the mask is True")


def test_a_loop_that_reduces_is_said() -> None:
    words = note(ROWS, "tl.load")[1]
    assert "r0_mask and xmask is False" in words and "0.0 taken" in words
    assert "leave the cache first" in words and words.endswith("made float32 to calculate")
    assert note(ROWS, "for r0_offset")[0] == "loop"
    assert note(ROWS, "tl.sum")[0] == "reduce"
    assert "4,096 numbers" in note(ROWS, "r0_numel = 4096")[1]
    view = kernel_view(kernel(ROWS))
    assert view.text.startswith("triton_red_fused_mean_0 (reduction, inference): 10 lines, 1 load")
    assert "1 store, 1 reduction step, 1 loop." in view.text


def test_a_mask_that_is_no_end_is_not_called_none() -> None:
    body = "@triton.jit\n    tmp8 = tl.load(in_ptr0 + (32 + (x0)), tmp7, other=0.0)"
    assert "where tmp7 is False, nothing is read, and 0.0 taken" in note(body, "tmp8")[1]
    body = body.replace("tmp7, other=0.0", "None")
    assert "no mask" in note(body, "tmp8")[1]


def test_a_line_that_no_rule_knows_has_no_note() -> None:
    body = "@triton.jit\n    something_new(tmp1)"
    assert note(body, "something_new") == ("", "")
    shown = kernel_view(kernel("@triton.jit\ndef triton_poi_x(a):\n    something_new(tmp1)"))
    assert shown.text.endswith("    something_new(tmp1)")


def test_cpp_is_said_too() -> None:
    body = (
        'extern "C" void kernel(const float* in_ptr0,\n   float* out_ptr0)\n{\n'
        "    #pragma omp for\n"
        "    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(64L); "
        "x0+=static_cast<int64_t>(16L))\n    {\n"
        "        auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x0), "
        "static_cast<int64_t>(16));\n"
        "        tmp0.store(out_ptr0 + static_cast<int64_t>(x0));\n    }\n}"
    )
    assert note(body, "loadu")[1] == "read 16 neighbours of input 0 into tmp0 at once (a vector)"
    assert note(body, "for(int64_t")[1] == "loop over positions, 16 at a time"
    assert note(body, "tmp0.store")[1] == "write the vector tmp0 to output 0"
    assert "{" not in [line.text.strip() for line in explain_kernel(body)]


def test_only_a_kernel_that_calculates_nothing_is_a_copy() -> None:
    assert only_copies(TRANSPOSE)
    assert not only_copies(ADD_RELU) and not only_copies(ROWS)


def test_operations_have_the_names_that_people_use() -> None:
    assert plain_op("aten._native_batch_norm_legit_no_training") == "batch_norm"
    assert plain_op("aten._native_batch_norm_legit_functional") == "batch_norm"
    assert plain_op("aten.native_layer_norm_backward") == "layer_norm_backward"
    assert plain_op("aten._softmax") == "softmax"


def test_launches_come_in_order_with_what_they_read_and_write(code: GeneratedCode) -> None:
    view = launch_view(code)
    assert [(one.kind, one.title) for one in view.launches] == [
        ("copy", "copy for convolution"),
        ("library", "convolution"),
        ("kernel", "add, relu"),
        ("library", "mm"),
    ]
    copy, convolution, fused, product = view.launches
    assert (copy.reads[0].layout, copy.writes[0].layout) == ("contiguous", "channels-last")
    assert [str(one) for one in convolution.writes] == ["buf1 (2 × 64 × 8 × 8, channels-last)"]
    assert [one.name for one in fused.reads] == ["arg2_1", "buf2"]
    assert [one.name for one in fused.writes] == ["buf2"]
    assert [one.name for one in product.reads] == ["buf2", "arg2_1"]
    assert [one.after for one in view.launches] == [(), (0,), (1,), (2,)]


def test_the_launches_are_said_and_drawn(code: GeneratedCode) -> None:
    view = launch_view(code)
    words = "4 launches, 2 of generated kernels and 2 of library calls; 1 launch only for a copy."
    assert words in view.text and words in view.html
    assert "kernel, only copies" in view.html and "library call" in view.html
    assert view.html.count("<path d=") >= 3 and "cross-target" in view.html


def test_a_kernel_that_only_writes_its_in_out_tensor_does_not_read_it(code: GeneratedCode) -> None:
    body = ADD_RELU.replace("tl.load(in_out_ptr0 + (x2), xmask)", "tl.full([1], 1, tl.int32)")
    changed = dataclasses.replace(code, kernels=(code.kernels[0], kernel(body)))
    fused = launch_view(changed).launches[2]
    assert [one.name for one in fused.reads] == ["arg2_1"] and fused.after == ()


def test_a_wrapper_that_cannot_be_read_says_so(code: GeneratedCode) -> None:
    graph = dataclasses.replace(code.graphs[0], wrapper="def call(:")
    view = launch_view(dataclasses.replace(code, graphs=(graph,)))
    assert view.launches == () and "nothing that could be read" in view.text
    assert "Nothing was compiled" in launch_view(dataclasses.replace(code, graphs=())).text


@pytest.mark.parametrize(
    ("strides", "layout"),
    [((4096, 64, 8, 1), "contiguous"), ((4096, 1, 512, 64), "channels-last"),
     ((1, 2, 3, 4), "(1, 2, 3, 4)"), (("64*s0", 64, 8, 1), "")],
)  # fmt: skip
def test_layouts_have_names(strides: tuple, layout: str) -> None:
    assert Buffer("x", (2, 64, 8, 8), strides).layout == layout


def test_ptx_is_counted_without_its_comments() -> None:
    view = stage_view(kernel(ADD_RELU, stages={"ptx": PTX}), "ptx")
    counts = dict(view.counts)
    assert counts["loads from global memory"] == 2 and counts["stores to global memory"] == 1
    assert counts["multiply-adds (FMA)"] == 1 and counts["tensor-core instructions"] == 0
    assert counts["exchanges between threads (shuffle)"] == 1
    assert "128 bits: 1 time, 32 bits: 1 time" in view.text
    assert "64 bits: 1 time" in view.text and "The whole ptx" in view.html


def test_sass_is_counted_with_widths() -> None:
    view = stage_view(kernel(ADD_RELU, stages={"sass": SASS}), "sass")
    assert dict(view.counts)["loads from global memory"] == 2
    assert "128 bits: 1 time, 32 bits: 1 time" in view.text and "64 bits: 1 time" in view.text


def test_a_stage_that_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(ValueError, match=r"no ptx here, only triton.*stages=\('triton', 'ptx'\)"):
        stage_view(kernel(ADD_RELU), "ptx")
    with pytest.raises(ValueError, match="unknown stage 'hip'; one of triton, ttir"):
        stage_view(kernel(ADD_RELU), "hip")


def with_kernels(code: GeneratedCode, target: str, *kernels: Kernel) -> GeneratedCode:
    return dataclasses.replace(code, target=target, kernels=kernels)


def test_a_header_alone_is_no_difference_of_the_text(code: GeneratedCode) -> None:
    one = kernel(ADD_RELU)
    source = one.source.replace("count=132, cc=90", "count=40, cc=75").replace("AB12", "CD34")
    view = difference_view(
        with_kernels(code, "h200", one),
        with_kernels(code, "t4", dataclasses.replace(one, source=source)),
    )
    assert view.sentences == (
        "The text of the kernel is the same; only the header differs (device properties).",
    )
    assert view.same and "-     multi_processor_count=132" in view.text
    assert "AB12" not in view.text and "only in t4" in view.html


def test_lines_that_differ_are_marked_and_renumbered_registers_are_not(code: GeneratedCode) -> None:
    body = (
        ADD_RELU.replace("_0(", "_7(").replace("tmp4", "tmp9").replace("tmp0 + tmp1", "tmp0 - tmp1")
    )
    view = difference_view(
        with_kernels(code, "h200", kernel(ADD_RELU)), with_kernels(code, "h200", kernel(body))
    )
    assert view.sentences == ("The text of the one kernel that both have differs.",)
    assert not view.same
    marked = [line for line in view.text.splitlines() if line[:2] in ("- ", "+ ")]
    assert marked == ["-     tmp2 = tmp0 + tmp1", "+     tmp2 = tmp0 - tmp1"]


def test_equal_codes_and_other_kinds_and_missing_kernels_are_said(code: GeneratedCode) -> None:
    assert difference_view(code, code).sentences == (
        "All 2 kernels are the same, text and header.",
    )
    fewer = with_kernels(code, "t4", kernel(ROWS.replace("red_fused_mean", "per_fused_mean")))
    fewer = dataclasses.replace(fewer, library_calls=())
    view = difference_view(with_kernels(code, "h200", kernel(ROWS), kernel(TRANSPOSE)), fewer)
    text = " ".join(view.sentences)
    assert "is a reduction for h200, a persistent reduction for t4." in text
    assert "Only h200 has triton_poi_fused_convolution_1." in text
    assert (
        "Library calls of h200: extern_kernels.convolution, extern_kernels.mm; of t4: none." in text
    )
    assert not view.same


def test_the_whole_is_said_in_text_and_html(code: GeneratedCode) -> None:
    text, page = str(code), code._repr_html_()
    first = "2 kernels and 2 library calls in 1 graph, for h200; the real result: a value of type"
    assert text.startswith(first) and first in page
    for words in ("No sass: The tool is missing.", "No times: There is no card here.",
                  "A note to read.", "extern_kernels.convolution"):  # fmt: skip
        assert words in text and words in page
    assert "cross-target" in page and page.count(STYLE) == 1
    assert "tl.program_id" in text
    assert "What stands above triton_poi_fused_add_relu_0 in the text that Triton gets" in page
    assert page.count("size_hints") == 2, "each header once"
    assert strip_tags(page).count("x0 = (xindex % 15)") == 1, "each body once"


def test_only_marks_that_have_a_colour_stay_and_no_word_is_lost() -> None:
    marked = code_html(ADD_RELU)
    left = lean(marked)
    assert '<span class="n">' in marked and '<span class="n">' not in left
    for kind, word in (("k", "def"), ("s1", "evict_last"), ("mi", "1500")):
        assert re.search(rf'<span class="{kind}">\W*{word}\W*</span>', html.unescape(left))
    assert strip_tags(left) == strip_tags(marked)


def strip_tags(page: str) -> str:
    return re.sub(r"<[^>]+>", "", page)


def test_a_kernel_seen_line_by_line_has_every_line_and_its_role() -> None:
    page = kernel_view(kernel(ADD_RELU)).html
    shown = html.unescape(strip_tags(page.replace("</code>", "\n").replace("</style>", "\n")))
    for line in ADD_RELU.strip().splitlines():
        assert f"{line.strip()}\n" in shown
    assert page.count('<div class="tcs-load"><code>') == 2
    assert "<b>store</b> · write tmp4 to" in page


def test_machine_code_loses_only_empty_space() -> None:
    lines = (
        "        /*0ad0*/              @!P0 FMUL R7, R7, 16777216 ;\n"
        "        /*0ae0*/                   MUFU.RCP R3, R3 ;\n.L_x_0:\n"
        "        /*0af0*/        @!UPT UIADD3 UR5, UR5, UR5, URZ ;\n"
    )
    page = stage_view(kernel(ADD_RELU, stages={"sass": lines}), "sass").html
    shown = strip_tags(page[page.index("<pre") :])
    assert shown.split() == lines.split()
    assert "/*0ad0*/  @!P0 FMUL" in shown and "/*0ae0*/       MUFU.RCP" in shown


def test_many_kernels_are_folded(code: GeneratedCode) -> None:
    few = code._repr_html_().count("<details")
    many = dataclasses.replace(code, kernels=code.kernels * 3)._repr_html_().count("<details")
    assert many == few - 2 + 6 * 2


def test_the_wrapper_is_shown_without_kernels_and_benchmark() -> None:
    part = launching_part(WRAPPER)
    assert part.startswith("def call(args):") and part.endswith("return (buf2, buf3, )")
    assert launching_part("other text") == "other text"
