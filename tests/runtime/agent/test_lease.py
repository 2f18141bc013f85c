"""The lease: on the clock that goes on while the machine sleeps."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.lease import (
    Lease,
    LeaseHolder,
    boot_id,
    boottime_s,
    decode_lease,
    encode_lease,
    left_s,
)

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_left() -> None:
    lease = Lease("boot-a", 1060.0)
    assert left_s(lease, 1000.0, "boot-a") == 60.0
    assert left_s(lease, 1061.0, "boot-a") == 0.0
    assert left_s(lease, 1000.0, "boot-b") == 0.0
    assert decode_lease(encode_lease(lease)) == lease


def test_the_clock_goes_on_while_the_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert boottime_s() == pytest.approx(uptime, abs=60)
    slept = {time.CLOCK_BOOTTIME: 1000.0, time.CLOCK_MONOTONIC: 10.0, time.CLOCK_REALTIME: 1e9}
    monkeypatch.setattr(time, "clock_gettime", slept.__getitem__)
    assert boottime_s() == 1000.0


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"boot_id": "a", "deadline_boottime_s": null}'])
def test_what_is_no_lease_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_lease(text)


def test_an_agent_that_starts_again_gets_no_new_time(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "lease.json"
    LeaseHolder(path, 60.0, clock=clock, boot="a")
    clock.now += 50
    assert LeaseHolder(path, 60.0, clock=clock, boot="a").left_s() == 10.0
    assert LeaseHolder(path, 60.0, clock=clock, boot="b").left_s() == 0.0


def test_a_damaged_file_means_over(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    path.write_text("{")
    assert LeaseHolder(path, 60.0).left_s() == 0.0


def test_extending_is_written_and_never_shortens_or_revives(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "lease.json"
    holder = LeaseHolder(path, 60.0, clock=clock, boot="a")
    assert holder.extend(30.0) == 60.0
    assert holder.extend(90.0) == 90.0
    assert json.loads(path.read_text()) == {"boot_id": "a", "deadline_boottime_s": 1090.0}
    assert list(tmp_path.iterdir()) == [path]
    clock.now += 90
    assert holder.extend(500.0) == 0.0


def test_a_lease_that_cannot_be_written_holds_in_memory(tmp_path: Path) -> None:
    holder = LeaseHolder(tmp_path / "gone" / "lease.json", 60.0, clock=Clock(), boot="a")
    assert holder.extend(90.0) == 90.0


async def test_the_end_is_awaited_through_extensions(tmp_path: Path) -> None:
    holder = LeaseHolder(tmp_path / "lease.json", 0.2, boot=boot_id())
    began = time.monotonic()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(holder.expired)
            await anyio.wait_all_tasks_blocked()
            holder.extend(0.5)
    assert time.monotonic() - began > 0.4
    assert holder.left_s() == 0.0


async def test_a_jump_of_the_clock_is_seen_when_the_lease_changes(tmp_path: Path) -> None:
    clock = Clock()
    holder = LeaseHolder(tmp_path / "lease.json", 60.0, clock=clock, boot="a")
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(holder.expired)
            await anyio.wait_all_tasks_blocked()
            holder.extend(70.0)
            clock.now += 100
