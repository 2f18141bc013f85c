"""The devices of a mesh in words. CONSTRUCTED: the records are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milkweed.runtime.devices import Device, DeviceNote, DeviceUse, DeviceView, HostDevices
from milkweed.runtime.errors import Unavailable
from milkweed.tools.device_words import describe_devices
from tests.fakes import FakeMesh
from tests.tools.conftest import Ask

MESH = "mesh-t-aaa"
GIB = 1024**3


def host(number: int, *uses: DeviceUse, count: int = 4, **view: str) -> HostDevices:
    devices = tuple(Device(at, "nvidia", "NVIDIA H200", memory_total=141 * GIB) for at in range(count))
    return HostDevices(number, DeviceView(devices, **view), uses)


def rank(number: int, device: int, gib: int = 61) -> DeviceUse:
    return DeviceUse(device, "nvidia", 100 + number, gib * GIB, MESH, "run-7qd", number, "python train.py")


def test_a_mesh_without_devices_has_no_line() -> None:
    lost = Unavailable("host_lost", "gone", "x")
    assert describe_devices({0: HostDevices(0), 1: HostDevices(1), 2: lost}, MESH) == []


def test_hosts_and_ranks_that_are_alike_share_a_line() -> None:
    hosts = {at: host(at, *(rank(4 * at + n, n) for n in range(4))) for at in range(16)}
    assert describe_devices(hosts, MESH) == [
        "hosts 0-15: 4 NVIDIA H200 (141 GB)",
        "run-7qd: ranks 0-63 on devices 0-3 of hosts 0-15, 61 GB each",
    ]


def test_a_rank_that_is_alone_is_told_with_its_device() -> None:
    assert (
        describe_devices({0: host(0, rank(3, 2))}, MESH)[1] == "run-7qd: rank 3 on device 2 of host 0, 61 GB"
    )


def test_two_ranks_on_one_device_are_told_one_by_one() -> None:
    """What a program does that forgets to set its device: all ranks are on the first one."""
    said = describe_devices({0: host(0, rank(0, 0), rank(1, 0, gib=30), rank(1, 1))}, MESH)[1]
    assert said == "run-7qd: ranks 0-1 on devices 0:0 1:0-1 (rank:devices) of host 0, 61 GB to 91 GB each"


def test_processes_that_are_not_of_the_mesh_are_told_if_they_have_much() -> None:
    uses = (
        DeviceUse(0, "nvidia", 7, 5 * GIB, command="python other.py"),
        DeviceUse(1, "nvidia", 8, 2 * GIB, mesh="mesh-u-bbb", run="run-x", rank=0, command="python"),
        DeviceUse(2, "nvidia", 9, None),
        DeviceUse(3, "nvidia", 10, 4096, command="Xorg"),
    )
    lines = describe_devices({0: host(0, *uses)}, MESH)
    assert lines[-1] == (
        "host 0: device 0: pid 7 (python other.py) has 5.0 GB, not of this mesh;"
        " device 1: pid 8 of mesh-u-bbb has 2.0 GB, not of this mesh;"
        " device 2: pid 9 (not to be seen from here) is there, not of this mesh"
    )


def test_what_is_wrong_is_told_and_what_is_only_noteworthy_is_not() -> None:
    one = host(0, problem="nvidia-ml-py is not installed", count=0)
    other = host(1)
    notes = (DeviceNote("ecc", "3 uncorrectable ECC errors", severe=True), DeviceNote("throttled", "too hot"))
    first, *rest = other.view.devices
    other = replace(other, view=replace(other.view, devices=(replace(first, notes=notes), *rest)))
    assert describe_devices({0: one, 1: other}, MESH)[1:] == [
        "host 0: nvidia-ml-py is not installed",
        "host 1: device 0: 3 uncorrectable ECC errors",
    ]


@pytest.mark.anyio
async def test_mesh_status_tells_of_devices(ask: Ask, mesh: FakeMesh) -> None:
    mesh.seen_devices = {0: replace(host(0, rank(0, 0)), host=0)}
    assert (await ask("mesh_status", mesh=mesh.id)).devices[0] == "host 0: 4 NVIDIA H200 (141 GB)"
