"""Replica jobs of real processes, through the client."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Mesh, Meshes
from milkweed.runtime.errors import Conflict, InvalidArgument, MilkweedError, NotFound, Unavailable
from milkweed.runtime.index import Index
from milkweed.runtime.job_records import JobRequest, JobStatus, JobView
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec
from milkweed.runtime.supervision import Restart
from tests.real_meshes import open_real_meshes

from .processes import alive, eventually, keeper_of, of_mesh

pytestmark = pytest.mark.anyio

SLEEP = ("sleep", "1000")
QUICK = Restart(backoff_s=0.01)


def request(argv: tuple[str, ...] = SLEEP, replicas: int = 2, procs: int = 2, **more: object) -> JobRequest:
    return JobRequest(argv, replicas, procs, **{"restart": QUICK, **more})  # type: ignore[arg-type]


def bash(script: str) -> tuple[str, ...]:
    return ("bash", "-c", script)


@pytest.fixture
async def mesh(meshes: Meshes, tmp_path: Path) -> Mesh:
    return await meshes.allocate(MeshSpec("t", 2, 2, workspace=str(tmp_path)))


async def until(mesh: Mesh, job: str, condition: Callable[[JobStatus], object]) -> JobStatus:
    """The job once it is so."""
    with anyio.fail_after(30):
        while not condition(status := await mesh.job(job)):
            await anyio.sleep(0.01)
    return status


def up(status: JobStatus) -> bool:
    """All ranks of all replicas run."""
    return all(
        one.state == "running" and all(rank.pid for rank in status.runs[one.replica].ranks)
        for one in status.view.replicas
    )


def pids(status: JobStatus, replica: int) -> list[int]:
    return [rank.pid or 0 for rank in status.runs[replica].ranks]


def attempts(status: JobStatus) -> list[int]:
    return [one.attempt for one in status.view.replicas]


async def output(mesh: Mesh, run: str) -> list[str]:
    return [piece.data.decode() for piece in await mesh.read_output(run)]


async def test_ranks_know_their_replica_their_attempt_and_where_they_meet(mesh: Mesh) -> None:
    script = (
        'echo "$MILKWEED_REPLICA/$MILKWEED_REPLICAS attempt $MILKWEED_ATTEMPT slot $MILKWEED_LOCAL_SLOT'
        ' $RANK/$WORLD_SIZE $LOCAL_RANK $MASTER_ADDR" $MILKWEED_JOB; [ "$MASTER_PORT" -gt 0 ]'
    )
    job = (await mesh.start_job(request(bash(script), replicas=4, procs=1))).job
    status = await until(mesh, job, lambda status: status.view.state == "succeeded")
    assert [one.host for one in status.view.replicas] == [0, 1, 0, 1]
    for one in status.view.replicas:
        text = f"{one.replica}/4 attempt 1 slot {one.replica // 2} 0/1 0 127.0.0.1 {job}\n"
        assert await output(mesh, one.run) == [text]


async def test_a_dead_rank_restarts_its_replica_in_place_and_the_others_go_on(mesh: Mesh) -> None:
    started = await mesh.start_job(request(bash('echo "$MILKWEED_ATTEMPT:$MASTER_PORT"; exec sleep 1000')))
    before = await until(mesh, started.job, up)
    os.kill(pids(before, 1)[0], signal.SIGKILL)
    after = await until(mesh, started.job, lambda status: attempts(status) == [1, 2] and up(status))
    assert pids(after, 0) == pids(before, 0)
    assert not any(alive(pid) for pid in pids(before, 1))
    hurt = after.view.replicas[1]
    assert (hurt.host, hurt.restarts, hurt.run) == (before.view.replicas[1].host, 1, f"{hurt.base}.2")
    assert hurt.failure is not None
    assert hurt.failure.summary() == f"rank 0 of {hurt.base}.1: SIGKILL"
    first, second = await output(mesh, f"{hurt.base}.1"), await output(mesh, f"{hurt.base}.2")
    assert first[0].startswith("1:")
    assert second[0].startswith("2:")
    old = await mesh.run(f"{hurt.base}.1")
    assert (old.state, old.job) == ("failed", started.job)
    assert old.ranks[1].exit is not None
    assert old.ranks[1].exit.ended_by == "peer_failed"


async def test_a_replica_that_fails_too_often_is_given_up_and_the_others_go_on(mesh: Mesh) -> None:
    script = 'if [ "$MILKWEED_REPLICA" = 1 ]; then echo no luck; exit 3; fi; exec sleep 1000'
    policy = Restart(max_restarts=2, backoff_s=0.01)
    job = (await mesh.start_job(request(bash(script), restart=policy))).job
    status = await until(mesh, job, lambda status: status.view.state == "degraded")
    given_up = status.view.replicas[1]
    assert (given_up.state, given_up.attempt, given_up.restarts) == ("given_up", 3, 2)
    assert status.view.reason == "replica 1 was given up: more than 2 restarts in 60 s"
    assert given_up.failure is not None
    assert given_up.failure.tail == ("no luck",)
    assert status.view.replicas[0].state == "running"
    events = [one.event for one in await mesh.events(100)]
    assert [e.kind for e in events if e.kind in ("replica_gave_up", "job_degraded")] == [
        "replica_gave_up",
        "job_degraded",
    ]


async def test_a_job_of_which_nothing_is_left_has_failed(mesh: Mesh) -> None:
    job = (await mesh.start_job(request(("false",), restart=Restart(max_restarts=0)))).job
    status = await until(mesh, job, lambda status: status.view.ended_at)
    assert status.view.state == "failed"
    assert status.view.reason == "replicas 0-1 were given up: it is not to be restarted"


async def test_restarts_go_on_without_a_keeper_and_its_successor_tells_them(
    places: Places, tmp_path: Path
) -> None:
    async with open_real_meshes(places) as first:
        mesh = await first.allocate(MeshSpec("t", 2, 2, workspace=str(tmp_path)))
        go = tmp_path / "go"
        os.mkfifo(go)
        script = f'if [ "$MILKWEED_ATTEMPT" = 2 ]; then echo up > {go}; fi; exec sleep 1000'
        job = (await mesh.start_job(request(bash(script), replicas=1, procs=1))).job
        before = await until(mesh, job, up)
        keeper = keeper_of(mesh.id)
        assert keeper is not None
        # A stopped keeper is as good as none, and no client starts another one for it.
        os.kill(keeper, signal.SIGSTOP)
        os.kill(pids(before, 0)[0], signal.SIGKILL)
        with anyio.fail_after(20):
            assert await anyio.to_thread.run_sync(go.read_text) == "up\n"
        os.kill(keeper, signal.SIGKILL)
        await eventually(lambda: not alive(keeper))
        async with open_real_meshes(places) as second:
            found = await second.find_job(job)
            after = await until(found, job, lambda status: attempts(status) == [2] and up(status))
            assert keeper_of(mesh.id) != keeper
            hurt = after.view.replicas[0]
            assert (hurt.restarts, hurt.run) == (1, f"{hurt.base}.2")
            assert (await found.run(f"{hurt.base}.1")).state == "failed"
            assert (await found.run(hurt.run)).state == "running"
            status = await found.stop_job(job)
            assert status.view.state == "stopped"


async def test_a_replica_can_be_restarted_by_hand_as_often_as_one_likes(mesh: Mesh) -> None:
    job = (await mesh.start_job(request(restart=Restart(max_restarts=0)))).job
    before = await until(mesh, job, up)
    for attempt in (2, 3, 4):
        status = await mesh.restart_replica(job, 0)
        assert attempts(status) == [attempt, 1]
    after = await until(mesh, job, up)
    assert pids(after, 1) == pids(before, 1)
    assert not any(alive(pid) for pid in pids(before, 0))
    assert (after.view.state, after.view.replicas[0].restarts) == ("running", 0)


async def test_a_replica_that_was_given_up_can_be_restarted_by_hand(mesh: Mesh, tmp_path: Path) -> None:
    script = f'if [ "$MILKWEED_REPLICA" = 1 ] && [ ! -e {tmp_path}/mended ]; then exit 3; fi; exec sleep 1000'
    job = (await mesh.start_job(request(bash(script), restart=Restart(max_restarts=1, backoff_s=0.0)))).job
    await until(mesh, job, lambda status: status.view.state == "degraded")
    (tmp_path / "mended").touch()
    await mesh.restart_replica(job, 1)
    status = await until(mesh, job, up)
    assert (status.view.state, attempts(status)) == ("running", [1, 3])


async def test_a_stopped_job_leaves_nothing_and_stays_stopped(mesh: Mesh) -> None:
    job = (await mesh.start_job(request(bash("trap '' TERM; sleep 1000 & sleep 1000; wait")))).job
    await until(mesh, job, up)
    status = await mesh.stop_job(job, grace_s=0.1)
    assert (status.view.state, [one.state for one in status.view.replicas]) == ("stopped", ["stopped"] * 2)
    assert len(of_mesh(mesh.id)) == 6
    assert (await mesh.stop_job(job)).view == status.view
    with pytest.raises(Conflict, match="job_ended"):
        await mesh.restart_replica(job, 0)


async def test_a_job_is_stopped_while_its_replicas_wait_to_be_restarted(mesh: Mesh) -> None:
    job = (
        await mesh.start_job(request(("false",), restart=Restart(backoff_s=600.0, backoff_max_s=600.0)))
    ).job
    await until(mesh, job, lambda status: {one.state for one in status.view.replicas} == {"restarting"})
    assert (await mesh.stop_job(job)).view.state == "stopped"


async def test_a_release_ends_jobs_and_nothing_restarts(mesh: Mesh) -> None:
    job = (await mesh.start_job(request())).job
    await until(mesh, job, up)
    released = await mesh.release()
    assert released.jobs_ended == (job,)
    assert of_mesh(mesh.id) == []
    status = await mesh.job(job)
    assert (status.view.state, status.view.reason) == ("stopped", "the mesh was released")
    assert {run.state for run in status.runs.values()} == {"cancelled"}
    assert {one.attempt for one in status.view.replicas} == {1}


async def test_the_end_of_the_lease_ends_jobs_with_their_keeper_gone(places: Places, tmp_path: Path) -> None:
    async with open_real_meshes(places) as opened:
        mesh = await opened.allocate(MeshSpec("t", 1, 2, workspace=str(tmp_path), lease_minutes=0.1))
        job = (await mesh.start_job(request(replicas=1))).job
        ranks = pids(await until(mesh, job, up), 0)
        keeper = keeper_of(mesh.id)
        assert keeper is not None
        os.kill(keeper, signal.SIGSTOP)
        await eventually(lambda: of_mesh(mesh.id) == [], within_s=30)
        assert not any(alive(pid) for pid in ranks)
        os.kill(keeper, signal.SIGCONT)
        status = await until(mesh, job, lambda status: status.view.ended_at)
        assert (status.view.state, status.view.reason) == ("stopped", "the lease ended")


async def test_everything_killed_at_once_is_swept_by_the_release(meshes: Meshes, mesh: Mesh) -> None:
    job = (await mesh.start_job(request())).job
    status = await until(mesh, job, up)
    ranks = [*pids(status, 0), *pids(status, 1)]
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    for pid in (keeper, *(pid for pid in of_mesh(mesh.id) if pid not in ranks)):
        os.kill(pid, signal.SIGKILL)
    with anyio.fail_after(20):
        while True:
            try:
                await (await meshes.get(mesh.id)).release()
                break
            except Unavailable:  # the keeper is on its way
                await anyio.sleep(0.05)
    assert of_mesh(mesh.id) == []
    assert (await mesh.job(job)).view.ended_at is not None


async def test_replicas_of_a_lost_host_are_lost_and_the_others_go_on(mesh: Mesh) -> None:
    job = (await mesh.start_job(request())).job
    before = await until(mesh, job, up)
    agent = (await mesh.view()).hosts[1].agent_pid
    assert agent is not None
    os.kill(agent, signal.SIGKILL)
    status = await until(mesh, job, lambda status: status.view.state == "degraded")
    assert [one.state for one in status.view.replicas] == ["running", "lost"]
    assert status.view.reason == "replica 1 was lost: host 1 was lost"
    await eventually(lambda: not any(alive(pid) for pid in pids(before, 1)))
    assert all(alive(pid) for pid in pids(before, 0))
    with pytest.raises(MilkweedError, match="host_lost"):
        await mesh.restart_replica(job, 1)


async def test_the_same_words_are_the_same_job_while_it_runs(mesh: Mesh) -> None:
    first = await mesh.start_job(request())
    assert (await mesh.start_job(request())).job == first.job
    await mesh.stop_job(first.job)
    second = await mesh.start_job(request())
    assert second.job != first.job
    assert [view.job for view in await mesh.jobs()] == [second.job, first.job]


async def test_a_job_that_does_not_fit_is_refused_with_the_numbers(mesh: Mesh) -> None:
    with pytest.raises(InvalidArgument, match=r"unsupported.*3 ranks do not fit the 2 of a host"):
        await mesh.start_job(request(procs=3))
    with pytest.raises(
        InvalidArgument, match="3 replicas of 2 ranks; there is room for 2: 1 on each of 2 hosts"
    ):
        await mesh.start_job(request(replicas=3))
    with pytest.raises(NotFound, match="command_not_found"):
        await mesh.start_job(request(("no-such-thing",)))
    assert await mesh.jobs() == ()
    first = await mesh.start_job(request(replicas=1))
    with pytest.raises(Conflict, match=f"slots_in_use: 2 replicas of 2 ranks; 1 fit beside {first.job}"):
        await mesh.start_job(request())


async def test_what_is_not_there_is_said(mesh: Mesh) -> None:
    with pytest.raises(NotFound, match="job_not_found"):
        await mesh.job("job-zzz")
    job = (await mesh.start_job(request())).job
    with pytest.raises(NotFound, match=r"replica_not_found.*its replicas are 0-1"):
        await mesh.restart_replica(job, 2)


async def test_an_attempt_is_no_run_that_one_cancels(mesh: Mesh) -> None:
    job = (await mesh.start_job(request())).job
    status = await until(mesh, job, up)
    with pytest.raises(InvalidArgument, match=f"unsupported.*stop_replicas.job='{job}'"):
        await mesh.cancel_run(status.runs[0].run)


async def test_a_job_that_a_killed_keeper_left_half_started_is_ended(mesh: Mesh, places: Places) -> None:
    """The index is as such a keeper would have left it."""
    job = (await mesh.start_job(request())).job
    status = await until(mesh, job, up)
    keeper = keeper_of(mesh.id)
    assert keeper is not None
    os.kill(keeper, signal.SIGSTOP)
    index = Index(places.index)
    index.put_job(_half_started(status))
    index.close()
    os.kill(keeper, signal.SIGKILL)
    ended = await until(mesh, job, lambda status: status.view.state == "stopped")
    assert ended.view.reason == "its keeper was killed while it started"
    assert not any(alive(pid) for pid in pids(status, 0))


def _half_started(status: JobStatus) -> JobView:
    fresh = tuple(replace(one, state="pending", attempt=0, run="", seq=0) for one in status.view.replicas)
    return replace(status.view, state="starting", replicas=fresh)
