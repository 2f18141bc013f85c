"""AMD devices through `amdsmi`: what it gives, turned into records.

The library is imported when a probe looks, and never before. It prints, and raises KeyError, where its own
libamd_smi.so is missing; ROCm keeps a copy of the package beside that library.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from .records import Device, DeviceNote, DeviceProcess, DeviceView

__all__ = ["AmdProbe", "amd_notes", "amd_processes", "import_amdsmi"]

PACKAGE = "amdsmi"
_INSTALL = (
    "Install it in the environment that Milkweed runs in, of the version of the host's ROCm:"
    " pip install amdsmi."
)
_NO_LIBRARY = (
    "amdsmi found no libamd_smi.so",
    "Install amd-smi-lib with the system's packages, or set ROCM_PATH to where ROCm is.",
)
_RESET = (
    "Take its work off, then reset it: amd-smi reset --gpureset --gpu {index} (as root), or reboot the host."
)
# AMDSMI_MEM_PAGE_STATUS_PENDING and _UNRESERVABLE.
_PAGE_STATUS = (1, 2)
_VIOLATIONS = {
    "active_prochot_thrm": "slowed down: its server asks for it (PROCHOT)",
    "active_socket_thrm": "slowed down: too hot",
    "active_vr_thrm": "slowed down: its voltage regulators are too hot",
    "active_hbm_thrm": "slowed down: its memory is too hot",
}


class AmdProbe:
    """`library` is the module amdsmi; None: it is imported."""

    def __init__(self, library: ModuleType | None = None) -> None:
        self._given = library

    def look(self) -> DeviceView:
        smi, problem, mend = (self._given, "", "") if self._given else import_amdsmi()
        if smi is None:
            return DeviceView(problem=problem, mend=mend)
        try:
            smi.amdsmi_init(smi.AmdSmiInitFlags.INIT_AMD_GPUS)
        except smi.AmdSmiException as error:
            return _refused(error)
        try:
            return _look(smi)
        except smi.AmdSmiException as error:
            return _refused(error)
        finally:
            _try(smi, smi.amdsmi_shut_down)


def import_amdsmi(rocm: str | None = None) -> tuple[Any, str, str]:
    """The module; or None, why, and what helps."""
    where = os.path.join(rocm or os.environ.get("ROCM_PATH", "/opt/rocm"), "share", "amd_smi")
    if os.path.isdir(os.path.join(where, PACKAGE)) and where not in sys.path:
        sys.path.append(where)  # behind what is installed
    try:
        return importlib.import_module(PACKAGE), "", ""
    except ImportError:
        return None, f"AMD devices are here, and {PACKAGE} is not installed", _INSTALL
    except KeyError:
        return None, *_NO_LIBRARY
    except AttributeError as error:
        return None, f"amdsmi and libamd_smi.so are of different versions: {error}", _INSTALL
    except Exception as error:  # as of the other vendor
        return None, f"amdsmi cannot be imported: {error!r}", _INSTALL


def _refused(error: Exception) -> DeviceView:
    text = " ".join(str(error).split())
    if "DRIVER_NOT_LOADED" in text or "NOT_INIT" in text:
        return DeviceView(
            problem="the amdgpu driver is not loaded", mend="Load it (modprobe amdgpu); dmesg says why not."
        )
    return DeviceView(problem=f"amdsmi: {text}", mend="amd-smi static, run on the host, may say more.")


def _look(smi: Any) -> DeviceView:
    devices: list[Device] = []
    driver = ""
    for index, handle in enumerate(smi.amdsmi_get_processor_handles()):
        devices.append(_device(smi, index, handle))
        if not driver:
            found = _try(smi, smi.amdsmi_get_gpu_driver_info, handle) or {}
            driver = _known(found.get("driver_version"))
    version = _try(smi, smi.amdsmi_get_lib_version)
    rocm = _try(smi, smi.amdsmi_get_rocm_version) if hasattr(smi, "amdsmi_get_rocm_version") else None
    return DeviceView(
        tuple(devices),
        driver=f"amdgpu {driver}" if driver else "",
        runtime=f"ROCm {rocm[1]}" if rocm and rocm[0] else "",
        library=f"amdsmi {version['major']}.{version['minor']}.{version['release']}" if version else PACKAGE,
    )


def _device(smi: Any, index: int, handle: Any) -> Device:
    def ask(name: str, *arguments: Any) -> Any:
        function = getattr(smi, name, None)
        return None if function is None else _try(smi, function, handle, *arguments)

    asic = ask("amdsmi_get_gpu_asic_info") or {}
    vram = smi.AmdSmiMemoryType.VRAM
    activity = ask("amdsmi_get_gpu_activity") or {}
    total = ask("amdsmi_get_gpu_memory_total", vram)
    device = Device(
        index=index,
        vendor="amd",
        model=_known(asic.get("market_name")) or "unknown",
        uuid=_text(ask("amdsmi_get_gpu_device_uuid")),
        memory_total=total,
        memory_used=ask("amdsmi_get_gpu_memory_usage", vram),
        utilisation=_number(activity.get("gfx_activity")),
        processes=amd_processes(ask("amdsmi_get_gpu_process_list") or ()),
        pci=_text(ask("amdsmi_get_gpu_device_bdf")).lower(),
        numa=ask("amdsmi_get_gpu_topo_numa_affinity"),
        arch=_known(asic.get("target_graphics_version")),
    )
    notes = amd_notes(
        index,
        ecc=ask("amdsmi_get_gpu_total_ecc_count"),
        pages=ask("amdsmi_get_gpu_bad_page_info"),
        violations=ask("amdsmi_get_violation_status"),
        answered=total is not None,
    )
    return replace(device, notes=notes, numa=device.numa if (device.numa or 0) >= 0 else None)


def amd_processes(found: Iterable[Mapping[str, Any]]) -> tuple[DeviceProcess, ...]:
    """Of the dictionaries of `amdsmi_get_gpu_process_list`: its video memory, or all that it says."""
    processes = {}
    for one in found:
        used = _number((one.get("memory_usage") or {}).get("vram_mem"))
        processes[int(one["pid"])] = used if used is not None else _number(one.get("mem"))
    return tuple(DeviceProcess(pid, used) for pid, used in sorted(processes.items()))


def amd_notes(
    index: int,
    *,
    ecc: Mapping[str, Any] | None = None,
    pages: Any = None,
    violations: Mapping[str, Any] | None = None,
    answered: bool = True,
) -> tuple[DeviceNote, ...]:
    """Of what `amdsmi_get_gpu_total_ecc_count`, `..._bad_page_info` and `..._violation_status` give."""
    reset = _RESET.format(index=index)
    notes = []
    if not answered:
        notes.append(DeviceNote("lost", "does not tell its memory: it may be hung", True, reset))
    uncorrected = _number((ecc or {}).get("uncorrectable_count"))
    if uncorrected:
        notes.append(DeviceNote("ras", f"{uncorrected:,} uncorrectable memory errors (RAS)", True, reset))
    listed = [one for one in pages if isinstance(one, Mapping)] if isinstance(pages, (list, tuple)) else []
    pending, unreservable = (sum(one.get("status") == status for one in listed) for status in _PAGE_STATUS)
    if pending:
        text = f"{_bad_pages(pending)} retired at its next reset"
        notes.append(DeviceNote("ras", text, True, reset))
    if unreservable:
        text = f"{_bad_pages(unreservable)} not retired: that failed"
        notes.append(DeviceNote("ras", text, True, "Replace the device (AMD's service tools, RMA)."))
    active = violations or {}
    notes += [DeviceNote("throttled", text) for name, text in _VIOLATIONS.items() if active.get(name) is True]
    return tuple(notes)


def _bad_pages(count: int) -> str:
    return f"{count:,} bad page{'' if count == 1 else 's'} of its memory {'is' if count == 1 else 'are'}"


def _try(smi: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """None where the device has no such thing; amdsmi decodes and counts without care."""
    try:
        return function(*arguments)
    except (smi.AmdSmiException, AttributeError, KeyError, TypeError, ValueError):
        return None


def _known(found: Any) -> str:
    text = _text(found)
    return "" if text == "N/A" else text


def _text(found: Any) -> str:
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found or "")


def _number(found: Any) -> int | None:
    """amdsmi says `N/A`, or the largest number, where there is none."""
    return found if isinstance(found, int) and not isinstance(found, bool) and found < 2**63 else None
