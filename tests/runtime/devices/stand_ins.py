"""Vendors' C libraries, made up: what is called are the vendors' own Python modules, on their own structures.

CONSTRUCTED: no device has given any of these values. They follow the headers' formats (nvml.h, amdsmi.h) as
the Python packages have them.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest

GIB = 1024**3
NOT_SUPPORTED, NO_FUNCTION = 3, 13


@dataclass
class Gpu:
    """A device of NVIDIA; what is None is not supported by it."""

    name: bytes = b"NVIDIA H200"
    uuid: bytes = b"GPU-1f2e3d4c-0000-1111-2222-333344445555"
    bus: bytes = b"00000000:1B:00.0"
    memory: tuple[int, int] | None = (141 * GIB, 2 * GIB)
    utilisation: int | None = 37
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    uncorrected: int | None = 0
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    reasons: int = 0
    action: int = 0
    numa: int | None = 0
    mig: tuple[int, int] | None = (0, 0)
    error: int = 0


class NvmlLibrary:
    """libnvidia-ml.so, as ctypes would show it."""

    def __init__(
        self, nvml: ModuleType, gpus: list[Gpu], *, start: int = 0, driver: bytes = b"570.86.15"
    ) -> None:
        self._nvml, self._gpus, self._start, self._driver = nvml, gpus, start, driver
        self._handles: dict[int, tuple[Gpu, Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., int]:
        if f"_{name}" not in type(self).__dict__:
            raise AttributeError(name)
        return getattr(self, f"_{name}")  # type: ignore[no-any-return]

    def _nvmlInitWithFlags(self, flags: int) -> int:  # noqa: N802
        return self._start

    def _nvmlShutdown(self) -> int:  # noqa: N802
        return 0

    def _nvmlErrorString(self, code: int) -> bytes:  # noqa: N802
        return b"error"

    def _nvmlSystemGetDriverVersion(self, out: Any, length: Any) -> int:  # noqa: N802
        out.value = self._driver
        return 0

    def _nvmlSystemGetNVMLVersion(self, out: Any, length: Any) -> int:  # noqa: N802
        out.value = b"12." + self._driver
        return 0

    def _nvmlSystemGetCudaDriverVersion(self, out: Any) -> int:  # noqa: N802
        out._obj.value = 12080
        return 0

    def _nvmlDeviceGetCount_v2(self, out: Any) -> int:  # noqa: N802
        out._obj.value = len(self._gpus)
        return 0

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:  # noqa: N802
        gpu = self._gpus[index.value]
        handle = self._nvml.struct_c_nvmlDevice_t()
        out._obj.contents = handle
        self._handles[ctypes.addressof(handle)] = (gpu, handle)
        return gpu.error

    def _gpu(self, handle: Any) -> Gpu:
        return self._handles[ctypes.addressof(handle.contents)][0]

    def _nvmlDeviceGetName(self, handle: Any, out: Any, length: Any) -> int:  # noqa: N802
        out.value = self._gpu(handle).name
        return 0

    def _nvmlDeviceGetUUID(self, handle: Any, out: Any, length: Any) -> int:  # noqa: N802
        out.value = self._gpu(handle).uuid
        return 0

    def _nvmlDeviceGetPciInfo_v3(self, handle: Any, out: Any) -> int:  # noqa: N802
        out._obj.busId = self._gpu(handle).bus
        return 0

    def _nvmlDeviceGetMemoryInfo_v2(self, handle: Any, out: Any) -> int:  # noqa: N802
        memory = self._gpu(handle).memory
        if memory is None:
            return NOT_SUPPORTED
        out._obj.total, out._obj.used = memory
        return 0

    def _nvmlDeviceGetMemoryInfo(self, handle: Any, out: Any) -> int:  # noqa: N802
        return self._nvmlDeviceGetMemoryInfo_v2(handle, out)

    def _nvmlDeviceGetUtilizationRates(self, handle: Any, out: Any) -> int:  # noqa: N802
        utilisation = self._gpu(handle).utilisation
        if utilisation is None:
            return NOT_SUPPORTED
        out._obj.gpu = utilisation
        return 0

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, out: Any) -> int:  # noqa: N802
        processes = self._gpu(handle).processes
        if out is None:
            count._obj.value = len(processes)
            return 7 if processes else 0
        count._obj.value = len(processes)
        for at, (pid, used) in enumerate(processes):
            out[at].pid = pid
            out[at].usedGpuMemory = self._nvml.NVML_VALUE_NOT_AVAILABLE_ulonglong if used is None else used
        return 0

    def _nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: Any, counter: Any, out: Any) -> int:  # noqa: N802
        found = self._gpu(handle).uncorrected
        if found is None:
            return NOT_SUPPORTED
        out._obj.value = found
        return 0

    def _nvmlDeviceGetRemappedRows(self, handle: Any, *out: Any) -> int:  # noqa: N802
        found = self._gpu(handle).remapped
        if found is None:
            return NOT_SUPPORTED
        for one, value in zip(out, found, strict=True):
            one._obj.value = value
        return 0

    def _nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any, out: Any) -> int:  # noqa: N802
        out._obj.value = self._gpu(handle).reasons
        return 0

    def _nvmlDeviceGetFieldValues(self, handle: Any, count: Any, out: Any) -> int:  # noqa: N802
        out._obj[0].nvmlReturn = 0
        out._obj[0].value.uiVal = self._gpu(handle).action
        return 0

    def _nvmlDeviceGetNumaNodeId(self, handle: Any, out: Any) -> int:  # noqa: N802
        numa = self._gpu(handle).numa
        if numa is None:
            return NOT_SUPPORTED
        out._obj.value = numa
        return 0

    def _nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:  # noqa: N802
        mig = self._gpu(handle).mig
        if mig is None:
            return NOT_SUPPORTED
        current._obj.value, pending._obj.value = mig
        return 0


def nvml_on(monkeypatch: pytest.MonkeyPatch, gpus: list[Gpu], **options: Any) -> ModuleType:
    """pynvml, with these devices."""
    pynvml: ModuleType = pytest.importorskip("pynvml")
    monkeypatch.setattr(pynvml, "nvmlLib", NvmlLibrary(pynvml, gpus, **options))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return pynvml


@dataclass
class AmdGpu:
    """A device of AMD; what is None is not supported by it."""

    name: bytes = b"AMD Instinct MI300X"
    gfx: int = 0x942
    bus: tuple[int, int, int, int] = (0, 0x85, 0, 0)
    uuid: bytes = b"2aff74a1-0000-1000-80f0-5cb1a1e1dd77"
    memory: tuple[int, int] | None = (192 * GIB, 3 * GIB)
    activity: int = 12
    processes: list[tuple[int, int]] = field(default_factory=list)
    uncorrectable: int | None = 0
    pages: list[int] = field(default_factory=list)
    hot: Mapping[str, int] = field(default_factory=dict)


class SmiLibrary:
    """libamd_smi.so, as ctypes would show it: all functions are there, some do something."""

    def __init__(self, gpus: list[AmdGpu], *, start: int = 0) -> None:
        self.gpus, self.start = gpus, start
        self._known: dict[str, _Function] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._known.setdefault(name, _Function(self, name))


class _Function:
    def __init__(self, library: SmiLibrary, name: str) -> None:
        self._library, self._name = library, name
        self.argtypes: Any = None
        self.restype: Any = None

    def __call__(self, *arguments: Any) -> int:
        made_up = getattr(_AmdSmi, self._name.removeprefix("amdsmi_"), None)
        return 2 if made_up is None else made_up(self._library, *arguments)  # 2: not supported


class _AmdSmi:
    """What the functions do; a handle is the device's number, from 1."""

    @staticmethod
    def init(library: SmiLibrary, flag: Any) -> int:
        return library.start

    @staticmethod
    def shut_down(library: SmiLibrary) -> int:
        return 0

    @staticmethod
    def get_socket_handles(library: SmiLibrary, count: Any, out: Any) -> int:
        count._obj.value = 1
        if out:
            out[0] = ctypes.c_void_p(1)
        return 0

    @staticmethod
    def get_processor_handles(library: SmiLibrary, socket: Any, count: Any, out: Any) -> int:
        count._obj.value = len(library.gpus)
        for at in range(len(library.gpus) if out else 0):
            out[at] = ctypes.cast(ctypes.c_void_p(at + 1), type(out)._type_)
        return 0

    @staticmethod
    def get_gpu_asic_info(library: SmiLibrary, handle: Any, out: Any) -> int:
        gpu = _gpu(library, handle)
        out._obj.market_name, out._obj.target_graphics_version = gpu.name, gpu.gfx
        out._obj.vendor_name, out._obj.vendor_id, out._obj.device_id = (
            b"Advanced Micro Devices, Inc.",
            0x1002,
            1,
        )
        return 0

    @staticmethod
    def get_gpu_device_uuid(library: SmiLibrary, handle: Any, length: Any, out: Any) -> int:
        out.value = _gpu(library, handle).uuid
        return 0

    @staticmethod
    def get_gpu_device_bdf(library: SmiLibrary, handle: Any, out: Any) -> int:
        bdf = out._obj.struct_amdsmi_bdf_t
        bdf.domain_number, bdf.bus_number, bdf.device_number, bdf.function_number = _gpu(library, handle).bus
        return 0

    @staticmethod
    def get_gpu_memory_total(library: SmiLibrary, handle: Any, kind: Any, out: Any) -> int:
        memory = _gpu(library, handle).memory
        if memory is None:
            return 2
        out._obj.value = memory[0]
        return 0

    @staticmethod
    def get_gpu_memory_usage(library: SmiLibrary, handle: Any, kind: Any, out: Any) -> int:
        memory = _gpu(library, handle).memory
        if memory is None:
            return 2
        out._obj.value = memory[1]
        return 0

    @staticmethod
    def get_gpu_activity(library: SmiLibrary, handle: Any, out: Any) -> int:
        out._obj.gfx_activity = _gpu(library, handle).activity
        return 0

    @staticmethod
    def get_gpu_process_list(library: SmiLibrary, handle: Any, count: Any, out: Any) -> int:
        processes = _gpu(library, handle).processes
        count._obj.value = len(processes)
        for at, (pid, used) in enumerate(processes):
            out[at].pid, out[at].mem = pid, used + 5
            out[at].memory_usage.vram_mem = used
        return 0

    @staticmethod
    def get_gpu_total_ecc_count(library: SmiLibrary, handle: Any, out: Any) -> int:
        found = _gpu(library, handle).uncorrectable
        if found is None:
            return 2
        out._obj.uncorrectable_count = found
        return 0

    @staticmethod
    def get_gpu_bad_page_info(library: SmiLibrary, handle: Any, count: Any, out: Any) -> int:
        pages = _gpu(library, handle).pages
        count._obj.value = len(pages)
        for at, status in enumerate(pages if out else ()):
            out[at].page_address, out[at].page_size, out[at].status = 0x1000 * at, 4096, status
        return 0

    @staticmethod
    def get_violation_status(library: SmiLibrary, handle: Any, out: Any) -> int:
        for name, value in _gpu(library, handle).hot.items():
            setattr(out._obj, name, value)
        return 0

    @staticmethod
    def get_gpu_driver_info(library: SmiLibrary, handle: Any, out: Any) -> int:
        out._obj.driver_name, out._obj.driver_version = b"amdgpu", b"6.14.14"
        return 0

    @staticmethod
    def topo_get_numa_affinity(library: SmiLibrary, handle: Any, out: Any) -> int:
        out._obj.value = 1
        return 0

    get_gpu_topo_numa_affinity = topo_get_numa_affinity


def _gpu(library: SmiLibrary, handle: Any) -> AmdGpu:
    return library.gpus[(ctypes.cast(handle, ctypes.c_void_p).value or 1) - 1]


def amdsmi_on(monkeypatch: pytest.MonkeyPatch, gpus: list[AmdGpu], **options: Any) -> ModuleType:
    """amdsmi, imported anew upon a library with these devices."""
    forget_amdsmi(monkeypatch)
    if importlib.util.find_spec("amdsmi") is None:
        pytest.skip("amdsmi is not installed")
    library = SmiLibrary(gpus, **options)
    load = ctypes.CDLL

    def open_library(name: Any, *arguments: Any, **given: Any) -> Any:
        return library if "amd_smi" in str(name) else load(name, *arguments, **given)

    monkeypatch.setattr(ctypes, "CDLL", open_library)
    return importlib.import_module("amdsmi")


def forget_amdsmi(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is imported anew, and the one of this test is not another's."""
    for name in [one for one in sys.modules if one.split(".")[0] == "amdsmi"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("amdsmi", "amdsmi.amdsmi_interface", "amdsmi.amdsmi_wrapper", "amdsmi.amdsmi_exception"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))  # taken away again at the end
        del sys.modules[name]
