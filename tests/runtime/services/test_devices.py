"""The Devices service: what it tells of a host's devices, and of the processes on them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.codec import to_json
from milkweed.runtime.devices import Device, DeviceProcess, DeviceUse, DeviceView
from milkweed.runtime.services.devices import Devices

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0
NOBODY = 2**22 + 1  # no pid of any process


def telling(view: DeviceView) -> tuple[str, ...]:
    return (sys.executable, "-c", f"print({json.dumps(to_json(view))!r})")


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    return tmp_path / "dev"


async def test_a_host_without_devices_has_none_and_nothing_is_wrong(
    context: HostContext, tmp_path: Path
) -> None:
    async with Devices.open(context, command=("/no/such/program",), dev=tmp_path) as devices:
        found = await devices.look(DEADLINE_S)
    assert (found.host, found.view, found.uses) == (0, DeviceView(), ())


async def test_a_process_on_a_device_is_told_by_its_marks(context: HostContext, dev: Path) -> None:
    marks = {"MILKWEED_HOST_ID": "mesh-t.0", "MILKWEED_RUN": "run-1", "MILKWEED_RANK": "3"}
    with (
        subprocess.Popen(["sleep", "60"], env=marks) as rank,
        subprocess.Popen(["sleep", "61"], env={}) as other,
    ):
        try:
            processes = tuple(map(DeviceProcess, (rank.pid, other.pid, NOBODY), (5, None, 7)))
            view = DeviceView((Device(2, "nvidia", "H200", processes=processes),))
            async with Devices.open(context, command=telling(view), dev=dev) as devices:
                found = await devices.look(DEADLINE_S)
        finally:
            rank.kill()
            other.kill()
    assert found.view == view
    assert found.uses == (
        DeviceUse(2, "nvidia", rank.pid, 5, "mesh-t", "run-1", 3, "sleep 60"),
        DeviceUse(2, "nvidia", other.pid, None, command="sleep 61"),
        DeviceUse(2, "nvidia", NOBODY, 7),
    )


async def test_variables_that_hide_devices_are_told(
    context: HostContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    async with Devices.open(context, dev=tmp_path) as devices:
        assert (await devices.look(DEADLINE_S)).variables == {"ROCR_VISIBLE_DEVICES": "1"}


async def test_a_driver_that_hangs_keeps_no_answer_back(context: HostContext, dev: Path) -> None:
    async with Devices.open(context, command=("/bin/sleep", "3600"), dev=dev) as devices:
        assert "has not answered" in (await devices.look(0.0)).view.problem
    assert context.children.alive == ()
