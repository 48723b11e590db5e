"""environment, machine_check and vector_isa: what a machine is told, and what is remembered."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from helpers import environment, machine, machine_check, usable_gpu, vector_isa
from helpers.environment import choose_device, describe_environment, preflight, require_cuda

ROOT = Path(__file__).resolve().parents[2]
H200 = machine.Card("NVIDIA H200", "580.159", (9, 0), 143771)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(usable_gpu, "_cuda_works", lambda torch: (False, ""))
    monkeypatch.setattr(usable_gpu, "_other_gpu", lambda torch: "")
    monkeypatch.setattr(machine, "find_cards", lambda: ())


@pytest.fixture
def gpu(monkeypatch):
    properties = SimpleNamespace(name="NVIDIA H200", total_memory=140 * 2**30, major=9, minor=0)
    monkeypatch.setattr(usable_gpu, "_cuda_works", lambda torch: (True, ""))
    monkeypatch.setattr(machine, "find_cards", lambda: (H200,))
    cuda = torch.cuda
    monkeypatch.setattr(cuda, "get_device_capability", lambda index=0: (9, 0))
    monkeypatch.setattr(cuda, "get_arch_list", lambda: ["sm_80", "sm_90"])
    monkeypatch.setattr(cuda, "get_device_name", lambda index=0: "NVIDIA H200")
    monkeypatch.setattr(cuda, "get_device_properties", lambda index=0: properties)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr("helpers.card.read", lambda index=0: SimpleNamespace(driver="580.159"))


def test_a_machine_without_a_gpu(no_gpu):
    here = describe_environment()
    assert here.gpu == "" and here.gpu_note == "no GPU" and here.torch == torch.__version__
    assert any("GPU times: recorded" in text for text in here.elsewhere)
    assert "no GPU" in str(here) and "\n" not in str(here)
    assert "Not live here" in here._repr_html_()


def test_a_machine_with_a_gpu(gpu):
    here = describe_environment()
    assert (here.gpu, here.driver, here.capability) == ("NVIDIA H200", "580.159", "9.0")
    assert here.memory_gb == 140 and here.gpu_note == ""
    assert any("times on NVIDIA H200" in text for text in here.live)
    assert not any("GPU" in text for text in here.elsewhere)
    assert "the first of 2" in dict(here.facts())["GPU"]
    assert choose_device("auto") == choose_device("cuda") == "cuda"
    assert require_cuda() is None


def test_what_is_missing_decides_what_is_live(no_gpu, monkeypatch):
    monkeypatch.setattr(machine, "find_compiler", lambda: None)
    monkeypatch.setattr(environment, "triton_version", lambda: "")
    here = describe_environment()
    assert any("no C++ compiler" in text for text in here.elsewhere)
    assert any("Triton is not installed" in text for text in here.elsewhere)
    assert dict(here.facts())["C++ compiler"] == "none found"


def test_a_card_that_torch_has_no_code_for_counts_as_none(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_100", "sm_120"])
    monkeypatch.setattr(machine, "find_cards", lambda: ())
    assert "no code for NVIDIA H200" in describe_environment().gpu_note
    assert choose_device("auto") == "cpu"


def test_the_table_of_drivers_says_what_to_type(gpu, monkeypatch):
    old = machine.Card("NVIDIA V100", "580.1", (7, 0), 16000)
    monkeypatch.setattr(usable_gpu, "_cuda_works", lambda torch: (False, ""))
    monkeypatch.setattr(machine, "find_cards", lambda: (old,))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    here = describe_environment()
    assert here.gpu == "" and "NVIDIA V100" in here.gpu_note and "TORCH=2.7.1" in here.gpu_note
    with pytest.raises(RuntimeError, match=r"TORCH=2\.7\.1"):
        require_cuda()


@pytest.mark.parametrize(
    ("cuda", "visible", "words"),
    [
        (None, None, "built without CUDA"),
        ("13.0", "", "CUDA_VISIBLE_DEVICES hides it"),
        ("13.0", None, "cannot use it: a warning"),
    ],
)
def test_a_card_that_is_not_reached_says_why(monkeypatch, cuda, visible, words):
    monkeypatch.setattr(usable_gpu, "_cuda_works", lambda torch: (False, "a warning"))
    monkeypatch.setattr(usable_gpu, "_other_gpu", lambda torch: "")
    monkeypatch.setattr(machine, "find_cards", lambda: (H200,))
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch, "__version__", "2.11.0")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    here = describe_environment()
    assert words in here.gpu_note and here.gpu_fix


@pytest.mark.parametrize("name", ["an AMD GPU", "an Intel GPU", "an Apple GPU"])
def test_a_gpu_of_another_maker_counts_as_none(no_gpu, monkeypatch, name):
    monkeypatch.setattr(usable_gpu, "_other_gpu", lambda torch: name)
    note = describe_environment().gpu_note
    assert name in note and "NVIDIA cards only" in note and "\n" not in note
    assert preflight().ok or "NVIDIA card" not in preflight().line.split(" | ")[1]


def test_a_warning_of_torch_is_caught_and_kept(monkeypatch):
    def warn():
        warnings.warn("The NVIDIA driver on your system is too old\nmore", stacklevel=1)
        return False

    fake = SimpleNamespace(
        version=SimpleNamespace(cuda="13.0"), cuda=SimpleNamespace(is_available=warn)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert usable_gpu._cuda_works(fake) == (
            False, "The NVIDIA driver on your system is too old")  # fmt: skip


@pytest.mark.parametrize(
    ("built", "capability", "served"),
    [
        (["sm_90"], (9, 0), True),
        (["sm_80"], (8, 9), True),
        (["sm_80"], (9, 0), False),
        (["sm_90"], (8, 0), False),
        (["sm_80", "compute_80"], (12, 0), True),
        (["compute_120"], (9, 0), False),
        (["sm_90a"], (9, 0), True),
        ([], (9, 0), False),
    ],
)
def test_which_cards_a_build_serves(built, capability, served):
    assert usable_gpu._serves(built, capability) is served


def test_choose_device(no_gpu):
    assert choose_device() == choose_device("auto") == choose_device("cpu") == "cpu"
    with pytest.raises(ValueError, match="not 'gpu'"):
        choose_device("gpu")
    with pytest.raises(RuntimeError, match='device="auto"'):
        choose_device("cuda")


def test_reset_makes_the_next_call_compile_again():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    double = torch.compile(lambda x: x * 2, backend=backend)
    double(torch.ones(2))
    double(torch.ones(2))
    assert len(graphs) == 1
    assert "compiles again" in environment.reset_compiler()
    double(torch.ones(2))
    assert len(graphs) == 2


# preflight


def test_preflight_has_a_line_each_and_keeps_secrets(no_gpu):
    result = preflight()
    assert [one.name for one in result.requirements] == [name for name, _ in machine_check.CHECKS]
    assert "\n" not in result.line
    assert not re.search(r"[/\\]\w+[/\\]", result.line)  # no path
    for secret in (getpass.getuser(), socket.gethostname()):
        # A short user name may well be part of another word.
        assert not re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", result.line), secret
    text = str(result)
    assert all(one.name in text for one in result.requirements) and result.line in text
    assert "result" in result._repr_html_()


def test_each_failure_says_what_to_do(no_gpu, monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "python_ok", lambda: False)
    monkeypatch.setattr(machine, "find_compiler", lambda: None)
    monkeypatch.setattr(machine, "has_python_headers", lambda: False)
    monkeypatch.setattr(machine, "free_gb", lambda path: 0.2)
    monkeypatch.setattr(environment, "triton_version", lambda: "")
    monkeypatch.setattr(torch, "__version__", "2.0.0")
    monkeypatch.setitem(machine_check.MODULES, "no_such_module", "no-such-package")
    result = preflight()
    todo = {one.name: one.todo for one in result.requirements}
    assert "install Python" in todo["Python"]
    assert "make lab" in todo["torch"]
    assert "g++" in todo["C++ compiler"]
    assert "python" in todo["Python.h"] and "-dev" in todo["Python.h"]
    assert "TORCHINDUCTOR_CACHE_DIR" in todo["compile cache"]
    assert "no-such-package" in todo["notebook packages"]
    assert todo["NVIDIA card"] == ""  # none is fine
    assert not result.ok and "to do: Python, torch" in result.line


def test_an_unusable_cache_folder_is_named(no_gpu, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "file"))
    found = machine_check._cache()
    assert not found.ok and "not writable" in found.found


def test_a_check_that_breaks_stops_no_other(no_gpu, monkeypatch):
    def broken():
        raise OSError("half installed")

    checks = tuple(
        (name, broken if name == "torch" else check) for name, check in machine_check.CHECKS
    )
    monkeypatch.setattr(machine_check, "CHECKS", checks)
    result = preflight()
    assert len(result.requirements) == len(checks)
    assert "half installed" in result.requirements[1].found and not result.ok


def test_a_card_that_fails_at_an_addition_is_reported(gpu, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("CUDA error: out of memory\nmore")

    monkeypatch.setattr(torch, "ones", fail)
    found = machine_check._gpu()
    assert "out of memory" in found.found and "close what else" in found.todo


# the probe of vector instructions


class Probe:
    """Stands for torch._inductor.cpu_vec_isa: two kinds of instructions, one with its own check."""

    def __init__(self, answer=True):
        asked = self.asked = []

        class VecISA:
            _arch_flags, _macro = "-mavx2", ["AVX2"]

            def check_build(self, code):
                asked.append((code, self._arch_flags))
                return answer

            def __str__(self):
                return "avx2"

        class VecAMX(VecISA):
            def check_build(self, code):
                asked.append(("amx", code))
                return answer

        self.VecISA, self.VecAMX = VecISA, VecAMX


@pytest.fixture
def remembered(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vector_isa, "_toolchain", lambda: "torch and g++")

    def install(probe):
        inductor = pytest.importorskip("torch._inductor")
        monkeypatch.setattr(inductor, "cpu_vec_isa", probe, raising=False)
        monkeypatch.setitem(sys.modules, "torch._inductor.cpu_vec_isa", probe)
        return vector_isa.remember_vector_isa()

    return install


def test_an_answer_is_asked_once_and_kept_in_a_file(remembered, tmp_path):
    first = Probe()
    assert "now remembered" in remembered(first)
    assert first.VecISA().check_build("code") and first.VecISA().check_build("code")
    assert first.asked == [("code", "-mavx2")]
    again = Probe()  # a fresh process
    remembered(again)
    assert again.VecISA().check_build("code") and again.asked == []
    assert vector_isa.answers_file() == tmp_path / "torch_compile_suite" / "vector_isa.json"


def test_each_kind_with_its_own_check_is_covered(remembered):
    probe = Probe()
    remembered(probe)
    for _ in range(2):
        assert probe.VecAMX().check_build("code")
    assert probe.asked == [("amx", "code")]


@pytest.mark.parametrize("change", ["code", "flags", "toolchain", "processor"])
def test_another_question_is_asked_anew(remembered, monkeypatch, change):
    probe = Probe()
    remembered(probe)
    probe.VecISA().check_build("code")
    isa, code = probe.VecISA(), "code"
    if change == "code":
        code = "other"
    elif change == "flags":
        isa._arch_flags += " -mavx512bf16"  # as torch does between two questions
    else:
        monkeypatch.setattr(vector_isa, f"_{change}", lambda: "another")
    isa.check_build(code)
    assert len(probe.asked) == 2


def test_a_no_is_not_kept(remembered):
    probe = Probe(answer=False)
    remembered(probe)
    assert not probe.VecISA().check_build("code") and not probe.VecISA().check_build("code")
    assert len(probe.asked) == 2


def test_wrapping_twice_changes_nothing_more(remembered):
    probe = Probe()
    remembered(probe)
    wrapped = probe.VecISA.check_build
    remembered(probe)
    assert probe.VecISA.check_build is wrapped


@pytest.mark.parametrize("text", ["{half", "[]", '{"schema": 9, "answers": {}}', '{"schema": 1}',
                                  '{"schema": 1, "answers": 3}', "\udcff"])  # fmt: skip
def test_a_damaged_file_is_like_none(remembered, text):
    file = vector_isa.answers_file()
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    probe = Probe()
    remembered(probe)
    for _ in range(2):
        assert probe.VecISA().check_build("code")
    assert len(probe.asked) == 1
    assert len(json.loads(file.read_text())["answers"]) == 1


def test_a_folder_that_cannot_be_written_costs_the_memory_only(remembered, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    probe = Probe()
    remembered(probe)
    for _ in range(2):
        assert probe.VecISA().check_build("code")
    assert len(probe.asked) == 2


def test_a_toolchain_without_compiler_leaves_the_answer_to_torch(remembered, monkeypatch):
    def none():
        raise RuntimeError("no compiler")

    monkeypatch.setattr(vector_isa, "_toolchain", none)
    probe = Probe()
    remembered(probe)
    assert probe.VecISA().check_build("code") and len(probe.asked) == 1


def test_a_torch_that_remembers_or_has_no_probe_is_left_alone(remembered):
    own = Probe()
    own.VecISA._probe_load = lambda self, path: True
    untouched = own.VecISA.check_build
    assert "itself" in remembered(own) and own.VecISA.check_build is untouched
    assert "no probe" in remembered(SimpleNamespace())


WRITER = """
import sys, time
from helpers import vector_isa

