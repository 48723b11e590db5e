"""helpers.turns with real processes: never two at once, order kept, the dead leave no gap."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

from helpers import turns
from helpers.turns import Turn, TurnTimeout, turn

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60

# Says "in" and "out" in a common file, and stays inside until a file named after it appears.
WORKER = """
import os, sys, time
from pathlib import Path
from helpers.turns import turn
name, log, gates = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])

def say(word):
    with open(log, "a") as file:
        file.write(f"{name} {word}\\n")

with turn("card", label=f"worker {name}"):
    say("in")
    while not (gates / name).exists():
        time.sleep(0.02)
    say("out")
"""


@pytest.fixture(autouse=True)
def queue(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_SUITE_TURNS", str(tmp_path / "turns"))
    return tmp_path / "turns"


def interruptible():
    """Ctrl-C reaches the child also where this test runs in the background, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path):
    """Starts workers, one after another, each once the one before is in the queue."""
    begun = []
    (tmp_path / "log").touch()

    def go(name):
        tickets = len(list((tmp_path / "turns").glob("card/user-*/*.json")))
        command = [sys.executable, "-c", WORKER, name, str(tmp_path / "log"), str(tmp_path)]
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)},
                                   stderr=subprocess.PIPE, text=True,
                                   preexec_fn=interruptible)  # fmt: skip
        begun.append(process)
        until(lambda: len(list((tmp_path / "turns").glob("card/user-*/*.json"))) > tickets)
        return process

    yield go
    for process in begun:
        process.kill()
        process.communicate()


def until(happens):
    end = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < end, "this did not happen in a minute"
        time.sleep(0.02)


def said(tmp_path):
    return (tmp_path / "log").read_text().split("\n")[:-1]


def leftovers(queue):
    return [file.name for file in queue.glob("*/user-*/*")]


def test_three_at_once_go_one_by_one_in_order(tmp_path, start, queue):
    workers = [start(name) for name in "abc"]
    for count, name in enumerate("abc"):
        until(lambda name=name: f"{name} in" in said(tmp_path))
        assert len(said(tmp_path)) == 2 * count + 1  # nobody else came in meanwhile
        (tmp_path / name).touch()
    for worker in workers:
        assert worker.wait(PATIENCE_S) == 0
    assert said(tmp_path) == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert leftovers(queue) == []
    # Those who waited were told for whom.
    assert f"ahead of us is process {workers[0].pid} (worker a)" in workers[1].stderr.read()


def test_the_queue_goes_on_when_the_holder_is_killed(tmp_path, start, queue):
    first, second = start("a"), start("b")
    until(lambda: "a in" in said(tmp_path))
    first.send_signal(signal.SIGKILL)
    first.wait(PATIENCE_S)
    (tmp_path / "b").touch()
    assert second.wait(PATIENCE_S) == 0
    assert said(tmp_path) == ["a in", "b in", "b out"]
    assert leftovers(queue) == []  # the ticket of the dead is gone too


def test_a_killed_waiter_is_passed_over(tmp_path, start, queue):
    first, second, third = start("a"), start("b"), start("c")
    second.kill()
    second.wait(PATIENCE_S)
    for name in "ac":
        (tmp_path / name).touch()
    assert first.wait(PATIENCE_S) == third.wait(PATIENCE_S) == 0
    assert said(tmp_path) == ["a in", "a out", "c in", "c out"]
    assert leftovers(queue) == []


def test_ctrl_c_while_waiting_leaves_the_queue_clean(tmp_path, start, queue):
    first, second = start("a"), start("b")
    until(lambda: "a in" in said(tmp_path))
    second.send_signal(signal.SIGINT)
    second.wait(PATIENCE_S)
    assert "KeyboardInterrupt" in second.stderr.read()
    assert len([name for name in leftovers(queue) if name.endswith(".json")]) == 1
    (tmp_path / "a").touch()
    assert first.wait(PATIENCE_S) == 0
    assert leftovers(queue) == []


def test_a_timeout_says_who_is_ahead_and_what_to_do(tmp_path, start, queue):
    holder = start("a")
    until(lambda: "a in" in said(tmp_path))
    with pytest.raises(TurnTimeout) as caught, turn("card", timeout_s=0.3):
        pytest.fail("two were inside")
    assert f"process {holder.pid} (worker a)" in str(caught.value)
    assert "stop them" in str(caught.value)
    with turn("cpu", timeout_s=0.3):  # another resource is free
        pass
    (tmp_path / "a").touch()
    assert holder.wait(PATIENCE_S) == 0
    assert leftovers(queue) == []


