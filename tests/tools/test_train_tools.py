"""The tools of replicas, on real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import Conflict, InvalidArgument, NotFound
from milkweed.tools.registry import Call, Registry
from tests.real_meshes import open_places, open_real_meshes
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio

QUICK = {"backoff_s": 0.01}


@pytest.fixture
async def meshes() -> AsyncIterator[Meshes]:
    with open_places() as places:
        async with open_real_meshes(places) as opened:
            yield opened


@pytest.fixture
def ask(meshes: Meshes) -> Ask:
    registry = Registry.load("default,train")

    async def report(done: float, total: float | None, message: str) -> None:
        pass

    async def ask(tool: str, /, **arguments: Any) -> Any:
        return await registry.find(tool)(Call(meshes, report, "tester"), arguments)

    return ask


@pytest.fixture
async def mesh(ask: Ask, tmp_path: Path) -> str:
    """Two hosts with two ranks each, whose workspace is `tmp_path`."""
    made = await ask("allocate_mesh", name="t", hosts=2, procs_per_host=2, workspace=str(tmp_path))
    return str(made.mesh)


async def until(ask: Ask, job: str, condition: Callable[[Any], object]) -> Any:
    """The job once it is so; waits as an agent would."""
    with anyio.fail_after(30):
        while not condition(result := await ask("replica_status", job=job)):
            await anyio.sleep(0.02)
    return result


def up(result: Any) -> bool:
    return (
        result.replicas == {"running": "0-1"}
        and all(len(pids) == 2 for item in result.replica_list for pids in item.pids.values())
        and sum(len(item.pids) for item in result.replica_list) == 2
    )


def of_replica(result: Any, replica: int) -> Any:
    return next(item for item in result.replica_list if str(replica) in item.runs)


async def test_a_replica_that_dies_comes_back_and_its_death_is_told(
    ask: Ask, mesh: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)\n")
    job = await ask(
        "start_replicas",
        mesh=mesh,
        command="train.py",
        replicas=2,
        procs_per_replica=2,
        wait_s=0,
        options=QUICK,
    )
    before = await until(ask, job.job, up)
    victim = of_replica(before, 1).pids["1"][0]
    os.kill(victim, signal.SIGKILL)
    after = await until(ask, job.job, lambda result: up(result) and result.restarts == 1)
    assert of_replica(after, 0).pids["0"] == of_replica(before, 0).pids["0"]
    hurt = of_replica(after, 1)
    assert (hurt.attempt, hurt.restarts, hurt.state) == (2, 1, "running")
    assert hurt.last_failure.startswith("rank 0, SIGKILL")
    run = hurt.runs["1"]
    waited = await ask("wait_for_run", run=run, pattern="up", timeout_s=20)
    assert (waited.matched, waited.job) == (True, job.job)
    assert "up" in (await ask("read_run_output", run=run)).text
    assert "train.py:3" in (await ask("stack_dump", target=run)).text
    status = await ask("mesh_status", mesh=mesh)
    assert [(item.job, item.state) for item in status.jobs] == [(job.job, "running")]
    assert any(f"replica_failed {job.job} replica 1, attempt 1" in line for line in status.events)
    restarted = await ask("restart_replica", job=job.job, replica=0)
    assert of_replica(restarted, 0).attempt == 2
    assert restarted.restarts == 1
    stopped = await ask("stop_replicas", job=job.job)
    assert (stopped.state, stopped.replicas) == ("stopped", {"stopped": "0-1"})
    assert "up" in (await ask("read_run_output", run=run)).text


async def test_an_error_in_the_program_is_told_with_its_exception_and_given_up(
    ask: Ask, mesh: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("raise ValueError('no such layer')\n")
    job = await ask(
        "start_replicas", mesh=mesh, command=["train.py"], replicas=2, max_restarts=1, wait_s=0, options=QUICK
    )
    result = await until(ask, job.job, lambda result: result.state == "failed")
    assert result.reason == "replicas 0-1 were given up: more than 1 restart in 600 s"
    (item,) = result.replica_list
    assert (item.replicas, item.state, item.attempt, item.restarts) == ("0-1", "given_up", 2, 1)
    assert item.last_failure == "rank 0, exit 1: ValueError: no such layer (train.py:1)"
    assert "start_replicas again" in result.next
    with pytest.raises(Conflict, match="job_ended"):
        await ask("restart_replica", job=job.job, replica=0)


async def test_a_wait_ends_with_the_news(ask: Ask, mesh: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    job = await ask("start_replicas", mesh=mesh, command=["cat", str(go)], replicas=1, wait_s=0)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            results: list[Any] = []

            async def wait() -> None:
                results.append(await ask("replica_status", job=job.job, wait_s=40))

            tasks.start_soon(wait)
            await anyio.to_thread.run_sync(go.write_text, "hello\n")
    assert results[0].state == "succeeded"
    run = results[0].replica_list[0].runs["0"]
    assert "hello" in (await ask("read_run_output", run=run)).text


async def test_a_release_tells_the_jobs_that_it_ended(ask: Ask, mesh: str) -> None:
    job = await ask("start_replicas", mesh=mesh, command="sleep 1000", replicas=2, wait_s=0)
    assert (await ask("release_mesh", mesh=mesh)).jobs_ended == [job.job]
    assert (await ask("replica_status", job=job.job)).reason == "the mesh was released"
    assert (await ask("stop_replicas", job=job.job)).state == "stopped"


async def test_bad_input_is_refused_and_starts_nothing(ask: Ask, mesh: str) -> None:
    with pytest.raises(InvalidArgument, match="replicas must be an integer between 1 and 1024"):
        await ask("start_replicas", mesh=mesh, command="true", replicas=0)
    with pytest.raises(InvalidArgument, match=r"unsupported: .* 4 ranks do not fit the 2 of a host"):
        await ask("start_replicas", mesh=mesh, command="true", replicas=1, procs_per_replica=4)
    with pytest.raises(InvalidArgument, match="5 replicas of 1 ranks; there is room for 4: 2 on each of 2"):
        await ask("start_replicas", mesh=mesh, command="true", replicas=5)
    with pytest.raises(InvalidArgument, match="MILKWEED_REPLICA is Milkweed's own"):
        await ask("start_replicas", mesh=mesh, command="true", replicas=1, env={"MILKWEED_REPLICA": "7"})
    with pytest.raises(NotFound, match="command_not_found"):
        await ask("start_replicas", mesh=mesh, command="no-such-program", replicas=1)
    with pytest.raises(NotFound, match="job_not_found"):
        await ask("stop_replicas", job="job-zzz")
    assert (await ask("mesh_status", mesh=mesh)).jobs == []


async def test_a_job_has_no_stacks_but_its_runs_are_named(ask: Ask, mesh: str) -> None:
    started = await ask("start_replicas", mesh=mesh, command="sleep 1000", replicas=2, wait_s=0)
    running = await until(ask, started.job, lambda one: one.replicas == {"running": "0-1"})
    run = of_replica(running, 0).runs["0"]
    with pytest.raises(InvalidArgument, match=rf"{started.job} is a job.*Name one: '{run}' \(replica 0\)"):
        await ask("stack_dump", target=started.job)
