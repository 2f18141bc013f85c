"""NVIDIA devices through `pynvml` (package nvidia-ml-py): what it gives, turned into records.

The library is imported when a probe looks, and never before: it is optional.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from .records import Device, DeviceNote, DeviceProcess, DeviceView

__all__ = ["NvidiaProbe", "health_notes", "pci_address", "processes_of", "view_problem"]

PACKAGE = "nvidia-ml-py"
_INSTALL = "Install it in the environment that Milkweed runs in: pip install nvidia-ml-py."
# Codes of NVML, as nvml.h has them.
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _NO_PERMISSION = 9, 12, 4
_LOST, _RESET_REQUIRED, _MISMATCH, _UNKNOWN = 15, 16, 18, 999
_PROBLEMS = {
    _DRIVER_NOT_LOADED: ("the NVIDIA driver is not loaded", "Load it (modprobe nvidia); dmesg says why not."),
    _LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 is missing, which comes with the driver",
        "Install the driver (containers: --gpus all, and NVIDIA_DRIVER_CAPABILITIES with utility).",
    ),
    _MISMATCH: (
        "the driver's library and its kernel module are of different versions",
        "The driver was updated: reboot the host, or reload its modules when nothing uses them.",
    ),
    _NO_PERMISSION: ("this user may not ask the NVIDIA driver", "Give it rights to /dev/nvidia*."),
}
_RESET = "Take its work off, then reset it: nvidia-smi --gpu-reset -i {index} (as root), or reboot the host."
# Reasons why clocks are low that are nothing which load alone explains.
_THROTTLED = (
    (0x08, "slowed down by its hardware (heat, power brake or power)"),
    (0x20, "slowed down by the driver: too hot"),
    (0x40, "slowed down by its hardware: too hot"),
    (0x80, "slowed down by the power brake of its server"),
    (0x400, "slowed down for reliability"),
)
_ACTIONS = {
    1: "the driver asks for a reset of the device",
    2: "the driver asks for a reboot of the host",
    3: "the driver asks that work between devices be drained",
    4: "the driver asks that work be drained, and the device be reset",
    6: "the driver asks for a reset of its bus",
    7: "the driver asks for a reboot of the system",
}
_UNCORRECTED, _VOLATILE = 1, 0
_RECOVERY_ACTION = 230


class NvidiaProbe:
    """`library` is the module pynvml; None: it is imported."""

    def __init__(self, library: ModuleType | None = None) -> None:
        self._given = library

    def look(self) -> DeviceView:
        try:
            nvml: Any = self._given or importlib.import_module("pynvml")
        except ImportError:
            return DeviceView(
                problem=f"NVIDIA devices are here, and {PACKAGE} is not installed", mend=_INSTALL
            )
        except Exception as error:  # whatever it does at import must not be the end of what others tell
            return DeviceView(problem=f"{PACKAGE} cannot be imported: {error!r}", mend=_INSTALL)
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            return view_problem(error.value, str(error))
        try:
            return _look(nvml)
        except nvml.NVMLError as error:
            return view_problem(error.value, str(error))
        finally:
            _try(nvml, nvml.nvmlShutdown)


def view_problem(code: int, text: str) -> DeviceView:
    """Of an error that the whole library gave."""
    problem, mend = _PROBLEMS.get(code, (f"NVML: {text}", "nvidia-smi, run on the host, may say more."))
    return DeviceView(problem=problem, mend=mend)


def _look(nvml: Any) -> DeviceView:
    cuda = _try(nvml, nvml.nvmlSystemGetCudaDriverVersion)
    view = DeviceView(
        driver=_text(_try(nvml, nvml.nvmlSystemGetDriverVersion)),
        runtime=f"CUDA {cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        library=f"NVML {_text(_try(nvml, nvml.nvmlSystemGetNVMLVersion))}",
    )
    devices = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            devices.append(_gone(index, error.value, str(error)))
            continue
        devices.append(_device(nvml, index, handle))
    return replace(view, devices=tuple(devices))


def _gone(index: int, code: int, text: str) -> Device:
    """One that is counted and cannot be opened."""
    kind = "lost" if code in (_LOST, _RESET_REQUIRED, _UNKNOWN) else "unreadable"
    note = DeviceNote(kind, f"cannot be opened: {text}", severe=True, mend=_RESET.format(index=index))  # type: ignore[arg-type]
    return Device(index, "nvidia", "unknown", notes=(note,))


def _device(nvml: Any, index: int, handle: Any) -> Device:
    def ask(name: str, *arguments: Any) -> Any:
        """None where the device or the driver has no such thing."""
        function = getattr(nvml, name, None)
        return None if function is None else _try(nvml, function, handle, *arguments)

    memory = ask("nvmlDeviceGetMemoryInfo", getattr(nvml, "nvmlMemory_v2", None))
    memory = memory or ask("nvmlDeviceGetMemoryInfo")
    utilisation = ask("nvmlDeviceGetUtilizationRates")
    pci = ask("nvmlDeviceGetPciInfo")
    processes = [
        one
        for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
        for one in ask(name) or ask(f"{name}_v2") or ()  # drivers before 510 have no newer one
    ]
    fields = ask("nvmlDeviceGetFieldValues", [_RECOVERY_ACTION]) or ()
    mig = ask("nvmlDeviceGetMigMode")
    return Device(
        index=index,
        vendor="nvidia",
        model=_text(ask("nvmlDeviceGetName")) or "unknown",
        uuid=_text(ask("nvmlDeviceGetUUID")),
        memory_total=memory.total if memory else None,
        memory_used=memory.used if memory else None,
        utilisation=utilisation.gpu if utilisation else None,
        processes=processes_of(processes),
        notes=health_notes(
            index,
            uncorrected=ask("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, _VOLATILE),
            remapped=ask("nvmlDeviceGetRemappedRows"),
            retired_pending=ask("nvmlDeviceGetRetiredPagesPendingStatus"),
            reasons=ask("nvmlDeviceGetCurrentClocksEventReasons")
            or ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
            fields=fields,
            mig=bool(mig and mig[0]),
            answered=bool(memory),
        ),
        pci=pci_address(pci),
        numa=ask("nvmlDeviceGetNumaNodeId"),
    )


def processes_of(found: Iterable[Any]) -> tuple[DeviceProcess, ...]:
    """Of `pid` and `usedGpuMemory` of each, summed where a process is there twice (MIG instances).

    Memory is None where the driver does not tell (a container, WSL).
    """
    sums: dict[int, int | None] = {}
    for one in found:
        used, before = one.usedGpuMemory, sums.get(one.pid)
        sums[one.pid] = before if used is None else used + (before or 0)
    return tuple(DeviceProcess(pid, used) for pid, used in sorted(sums.items()))


def pci_address(pci: Any) -> str:
    """As the kernel writes it: NVML has domains of eight digits, and capital letters."""
    if pci is None:
        return ""
    domain, _, rest = _text(pci.busId).lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else ""


def health_notes(
    index: int,
    *,
    uncorrected: int | None = None,
    remapped: Sequence[int] | None = None,
    retired_pending: int | None = None,
    reasons: int | None = None,
    fields: Iterable[Any] = (),
    mig: bool = False,
    answered: bool = True,
) -> tuple[DeviceNote, ...]:
    """
    Args:
        uncorrected: ECC errors since the driver was loaded. remapped: rows remapped for correctable and
            uncorrectable errors, whether any is pending, whether one failed. reasons: bits of why clocks are
            low. fields: values of `nvmlDeviceGetFieldValues`.
    """
    reset = _RESET.format(index=index)
    notes = []
    if not answered:
        notes.append(
            DeviceNote("lost", "does not tell its memory: it may have fallen off the bus", True, reset)
        )
    notes += [
        DeviceNote("reset", _ACTIONS[one.value.uiVal], True, reset)
        for one in fields
        if one.fieldId == _RECOVERY_ACTION and one.nvmlReturn == 0 and one.value.uiVal in _ACTIONS
    ]
    if uncorrected:
        text = f"{uncorrected:,} uncorrectable ECC errors since its driver was loaded"
        notes.append(DeviceNote("ecc", text, True, reset))
    if remapped is not None and remapped[3]:
        text = "a row of its memory could not be remapped"
        notes.append(DeviceNote("remap", text, True, "Replace the device (NVIDIA's field diagnostics, RMA)."))
    if (remapped is not None and remapped[2]) or retired_pending == 1:
        notes.append(DeviceNote("remap", "bad memory is remapped at its next reset", True, reset))
    notes += [DeviceNote("throttled", text) for bit, text in _THROTTLED if (reasons or 0) & bit]
    if mig:
        notes.append(DeviceNote("mig", "MIG is on: its instances are the devices, named MIG-..."))
    return tuple(notes)


def _try(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """None where there is no such thing; an old driver's lack of a function is no NVMLError."""
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError)
    try:
        return function(*arguments)
    except (nvml.NVMLError, mismatch, AttributeError, TypeError):
        return None


def _text(found: Any) -> str:
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found or "")
