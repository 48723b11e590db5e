"""The worker process: what travels, what comes back, how it ends; nothing of it reaches us."""

from __future__ import annotations

import linecache
import operator
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy
import psutil
import pytest
import torch
import torch._dynamo
import torch._inductor.config

from helpers import worker
from helpers.settings import apply_settings, current_settings, kept_settings
from helpers.travel import CannotTravel
from helpers.worker import WorkerDied, run_in_worker, start_worker, worker_start_seconds

ROOT = Path(__file__).resolve().parents[2]
CALL = f"{__name__}:call"  # this file is imported there as it was here


def call(function):
    return function()


def same(obj):
    return obj


def pid() -> int:
    return run_in_worker(CALL, os.getpid)


class Odd(Exception):
    """An error whose __init__ does not take what its args hold, with something that stays."""

    def __init__(self, number: int, word: str) -> None:
        super().__init__(f"{word} {number}")
        self.number, self.lock = number, threading.Lock()


@pytest.fixture(scope="module", autouse=True)
def stopped_afterwards():
    yield
    worker.stop_worker()


def ends(process: int, within_s: float = 20.0) -> bool:
    """Whether a process is gone, or only waits to be collected by its parent, before long."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            if psutil.Process(process).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def interruptible() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def script(path: Path, text: str, **options) -> subprocess.Popen:
    """Starts a script of the learner's; a background job would ignore Ctrl-C."""
    path.write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, str(path)], cwd=path.parent, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=interruptible, **options,
    )  # fmt: skip


def test_it_starts_ahead_and_says_how_long_that_took(capsys):
    start_worker()
    first = worker._worker
    start_worker()
    assert worker._worker is first
    assert run_in_worker(f"{__name__}:same", 3) == 3
    assert worker._worker is first
    assert 0 < worker_start_seconds() < 300
    run_in_worker(f"{__name__}:same", 3)
    shown = capsys.readouterr().err
    assert shown.count("Starting the compile worker: done in") <= 1


def test_it_is_another_process_without_a_gpu_and_with_caches_of_its_own(monkeypatch):
    monkeypatch.setenv("MARK_OF_THE_TEST", "there")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")

    def look():
        names = ("CUDA_VISIBLE_DEVICES", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
                 "TORCHINDUCTOR_COMPILE_THREADS", "MARK_OF_THE_TEST")  # fmt: skip
        initialized = torch.cuda.is_initialized()
        available = torch.cuda.is_available()
        return os.getpid(), os.getsid(0), initialized, available, [os.environ[n] for n in names]

    process, session, initialized, available, values = run_in_worker(CALL, look)
    assert process != os.getpid() and session == process
    assert not initialized and not available
    assert values[0] == "" and values[3:] == ["1", "there"]
    folder = worker._worker.folder
    assert [Path(value).parent for value in values[1:3]] == [folder, folder]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


