"""Checks of meshes of real hosts, some of which do not live to see the end of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.checking import LinkCheck, MeshCheck
from milkweed.runtime.client import Mesh, Meshes
from milkweed.runtime.errors import Conflict, NotFound
from milkweed.runtime.records import MeshSpec
from tests.runtime.processes import checkers, eventually, of_mesh

pytestmark = pytest.mark.anyio

DEADLINE_S = 60.0
ALL = {(0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0), (0, 2)}


async def allocated(meshes: Meshes, workspace: Path, *, isolated: bool = False) -> Mesh:
    options = {"isolation": "namespaces"} if isolated else {}
    return await meshes.allocate(MeshSpec("t", 3, 1, workspace=str(workspace), options=options))


@pytest.fixture
async def mesh(meshes: Meshes, tmp_path: Path) -> Mesh:
    return await allocated(meshes, tmp_path)


@pytest.fixture
async def isolated(meshes: Meshes, tmp_path: Path, namespaces: None) -> Mesh:
    return await allocated(meshes, tmp_path, isolated=True)


def by_ends(check: MeshCheck) -> dict[tuple[int, int], LinkCheck]:
    return {(link.reader, link.source): link for link in check.links}


def transports(check: MeshCheck, *, within: bool) -> set[str]:
    chosen = [link for link in check.links if link.within is within]
    return {link.measured.transport if link.measured else link.error for link in chosen}


async def test_hosts_of_one_machine_are_told_with_what_they_have_and_how_they_read(mesh: Mesh) -> None:
    check = await mesh.check()
    assert [(one.host, one.error, one.state) for one in check.hosts] == [(n, "", "ready") for n in range(3)]
    facts = [one.facts for one in check.hosts]
    assert all(one is not None and one.machine.boot and one.shm_free for one in facts)
    assert by_ends(check).keys() == ALL
    assert transports(check, within=True) == transports(check, within=False) == {"process_vm"}
    for link in check.links:
        assert link.measured is not None
        assert link.measured.gb_per_s > 0
    assert checkers(mesh.id) == []


async def test_hosts_tell_their_clocks_environments_disks_and_devices(mesh: Mesh) -> None:
    check = await mesh.check()
    for one in check.hosts:
        assert one.clock is not None
        assert abs(one.clock.ahead) <= one.clock.within  # it is the keeper's own
        assert one.surroundings is not None
        assert one.surroundings.fingerprint.interpreter == sys.executable
        assert one.surroundings.disks
        assert one.devices is not None
        assert one.devices.host == one.host
    assert check.all_reduce is None  # all are one machine


async def test_hosts_that_are_apart_reduce_together(isolated: Mesh) -> None:
    check = await isolated.check(hosts=(0, 2))
    assert check.all_reduce is not None
    assert check.all_reduce.hosts == (0, 2)
    assert [(turn.error, turn.missing) for turn in check.all_reduce.turns.values()] == [("", "")] * 2
    assert check.all_reduce.seconds > 0


async def test_only_the_hosts_that_were_named_are_checked(mesh: Mesh) -> None:
    check = await mesh.check(hosts=(0, 2))
    assert [one.host for one in check.hosts] == [0, 2]
    assert by_ends(check).keys() == {(0, 0), (2, 2), (0, 2), (2, 0)}
    with pytest.raises(NotFound, match="host_not_found"):
        await mesh.check(hosts=(3,))


async def test_two_checks_at_once_do_not_meet(mesh: Mesh) -> None:
    found: list[MeshCheck] = []

    async def check() -> None:
        found.append(await mesh.check())

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(check)
            group.start_soon(check)
    for one in found:
        assert by_ends(one).keys() == ALL
        assert not any(link.error for link in one.links)
    assert checkers(mesh.id) == []


async def test_hosts_with_a_network_of_their_own_read_over_it(isolated: Mesh) -> None:
    check = await isolated.check()
    assert transports(check, within=True) == {"process_vm"}
    assert transports(check, within=False) == {"tcp"}
    assert len({one.facts.machine.network for one in check.hosts if one.facts}) == 3


@pytest.mark.parametrize(("host", "readers"), [(2, (0, 1)), (1, (0, 2))])
async def test_a_shaped_link_is_measured_for_as_long_as_it_may_take_and_is_the_slow_one(
    isolated: Mesh, host: int, readers: tuple[int, ...]
) -> None:
    """Of host 1 one read is planned; that of host 2 tells that it is not the reader that is slow."""
    agent = (await isolated.view()).hosts[host].agent_pid
    shape = (
        "qdisc",
        "add",
        "dev",
        "eth0",
        "root",
        "tbf",
        "rate",
        "80mbit",
        "burst",
        "64kb",
        "latency",
        "100ms",
    )
    done = subprocess.run(
        ["nsenter", "-t", str(agent), "-n", "tc", *shape], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"this kernel shapes nothing: {done.stderr}")
    check = await isolated.check()
    speeds = {
        ends: link.measured for ends, link in by_ends(check).items() if link.measured and not link.within
    }
    slow = {ends for ends, measured in speeds.items() if measured.gb_per_s < 0.02}
    assert slow == {(reader, host) for reader in readers}
    assert all(speeds[ends].size < 64 * 1024 * 1024 for ends in slow)


async def begun(mesh: Mesh, host: int | None = None) -> None:
    await eventually(partial(checkers, mesh.id, host), DEADLINE_S)


async def agent_of(mesh: Mesh, host: int) -> int:
    agent = (await mesh.view()).hosts[host].agent_pid
    assert agent is not None
    return agent


async def test_a_host_that_is_killed_in_the_middle_is_said_and_the_others_are_told(mesh: Mesh) -> None:
    agent = await agent_of(mesh, 1)
    found: list[MeshCheck] = []

    async def check() -> None:
        found.append(await mesh.check())

    os.kill(agent, signal.SIGSTOP)  # the others wait for its procs
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(check)
            await begun(mesh, 0)
            os.kill(agent, signal.SIGKILL)
    (one,) = found
    assert [bool(host.error) for host in one.hosts] == [False, True, False]
    links = by_ends(one)
    for ends in ((0, 0), (2, 2), (2, 0)):
        assert links[ends].measured is not None, links[ends]
    again = await mesh.check()
    assert again.hosts[1].state != "ready"
    assert by_ends(again).keys() == {(0, 0), (2, 2), (0, 2), (2, 0)}


async def test_processes_of_it_that_are_killed_break_off_the_check_of_their_host_only(mesh: Mesh) -> None:
    agent = await agent_of(mesh, 1)
    found: list[MeshCheck] = []

    async def check() -> None:
        found.append(await mesh.check())

    os.kill(agent, signal.SIGSTOP)  # the others wait for its procs
    try:
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as group:
                group.start_soon(check)
                await begun(mesh, 0)
                # One that is killed in the moment of its fork is started again, cold.
                while not found:
                    for pid in checkers(mesh.id, 0):
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                    os.kill(agent, signal.SIGCONT)
                    await anyio.sleep(0.01)
    finally:
        os.kill(agent, signal.SIGCONT)
    (one,) = found
    assert [bool(host.error) for host in one.hosts] == [True, False, False]
    assert {host.state for host in one.hosts} == {"ready"}
    assert by_ends(one)[1, 2].measured is not None
    assert (await mesh.view()).state == "ready"


async def test_a_check_whose_caller_leaves_ends_with_all_it_had_spawned(mesh: Mesh) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(mesh.check)
            await begun(mesh)
            group.cancel_scope.cancel()
    await eventually(lambda: not checkers(mesh.id))


async def test_a_release_in_the_middle_is_told_and_leaves_nothing(mesh: Mesh) -> None:
    refused: list[str] = []

    async def check() -> None:
        try:
            await mesh.check()
        except Conflict as error:
            refused.append(error.code)

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(check)
            await begun(mesh)
            await mesh.release()
    assert refused in ([], ["mesh_released"])
    assert of_mesh(mesh.id) == []
    with pytest.raises(Conflict, match="mesh_released"):
        await mesh.check()
