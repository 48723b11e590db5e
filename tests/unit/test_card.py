"""helpers.card against a fake NVML: present, absent, silent, sliced, throttled, shared."""

from __future__ import annotations

import os
import sys
import types

import pytest

from helpers import card


class NVMLError(Exception):
    pass


class FakeNVML(types.ModuleType):
    """Answers like pynvml for one card; `silent` names calls that are not supported."""

    NVMLError = NVMLError
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, pids=(), reasons=0, silent=(), mig=False, uuid="GPU-aaaa", driver=True):
        super().__init__("pynvml")
        self.pids, self.reasons, self.silent = pids, reasons, silent
        self.mig, self.uuid, self.driver, self.asked = mig, uuid, driver, []

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "silent"):

            def refuse(*_):
                raise NVMLError("Not Supported")

            return refuse
        return super().__getattribute__(name)

    def nvmlInit(self):
        if not self.driver:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByIndex(self, index):
        if index != 0:
            raise NVMLError("Invalid Argument")
        return "slice" if self.mig else "card"

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self.asked.append(uuid)
        if uuid != self.uuid:
            raise NVMLError("Not Found")
        return "slice" if self.mig else "card"

    def nvmlDeviceIsMigDeviceHandle(self, handle):
        return handle == "slice"

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return "card"

    def nvmlDeviceGetUUID(self, handle):
        return self.uuid

    def nvmlDeviceGetName(self, handle):
        return b"NVIDIA Test"

    def nvmlSystemGetDriverVersion(self):
        return "580.1"

    def nvmlDeviceGetClockInfo(self, handle, kind):
        if handle == "slice":
            raise NVMLError("Invalid Argument")
        return {1: 1980, 2: 3201}[kind]

    def nvmlDeviceGetPowerUsage(self, handle):
        return 123456

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 41

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return self.reasons

    def nvmlDeviceGetUtilizationRates(self, handle):
        return types.SimpleNamespace(gpu=7)

    def nvmlDeviceGetMemoryInfo(self, handle):
        return types.SimpleNamespace(used=3 * 2**20, total=9 * 2**20)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [types.SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def install(monkeypatch):
    def put(**settings):
        fake = FakeNVML(**settings)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return put


def test_a_card_is_read_in_full(install):
    install(pids=(5, 3))
    state = card.read("GPU-aaaa")
    assert (state.present, state.uuid, state.name, state.driver) == (
        True, "GPU-aaaa", "NVIDIA Test", "580.1")  # fmt: skip
    assert (state.sm_mhz, state.memory_mhz, state.temperature_c) == (1980, 3201, 41)
    assert state.power_w == pytest.approx(123.456)
    assert (state.utilisation, state.memory_used_mb, state.memory_total_mb) == (7, 3, 9)
    assert state.pids == (3, 5) and not state.mig and not state.throttle
    assert "1980 MHz SM" in str(state) and "NVIDIA Test" in repr(state)


def test_a_card_by_number_without_torch(install, monkeypatch):
    install()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert card.read(0).present
    absent = card.read(4)
    assert not absent.present and "no card 4" in str(absent)


def test_torch_numbers_cards_by_uuid(install, monkeypatch):
    fake = install(uuid="GPU-bbbb")
    properties = types.SimpleNamespace(uuid="bbbb")
    cuda = types.SimpleNamespace(
        is_available=lambda: True,
        device_count=lambda: 3,
        get_device_properties=lambda index: properties,
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    # Number 2 does not exist for NVML here, so only the UUID can have led to the card.
    assert card.read(2).uuid == "GPU-bbbb"
    assert fake.asked == ["GPU-bbbb"]


def test_no_library_and_no_driver_say_so(install, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "nvidia-ml-py is not installed" in str(card.read())
    install(driver=False)
    state = card.read()
    assert not state.present and "No NVIDIA driver" in str(state)


def test_unsupported_questions_give_none(install):
    install(silent=("nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates",
                    "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetComputeRunningProcesses",
                    "nvmlDeviceIsMigDeviceHandle"))  # fmt: skip
    state = card.read("GPU-aaaa")
    assert state.present and state.name == "NVIDIA Test"
    assert state.power_w is state.utilisation is state.memory_used_mb is state.pids is None
    assert " W" not in str(state)


def test_a_mig_slice_uses_the_clocks_of_its_card(install):
    install(mig=True, uuid="MIG-cccc")
    state = card.read("MIG-cccc")
    assert state.mig and state.sm_mhz == 1980
    assert "MIG slice" in state.notes[0] and "MIG slice" in str(state)


@pytest.mark.parametrize(("bits", "words"), [
    (0x0, ()), (0x1, ()), (0x2 | 0x100, ()),
    (0x4, ("the power limit",)),
    (0x40 | 0x4, ("the power limit", "heat (slowed down by the hardware)")),
])  # fmt: skip
def test_throttling_in_words(install, bits, words):
    install(reasons=bits)
    assert card.read("GPU-aaaa").throttle == words


def states(before, after):
    return (card.CardState(True, pids=before), card.CardState(True, pids=after))


def test_strangers_are_those_who_are_not_ours():
    me = os.getpid()
    alone = card.strangers(*states((), (me,)))
    assert alone.known and alone.pids == ()
    # Seen only before still counts: it may have run at the same time as our first calls.
    shared = card.strangers(*states((me, 11), (me, 10)))
    assert shared.known and shared.pids == (10, 11) and "10, 11" in str(shared)


def test_our_own_children_are_no_strangers(monkeypatch):
    me = os.getpid()
    monkeypatch.setattr(card, "our_pids", lambda: {me, 77})
    assert card.strangers(*states((), (me, 77))).pids == ()


def test_another_pid_namespace_is_said_not_guessed():
    for listed in ((), (1,), (1, 2)):
        found = card.strangers(*states((), listed))
        assert not found.known and found.pids == () and "not known" in found.sentence
    assert not card.strangers(*states(None, None)).known
    assert not card.strangers(card.CardState(False), card.CardState(False)).known
