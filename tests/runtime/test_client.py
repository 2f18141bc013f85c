"""Meshes of real processes, through the client."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.lease import boot_id, boottime_s, decode_lease, left_s
from milkweed.runtime.client import Mesh, Meshes, open_meshes
from milkweed.runtime.errors import Conflict, InvalidArgument, NotFound, Unavailable
from milkweed.runtime.keeper.lifecycle import PEER_GRACE_S
from milkweed.runtime.output_moving import move_output
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, RunRequest, RunView

from .processes import alive, eventually, keeper_of, of_mesh

pytestmark = pytest.mark.anyio

SLEEP = ("sleep", "1000")


def spec(workspace: Path, name: str = "t", hosts: int = 2, procs: int = 2, **more: object) -> MeshSpec:
    return MeshSpec(name, hosts, procs, workspace=str(workspace), **more)  # type: ignore[arg-type]


@pytest.fixture
async def mesh(meshes: Meshes, tmp_path: Path) -> Mesh:
    return await meshes.allocate(spec(tmp_path))


async def finished(mesh: Mesh, request: RunRequest, within_s: float = 20.0) -> RunView:
    started = await mesh.start_run(request)
    return await mesh.wait_run(started.run, timeout_s=within_s)


async def text_of(mesh: Mesh, run: str) -> list[str]:
    return [one.data.decode() for one in await mesh.read_output(run)]


async def pids_of(mesh: Mesh, run: str) -> list[int]:
    """Pids of all ranks, once all have started."""
    pids: list[int] = []
    with anyio.fail_after(10):
        while True:
            ranks = (await mesh.run(run)).ranks
            pids = [rank.pid for rank in ranks if rank.pid is not None]
            if len(pids) == len(ranks):
                return pids
            await anyio.sleep(0.01)


async def test_each_rank_gets_its_place_and_writes_its_own_output(mesh: Mesh) -> None:
    script = 'echo "$RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $(pwd) $X"'
    view = await finished(mesh, RunRequest((), script=script, env={"X": "y"}))
    assert view.state == "succeeded"
    cwd = (await mesh.view()).spec.workspace
    assert await text_of(mesh, view.run) == [f"{r}/4 {r % 2} 127.0.0.1 {cwd} y\n" for r in range(4)]


async def test_a_failure_is_told_with_its_exit_and_its_peers_are_ended(mesh: Mesh) -> None:
    script = 'if [ "$RANK" = 3 ]; then exit 7; fi; exec sleep 1000'
    view = await finished(mesh, RunRequest((), script=script))
    assert (view.state, view.reason) == ("failed", "rank 3 failed")
    assert view.ranks[3].exit is not None
    assert view.ranks[3].exit.code == 7
    assert {rank.exit.ended_by for rank in view.ranks[:3] if rank.exit} == {"peer_failed"}


async def test_independent_ranks_go_on_when_asked(mesh: Mesh) -> None:
    script = 'if [ "$RANK" = 0 ]; then exit 1; fi; exec sleep 1000'
    run = (await mesh.start_run(RunRequest((), script=script, keep_going=True))).run
    pids = await pids_of(mesh, run)
    await eventually(lambda: not alive(pids[0]))
    assert (await mesh.wait_run(run, timeout_s=PEER_GRACE_S + 1.0)).state == "running"
    assert all(alive(pid) for pid in pids[1:])


async def test_a_cancelled_run_ends_with_all_it_started(mesh: Mesh) -> None:
    script = "trap '' TERM; sleep 1000 & setsid sleep 1000 & sleep 1000"
    run = (await mesh.start_run(RunRequest((), script=script, launcher="per_host"))).run
    await eventually(lambda: len(of_mesh(mesh.id)) >= 2 * 3 + 2 * 4)
    view = await mesh.cancel_run(run, grace_s=0.1)
    assert view.state == "cancelled"
    assert len(of_mesh(mesh.id)) == 6
    assert (await mesh.cancel_run(run)).state == "cancelled"


async def test_a_run_past_its_time_is_ended_and_says_so(mesh: Mesh) -> None:
    view = await finished(mesh, RunRequest(SLEEP, timeout_s=0.1))
    assert (view.state, view.reason) == ("failed", "timed out")


async def test_waiting_for_output_ends_with_the_line(mesh: Mesh, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    run = (await mesh.start_run(RunRequest((), "single", script=f"echo ready; cat {go}; sleep 1000"))).run
    # A wait also returns when its time is up, so that time must be far above the test's.
    with anyio.fail_after(10):
        await mesh.wait_run(run, until="output", pattern="^ready$", timeout_s=100)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            wait = partial(mesh.wait_run, until="output", pattern="step [0-9]+", timeout_s=100)
            group.start_soon(wait, run)
            await anyio.to_thread.run_sync(go.write_text, "step 12\n")
    assert await text_of(mesh, run) == ["ready\nstep 12\n"]


async def test_torchrun_starts_the_ranks_and_they_are_known(mesh: Mesh, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(1) * dist.get_rank(); dist.all_reduce(x)\n"
        "print(os.environ['RANK'], os.environ['GROUP_RANK'], int(x.item()))\n"
        "dist.destroy_process_group()\n"
    )
    view = await finished(mesh, RunRequest(("t.py",), "torchrun"), within_s=90)
    assert view.state == "succeeded", await text_of(mesh, view.run)
    assert [re.sub(r"(?m)^\[.*\n", "", text) for text in await text_of(mesh, view.run)] == [
        "0 0 6\n",
        "1 0 6\n",
        "2 1 6\n",
        "3 1 6\n",
    ]


async def test_python_is_that_of_the_workspace(meshes: Meshes, tmp_path: Path) -> None:
    own = tmp_path / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text('#!/bin/sh\necho "the workspace\'s: $*"\n')
    own.chmod(0o755)
    (tmp_path / "train.py").touch()
    mesh = await meshes.allocate(spec(tmp_path, hosts=1, procs=1))
    for request, told in (
        (RunRequest(("python", "-x")), "-x"),
        (RunRequest(("python3", "-x")), "-x"),
        (RunRequest(("train.py", "-x")), "train.py -x"),
        (RunRequest((), script="python -x"), "-x"),
    ):
        view = await finished(mesh, request)
        assert await text_of(mesh, view.run) == [f"the workspace's: {told}\n"]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (RunRequest(("pyhton3", "x.py")), "command_not_found"),
        (RunRequest(("true",), cwd="/no/such/place"), "file_not_found"),
        (RunRequest(("true",), ranks="4"), "rank_not_found"),
        (RunRequest(("true",), ranks="hosts=9"), "host_not_found"),
    ],
)
async def test_a_run_that_cannot_start_is_refused_without_effect(
    mesh: Mesh, request_: RunRequest, code: str
) -> None:
    with pytest.raises((NotFound, InvalidArgument)) as caught:
        await mesh.start_run(request_)
    assert caught.value.code == code
    assert await mesh.runs() == ()


async def test_allocating_again_gives_the_same_mesh_and_other_words_are_refused(
    meshes: Meshes, mesh: Mesh, tmp_path: Path
) -> None:
    assert (await meshes.allocate(spec(tmp_path))).id == mesh.id
    with pytest.raises(Conflict, match="name_in_use"):
        await meshes.allocate(spec(tmp_path, hosts=3))


async def test_two_clients_that_allocate_at_once_get_one_mesh(places: Places, tmp_path: Path) -> None:
    found: list[str] = []
    async with open_meshes(places) as one, open_meshes(places) as two:

        async def allocate(client: Meshes) -> None:
            found.append((await client.allocate(spec(tmp_path))).id)

        async with anyio.create_task_group() as group:
            group.start_soon(allocate, one)
            group.start_soon(allocate, two)
        assert found[0] == found[1]
        assert len(of_mesh(found[0])) == 6
        mesh = await one.get(found[0])
        run = (await mesh.start_run(RunRequest(SLEEP))).run
        assert (await (await two.get(found[0])).cancel_run(run)).state == "cancelled"
        await mesh.release()
        with pytest.raises(Conflict, match="mesh_released"):
            await (await two.get(found[0])).start_run(RunRequest(SLEEP))


@pytest.mark.parametrize(
    ("hosts", "procs", "options", "says"),
    [
        (600, 1, {}, "at most 512"),
        (1, 1, {"colour": "red"}, "no option"),
        (1, 1, {"isolation": "vm"}, "one of"),
    ],
)
async def test_a_mesh_that_cannot_be_had_is_refused_without_effect(
    meshes: Meshes, tmp_path: Path, hosts: int, procs: int, options: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        await meshes.allocate(spec(tmp_path, hosts=hosts, procs=procs, options=options))
    assert await meshes.list() == ()


async def test_a_release_ends_everything_and_the_output_stays(meshes: Meshes, mesh: Mesh) -> None:
    done = await finished(mesh, RunRequest(("echo", "kept"), "single"))
    run = (await mesh.start_run(RunRequest(SLEEP))).run
    await pids_of(mesh, run)
    released = await mesh.release()
    assert released.runs_ended == (run,)
    assert released.processes_ended >= 4
    assert of_mesh(mesh.id) == []
    await eventually(lambda: keeper_of(mesh.id) is None)
    assert (await mesh.run(run)).state == "cancelled"
    assert await text_of(mesh, done.run) == ["kept\n"]
    assert await meshes.list() == ()
    with pytest.raises(Conflict, match="mesh_released"):
        await mesh.release()


async def test_a_run_outlives_its_client_and_the_next_one_has_all_of_it(
    places: Places, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    async with open_meshes(places) as first:
        mesh = await first.allocate(spec(tmp_path, hosts=1, procs=1))
        run = (await mesh.start_run(RunRequest((), script=f"echo before; cat {go}; echo after"))).run
    async with open_meshes(places) as second:
        assert [view.mesh for view in await second.list()] == [mesh.id]
        mesh = await second.find_run(run)
        await anyio.to_thread.run_sync(go.write_text, "between\n")
        assert (await mesh.wait_run(run, timeout_s=20)).state == "succeeded"
        assert await text_of(mesh, run) == ["before\nbetween\nafter\n"]
        await mesh.release()


async def test_a_killed_keeper_comes_back_and_knows_what_happened_meanwhile(
    mesh: Mesh, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    run = (await mesh.start_run(RunRequest((), "single", script=f"cat {go}; exit 3"))).run
    await pids_of(mesh, run)
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    await anyio.to_thread.run_sync(go.write_text, "x\n")
    await eventually(lambda: keeper_of(mesh.id) not in (None, keeper), within_s=2.0)
    with anyio.fail_after(10):
        while (view := await still_there(mesh, run)).state == "running":
            await anyio.sleep(0.02)
    assert (view.state, view.ranks[0].exit and view.ranks[0].exit.code) == ("failed", 3)
    assert (await mesh.view()).state == "ready"


async def test_a_wait_goes_on_when_the_keeper_dies_under_it(mesh: Mesh, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    run = (await mesh.start_run(RunRequest((), "single", script=f"cat {go}"))).run
    await pids_of(mesh, run)
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    ended: list[RunView] = []

    async def wait() -> None:
        ended.append(await mesh.wait_run(run, timeout_s=20))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            os.kill(keeper, signal.SIGKILL)
            await eventually(lambda: keeper_of(mesh.id) not in (None, keeper))
            await anyio.to_thread.run_sync(go.write_text, "x\n")
    assert [view.state for view in ended] == ["succeeded"]


async def test_runs_are_listed_as_the_keeper_knows_them(meshes: Meshes, mesh: Mesh) -> None:
    view = await finished(mesh, RunRequest(("true",)))
    meshes.index.put_run(replace(view, state="running", ended_at=None))
    assert [one.state for one in await mesh.runs()] == ["succeeded"]


async def still_there(mesh: Mesh, run: str) -> RunView:
    """The run; a call that a dying keeper did not answer is made again."""
    while True:
        try:
            return await mesh.run(run)
        except Unavailable:
            await anyio.sleep(0.01)


async def test_a_failure_seen_by_no_keeper_still_ends_the_peers(mesh: Mesh, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    script = f'if [ "$RANK" = 1 ]; then cat {go}; exit 3; fi; exec sleep 1000'
    run = (await mesh.start_run(RunRequest((), script=script))).run
    await pids_of(mesh, run)
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    await anyio.to_thread.run_sync(go.write_text, "x\n")
    with anyio.fail_after(20):
        while (view := await still_there(mesh, run)).state == "running":
            await anyio.sleep(0.05)
    assert view.ranks[1].exit is not None
    assert view.ranks[1].exit.code == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_agent_that_is_told_to_end_is_a_lost_host_and_its_peers_are_ended(
    mesh: Mesh, number: signal.Signals
) -> None:
    run = (await mesh.start_run(RunRequest(SLEEP))).run
    await pids_of(mesh, run)
    agent = (await mesh.view()).hosts[0].agent_pid
    assert agent is not None
    os.kill(agent, number)
    view = await mesh.wait_run(run, timeout_s=20)
    assert (view.state, view.reason) == ("lost", "ranks 0-1 were lost with their host")
    assert [rank.state for rank in view.ranks] == ["lost", "lost", "ended", "ended"]
    assert (await mesh.view()).reason == "host 0 lost: its agent was told to end"


async def test_a_stopped_agent_is_said_and_what_was_cancelled_ends_when_it_goes_on(mesh: Mesh) -> None:
    run = (await mesh.start_run(RunRequest(SLEEP, "per_host", keep_going=True))).run
    pids = await pids_of(mesh, run)
    agent = (await mesh.view()).hosts[1].agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGSTOP)
    try:
        with anyio.fail_after(30):
            while (view := await mesh.view()).state != "degraded":
                await anyio.sleep(0.05)
        assert view.hosts[1].state == "silent"
        assert "does not answer" in view.reason
        with anyio.fail_after(10):
            cancelled = await mesh.cancel_run(run, grace_s=0.1)
        assert cancelled.state == "running"
        assert cancelled.warnings[0].startswith("host 1 does not answer")
        assert not alive(pids[0])
    finally:
        os.kill(agent, signal.SIGCONT)
    assert (await mesh.wait_run(run, timeout_s=20)).state == "cancelled"
    with anyio.fail_after(20):
        while (await mesh.view()).state != "ready":
            await anyio.sleep(0.05)


async def test_a_look_gives_a_host_up_as_soon_as_it_is_silent(mesh: Mesh) -> None:
    run = (await mesh.start_run(RunRequest(SLEEP, "per_host", keep_going=True))).run
    await pids_of(mesh, run)
    agent = (await mesh.view()).hosts[1].agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGSTOP)
    try:
        with anyio.fail_after(40):  # well before the deadline of the look itself
            stacks = await mesh.stacks(run, ranks=None, native=False, locals=False, timeout_s=600)
    finally:
        os.kill(agent, signal.SIGCONT)
    told = {one.host: one.error for one in stacks if one.child_of is None}
    assert "sleep 1000" in told[0]
    assert "host 1 does not answer: its agent" in told[1]


async def test_a_host_whose_agent_is_gone_is_told_although_its_guard_is_stopped(mesh: Mesh) -> None:
    agent = (await mesh.view()).hosts[1].agent_pid
    assert agent is not None
    guard = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(guard, signal.SIGSTOP)
    try:
        os.kill(agent, signal.SIGKILL)
        with anyio.fail_after(20):
            while (view := await mesh.view()).state != "degraded":
                await anyio.sleep(0.02)
        assert [host.state for host in view.hosts] == ["ready", "silent"]
    finally:
        os.kill(guard, signal.SIGCONT)
    with anyio.fail_after(20):
        while (await mesh.view()).hosts[1].state != "lost":
            await anyio.sleep(0.02)


async def test_an_agent_that_is_stopped_and_then_killed_does_not_take_the_keeper_along(mesh: Mesh) -> None:
    keeper = keeper_of(mesh.id)
    agent = (await mesh.view()).hosts[1].agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGSTOP)
    with anyio.fail_after(30):
        while (await mesh.view()).hosts[1].state != "silent":
            await anyio.sleep(0.02)
    os.kill(agent, signal.SIGKILL)
    with anyio.fail_after(20):
        while (await mesh.view()).hosts[1].state != "lost":
            await anyio.sleep(0.02)
    assert keeper_of(mesh.id) == keeper


async def test_a_plan_is_given_and_taken_once_while_the_disk_of_the_index_is_full(places: Places) -> None:
    async with open_meshes(places) as meshes:
        pages = meshes.index._db.execute("PRAGMA page_count").fetchone()[0]
        meshes.index._db.execute(f"PRAGMA max_page_count = {pages}")
        large = "x" * 1_000_000
        with pytest.raises(Unavailable, match=r"index_unusable: .* full[.] Make room.*release_mesh"):
            meshes.index.add_plan(large, "state", time.time() + 60)
        plan = meshes.add_plan(large, "state", time.time() + 60)
        assert meshes.take_plan(plan.plan) == plan
        assert meshes.take_plan(plan.plan) is None
        late = meshes.add_plan(large, "state", time.time() - 1)
        assert meshes.take_plan(late.plan) is None


async def test_a_release_makes_room_for_the_index_on_the_disk_that_hosts_filled(
    places: Places, tmp_path: Path
) -> None:
    places.state.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "none", str(places.state)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        async with open_meshes(places) as meshes:
            mesh = await meshes.allocate(spec(tmp_path, hosts=1, procs=1))
            run = (await mesh.start_run(RunRequest((), script="cat /dev/zero > $TMPDIR/all"))).run
            assert (await mesh.wait_run(run, timeout_s=20)).state == "failed"
            assert shutil.disk_usage(places.state).free == 0
            await mesh.release()
            await eventually(lambda: meshes.index.mesh(mesh.id).state == "released", 20)
            assert shutil.disk_usage(places.state).free > 4_000_000
            await eventually(lambda: keeper_of(mesh.id) is None, 20)
    finally:
        subprocess.run(["umount", "-l", str(places.state)], check=False)


async def test_a_damaged_record_ends_the_mesh_and_says_so(places: Places, tmp_path: Path) -> None:
    async with open_meshes(places) as first:
        mesh = await first.allocate(spec(tmp_path))
        run = (await mesh.start_run(RunRequest(SLEEP))).run
        await pids_of(mesh, run)
        record = places.mesh(mesh.id).record
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    record.write_text(record.read_text()[:20])
    async with open_meshes(places) as second:
        again = await second.get(mesh.id)
        with anyio.fail_after(20):
            while (view := await again.view()).state != "released":
                await anyio.sleep(0.02)
        assert view.reason.startswith("directory_unusable: ")
        assert "mesh.json is damaged" in view.reason
        assert (await again.run(run)).state == "cancelled"
    assert of_mesh(mesh.id) == []


async def test_removed_sockets_are_made_again(places: Places, tmp_path: Path) -> None:
    async with open_meshes(places) as first:
        mesh = await first.allocate(spec(tmp_path))
        shutil.rmtree(places.runtime)
        places.runtime.mkdir(mode=0o700)
        await eventually(lambda: len(list(places.runtime.glob("*/*"))) == 3)
        async with open_meshes(places) as second:
            again = await second.get(mesh.id)
            assert (await again.view()).state == "ready"
            keeper = keeper_of(mesh.id)
            assert keeper is not None
            os.kill(keeper, signal.SIGKILL)
            await eventually(lambda: keeper_of(mesh.id) not in (None, keeper))
            with anyio.fail_after(20):
                while True:
                    try:
                        view = await finished(again, RunRequest(("true",)))
                        break
                    except (Conflict, Unavailable):
                        await anyio.sleep(0.05)
            assert view.state == "succeeded"
            await again.release()


async def test_a_mesh_whose_directories_are_removed_ends_with_its_keeper(
    places: Places, tmp_path: Path
) -> None:
    async with open_meshes(places) as meshes:
        mesh = await meshes.allocate(spec(tmp_path))
        await pids_of(mesh, (await mesh.start_run(RunRequest(SLEEP))).run)
    shutil.rmtree(places.state)
    shutil.rmtree(places.runtime)
    await eventually(lambda: not of_mesh(mesh.id) and not keeper_of(mesh.id), within_s=60)


async def test_a_keeper_ends_with_its_mesh_though_its_index_was_replaced(
    places: Places, tmp_path: Path
) -> None:
    async with open_meshes(places) as meshes:
        mesh = await meshes.allocate(spec(tmp_path))
        index = places.state / "index.sqlite"
        index.rename(tmp_path / "before.sqlite")
        index.write_bytes(b"something else")
        await mesh.release()
    await eventually(lambda: not of_mesh(mesh.id) and not keeper_of(mesh.id), within_s=60)


@pytest.mark.parametrize("victim", ["agent", "guard", "both"])
async def test_a_killed_host_is_told_and_its_ranks_are_reaped_and_others_unharmed(
    mesh: Mesh, victim: str
) -> None:
    run = (await mesh.start_run(RunRequest(SLEEP, "per_host", keep_going=True))).run
    pids = await pids_of(mesh, run)
    agent = (await mesh.view()).hosts[1].agent_pid
    assert agent is not None
    parent = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
    for pid in {"agent": [agent], "guard": [parent], "both": [agent, parent]}[victim]:
        os.kill(pid, signal.SIGKILL)
    with anyio.fail_after(10):
        while (view := await mesh.view()).state != "degraded":
            await anyio.sleep(0.01)
    assert [host.state for host in view.hosts] == ["ready", "lost"]
    assert view.reason.startswith("host 1 lost")
    await eventually(lambda: not alive(pids[1]))
    assert alive(pids[0])
    states = [rank.state for rank in (await mesh.run(run)).ranks]
    assert states[0] == "running"
    assert states[1] in ("lost", "ended")
    with pytest.raises(Unavailable, match="host_lost"):
        await mesh.start_run(RunRequest(SLEEP))
    again = await finished(mesh, RunRequest(("echo", "alive"), ranks="hosts=0"))
    assert again.state == "succeeded"
    assert [(rank.rank, rank.host, rank.state) for rank in again.ranks] == [
        (0, 0, "succeeded"),
        (1, 0, "succeeded"),
    ]


async def test_the_output_of_a_lost_host_can_still_be_read(mesh: Mesh) -> None:
    run = (await finished(mesh, RunRequest((), "per_host", script="echo from $MILKWEED_HOST"))).run
    agent = (await mesh.view()).hosts[1].agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGKILL)
    with anyio.fail_after(10):
        while (await mesh.view()).hosts[1].state != "lost":
            await anyio.sleep(0.01)
    assert await text_of(mesh, run) == ["from 0\n", "from 1\n"]
    (last,) = await mesh.read_output(run, ranks=[1], tail_bytes=2)
    assert (last.data, last.ended) == (b"1\n", True)


async def test_everything_killed_at_once_is_swept_by_the_release(meshes: Meshes, mesh: Mesh) -> None:
    run = (await mesh.start_run(RunRequest(SLEEP))).run
    ranks = set(await pids_of(mesh, run))
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    for pid in [keeper, *(pid for pid in of_mesh(mesh.id) if pid not in ranks)]:
        os.kill(pid, signal.SIGKILL)
    with anyio.fail_after(20):
        while True:
            try:
                await (await meshes.get(mesh.id)).release()
                break
            except Unavailable:
                await anyio.sleep(0.05)
    assert of_mesh(mesh.id) == []
    await eventually(lambda: keeper_of(mesh.id) is None)


async def test_output_is_in_the_data_directory_after_the_release_and_read_by_whoever_comes(
    places: Places, tmp_path: Path
) -> None:
    async with open_meshes(places) as meshes:
        mesh = await meshes.allocate(spec(tmp_path))
        run = (await finished(mesh, RunRequest((), script="echo rank $RANK"))).run
        released = await mesh.release()
    output = places.mesh(mesh.id).kept_output
    assert released.output_directory == str(output)
    assert {str(path.relative_to(output)) for path in output.rglob("rank-*.out")} == {
        f"{run}/{rank // 2}/rank-{rank}.out" for rank in range(4)
    }
    assert not any(places.mesh(mesh.id).root.glob("hosts/*/runs/*"))
    code = (
        "import anyio, sys; from milkweed.runtime.client import open_meshes\n"
        "async def main():\n    async with open_meshes() as meshes:\n"
        "        mesh = await meshes.find_run(sys.argv[1])\n"
        "        print([one.data.decode() for one in await mesh.read_output(sys.argv[1])])\n"
        "anyio.run(main)"
    )
    env = {
        **os.environ,
        "MILKWEED_STATE_DIR": str(places.state),
        "MILKWEED_RUNTIME_DIR": str(places.runtime),
        "MILKWEED_DATA_DIR": str(tmp_path / "another since then"),
    }
    done = await anyio.run_process([sys.executable, "-c", code, run], env=env)
    assert done.stdout.decode() == f"{[f'rank {rank}{chr(10)}' for rank in range(4)]}\n"


@pytest.fixture(params=["a file in its place", "another file system", "another that is full"])
def data(request: pytest.FixtureRequest, places: Places) -> Iterator[Path]:
    """A data directory, or what is there instead; the name of the way is that of its parent."""
    if request.param == "a file in its place":
        path = places.state / "data"
        path.write_text("")
        yield path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if request.param == "another that is full":
            options = ["-t", "tmpfs", "-o", "size=64k,nr_inodes=64", "tmpfs", other]
            if os.getuid() or subprocess.run(["mount", *options], check=False).returncode:
                pytest.skip("no file system can be mounted here")
        try:
            if os.stat(other).st_dev == os.stat(places.state).st_dev:
                pytest.skip("one file system")
            yield Path(other)
        finally:
            if os.path.ismount(other):
                subprocess.run(["umount", other], check=True)


async def test_output_that_cannot_be_in_the_data_directory_stays_and_is_read(
    places: Places, data: Path, tmp_path: Path
) -> None:
    async with open_meshes(Places(places.state, places.runtime, data)) as meshes:
        mesh = await meshes.allocate(spec(tmp_path))
        run = (await finished(mesh, RunRequest((), script="echo rank $RANK"))).run
        released = await mesh.release()
        assert await text_of(mesh, run) == [f"rank {rank}\n" for rank in range(4)]
        moved = data / mesh.id / "output"
        fits = data.is_dir() and not os.path.ismount(data)
        assert released.output_directory == str(moved if fits else places.mesh(mesh.id).root)
        assert fits == any(moved.glob("run*/*/rank-0.out"))
        assert fits != any(places.mesh(mesh.id).root.glob("hosts/*/runs/*/rank-0.out"))
        assert not any(data.rglob("*.part"))


async def test_output_of_meshes_that_ended_before_it_was_moved_is_read(
    meshes: Meshes, mesh: Mesh, places: Places
) -> None:
    run = (await finished(mesh, RunRequest(("echo", "kept"), "single"))).run
    await mesh.release()
    await eventually(lambda: keeper_of(mesh.id) is None)
    paths = places.mesh(mesh.id)
    paths.output.unlink()
    (paths.host(0) / "runs").mkdir(exist_ok=True)
    os.rename(paths.kept_output / run / "0", paths.host(0) / "runs" / run)
    assert await text_of(mesh, run) == ["kept\n"]
    assert [view.run for view in await mesh.runs()] == [run]


async def test_output_of_which_a_killed_keeper_had_moved_half_is_read_and_then_moved(
    meshes: Meshes, mesh: Mesh, places: Places
) -> None:
    run = (await finished(mesh, RunRequest((), script="echo rank $RANK"))).run
    before = await mesh.read_output(run)
    keeper, paths = keeper_of(mesh.id), places.mesh(mesh.id)
    assert keeper is not None
    for pid in [keeper, *of_mesh(mesh.id)]:
        os.kill(pid, signal.SIGKILL)
    paths.output.symlink_to(paths.kept_output)
    move_output(paths.host(0) / "runs" / run, paths.kept_output / run / "0")
    with anyio.fail_after(30):
        while True:
            with suppress(Unavailable):
                assert await mesh.read_output(run) == before
                released = await mesh.release()
                break
            await anyio.sleep(0.05)
    assert released.output_directory == str(paths.kept_output)
    assert sorted(path.name for path in (paths.kept_output / run).iterdir()) == ["0", "1"]
    assert await mesh.read_output(run) == before


@pytest.mark.parametrize("keeper_dies", [False, True], ids=["keeper", "no keeper"])
async def test_the_end_of_the_lease_ends_everything_whoever_is_alive(
    places: Places, tmp_path: Path, keeper_dies: bool
) -> None:
    async with open_meshes(places) as meshes:
        mesh = await meshes.allocate(spec(tmp_path, lease_minutes=2.5 / 60))
        run = (await mesh.start_run(RunRequest(SLEEP))).run
        await pids_of(mesh, run)
    if keeper_dies:
        keeper = keeper_of(mesh.id)
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
    await eventually(lambda: of_mesh(mesh.id) == [])
    async with open_meshes(places) as meshes:
        with anyio.fail_after(10):
            while await meshes.list():
                await anyio.sleep(0.02)
        mesh = await meshes.get(mesh.id)
        view = await mesh.view()
        assert (view.state, view.reason) == ("released", "the lease ended")
        with pytest.raises(Conflict, match=f"{mesh.id} was released: the lease ended"):
            await mesh.start_run(RunRequest(SLEEP))
        assert (await mesh.run(run)).state == "cancelled"


async def test_a_lease_can_be_extended_but_not_for_ever(mesh: Mesh) -> None:
    before = (await mesh.view()).lease_left_s
    assert (await mesh.extend_lease(10)).lease_left_s == pytest.approx(before + 600, abs=5)
    with pytest.raises(InvalidArgument, match="the most is 168 h"):
        await mesh.extend_lease(8 * 24 * 60)


async def test_an_extended_lease_reaches_the_hosts_who_end_by_themselves(mesh: Mesh) -> None:
    left = (await mesh.extend_lease(10)).lease_left_s
    for host in (await mesh.view()).hosts:
        lease = decode_lease((Path(host.directory) / "lease.json").read_text())
        assert left_s(lease, boottime_s(), boot_id()) == pytest.approx(left, abs=30)


async def test_files_are_listed_read_and_fetched(mesh: Mesh, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("hello\n")
    (tmp_path / "out" / "out").write_text("a file named as its directory\n")
    (tmp_path / "out" / "latest").symlink_to("a.txt")
    (tmp_path / "out" / "nowhere").symlink_to("missing")
    listing = (await mesh.list_files("out"))[1]
    names = [entry.name for entry in listing.entries]  # type: ignore[union-attr]
    assert names == ["a.txt", "latest", "nowhere", "out"]
    assert (await mesh.read_file("out/a.txt", host=1)).text == "hello\n"
    target = tmp_path / "fetched"

    async def report(done: float, total: float | None, message: str) -> None:
        assert done <= (total or 0)

    fetched = await mesh.fetch("out", hosts=(0, 1), destination=str(target), report=report)
    assert (target / "1" / "out" / "a.txt").read_text() == "hello\n"
    assert (target / "0" / "out" / "latest").read_text() == "hello\n"
    skipped = [one.path for one in fetched if one.state == "skipped"]
    assert skipped == [str(tmp_path / "out" / "nowhere")] * 2
    again = await mesh.fetch("out", hosts=(0,), destination=str(target), report=report)
    assert sorted(one.state for one in again) == ["skipped", "unchanged", "unchanged", "unchanged"]
    (target / "0" / "out" / "a.txt").write_text("mine\n")
    with pytest.raises(Conflict, match="file_exists"):
        await mesh.fetch("out", hosts=(0,), destination=str(target), report=report)
