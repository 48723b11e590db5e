"""helpers.benchmarking: each flaw is planted and refused, the fault-free case passes.

No test asserts how long anything takes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import statistics
import threading
import traceback
import types
import warnings

import pytest
import torch

from helpers import accuracy, benchmarking, card, disturbances, dynamo, run_settings, timing
from helpers.benchmarking import (
    MeasurementRefused,
    Reference,
    Timing,
    compare,
    float64_run,
    measure,
)
from helpers.comparing import NO_DIFFERENCE
from helpers.origin import Origin

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    """A queue of our own, and a short warm-up."""
    monkeypatch.setenv("TORCH_COMPILE_SUITE_TURNS", str(tmp_path / "turns"))
    monkeypatch.setattr(benchmarking, "WARM_S", 0.01)


class Counting:
    """A function that counts its calls and does something special at one of them."""

    __name__ = "counting"

    def __init__(self, at=10**9, action=lambda x: None):
        self.calls, self.at, self.action = 0, at, action

    def __call__(self, x):
        self.calls += 1
        if self.calls == self.at:
            self.action(x)
        return x + 1


# the fault-free case


def test_a_plain_function():
    x = torch.arange(6.0).reshape(2, 3)
    made = measure(lambda a, b: a * b, x, kwargs={"b": 3}, repeats=30, label="triple")
    assert made.count == len(made.samples) == 30
    low, high = made.interval
    assert min(made.samples) <= low <= made.wall_ms <= high <= max(made.samples)
    assert made.first_call_s > 0 and made.spread >= 0
    assert made.device_ms is None and made.bound is None
    assert torch.equal(made.result[0], x * 3)
    assert made.origin.kind == "live" and made.origin.device == made.settings["device"]
    text = str(made)
    assert text.startswith("triple: first call ") and "30 calls)" in text
    assert "live" in made._repr_html_() and "<Timing triple" in repr(made)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.wall_ms = 0


def test_the_callable_is_timed_as_given_and_nothing_is_compiled():
    before = dynamo.compilation_count()
    counting = Counting()
    measure(counting, torch.ones(2), repeats=5)
    assert dynamo.compilation_count() == before
    assert counting.calls > 5 + 1


def test_a_compiled_function_compiles_in_its_first_call_only():
    compiled = torch.compile(lambda x: x.relu() + 1, backend="eager")
    before = dynamo.compilation_count()
    made = measure(compiled, torch.randn(8), repeats=12)
    assert dynamo.compilation_count() == before + 1
    assert made.count == 12


def test_a_module_a_method_and_a_closure():
    model = torch.nn.Linear(3, 3)
    x = torch.randn(2, 3)
    for fn in (model, model.forward, lambda y: model(y), torch.compile(model, backend="eager")):
        made = measure(fn, x, repeats=3)
        assert made.settings["dtypes of parameters"] == ("float32",)
        assert made.settings["train or eval"] == ("train",)


def test_without_repeats_the_seconds_decide():
    made = measure(Counting(), torch.ones(2), seconds=1e-9)
    assert made.count == benchmarking.FEWEST_SAMPLES
    assert any("Only 3 samples:" in note for note in made.notes)
    made = measure(Counting(), torch.ones(2), repeats=1)
    assert any("Only 1 sample:" in note for note in made.notes)


def test_it_takes_the_turn_of_its_device_and_says_what_for(monkeypatch):
    asked = []

    @contextlib.contextmanager
    def turn(resource, label, timeout_s):
        asked.append((resource, label, timeout_s))
        yield types.SimpleNamespace(notes=("no queue here",))
        asked.append("left")

    monkeypatch.setattr(benchmarking, "turn", turn)
    made = measure(Counting(), torch.ones(2), repeats=3, label="mine", timeout_s=7)
    assert asked == [("cpu", "mine", 7), "left"]
    assert "no queue here" in made.notes


# wrong calls


def test_wrong_calls_say_what_to_write():
    with pytest.raises(TypeError, match=r"measure\(f, x\), not measure\(f\(x\)\)"):
        measure(torch.ones(2))
    for repeats in (0, -1, 2.5, "3"):
        with pytest.raises(ValueError, match="repeats"):
            measure(Counting(), torch.ones(2), repeats=repeats)
    for seconds in (0, -1, "2"):
        with pytest.raises(ValueError, match="seconds"):
            measure(Counting(), torch.ones(2), seconds=seconds)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"seconds": float("inf")}, ValueError, "seconds is a number above 0, and not infinite"),
        ({"seconds": float("nan")}, ValueError, "seconds is a number above 0"),
        ({"seconds": True}, ValueError, "seconds is a number above 0"),
        ({"timeout_s": "a"}, ValueError, "timeout_s is a number of seconds from 0 on; got 'a'"),
        ({"timeout_s": -1}, ValueError, "timeout_s is a number of seconds from 0 on; got -1"),
        ({"timeout_s": float("inf")}, ValueError, "timeout_s is a number of seconds"),
        ({"repeats": True}, ValueError, "repeats is a whole number from 1 on"),
        ({"label": 3}, TypeError, "label is a text"),
        ({"kwargs": [1]}, TypeError, "kwargs is a dictionary by name"),
        ({"kwargs": {1: 2}}, TypeError, "kwargs is a dictionary by name"),
    ],
)
def test_each_wrong_option_is_one_line_and_calls_nothing(given, error, says):
    counting = Counting()
    with pytest.raises(error, match=says) as caught:
        measure(counting, torch.ones(2), **given)
    assert counting.calls == 0 and "\n" not in str(caught.value)


@pytest.mark.parametrize("at", [1, 2, 40])
def test_an_error_of_the_function_reaches_the_caller_as_it_is(at):
    mine = ZeroDivisionError("my own")

    def fail(_):
        raise mine

    with pytest.raises(ZeroDivisionError) as caught:
        measure(Counting(at, fail), torch.ones(2), repeats=60)
    assert caught.value is mine and mine.__cause__ is None
    assert traceback.extract_tb(mine.__traceback__)[-1].name == "fail"


# planted flaws


def refusal(*words):
    """Expects a refusal that has what happened, why that matters and what to do."""
    return pytest.raises(MeasurementRefused, match="(?s)" + ".*".join(words))


def test_a_recompile_between_the_samples_is_refused():
    compiled = torch.compile(lambda x, k: x * k, backend="eager")
    number = [3]
    flawed = Counting(50, lambda x: number.__setitem__(0, 4))

    def fn(x):
        return compiled(flawed(x), number[0])

    with refusal("compiled again", "mix the time", "keep it fixed") as caught:
        measure(fn, torch.ones(2), repeats=80)
    assert caught.value.what and caught.value.why and caught.value.todo


def test_compiling_without_end_is_refused():
    def fn(x):
        fresh = eval("lambda y: y + 1")  # a new code object each time
        return torch.compile(fresh, backend="eager")(x)

    with refusal("warm-up calls compiled again", "time would be", "keep it fixed"):
        measure(fn, torch.ones(2), repeats=3)


@pytest.fixture
def reset():
    """Forgets what the test compiled."""
    yield torch.compiler.reset
    torch.compiler.reset()


def grows(compiled):
    """A function that calls `compiled` with a new shape each time."""
    length = itertools.count(2)
    return lambda: compiled(torch.ones(next(length)))


def test_a_function_past_its_recompile_limit_is_refused_until_a_reset(reset):
    def add(x):
        return x + 1

    compiled = torch.compile(add, backend="eager", dynamic=False)
    with refusal("'add' .*recompile limit and runs uncompiled", "ordinary Python", "reset_comp"):
        measure(grows(compiled), repeats=3)
    for fn in (compiled, lambda x: compiled(x)):
        with refusal("'add' .*recompile limit"):
            measure(fn, torch.ones(50), repeats=3)
    assert measure(add, torch.ones(50), repeats=3).count == 3  # what it was compiled from is fine
    reset()
    assert measure(compiled, torch.ones(50), repeats=3).count == 3


def test_a_recompile_limit_between_the_samples_is_refused(reset):
    compiled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    number = itertools.count(1)

    def fn():
        call = next(number)
        return [compiled(torch.ones(n)) for n in range(2, 20 if call == 40 else 3)]

    with refusal("recompile limit"):
        measure(fn, repeats=60)


def test_a_module_past_its_recompile_limit_is_refused(reset):
    class Add(torch.nn.Module):
        def forward(self, x):
            return x + 1

    model = Add()
    compiled = torch.compile(model, backend="eager", dynamic=False)
    for length in range(2, 20):
        compiled(torch.ones(length))
    with refusal("'forward' .*recompile limit"):
        measure(compiled, torch.ones(50), repeats=3)
    assert measure(model, torch.ones(50), repeats=3).count == 3


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: iter([1, 2]), "argument 1, a list_iterator"),
        (lambda: (n for n in range(3)), "argument 1, a generator"),
        (lambda: map(abs, [1]), "argument 1, a map"),
    ],
)
def test_an_argument_that_one_call_uses_up_is_refused(make, name):
    calls = []
    with refusal("uses up " + name, "doing nothing", "Pass a list"):
        measure(lambda items: calls.append(sum(items)), make(), repeats=3)
    assert calls == []
    with refusal("argument items, a"):
        measure(lambda items: sum(items), kwargs={"items": make()}, repeats=3)
    endless = itertools.count()
    assert measure(lambda n: next(n), endless, repeats=3).count == 3


async def later(x):
    return x + 1


def one_by_one(x):
    yield x + 1


@pytest.mark.parametrize(
    ("fn", "kind"),
    [(later, "coroutine"), (one_by_one, "generator"), (lambda x: map(abs, [x]), "map")],
)
def test_a_result_whose_code_has_not_run_is_refused(fn, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as: was never awaited
        with refusal(f"returned a {kind}", "of making it", r"list\(f\(x\)\)"):
            measure(fn, torch.ones(2), repeats=3)
        gc.collect()


def test_meta_tensors_are_timed_and_said_to_have_no_values():
    made = measure(lambda: torch.ones(3, device="meta"), repeats=3)
    assert made.count == 3 and made.result is None
    assert any("meta device" in note and "not checked" in note for note in made.notes)


def test_many_recompiles_before_the_samples_are_a_note():
    compiled = torch.compile(lambda x, k: x * k, backend="eager", dynamic=False)
    number = iter(range(1000))
    made = measure(lambda x: compiled(x, min(next(number), 5)), torch.ones(2), repeats=3)
    assert any("recompile limit" in note for note in made.notes)


def set_precision(_):
    torch.set_float32_matmul_precision("high")


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("grad mode", lambda x: torch.set_grad_enabled(False)),
        ("threads", lambda x: torch.set_num_threads(torch.get_num_threads() + 1)),
        ("deterministic", lambda x: torch.use_deterministic_algorithms(True)),
        ("(TF32|matrix product precision)", set_precision),
        ("cudnn.benchmark", lambda x: setattr(torch.backends.cudnn, "benchmark", True)),
        ("strides", lambda x: x.t_()),
        ("shapes", lambda x: x.resize_(2, 2)),
        ("require grad", lambda x: x.requires_grad_()),
    ],
)
def test_a_setting_that_changes_meanwhile_is_refused(name, action):
    threads = torch.get_num_threads()
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    try:
        with refusal("Settings changed", name, "they stay changed", "Set them back now"):
            measure(Counting(40, action), torch.ones(4, 2), repeats=60)
    finally:
        torch.set_grad_enabled(True)
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark


def test_a_module_that_changes_to_eval_meanwhile_is_refused():
    model = torch.nn.Linear(2, 2)
    flip = Counting(40, lambda x: model.eval())
    with refusal("train or eval"):
        measure(lambda x: model(flip(x)), torch.ones(2), repeats=60)


# interruption


def interrupt(_):
    raise KeyboardInterrupt


def test_ctrl_c_during_the_samples_returns_what_is_done(monkeypatch):
    monkeypatch.setattr(benchmarking, "MOST_WARM_CALLS", 2)
    made = measure(Counting(20, interrupt), torch.ones(2), repeats=100)
    assert made.count == 16  # 1 first call, 2 warm-up calls, 16 samples, and the one cut off
    assert any("Interrupted after 16 of 100" in note for note in made.notes)


@pytest.mark.parametrize("at", [1, 2, 4])
def test_ctrl_c_before_there_is_a_sample_is_passed_on(at, monkeypatch, tmp_path):
    monkeypatch.setattr(benchmarking, "MOST_WARM_CALLS", 2)
    with pytest.raises(KeyboardInterrupt):
        measure(Counting(at, interrupt), torch.ones(2), repeats=100)
    assert not list((tmp_path / "turns").glob("*/user-*/*"))


# what a figure was disturbed by


def state(**facts):
    return card.CardState(True, **{"pids": (), **facts})


@pytest.fixture
def readings(monkeypatch):
    """Lets a test say what the card answers; the last answer is repeated."""
    monkeypatch.setattr(card, "our_pids", lambda: {1})
    monkeypatch.setattr("os.getpid", lambda: 1)
    monkeypatch.setattr(disturbances, "SETTLE_S", 0.1)
    answers = []

    def read(index):
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(card, "read", read)
    return answers


def test_a_card_in_trouble_is_marked(readings):
    readings += [state(utilisation=0)]
    assert disturbances.on_card(0, state(), state(pids=(1,), utilisation=99)) == []
    (hot,) = disturbances.on_card(0, state(throttle=("heat",)), state(pids=(1,)))
    assert "held down by heat" in hot.sentence and not hot.spoils
    (busy,) = disturbances.on_card(0, state(utilisation=80), state(pids=(1,)))
    assert "busy before" in busy.sentence and busy.spoils


def test_a_stranger_is_said_and_spoils_only_if_it_works(readings):
    readings += [state(utilisation=0)]
    (idle,) = disturbances.on_card(0, state(pids=(2,)), state(pids=(1, 2)))
    assert "process 2" in idle.sentence and not idle.spoils
    (unknown,) = disturbances.on_card(0, state(), state(pids=()))
    assert "not known" in unknown.sentence and not unknown.spoils
    readings[:] = [state(utilisation=100)]
    _, working = disturbances.on_card(0, state(pids=(2,)), state(pids=(1, 2)))
    assert "busy after the last call (100 %)" in working.sentence and working.spoils


def test_our_own_work_just_before_is_waited_out(readings):
    readings += [state(utilisation=95), state(utilisation=40), state(utilisation=0)]
    assert disturbances.idle_state(0).utilisation == 0
    readings[:] = [state(utilisation=95)]  # it never ends, so it is not ours
    assert disturbances.idle_state(0).utilisation == 95
    readings[:] = [state(utilisation=None)]
    assert disturbances.idle_state(0).utilisation is None


@pytest.mark.parametrize(
    ("busy", "needed", "disturbed"),
    [(None, 4, False), (0.0, 4, False), (0.3, 4, False), (1.0, 4, True), (1.0, 3, False)],
)
def test_a_busy_processor_is_marked(monkeypatch, busy, needed, disturbed):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    watch = disturbances.OtherPrograms()
    monkeypatch.setattr(watch, "busy_cores", lambda: busy)
    assert bool(watch.disturbance(needed)) is disturbed


def test_a_disturbed_measurement_says_so(monkeypatch):
    found = [disturbances.Disturbance("Others were here.", True)]
    monkeypatch.setattr(disturbances.OtherPrograms, "disturbance", lambda self, needed: found)
    made = measure(Counting(), torch.ones(2), repeats=12)
    assert made.disturbed and "Others were here." in made.notes
    assert "note: Others were here." in str(made)


def test_a_long_wait_shows_a_progress_line(monkeypatch):
    shown = threading.Event()

    @contextlib.contextmanager
    def progress(label, expected_s=None):
        shown.set()
        yield

    monkeypatch.setattr(benchmarking, "_progress", progress)
    with benchmarking._progress_if_long("long", after_s=0.01):
        assert shown.wait(30)
    shown.clear()
    with benchmarking._progress_if_long("short", after_s=1000):
        pass
    assert not shown.is_set()
    monkeypatch.setattr(benchmarking, "LONG_S", -1)
    measure(Counting(), torch.ones(2), repeats=3)
    assert shown.is_set()


# words and figures


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.5312, "0.531"), (1.2345, "1.23"), (12.345, "12.3"), (123.45, "123"),
     (0.0012345, "0.00123"), (1.0, "1"), (10.0, "10"), (100.0, "100"), (98765.4, "98765")],
)  # fmt: skip
def test_figures_have_three_digits(value, text):
    assert timing.number(value) == text


def test_the_interval_holds_the_median_and_is_the_same_each_time():
    samples = [1.0, 1.1, 1.2, 1.3, 9.0] * 6
    first = timing.median_interval(samples)
    assert first == timing.median_interval(samples)
    assert first[0] <= 1.2 <= first[1]
    assert timing.median_interval([2.0]) == timing.median_interval([2.0] * 9) == (2.0, 2.0)
    assert timing.quartile_spread([2.0]) == 0.0
    assert timing.quartile_spread([1.0, 2.0, 3.0]) == pytest.approx(0.5)


# compare


def made(samples, result=(), label="", settings=None, **others):
    """A Timing with given samples, as measure would return it."""
    samples = tuple(map(float, samples))
    facts = {
        "label": label, "wall_ms": statistics.median(samples),
        "interval": timing.median_interval(samples), "device_ms": None, "samples": samples,
        "first_call_s": 1.0, "spread": 0.0, "count": len(samples), "bound": None, "notes": (),
        "settings": settings or {"device": "cpu"}, "origin": Origin("live"),
        "result": tuple(result),
    }  # fmt: skip
    return Timing(**{**facts, **others})


AROUND_TWO = [2.0, 2.01, 1.99, 2.02, 1.98] * 8
AROUND_ONE = [value / 2 for value in AROUND_TWO]


def test_a_clear_difference_is_shown_with_its_interval():
    found = compare(made(AROUND_TWO, label="eager"), made(AROUND_ONE, label="compiled"))
    assert found.ratio == pytest.approx(2)
    assert found.interval[0] <= 2 <= found.interval[1] and found.interval[0] > 1.9
    assert found.verdict == "compiled is 2 times as fast as eager"
    assert "not checked" in found.accuracy and "no float64 run was given" in found.accuracy
    slower = compare(made(AROUND_ONE, label="eager"), made(AROUND_TWO, label="compiled"))
    assert slower.verdict == "compiled is slower than eager: it takes 2 times as long"
    assert found.verdict in str(found) and found.verdict in found._repr_html_()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (AROUND_TWO, AROUND_TWO),
        ([1.0, 2.0, 3.0] * 5, [1.1, 2.1, 3.1] * 5),
        ([2.0], [1.0]),
        ([2.0, 2.0], [1.0, 1.0]),
    ],
)
def test_noise_gives_no_difference_and_never_raises(first, second):
    assert compare(made(first), made(second)).verdict == NO_DIFFERENCE


def test_what_two_runs_of_one_function_may_differ_by_is_no_difference():
    near = [value * 0.95 for value in AROUND_TWO]  # the intervals are far apart
    found = compare(made(AROUND_TWO), made(near))
    assert found.interval[0] > 1 and found.verdict == NO_DIFFERENCE
    assert "same function may differ by 15%" in found.why and found.why in str(found)
    assert "times as fast" in compare(made(AROUND_TWO), made(near), run_to_run=0.01).verdict
    assert "slower" in compare(made(near), made(AROUND_TWO), run_to_run=0.01).verdict
    short = [[value / 1000 for value in samples] for samples in (AROUND_TWO, AROUND_ONE)]
    assert "40%" in compare(made(short[0]), made([v * 0.8 for v in short[0]])).why
    assert "times as fast" in compare(made(short[0]), made(short[1])).verdict


def test_medians_whose_intervals_overlap_show_no_difference():
    wide = made(AROUND_TWO, interval=(0.9, 3.0))
    assert compare(wide, made(AROUND_ONE)).verdict == NO_DIFFERENCE


def test_a_disturbed_measurement_shows_no_difference():
    found = compare(made(AROUND_TWO, disturbed=True, label="eager", notes=("Busy.",)),
                    made(AROUND_ONE))  # fmt: skip
    assert found.verdict == NO_DIFFERENCE and "while eager ran" in found.why
    assert found.notes == ("Busy.",)


AROUND_THIRTEEN = [value * 13 for value in AROUND_ONE]


def test_a_difference_that_no_disturbance_explains_is_shown_with_a_warning():
    busy = made(AROUND_THIRTEEN, disturbed=True, label="eager")
    found = compare(busy, made(AROUND_ONE, label="compiled"))
    ends = ", but other programs were running: measure again before relying on it"
    assert found.verdict == f"compiled is about 13 times as fast as eager{ends}"
    assert "(time of eager / time of compiled = 13, " in found.summary()
    assert "while eager ran" in found.why and "beyond a factor of 2." in found.why
    back = compare(made(AROUND_ONE, label="eager"), made(AROUND_THIRTEEN, disturbed=True))
    words = "the candidate is slower than eager: it takes about 13 times as long"
    assert back.verdict.startswith(words)
    assert back.verdict.endswith(ends)


@pytest.mark.parametrize(
    ("first", "others"),
    [
        ([value * 1.9 for value in AROUND_ONE], {}),  # not far enough
        ([1.5, 13.0, 14.0] * 5, {}),  # far in the median, but the interval reaches below 2
        ([1.1, *AROUND_THIRTEEN], {}),  # one call shows that the function itself is fast
        (AROUND_THIRTEEN, {"interval": (0.9, 30.0)}),  # overlaps
        ([13.0, 13.0], {}),  # too few
    ],
)
def test_a_disturbance_with_anything_else_against_it_shows_no_difference(first, others):
    busy = made(first, disturbed=True, **others)
    assert compare(busy, made(AROUND_ONE)).verdict == NO_DIFFERENCE
    assert compare(made(AROUND_ONE), busy).verdict == NO_DIFFERENCE


BASE_SETTINGS = run_settings.read_settings(torch.relu, (torch.ones(2, 2),), {}, "cpu")


@pytest.mark.parametrize("name", list(BASE_SETTINGS))
def test_different_settings_are_refused(name):
    other = {**BASE_SETTINGS, name: "something else"}
    with refusal("different settings", name.split("(")[0].strip(), "Measure both under"):
        compare(made(AROUND_TWO, settings=BASE_SETTINGS), made(AROUND_ONE, settings=other))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("dtypes", lambda x: x.bfloat16()),
        ("shapes", lambda x: x[:2]),
        ("strides", lambda x: x.t().contiguous().t()),
        ("require grad", lambda x: x.clone().requires_grad_()),
    ],
)
def test_inputs_that_differ_are_seen_in_real_settings(name, change):
    x = torch.randn(4, 3)
    first, second = (
        run_settings.read_settings(torch.relu, (y,), {}, "cpu") for y in (x, change(x))
    )
    assert any(name in text for text in run_settings.differences(first, second))


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("grad mode", torch.no_grad),
        ("inference mode", torch.inference_mode),
        ("autocast", lambda: torch.autocast("cpu", torch.bfloat16)),
    ],
)
def test_modes_that_differ_are_seen_in_real_settings(name, inside):
    first = run_settings.read_settings(torch.relu, (), {}, "cpu")
    with inside():
        second = run_settings.read_settings(torch.relu, (), {}, "cpu")
    assert any(name in text for text in run_settings.differences(first, second))


def test_a_model_behind_a_global_or_a_closure_is_seen():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())

    def inner(x):
        return model(x)

    def outer(x):
        return inner(x)

    for fn in (model, inner, outer, torch.compile(inner, backend="eager")):
        assert run_settings.modules_of(fn, (), {}) == [model]
    model[1].eval()
    assert run_settings.read_settings(model, (), {}, "")["train or eval"] == (
        "2 of 3 parts in train",
    )


# accuracy


def exact_and_rounded():
    torch.manual_seed(0)
    exact = torch.randn(64, 64, dtype=torch.float64)
    return exact, exact.float()


def test_a_right_result_passes_and_a_wrong_one_is_refused():
    exact, rounded = exact_and_rounded()
    good = compare(made(AROUND_TWO, [rounded]), made(AROUND_ONE, [rounded + 3e-8]), exact)
    assert good.accuracy.startswith("Accuracy: ") and "3 times" in good.accuracy
    wrong = rounded.clone()
    wrong[3, 5] += 0.01
    for flawed in (wrong, rounded * 1.001, torch.full_like(rounded, float("nan")), -rounded):
        with refusal("error of the candidate", "faster wrong answer", "error_factor"):
            compare(made(AROUND_TWO, [rounded]), made(AROUND_ONE, [flawed]), exact)


def test_the_factor_is_the_callers():
    exact, rounded = exact_and_rounded()
    pair = made(AROUND_TWO, [rounded * 1.001]), made(AROUND_ONE, [rounded * 1.004])
    with refusal("error of the candidate"):
        compare(*pair, exact)
    assert "5 times" in compare(*pair, exact, error_factor=5).accuracy


def test_infinities_and_nans_in_the_same_places_are_no_error():
    exact = torch.tensor([1.0, float("inf"), float("nan")], dtype=torch.float64)
    both = made(AROUND_TWO, [exact.float()])
    assert compare(both, both, exact).accuracy.startswith("Accuracy: ")


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(2, dtype=torch.float64), None])
def test_other_kinds_of_results_are_refused(other):
    theirs = [] if other is None else [other]
    with refusal("different kinds of results"):
        compare(made(AROUND_TWO, [torch.ones(2)]), made(AROUND_ONE, theirs))


def test_where_accuracy_cannot_be_checked_the_reason_is_given():
    pair = made(AROUND_TWO, [torch.ones(2)]), made(AROUND_ONE, [torch.ones(2)])
    assert "because of X" in compare(*pair, Reference(None, "because of X")).accuracy
    assert "other shapes" in compare(*pair, torch.ones(3, dtype=torch.float64)).accuracy
    nothing = made(AROUND_TWO), made(AROUND_ONE)
    assert "no tensors" in compare(*nothing, torch.ones(2)).accuracy


def test_the_float64_run_leaves_model_inputs_and_random_numbers_alone():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    x = torch.randn(4, 3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    found = float64_run(torch.compile(model, backend="eager"), x)
    assert found.result.dtype == torch.float64 and found.why == ""
    assert torch.allclose(found.result.float(), model(x), atol=1e-5)
    after_call = model.state_dict()
    assert torch.equal(torch.get_rng_state(), random)
    assert x.dtype == torch.float32 and before["0.weight"].equal(after_call["0.weight"])
    assert int(before["1.num_batches_tracked"]) + 1 == int(after_call["1.num_batches_tracked"])


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: x.float() + 1, "casts inside"),
        (lambda x: x + torch.rand_like(x), "random numbers"),
        (lambda x: x @ torch.ones(2, 2), "failed with RuntimeError"),
    ],
)
def test_where_no_float64_run_is_possible_it_says_why(fn, why):
    found = float64_run(fn, torch.ones(2, 2))
    assert found.result is None and why in found.why


def test_the_whole_way_with_real_functions():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU()).eval()
    x = torch.randn(8, 16)
    compiled = torch.compile(model, backend="eager")
    first, second = (measure(fn, x, repeats=20) for fn in (model, compiled))
    reference = float64_run(model, x)
    assert compare(first, second, reference).accuracy.startswith("Accuracy: ")
    broken = measure(lambda y: model(y) * 1.01, x, repeats=20)
    with refusal("error of the candidate"):
        compare(first, broken, reference)
    with torch.no_grad():
        other = measure(compiled, x, repeats=20)
    with refusal("grad mode"):
        compare(first, other)


def test_results_are_kept_before_they_are_overwritten():
    buffer = torch.zeros(2)
    made_here = measure(lambda: buffer.add_(1), repeats=3)
    assert torch.equal(made_here.result[0], torch.ones(2))


def test_a_result_too_large_to_keep_is_said(monkeypatch):
    monkeypatch.setattr(benchmarking, "MOST_KEPT_BYTES", 4)
    found = measure(Counting(), torch.ones(2), repeats=3)
    assert found.result is None and any("too large" in note for note in found.notes)
    assert "no tensors" in accuracy.check_accuracy(found, found, Reference(None), 3.0)


# on a card


@needs_cuda
def test_a_card_gives_device_time_and_its_own_turn(monkeypatch):
    asked = []
    real = benchmarking.turn
    monkeypatch.setattr(
        benchmarking, "turn", lambda name, *rest: (asked.append(name), real(name, *rest))[1]
    )
    x = torch.randn(2048, 2048, device="cuda")
    found = measure(torch.mm, x, x, repeats=20)
    assert asked == [card.read(0).uuid]
    assert found.device_ms > 0 and found.origin.device == torch.cuda.get_device_name(0)
    assert found.result[0].device.type == "cpu"


@needs_cuda
def test_a_card_that_only_the_result_shows_is_found():
    found = measure(lambda n: torch.ones(n).cuda(), 16, repeats=10)
    assert found.device_ms is not None and found.origin.device == torch.cuda.get_device_name(0)
    assert any("only its result" in note for note in found.notes)