def test_a_holder_whose_ticket_was_lost_still_keeps_others_out(queue):
    with turn("card"):
        pass
    held = filelock.FileLock(queue / "card" / "inside.lock")
    with held, pytest.raises(TurnTimeout, match="left no ticket"), turn("card", timeout_s=0.3):
        pytest.fail("two were inside")
    with turn("card", timeout_s=1):
        pass


def test_a_turn_within_a_turn_does_not_wait(queue):
    with turn("card", timeout_s=1), turn("card", timeout_s=1) as inner:
        assert inner == Turn()
        assert len(leftovers(queue)) == 2  # still ours: one ticket, its lock and its details
    assert leftovers(queue) == []


def test_two_threads_of_one_process_take_turns(queue):
    inside, worst = [], []

    def work():
        with turn("card"):
            inside.append(1)
            worst.append(len(inside))
            time.sleep(0.05)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert worst == [1, 1, 1, 1]


def test_an_error_in_the_body_reaches_the_caller_and_frees_the_card(queue):
    with pytest.raises(ZeroDivisionError), turn("card"):
        _ = 1 / 0
    with turn("card", timeout_s=1):
        pass
    assert leftovers(queue) == []


def test_folders_and_files_serve_every_user(queue):
    with turn("GPU-1/../x"):
        (folder,) = queue.iterdir()
        assert folder.name == "GPU-1____x"
        assert {path.stat().st_mode & 0o7777 for path in (queue, folder)} == {0o1777}
        assert {file.stat().st_mode & 0o777 for file in folder.rglob("*.lock")} == {0o666}
        (info,) = folder.rglob("*.json")
        assert info.stat().st_mode & 0o777 == 0o644
        assert json.loads(info.read_text())["pid"] == os.getpid()


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can be two users")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child only takes a turn
@pytest.mark.parametrize(("first", "second"), [(0, 12345), (12345, 0), (12345, 12346)])
def test_two_users_wait_for_each_other(first, second, monkeypatch):
    import tempfile

    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to others
        Path(place).chmod(0o777)
        monkeypatch.setenv("TORCH_COMPILE_SUITE_TURNS", f"{place}/turns")

        def child(user, then):
            pid = os.fork()
            if pid == 0:
                code = 3
                with contextlib.suppress(BaseException):
                    os.setgroups([])
                    os.setuid(user)
                    os.umask(0o077)
                    code = then()
                os._exit(code)
            return pid

        def hold():
            with turn("card", label="first"):
                Path(place, "in").touch()
                until(Path(place, "go").exists)
            return 0

        def be_refused_then_enter():
            try:
                with turn("card", timeout_s=0.3):
                    return 1
            except TurnTimeout as error:
                if "(first)" not in str(error):
                    return 2
            Path(place, "go").touch()
            with turn("card", timeout_s=PATIENCE_S) as mine:
                return 4 if mine.notes else 0

        holder = child(first, hold)
        until(Path(place, "in").exists)
        waiter = child(second, be_refused_then_enter)
        ended = os.waitstatus_to_exitcode(os.waitpid(waiter, 0)[1])
        Path(place, "go").touch()
        assert os.waitstatus_to_exitcode(os.waitpid(holder, 0)[1]) == 0
        assert ended == 0


def test_a_useless_shared_folder_is_said_not_fatal(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TORCH_COMPILE_SUITE_TURNS", str(tmp_path / "file"))
    with turn("card") as mine:
        assert "without queueing" in mine.notes[0]
    assert "without queueing" in capsys.readouterr().err


def test_damaged_details_do_not_stop_the_queue(tmp_path, start, queue):
    start("a")
    until(lambda: "a in" in said(tmp_path))
    (info,) = queue.rglob("*.json")
    info.write_text("{half")
    with pytest.raises(TurnTimeout, match="no details"), turn("card", timeout_s=0.3):
        pytest.fail("two were inside")


def test_the_default_folder_does_not_follow_tmpdir(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCH_COMPILE_SUITE_TURNS")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if os.name == "posix":
        assert tmp_path not in turns.queue_root().parents
