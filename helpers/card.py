"""What the graphics card says about itself: clocks, power, throttling, and who else is on it.

One interface over NVML (the package nvidia-ml-py, module `pynvml`), the same with and without a
card: without one, `read` returns a CardState whose `present` is False and whose `notes` say why.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

# Bits of nvmlClocksEventReasons, from nvml.h. The bits for an idle card (0x1), for application
# clocks (0x2) and for the display clock (0x100) are left out: they are settings, not trouble.
THROTTLE_WORDS = {
    0x4: "the power limit",
    0x8: "a slowdown by the hardware (heat or power)",
    0x10: "clocks kept equal with other cards (sync boost)",
    0x20: "heat (slowed down by the driver)",
    0x40: "heat (slowed down by the hardware)",
    0x80: "the power supply (power brake)",
}


@dataclass(frozen=True)
class CardState:
    """One reading of one NVIDIA card; a field is None where the card or driver does not tell it.

    sm_mhz, memory_mhz: clocks in MHz; power_w: watts; temperature_c: degrees Celsius;
    throttle: what holds the clocks down, in words; utilisation: percent of the last sample
    period in which a kernel ran (1/6 to 1 s, from nvml.h); memory_used_mb, memory_total_mb: MiB;
    pids: processes that compute on the card, as the driver numbers them; mig: a MIG slice.
    """

    present: bool
    uuid: str = ""
    name: str = ""
    driver: str = ""
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] = ()
    utilisation: int | None = None
    memory_used_mb: int | None = None
    memory_total_mb: int | None = None
    pids: tuple[int, ...] | None = None
    mig: bool = False
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.present:
            return f"no GPU: {' '.join(self.notes)}"
        facts = [self.name, f"driver {self.driver}"]
        for value, unit in ((self.sm_mhz, "MHz SM"), (self.memory_mhz, "MHz memory"),
                            (self.power_w, "W"), (self.temperature_c, "°C"),
                            (self.utilisation, "% busy"),
                            (self.memory_used_mb, "MiB used")):  # fmt: skip
            if value is not None:
                facts.append(f"{value:.0f} {unit}")
        if self.throttle:
            facts.append("held down by " + " and ".join(self.throttle))
        return ", ".join(facts) + "".join(f". {note}" for note in self.notes)

    def __repr__(self) -> str:
        return f"<CardState: {self}>"


@dataclass(frozen=True)
class Strangers:
    """Which processes on a card are not ours. `known` is False where that cannot be told.

    pids: the strangers, as the driver numbers them; sentence: the finding in words, never empty.
    """

    pids: tuple[int, ...]
    known: bool
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def _start_nvml() -> tuple[ModuleType | None, str]:
    """Returns pynvml, ready for use, or None and the reason in one sentence."""
    try:
        import pynvml
    except ImportError:
        return None, "The Python package nvidia-ml-py is not installed, so no card can be read."
    try:
        pynvml.nvmlInit()  # counted by NVML itself: a second call costs next to nothing
    except pynvml.NVMLError as error:
        return None, f"No NVIDIA driver answers on this machine (NVML: {error})."
    return pynvml, ""


def _ask(nvml: ModuleType, question: Callable[..., Any], *args: Any) -> Any:
    """Returns the answer, or None where this card or driver does not support the question."""
    try:
        return question(*args)
    except nvml.NVMLError:
        return None


def _text(value: Any) -> str:
    # Old releases of nvidia-ml-py return bytes.
    return value.decode() if isinstance(value, bytes) else str(value or "")


def _torch_uuid(index: int) -> str:
    """Returns the UUID of torch's card `index`, or "": CUDA_VISIBLE_DEVICES renumbers the cards."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return ""
    return str(getattr(torch.cuda.get_device_properties(index), "uuid", ""))


def _find(nvml: ModuleType, card: int | str) -> Any:
    """Returns NVML's handle of a card given by torch's number or by UUID; None: no such card."""
    uuid = card if isinstance(card, str) else _torch_uuid(card)
    if not uuid:
        return _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, card)
    # torch leaves the prefix out; a MIG slice has an identity of its own.
    names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
    handles = (_ask(nvml, nvml.nvmlDeviceGetHandleByUUID, name) for name in names)
    return next((handle for handle in handles if handle is not None), None)


