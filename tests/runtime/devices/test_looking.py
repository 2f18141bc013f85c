"""What there may be on a host, and the process that looks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from milkweed.runtime.codec import from_json
from milkweed.runtime.devices import Device, DeviceView
from milkweed.runtime.devices.looking import look
from milkweed.runtime.devices.probe import NoDevices, closed, joined, vendors_here


class Fixed:
    def __init__(self, view: DeviceView) -> None:
        self.view = view

    def look(self) -> DeviceView:
        return self.view


def test_vendors_are_told_by_their_device_nodes(tmp_path: Path) -> None:
    assert vendors_here(tmp_path) == ()
    (tmp_path / "nvidia0").touch()
    assert vendors_here(tmp_path) == ("nvidia",)
    (tmp_path / "kfd").touch()
    assert vendors_here(tmp_path) == ("nvidia", "amd")
    assert vendors_here(tmp_path / "nothing") == ()


def test_nodes_that_are_no_devices_are_none(tmp_path: Path) -> None:
    for name in ("nvidia-caps", "nvidia-modeset", "kvm"):
        (tmp_path / name).touch()
    assert vendors_here(tmp_path) == ()


def test_a_node_that_may_not_be_opened_is_told_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the superuser may open anything
    problem, mend = closed("amd", tmp_path)
    assert problem == f"no right to open {tmp_path / 'kfd'}"
    assert "render and video" in mend


def test_nodes_that_are_missing_are_no_right_to_open_them(tmp_path: Path) -> None:
    """A container that was given /dev/kfd without /dev/dri, or neither."""
    assert closed("nvidia", tmp_path) == ("", "")
    assert "kfd" in closed("amd", tmp_path)[0]


def test_views_of_both_vendors_become_one() -> None:
    one = DeviceView((Device(0, "nvidia", "H200"),), driver="570", runtime="CUDA 12.8")
    other = DeviceView(problem="amdsmi is not installed", mend="pip install amdsmi")
    assert joined([one, other]) == DeviceView(
        one.devices, "570", "CUDA 12.8", problem="amdsmi is not installed", mend="pip install amdsmi"
    )
    assert joined([]) == joined([NoDevices().look()]) == DeviceView()


def test_what_is_found_has_what_the_log_says_of_it() -> None:
    view = DeviceView((Device(0, "nvidia", "H200", pci="0000:1b:00.0"),))
    found = look(
        {"nvidia": Fixed(view)}, ["NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus."]
    )
    assert [note.kind for note in found.devices[0].notes] == ["xid"]


def test_the_process_that_looks_answers_one_line_even_where_a_library_prints(tmp_path: Path) -> None:
    """amdsmi prints, and raises KeyError, where its library is missing."""
    (tmp_path / "amdsmi.py").write_text(
        "print('Unable to find libamd_smi.so'); raise KeyError('libamd_smi.so')"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "milkweed.runtime.devices.looking", "amd"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = done.stdout.splitlines()
    view = from_json(DeviceView, json.loads(line))
    assert view.devices == ()
    assert view.problem.startswith("amdsmi found no libamd_smi.so")
