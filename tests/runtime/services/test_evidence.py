"""The Evidence service: what it collects of a run on its host, and in what time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.codec import to_json
from milkweed.runtime.devices import Device, DeviceView
from milkweed.runtime.services.devices import Devices
from milkweed.runtime.services.evidence import Evidence
from milkweed.runtime.services.runs import Runs
from milkweed.runtime.services.stacks import Stacks
from tests.runtime.hosts import DEADLINE_S, event_of, open_host, plan_of

pytestmark = pytest.mark.anyio

H200 = DeviceView((Device(0, "nvidia", "H200", memory_total=141_000_000_000),))
HANGS = (sys.executable, "-c", "import signal; signal.pause()")


class NoProcs:
    async def find(self, owner: str | None, procs: tuple[str, ...] | None) -> tuple[tuple[int, int], ...]:
        return ()


def evidence_of(context: HostContext, runs: Runs, devices: Devices) -> Evidence:
    stacks = Stacks(context, runs, NoProcs())  # type: ignore[arg-type]
    return Evidence(context, runs, stacks, devices, lambda _run: False)


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    return tmp_path / "dev"


async def test_devices_are_told_with_a_run_that_has_failed(tmp_path: Path, dev: Path) -> None:
    command = (sys.executable, "-c", f"print({json.dumps(to_json(H200))!r})")
    async with (
        open_host(tmp_path) as (context, runs),
        Devices.open(context, command=command, dev=dev) as devices,
    ):
        evidence = evidence_of(context, runs, devices)
        await runs.start(plan_of(tmp_path, ("sh", "-c", "exit 3")))
        await event_of(context.spool, "run_ended")
        found = await evidence.collect("run-1", None, DEADLINE_S)
    assert found.devices is not None
    assert found.devices.view == H200
    assert found.late == ()


async def test_a_driver_that_hangs_holds_up_nothing_else(tmp_path: Path, dev: Path) -> None:
    async with (
        open_host(tmp_path) as (context, runs),
        Devices.open(context, command=HANGS, dev=dev) as devices,
    ):
        evidence = evidence_of(context, runs, devices)
        await runs.start(plan_of(tmp_path, ("sh", "-c", "exit 3")))
        await event_of(context.spool, "run_ended")
        with anyio.fail_after(DEADLINE_S):
            found = await evidence.collect("run-1", None, 3.0)
    assert found.devices is not None
    assert "has not answered" in found.devices.view.problem
    assert found.memory is not None
    assert found.disks