def test_functions_tensors_and_folder_travel(tmp_path, monkeypatch):
    (tmp_path / "beside_the_notebook.py").write_text("def plus(x):\n    return x + 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import beside_the_notebook

    base = torch.arange(4.0)
    view = base[1:]
    shared = lambda: (beside_the_notebook.plus(base), view, base, os.getcwd())  # noqa: E731
    plus, its_view, its_base, folder = run_in_worker(CALL, shared)
    assert torch.equal(plus, base + 1) and folder == str(tmp_path)
    assert its_view.untyped_storage().data_ptr() == its_base.untyped_storage().data_ptr()
    monkeypatch.delitem(sys.modules, "beside_the_notebook")


def test_a_module_that_was_edited_is_imported_again(tmp_path, monkeypatch):
    file = tmp_path / "edited_meanwhile.py"
    monkeypatch.syspath_prepend(tmp_path)
    look = lambda: __import__("edited_meanwhile").VALUE  # noqa: E731
    for value in ("1", "22", "333"):
        file.write_text(f"VALUE = {value}")
        assert run_in_worker(CALL, look) == int(value)


def test_a_script_without_a_guard_works(tmp_path):
    process = script(
        tmp_path / "no_guard.py",
        """
        import torch
        from helpers.worker import run_in_worker
        print("once")
        weight = torch.ones(3)
        class Model(torch.nn.Module):
            def forward(self, x):
                return x * weight
        def look(pair):
            import inspect, torch, operator
            model, x = pair
            return model(x), inspect.getsource(type(model).forward), model
        result, source, model = run_in_worker("operator:call", lambda: look((Model(), weight + 1)))
        print(result.tolist(), source.strip().splitlines()[0], type(model) is Model)
        """,
    )
    out, err = process.communicate(timeout=200)
    assert out.splitlines() == ["once", "[2.0, 2.0, 2.0] def forward(self, x): True"], err


def test_an_object_of_a_local_class_comes_home_and_leaves_no_copy_of_globals():
    class Local:
        def both(self):
            return torch, ROOT

    arrived = run_in_worker(f"{__name__}:same", [Local(), Local])
    assert type(arrived[0]) is Local and arrived[1] is Local
    made = run_in_worker(CALL, lambda: lambda: ROOT)
    assert made() == ROOT
    assert not [name for name in sys.modules if name.startswith("_travelled_")]


def test_source_that_only_linecache_has_is_seen_there():
    name, text = (
        "/no/such/folder/cell_of_worker.py",
        "def cell():\n    return inspect.getsource(cell)\n",
    )
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    names = {"__name__": "__main__", "inspect": __import__("inspect")}
    exec(compile(text, name, "exec"), names)
    assert run_in_worker(CALL, names["cell"]) == text
    del linecache.cache[name]


def test_what_is_printed_there_is_printed_here_in_order(capfd):
    def talk():
        print("one")
        print("two", file=sys.stderr)
        print("three", end="", flush=True)
        os.write(1, b"past Python\n")
        subprocess.run(["sh", "-c", "echo from a child >&2"])
        return 4

    assert run_in_worker(CALL, talk) == 4
    shown = capfd.readouterr()
    assert shown.out == "onethree".replace("three", "\nthree") + "past Python\n"
    assert shown.err.splitlines()[-2:] == ["two", "from a child"]
    assert run_in_worker(f"{__name__}:same", 5) == 5
    assert capfd.readouterr() == ("", "")


def test_an_error_keeps_its_type_words_and_place():
    def fail():
        try:
            return 1 / 0
        except ZeroDivisionError as error:
            raise Odd(3, "number") from error

    with pytest.raises(Odd, match=r"^number 3") as caught:
        run_in_worker(CALL, fail)
    error = caught.value
    assert type(error) is Odd and error.number == 3 and str(error) == "number 3"
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "return 1 / 0" in error.worker_traceback
    assert error.worker_frames[-1].name == "fail"
    (note,) = error.__notes__
    assert "raised in fail" in note and "raise Odd" in note and Path(__file__).name in note


def test_an_error_defined_in_a_function_comes_home_as_its_class():
    class Local(ValueError):
        pass

    def fail():
        raise Local("here")

    with pytest.raises(Local, match=r"^here"):
        run_in_worker(CALL, fail)


def test_an_error_whose_type_cannot_travel_is_told_by_name():
    def fail():
        class Strange(Exception):
            held = threading.Lock()

        raise Strange("words")

    with pytest.raises(Exception, match=r"^Strange: words"):
        run_in_worker(CALL, fail)


def test_what_cannot_travel_is_said_in_both_directions_and_kills_nothing():
    before = pid()
    lock = threading.Lock()
    with pytest.raises(CannotTravel, match=r"^A lock"):
        run_in_worker(CALL, lambda: lock)
    with pytest.raises(CannotTravel, match=r"^A lock"):
        run_in_worker(CALL, threading.Lock)
    assert pid() == before


def test_what_cannot_be_imported_there_is_said(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def f():\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    (tmp_path / "only_here.py").write_text("raise OSError('gone')")
    with pytest.raises(
        CannotTravel, match=r"could not be put together in the worker.*OSError: gone"
    ):
        run_in_worker(CALL, only_here.f)
    monkeypatch.delitem(sys.modules, "only_here")


def test_settings_and_random_states_are_the_same_there():
    def change():
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("high")
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_autocast_enabled("cuda", True)
        torch.backends.cuda.enable_flash_sdp(False)
        torch._dynamo.config.recompile_limit = 3
        torch._inductor.config.triton.unique_kernel_names = False
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)

    def read():
        draws = torch.rand(2), random.random(), numpy.random.rand()
        return torch.is_inference_mode_enabled(), draws

    usual = comparable(run_in_worker(CALL, current_settings))
    threads, flash = torch.get_num_threads(), torch.backends.cuda.flash_sdp_enabled()
    try:
        with kept_settings():
            change()
            here = current_settings()
            assert comparable(here) != usual
            there = comparable(run_in_worker(CALL, current_settings))
            assert {**there, "configs": {}} == {**comparable(here), "configs": {}}
            assert run_in_worker(CALL, lambda: config_values(here["configs"])) == here["configs"]
            with torch.inference_mode():
                inference, draws = run_in_worker(CALL, read)
            assert inference and str(draws) == str(read()[1])
            apply_settings(here)
            assert str(draws) == str(read()[1])
    finally:
        torch.set_num_threads(threads)
        torch.backends.cuda.enable_flash_sdp(flash)
    after = comparable(run_in_worker(CALL, current_settings))
    assert {name for name in usual if after[name] != usual[name]} <= {"configs", "random"}
    assert run_in_worker(CALL, lambda: torch._dynamo.config.recompile_limit) > 3


def config_values(names: dict) -> dict:
    """What torch's configs say now, for the names in `names`."""
    return {
        module: {name: operator.attrgetter(name)(sys.modules[module]) for name in values}
        for module, values in names.items()
    }


def comparable(settings: dict) -> dict:
    """Settings with what compares badly as text, and configs only where something is changed."""
    configs = {name: values for name, values in settings["configs"].items() if values}
    return {**settings, "random": str(settings["random"]), "configs": configs}


def test_two_threads_wait_for_each_other():
    spans = []

    def work():
        spans.append(run_in_worker(CALL, span))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (_, its_end, one), (second, _end, other) = sorted(spans)
    assert its_end <= second and one == other


def span():
    start = time.monotonic()
    time.sleep(0.2)
    return start, time.monotonic(), os.getpid()


def test_it_dies_with_one_clear_sentence_and_the_next_call_works(capsys):
    def die():
        sys.stderr.flush()
        os.write(2, b"the last words.\n")
        os.kill(os.getpid(), signal.SIGKILL)

    folder, died = worker._running().folder, pid()
    with pytest.raises(WorkerDied) as caught:
        run_in_worker(CALL, die)
    assert str(caught.value) == (
        "The compile worker ended by signal SIGKILL, as when memory runs out; it last said: "
        "the last words. The next call starts a new one."
    )
    assert not folder.exists()
    assert died not in [child.pid for child in psutil.Process().children()]
    assert pid() != os.getpid()


def test_a_wait_that_is_given_up_kills_worker_and_children_and_the_next_call_works(tmp_path):
    marks = tmp_path / "pids"

    def hang():
        child = subprocess.Popen(["sleep", "1000"])
        marks.write_text(f"{os.getpid()} {child.pid}")
        time.sleep(1000)

    def give_up():
        if marks.exists() and len(marks.read_text().split()) == 2:
            raise TimeoutError("a newer edit")

    with pytest.raises(TimeoutError, match="a newer edit"):
        run_in_worker(CALL, hang, on_wait=give_up)
    numbers = [int(number) for number in marks.read_text().split()]
    assert all(map(ends, numbers))
    assert not {child.pid for child in psutil.Process().children()} & set(numbers)  # no zombie
    assert run_in_worker(f"{__name__}:same", 1) == 1


def test_a_forked_child_leaves_the_worker_of_its_parent_alone():
    before = pid()
    child = os.fork()
    if not child:
        alone = worker._worker is None and not worker._LOCK.locked()
        worker._at_exit()
        os._exit(0 if alone else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert pid() == before


def test_a_child_forked_in_the_worker_neither_holds_nor_garbles_the_pipe(capfd):
    def fork():
        child = os.fork()
        if not child:
            print("from the fork", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        return "whole"

    assert run_in_worker(CALL, fork) == "whole"
    assert capfd.readouterr().out == "from the fork\n"


HANGS = """
    import os, time
    from helpers.worker import run_in_worker
    def hang():
        print(os.getpid(), os.environ["TRITON_CACHE_DIR"], flush=True)
        time.sleep(1000)
    try:
        run_in_worker("operator:call", hang)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(run_in_worker("operator:call", lambda: 7))
"""


def test_ctrl_c_reaches_the_learner_only_who_kills_the_worker_and_goes_on(tmp_path):
    process = script(tmp_path / "hangs.py", HANGS, start_new_session=True)
    number, caches = process.stdout.readline().split()
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, err = process.communicate(timeout=200)
    assert out.splitlines() == ["interrupted", "7"], err
    assert ends(int(number)) and not Path(caches).parent.exists()


def test_it_goes_when_its_parent_is_killed(tmp_path):
    process = script(tmp_path / "hangs.py", HANGS)
    number, caches = process.stdout.readline().split()
    process.kill()
    process.communicate(timeout=60)
    assert ends(int(number))
    assert not Path(caches).parent.exists()
