"""Controllers on a mesh of real hosts: what they get, what ends with them, what the mesh tells of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Mesh, Meshes
from milkweed.runtime.index import Index
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, MeshState, RunRequest, RunView
from tests.runtime.processes import alive, eventually, keeper_of, of_mesh

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0

# Spawns a proc on each host and tells their pids, then does what `rest` says.
START = """
import asyncio, os, signal, sys
from milkweed.runtime import Actor, attach, endpoint, on_unhandled, this_host

class Probe(Actor):
    @endpoint
    async def pid(self):
        return os.getpid()

async def main():
    procs = await attach({mesh!r}).spawn_procs(name="p")
    probes = await procs.spawn("probe", Probe)
    pids = (await probes.pid.call()).values()
    print("pids", *pids, flush=True)
    {rest}

asyncio.run(main())
"""
WAIT = "await asyncio.sleep(1000)"
LOSE_ONE = "os.kill(pids[1], signal.SIGKILL); await asyncio.sleep(1000)"


def program(rest: str, mesh: str | None = None) -> str:
    return START.format(rest=rest, mesh=mesh)


@pytest.fixture
async def mesh(meshes: Meshes, tmp_path: Path) -> Mesh:
    return await meshes.allocate(MeshSpec("t", 2, 1, workspace=str(tmp_path)))


async def started(mesh: Mesh, script: str) -> RunView:
    return await mesh.start_run(RunRequest((), "single", script=script, attach=True))


async def output_of(mesh: Mesh, run: str) -> str:
    return "".join(piece.data.decode() for piece in await mesh.read_output(run))


async def pids_of(mesh: Mesh, run: str) -> list[int]:
    """Of the procs that the controller has spawned."""
    await mesh.wait_run(run, until="output", pattern="^pids .*", timeout_s=DEADLINE_S)
    text = await output_of(mesh, run)
    lines = [line for line in text.splitlines() if line.startswith("pids ")]
    assert lines, text
    return [int(word) for word in lines[0].split()[1:]]


async def ended(mesh: Mesh, run: str) -> RunView:
    return await mesh.wait_run(run, timeout_s=DEADLINE_S)


async def in_state(mesh: Mesh, state: MeshState) -> str:
    """Waits for it; its reason."""
    with anyio.fail_after(DEADLINE_S):
        while (view := await mesh.view()).state != state:
            await anyio.sleep(0.02)
    return view.reason


async def test_a_controller_has_all_hosts_and_runs_on_one_of_them(mesh: Mesh) -> None:
    script = "print(*(host.name for host in attach().hosts), this_host().hosts[0].name)"
    run = await started(mesh, f"from milkweed.runtime import attach, this_host\n{script}\n")
    view = await ended(mesh, run.run)
    assert (view.state, [rank.host for rank in view.ranks]) == ("succeeded", [0])
    assert await output_of(mesh, run.run) == "t-0 t-1 t-0\n"


async def test_its_procs_lie_on_the_hosts_and_end_when_it_leaves_them_behind(mesh: Mesh) -> None:
    run = await started(mesh, program("print('leaving')"))
    pids = await pids_of(mesh, run.run)
    view = await ended(mesh, run.run)
    assert (view.state, len(set(pids))) == ("succeeded", 2)
    await eventually(lambda: not any(map(alive, pids)))
    assert (await mesh.view()).state == "ready"


async def test_a_cancel_ends_its_procs_on_all_hosts(mesh: Mesh) -> None:
    run = await started(mesh, program(WAIT))
    pids = await pids_of(mesh, run.run)
    assert all(map(alive, pids))
    assert (await mesh.cancel_run(run.run)).state == "cancelled"
    await eventually(lambda: not any(map(alive, pids)))


async def test_a_controller_that_is_killed_takes_its_procs_with_it(mesh: Mesh) -> None:
    run = await started(mesh, program(WAIT))
    pids = await pids_of(mesh, run.run)
    (rank,) = (await mesh.run(run.run)).ranks
    assert rank.pid is not None
    os.kill(rank.pid, signal.SIGKILL)
    assert (await ended(mesh, run.run)).state == "failed"
    await eventually(lambda: not any(map(alive, pids)))
    assert (await mesh.view()).state == "ready"


async def test_a_release_ends_controller_and_procs(mesh: Mesh) -> None:
    run = await started(mesh, program(WAIT))
    pids = await pids_of(mesh, run.run)
    await mesh.release()
    assert not any(map(alive, pids))
    assert of_mesh(mesh.id) == []


async def test_an_unhandled_failure_degrades_the_mesh_until_the_controller_ends(mesh: Mesh) -> None:
    run = await started(mesh, program(LOSE_ONE))
    pids = await pids_of(mesh, run.run)
    reason = await in_state(mesh, "degraded")
    assert reason.startswith(f"{run.run} did not handle a failure: proc p-")
    assert reason.endswith("(hosts=1): SIGKILL")
    view = await mesh.run(run.run)
    assert view.state == "running"  # it goes on, and so do its other procs
    assert alive(pids[0])
    assert [warning.partition(" proc ")[0] for warning in view.warnings] == ["nobody handled:"]
    told = [one.event for one in await mesh.events() if one.event.kind == "failure_unhandled"]
    assert [(event.run, "SIGKILL" in event.detail) for event in told] == [(run.run, True)]
    await mesh.cancel_run(run.run)
    assert await in_state(mesh, "ready") == ""


async def test_a_failure_that_ends_the_controller_is_told_all_the_same(mesh: Mesh) -> None:
    lost = "failed = asyncio.Event(); loop = asyncio.get_running_loop()"
    hook = "on_unhandled(lambda _: loop.call_soon_threadsafe(failed.set))"
    rest = f"{lost}; {hook}; os.kill(pids[1], signal.SIGKILL); await failed.wait(); raise ValueError('gone')"
    run = await started(mesh, program(rest))
    assert (await ended(mesh, run.run)).state == "failed"
    kinds = [one.event.kind for one in await mesh.events()]
    assert kinds.count("failure_unhandled") == 1
    await in_state(mesh, "ready")


async def test_a_failure_that_is_handled_is_no_trouble_of_the_mesh(mesh: Mesh) -> None:
    script = """
    import asyncio, os, signal
    from milkweed.runtime import Actor, attach, endpoint, this_proc

    class Probe(Actor):
        @endpoint
        async def pid(self):
            return os.getpid()

    class Owner(Actor):
        def __init__(self):
            self.lost = asyncio.Event()

        @endpoint
        async def lose_one(self, hosts):
            self.procs = await hosts.spawn_procs(name="p")
            probes = await self.procs.spawn("probe", Probe)
            os.kill((await probes.pid.call())[1], signal.SIGKILL)
            await self.lost.wait()
            return "handled"

        def __supervise__(self, failure):
            self.lost.set()
            return True

    async def main():
        owner = await this_proc().spawn("owner", Owner)
        print(await owner.lose_one.call_one(attach()))

    asyncio.run(main())
    """
    lines = [line[4:] for line in script.splitlines()]
    run = await started(mesh, "\n".join(lines))
    view = await ended(mesh, run.run)
    text = await output_of(mesh, run.run)
    assert (view.state, text.splitlines()[-1:], view.warnings) == ("succeeded", ["handled"], ()), text
    kinds = [one.event.kind for one in await mesh.events()]
    assert "proc_died" in kinds
    assert "failure_unhandled" not in kinds
    assert "mesh_degraded" not in kinds


@pytest.mark.parametrize(("answer", "told"), [(True, 0), (None, 1)])
async def test_the_program_itself_may_handle_a_failure(mesh: Mesh, answer: object, told: int) -> None:
    hook = f"on_unhandled(lambda failure: (failed.set(), {answer!r})[1])"
    lost = "os.kill(pids[1], signal.SIGKILL); await asyncio.to_thread(failed.wait)"
    run = await started(mesh, program(f"import threading; failed = threading.Event(); {hook}; {lost}"))
    assert (await ended(mesh, run.run)).state == "succeeded"
    kinds = [one.event.kind for one in await mesh.events()]
    assert kinds.count("failure_unhandled") == told
    assert kinds.count("proc_died") == 1
    await in_state(mesh, "ready")


async def test_a_keeper_that_comes_back_knows_the_failure_again(mesh: Mesh) -> None:
    run = await started(mesh, program(LOSE_ONE))
    await in_state(mesh, "degraded")
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    await eventually(lambda: not alive(keeper))
    with anyio.fail_after(DEADLINE_S):  # what the index had is no answer: it takes up the hosts first
        while (view := await mesh.view()).state != "degraded" or any(
            host.state != "ready" for host in view.hosts
        ):
            await anyio.sleep(0.02)
    assert view.reason.startswith(f"{run.run} did not handle a failure")
    kinds = [one.event.kind for one in await mesh.events()]
    assert kinds.count("failure_unhandled") == 1
    await mesh.cancel_run(run.run)
    await in_state(mesh, "ready")


async def test_a_lost_host_keeps_its_place_and_the_controller_goes_to_another(mesh: Mesh) -> None:
    agent = (await mesh.view()).hosts[0].agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGKILL)
    await in_state(mesh, "degraded")
    script = """