def slowly(path, read=vector_isa._read):
    answers = read(path)
    time.sleep(0.02)  # so that the two surely meet between reading and writing
    return answers

vector_isa._read = slowly
for number in range(20):
    vector_isa._remember(vector_isa.answers_file(), f"{sys.argv[1]}-{number}")
"""


def test_two_processes_that_write_at_once_lose_nothing(tmp_path):
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name], env=settings)
               for name in "ab"]  # fmt: skip
    assert [writer.wait(60) for writer in writers] == [0, 0]
    answers = json.loads((tmp_path / "torch_compile_suite" / "vector_isa.json").read_text())
    assert set(answers["answers"]) == {f"{name}-{n}" for name in "ab" for n in range(20)}


REAL = """
import copy, platform, subprocess, sys
import torch
from torch._inductor import config, cpu_vec_isa
from helpers.environment import remember_vector_isa

before = copy.deepcopy(config.save_config_portable())
print(remember_vector_isa())
assert config.save_config_portable() == before
children = []
for name in ("check_call", "run"):
    def spy(command, *rest, original=getattr(subprocess, name), **options):
        if command[0] == sys.executable:
            children.append(command)
        return original(command, *rest, **options)
    setattr(subprocess, name, spy)
x86 = platform.machine() in ("x86_64", "AMD64") and torch.cpu._is_avx2_supported()
# One kind is enough, and the others would cost seconds each.
kinds = [cpu_vec_isa.VecAVX2()] if x86 else cpu_vec_isa.valid_vec_isa_list()
print([(str(isa), bool(isa)) for isa in kinds])
print(len(children))
"""


def test_a_second_process_starts_no_child_with_the_real_torch(tmp_path):
    """With the installed torch: a second fresh process finds the same and starts no child."""
    if machine.find_compiler() is None:
        pytest.skip("no C++ compiler here")
    settings = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT),
                "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}  # fmt: skip
    outputs = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(REAL)], env=settings,
                              capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    (said, found, _), (said_again, found_again, children) = outputs
    assert said == said_again and found == found_again
    assert children == "0"


HEAVY = """
import sys
import torch
before = set(sys.modules)
import helpers
for name in dir(helpers):
    pass
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("helpers")))
"""


def test_importing_helpers_after_torch_loads_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", HEAVY], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    more = {name.split(".")[0] for name in done.stdout.split()}
    assert more <= set(sys.stdlib_module_names), more


def test_a_cxx_that_does_not_start_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    line = str(machine_check._compiler())
    assert "CXX=no-such-compiler does not start" in line
    assert "unset CXX" in line
