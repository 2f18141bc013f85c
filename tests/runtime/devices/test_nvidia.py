"""NVIDIA devices by pynvml, on a library that is made up (see `stand_ins`): no device was asked."""

from __future__ import annotations

import sys

import pytest

from milkweed.runtime.devices import DeviceProcess
from milkweed.runtime.devices.nvidia import NvidiaProbe, view_problem
from tests.runtime.devices.stand_ins import GIB, Gpu, NvmlLibrary, nvml_on


def kinds(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    view = NvidiaProbe(nvml_on(monkeypatch, [gpu])).look()
    return [(note.kind, note.severe) for note in view.devices[0].notes]


def test_a_device_is_told_with_what_the_library_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [Gpu(processes=[(4711, 60 * GIB), (4712, None)]), Gpu(bus=b"00000000:43:00.0", numa=None)]
    view = NvidiaProbe(nvml_on(monkeypatch, gpus)).look()
    assert (view.problem, view.driver, view.runtime, view.library) == (
        "",
        "570.86.15",
        "CUDA 12.8",
        "NVML 12.570.86.15",
    )
    first, second = view.devices
    assert (first.index, first.vendor, first.model) == (0, "nvidia", "NVIDIA H200")
    assert (first.memory_total, first.memory_used, first.utilisation) == (141 * GIB, 2 * GIB, 37)
    assert (first.pci, first.numa, first.notes) == ("0000:1b:00.0", 0, ())
    assert first.uuid.startswith("GPU-1f2e3d4c")
    assert first.processes == (DeviceProcess(4711, 60 * GIB), DeviceProcess(4712, None))
    assert (second.index, second.pci, second.numa, second.processes) == (1, "0000:43:00.0", None, ())


def test_what_a_device_does_not_support_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer's card has no ECC, no row remapping and no MIG."""
    gpu = Gpu(utilisation=None, uncorrected=None, remapped=None, numa=None, mig=None)
    (device,) = NvidiaProbe(nvml_on(monkeypatch, [gpu])).look().devices
    assert (device.utilisation, device.numa, device.notes) == (None, None, ())
    assert device.memory_total == 141 * GIB


def test_what_is_wrong_with_a_device_is_told_and_how_bad_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinds(Gpu(uncorrected=3), monkeypatch) == [("ecc", True)]
    assert kinds(Gpu(remapped=(0, 1, 1, 0)), monkeypatch) == [("remap", True)]
    assert kinds(Gpu(remapped=(0, 1, 0, 1)), monkeypatch) == [("remap", True)]
    assert kinds(Gpu(remapped=(4, 1, 0, 0)), monkeypatch) == []
    assert kinds(Gpu(reasons=0x40 | 0x04), monkeypatch) == [("throttled", False)]
    assert kinds(Gpu(action=1), monkeypatch) == [("reset", True)]
    assert kinds(Gpu(memory=None), monkeypatch) == [("lost", True)]
    assert kinds(Gpu(mig=(1, 1)), monkeypatch) == [("mig", False)]


def test_a_device_that_is_idle_or_at_its_power_cap_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinds(Gpu(reasons=0x01), monkeypatch) == []
    assert kinds(Gpu(reasons=0x04), monkeypatch) == []


def test_an_old_driver_has_processes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks the newest version of the function, and pynvml says so by an error that is none of NVML's."""
    pynvml = nvml_on(monkeypatch, [Gpu(processes=[(4711, 5)])])
    new = NvmlLibrary._nvmlDeviceGetComputeRunningProcesses_v3
    monkeypatch.delattr(NvmlLibrary, "_nvmlDeviceGetComputeRunningProcesses_v3")
    monkeypatch.setattr(NvmlLibrary, "_nvmlDeviceGetComputeRunningProcesses_v2", new, raising=False)
    assert NvidiaProbe(pynvml).look().devices[0].processes == (DeviceProcess(4711, 5),)


def test_one_device_that_is_lost_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    view = NvidiaProbe(nvml_on(monkeypatch, [Gpu(), Gpu(error=15), Gpu()])).look()
    assert [device.model for device in view.devices] == ["NVIDIA H200", "unknown", "NVIDIA H200"]
    (note,) = view.devices[1].notes
    assert (note.kind, note.severe) == ("lost", True)
    assert "nvidia-smi --gpu-reset -i 1" in note.mend


@pytest.mark.parametrize(
    ("code", "problem", "mend"),
    [(9, "not loaded", "modprobe"), (12, "libnvidia-ml", "driver"), (18, "different versions", "reboot")],
)
def test_a_library_that_refuses_is_told_with_what_helps(
    code: int, problem: str, mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = NvidiaProbe(nvml_on(monkeypatch, [], start=code)).look()
    assert problem in view.problem
    assert mend in view.mend
    assert view == view_problem(code, "whatever")


def test_without_the_package_that_is_told_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    view = NvidiaProbe().look()
    assert "nvidia-ml-py is not installed" in view.problem
    assert "pip install nvidia-ml-py" in view.mend


def test_where_this_machine_has_no_driver_the_real_library_says_so() -> None:
    pytest.importorskip("pynvml")
    view = NvidiaProbe().look()
    assert view.devices or view.problem