from milkweed.runtime import MilkweedError, attach
hosts = attach()
print(hosts.sizes)
try:
    hosts.spawn_procs().get()
except MilkweedError as error:
    print(error.code)
print(hosts.slice(hosts=[1]).spawn_procs().get().sizes)
"""
    view = await ended(mesh, (await started(mesh, script)).run)
    assert (view.state, [rank.host for rank in view.ranks]) == ("succeeded", [1])
    text = await output_of(mesh, view.run)
    assert text.splitlines() == ["{'hosts': 2}", "host_lost", "{'hosts': 1}"]


# Programs that nobody started on the mesh.


def environment(places: Places) -> Mapping[str, str]:
    own = {"MILKWEED_STATE_DIR": str(places.state), "MILKWEED_RUNTIME_DIR": str(places.runtime)}
    return {**os.environ, **own}


async def run_alone(places: Places, script: str) -> str:
    """What a program of the user's own prints, stderr included."""
    command = [sys.executable, "-c", script]
    with anyio.fail_after(DEADLINE_S):
        done = await anyio.run_process(
            command, check=False, stderr=subprocess.STDOUT, env=environment(places)
        )
    return done.stdout.decode()


@pytest.mark.parametrize("by", ["name", "id"])
async def test_any_program_of_the_user_can_attach_to_a_live_mesh(mesh: Mesh, places: Places, by: str) -> None:
    text = await run_alone(places, program("", mesh.id if by == "id" else "t"))
    assert text.startswith("pids "), text
    assert len(text.split()) == 3
    await eventually(lambda: not any(alive(int(pid)) for pid in text.split()[1:]))


