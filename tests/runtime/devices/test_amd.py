"""AMD devices by amdsmi, on a library that is made up (see `stand_ins`): no device was asked."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from milkweed.runtime.devices import DeviceProcess
from milkweed.runtime.devices.amd import AmdProbe, amd_notes, import_amdsmi
from tests.runtime.devices.stand_ins import GIB, AmdGpu, amdsmi_on, forget_amdsmi


def test_a_device_is_told_with_what_the_library_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    view = AmdProbe(
        amdsmi_on(monkeypatch, [AmdGpu(processes=[(4711, 60 * GIB)]), AmdGpu(bus=(0, 0x9F, 0, 0))])
    ).look()
    assert (view.problem, view.driver) == ("", "amdgpu 6.14.14")
    first, second = view.devices
    assert (first.index, first.vendor, first.model, first.arch) == (0, "amd", "AMD Instinct MI300X", "gfx942")
    assert (first.memory_total, first.memory_used, first.utilisation) == (192 * GIB, 3 * GIB, 12)
    assert (first.pci, first.numa, first.notes) == ("0000:85:00.0", 1, ())
    assert first.processes == (DeviceProcess(4711, 60 * GIB),)
    assert (second.index, second.pci) == (1, "0000:9f:00.0")


def test_what_a_device_does_not_support_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (device,) = AmdProbe(amdsmi_on(monkeypatch, [AmdGpu(uncorrectable=None, activity=0xFFFF)])).look().devices
    assert (device.utilisation, device.notes) == (None, ())


def test_what_is_wrong_with_a_device_is_told_and_how_bad_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [
        AmdGpu(uncorrectable=2),
        AmdGpu(pages=[0, 1, 1]),
        AmdGpu(pages=[2]),
        AmdGpu(hot={"active_socket_thrm": 1, "active_ppt_pwr": 1}),
        AmdGpu(memory=None),
    ]
    view = AmdProbe(amdsmi_on(monkeypatch, gpus)).look()
    assert [[(note.kind, note.severe) for note in device.notes] for device in view.devices] == [
        [("ras", True)],
        [("ras", True)],
        [("ras", True)],
        [("throttled", False)],
        [("lost", True)],
    ]
    assert view.devices[1].notes[0].text == "2 bad pages of its memory are retired at its next reset"
    assert "amd-smi reset --gpureset --gpu 1" in view.devices[1].notes[0].mend


def test_what_the_library_does_not_know_is_no_health_of_the_device() -> None:
    not_known = {"uncorrectable_count": "N/A"}
    assert (
        amd_notes(0, ecc=not_known, pages="No bad pages found.", violations={"active_hbm_thrm": "N/A"}) == ()
    )


def test_a_driver_that_is_not_loaded_is_told_with_what_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    amdsmi = amdsmi_on(monkeypatch, [], start=34)
    view = AmdProbe(amdsmi).look()
    assert view.problem
    assert view.mend
    assert amdsmi.amdsmi_wrapper.AMDSMI_STATUS_DRIVER_NOT_LOADED == 34
    assert view.problem == "the amdgpu driver is not loaded"


def test_the_package_without_its_library_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its import raises KeyError then: as it does on this machine, unless ROCm is here."""
    if find_spec("amdsmi") is None:
        pytest.skip("amdsmi is not installed")
    forget_amdsmi(monkeypatch)
    module, problem, mend = import_amdsmi(str(tmp_path))
    if module is None:
        assert "libamd_smi.so" in problem
        assert "ROCM_PATH" in mend


def test_without_the_package_that_is_told_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    _, problem, mend = import_amdsmi(str(tmp_path))
    assert problem == "AMD devices are here, and amdsmi is not installed"
    assert "pip install amdsmi" in mend


def test_the_copy_that_rocm_brings_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_amdsmi(monkeypatch)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nothing")])
    package = tmp_path / "share" / "amd_smi" / "amdsmi"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise KeyError('libamd_smi.so')")
    assert "libamd_smi.so" in import_amdsmi(str(tmp_path))[1]
