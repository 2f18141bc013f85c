"""The devices of real hosts, which on most machines of tests have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.devices import HostDevices
from milkweed.runtime.devices.probe import vendors_here
from milkweed.runtime.records import MeshSpec

pytestmark = pytest.mark.anyio


async def test_every_host_tells_of_its_devices(meshes: Meshes, tmp_path: Path) -> None:
    mesh = await meshes.allocate(MeshSpec("t", 2, 1, workspace=str(tmp_path)))
    found = await mesh.devices()
    assert list(found) == [0, 1]
    for host, one in found.items():
        assert isinstance(one, HostDevices)
        assert one.host == host
        assert bool(one.view.devices or one.view.problem) is bool(vendors_here())
    await mesh.release()
    assert await mesh.devices() == {}