async def test_what_such_a_program_does_not_handle_degrades_the_mesh_too(mesh: Mesh, places: Places) -> None:
    command = [sys.executable, "-c", program(LOSE_ONE, "t")]
    with subprocess.Popen(command, env=environment(places), stderr=subprocess.DEVNULL) as controller:
        try:
            reason = await in_state(mesh, "degraded")
            assert reason.startswith(f"the program with pid {controller.pid} did not handle a failure")
        finally:
            controller.kill()
    await in_state(mesh, "ready")


FORKS = """
    child = os.fork()
    if child == 0:
        os.read(0, 1)
        os._exit(0)
    print(child, flush=True)
"""


async def test_a_child_that_such_a_program_forked_does_not_stand_for_it(mesh: Mesh, places: Places) -> None:
    script = program(f"{FORKS}    {LOSE_ONE}", "t")
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(places),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as controller:
        assert controller.stdout is not None
        assert controller.stdin is not None
        try:
            await anyio.to_thread.run_sync(controller.stdout.readline)
            child = int(await anyio.to_thread.run_sync(controller.stdout.readline))
            await in_state(mesh, "degraded")
            controller.kill()
            await in_state(mesh, "ready")
            assert alive(child)
        finally:
            controller.kill()
            controller.stdin.close()


CODE = """
from milkweed.runtime import MilkweedError, attach
try:
    attach({mesh!r})
except MilkweedError as error:
    print(error.code)
"""


async def test_a_mesh_that_is_not_found_is_said_with_the_directory_that_was_looked_in(
    mesh: Mesh, places: Places, tmp_path: Path
) -> None:
    script = CODE.format(mesh=mesh.id).replace("error.code", "error")
    elsewhere = Places(tmp_path / "elsewhere", places.runtime)
    said = await run_alone(elsewhere, script)
    assert f"(in {elsewhere.state})" in said
    assert "MILKWEED_STATE_DIR" in said
    assert "allocate_mesh" not in said


async def test_sockets_of_another_directory_are_not_taken_for_lost_hosts(
    mesh: Mesh, places: Places, tmp_path: Path
) -> None:
    elsewhere = Places(places.state, tmp_path / "elsewhere")
    said = await run_alone(elsewhere, CODE.format(mesh=mesh.id).replace("error.code", "error"))
    assert f"no host of {mesh.id} has a socket in {elsewhere.runtime}. Set MILKWEED_RUNTIME_DIR" in said


async def test_what_is_no_ready_mesh_is_refused(mesh: Mesh, places: Places, tmp_path: Path) -> None:
    index = Index(places.index)
    waiting, _ = index.claim(MeshSpec("waiting", 1, 1, workspace=str(tmp_path)))
    try:
        assert await run_alone(places, CODE.format(mesh=None)) == "not_attached\n"
        assert await run_alone(places, CODE.format(mesh="nope")) == "mesh_not_found\n"
        assert await run_alone(places, CODE.format(mesh="waiting")) == "mesh_not_ready\n"
        await mesh.release()
        assert await run_alone(places, CODE.format(mesh=mesh.id)) == "mesh_released\n"
    finally:
        index.set_state(waiting.mesh, "released", "")
        index.close()