def read(card: int | str = 0) -> CardState:
    """Reads one card now. `card`: torch's number of it, or its UUID; never raises.

    Without NVML, driver or card, the state has `present` False and says why in `notes`.
    """
    nvml, why = _start_nvml()
    if nvml is None:
        return CardState(False, notes=(why,))
    handle = _find(nvml, card)
    if handle is None:
        return CardState(False, notes=(f"The driver knows no card {card!r}.",))
    parent = handle
    mig = bool(_ask(nvml, nvml.nvmlDeviceIsMigDeviceHandle, handle))
    if mig:
        parent = _ask(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) or handle
    return _state(nvml, handle, parent, mig)


def _state(nvml: ModuleType, handle: Any, parent: Any, mig: bool) -> CardState:
    """Fills a CardState: clocks, power and heat belong to the whole card, the rest to the slice."""
    power = _ask(nvml, nvml.nvmlDeviceGetPowerUsage, parent)
    memory = _ask(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    rates = _ask(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    running = _ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    notes = ()
    if mig:
        notes = ("A MIG slice: clocks, power and heat are shared with the card's other slices.",)
    return CardState(
        present=True,
        uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        name=_text(_ask(nvml, nvml.nvmlDeviceGetName, handle)),
        driver=_text(_ask(nvml, nvml.nvmlSystemGetDriverVersion)),
        sm_mhz=_ask(nvml, nvml.nvmlDeviceGetClockInfo, parent, nvml.NVML_CLOCK_SM),
        memory_mhz=_ask(nvml, nvml.nvmlDeviceGetClockInfo, parent, nvml.NVML_CLOCK_MEM),
        power_w=None if power is None else power / 1000,
        temperature_c=_ask(nvml, nvml.nvmlDeviceGetTemperature, parent, nvml.NVML_TEMPERATURE_GPU),
        throttle=_throttle(nvml, parent),
        utilisation=None if rates is None else rates.gpu,
        memory_used_mb=None if memory is None else memory.used // 2**20,
        memory_total_mb=None if memory is None else memory.total // 2**20,
        pids=None if running is None else tuple(sorted({process.pid for process in running})),
        mig=mig,
        notes=notes,
    )


def _throttle(nvml: ModuleType, handle: Any) -> tuple[str, ...]:
    # The call was renamed in 2023; older releases of nvidia-ml-py have only the second name.
    question = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    question = question or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    bits = _ask(nvml, question, handle) or 0
    return tuple(words for bit, words in THROTTLE_WORDS.items() if bits & bit)


def our_pids() -> set[int]:
    """Returns this process and the processes it started, as this machine numbers them."""
    import psutil

    children = psutil.Process().children(recursive=True)
    return {os.getpid(), *(child.pid for child in children)}


def strangers(before: CardState, after: CardState) -> Strangers:
    """Says which processes were on the card beside ours, from readings before and after our work.

    Our own process must have used the card between the two readings. Where the driver does not
    list it, the driver counts processes in another namespace (a container), and nothing is guessed.
    """
    if not after.present:
        return Strangers((), False, "There is no card, so there are no processes on it.")
    if after.pids is None:
        return Strangers((), False, "The driver does not list the processes on this card.")
    seen, ours = {*(before.pids or ()), *after.pids}, our_pids()
    if os.getpid() not in after.pids:
        listed = f"it lists {len(seen)}" if seen else "it lists none"
        return Strangers((), False, "Whether other processes used the card is not known: the "
                         f"driver does not list ours by its number here ({listed}), as in a "
                         "container that numbers its processes anew.")  # fmt: skip
    pids = tuple(sorted(seen - ours))
    if not pids:
        return Strangers((), True, "No other process was on the card.")
    names = ", ".join(map(str, pids))
    return Strangers(pids, True, f"Another user of the card was there: process {names}.")
