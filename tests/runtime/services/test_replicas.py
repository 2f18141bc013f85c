"""Replicas on one host, without a keeper."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.errors import Conflict, NotFound
from milkweed.runtime.job_records import ReplicaPlan
from milkweed.runtime.records import HostEvent, HostPlan, ProcessPlan
from milkweed.runtime.services.replica import attempt_plan
from milkweed.runtime.services.replicas import Replicas
from milkweed.runtime.services.runs import Runs
from milkweed.runtime.supervision import Restart
from tests.runtime.hosts import DEADLINE_S, open_host, plan_of

pytestmark = pytest.mark.anyio

SLEEP = ("sleep", "1000")
AT_ONCE = Restart(backoff_s=0.0)


@dataclass
class Host:
    context: HostContext
    runs: Runs
    replicas: Replicas
    _seq: int = 0

    async def next(self, kind: str, rank: int | None = None) -> HostEvent:
        """The next event of a kind after the last one that was asked for."""
        with anyio.fail_after(DEADLINE_S):
            while True:
                for event in await self.context.spool.after(self._seq, 1.0):
                    self._seq = event.seq
                    if event.kind == kind and (rank is None or event.rank == rank):
                        return event

    def told(self) -> list[str]:
        """All events of replicas so far, and the attempts that they are of."""
        events = self.context.spool.read(self.context.directory / "spool.jsonl")
        return [f"{e.kind.removeprefix('replica_')} {e.note.attempt}" for e in events if e.note is not None]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with _open(tmp_path) as opened:
        yield opened


@asynccontextmanager
async def _open(directory: Path) -> AsyncIterator[Host]:
    async with open_host(directory) as (context, runs), Replicas.open(context, runs) as replicas:
        yield Host(context, runs, replicas)


def replica(
    host: Host, *commands: Sequence[str], number: int = 0, job: str = "job-a", restart: Restart = AT_ONCE
) -> ReplicaPlan:
    return ReplicaPlan(
        job, number, plan_of(host.context.directory, *commands, run=f"run-{job[-1]}{number}"), restart
    )


async def test_a_failed_rank_ends_its_group_at_once_and_the_group_starts_again(host: Host) -> None:
    plan = replica(host, SLEEP, SLEEP)
    await host.replicas.start((plan,))
    first = await host.next("rank_started", 0)
    other = await host.next("rank_started", 1)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    ended = await host.next("rank_exited", 1)
    assert ended.pid == other.pid
    assert ended.exit is not None
    assert ended.exit.ended_by == "peer_failed"
    failed = await host.next("replica_failed")
    assert (failed.run, failed.rank, failed.exit and failed.exit.signal) == ("run-a0.1", 0, signal.SIGKILL)
    again = await host.next("rank_started", 0)
    assert again.run == "run-a0.2"
    assert host.told() == ["started 1", "failed 1", "started 2"]


async def test_the_last_words_of_the_failed_rank_are_told(host: Host) -> None:
    script = "seq 1000; echo the end >&2; exit 3"
    await host.replicas.start((replica(host, ("sh", "-c", script), restart=Restart(max_restarts=0)),))
    failed = await host.next("replica_failed")
    assert failed.note is not None
    assert failed.note.tail[-2:] == ("1000", "the end")
    assert len(failed.note.tail) <= 40
    gave_up = await host.next("replica_gave_up")
    assert gave_up.detail == "it is not to be restarted"


async def test_a_rank_that_is_done_does_not_end_its_group(host: Host) -> None:
    go = host.context.directory / "go"
    os.mkfifo(go)
    await host.replicas.start((replica(host, ("true",), ("cat", str(go))),))
    await host.next("rank_exited", 0)
    await anyio.to_thread.run_sync(go.write_text, "x")
    await host.next("replica_succeeded")
    assert host.told() == ["started 1", "succeeded 1"]


async def test_restarts_end_with_the_intensity_and_each_is_counted(host: Host) -> None:
    await host.replicas.start((replica(host, ("false",), restart=Restart(max_restarts=2, backoff_s=0.0)),))
    gave_up = await host.next("replica_gave_up")
    assert gave_up.note is not None
    assert (gave_up.note.attempt, gave_up.note.restarts) == (3, 2)
    assert host.told() == [
        *("started 1", "failed 1", "started 2", "failed 2", "started 3", "failed 3"),
        "gave_up 3",
    ]


async def test_a_command_that_has_gone_is_a_failure_with_a_reason(host: Host) -> None:
    program = host.context.directory / "program"
    program.write_text('#!/bin/sh\nrm -- "$0"; exit 1\n')
    program.chmod(0o755)
    await host.replicas.start(
        (replica(host, (str(program),), restart=Restart(max_restarts=1, backoff_s=0.0)),)
    )
    await host.next("replica_failed")
    failed = await host.next("replica_failed")
    assert failed.exit is not None
    assert failed.exit.error.startswith("command_not_found: ")
    await host.next("replica_gave_up")


async def test_a_start_that_is_repeated_changes_nothing(host: Host) -> None:
    plan = replica(host, SLEEP)
    await host.replicas.start((plan,))
    await host.next("rank_started")
    await host.replicas.start((plan,))
    assert host.told() == ["started 1"]


async def test_a_refused_start_starts_none_of_them(host: Host) -> None:
    with pytest.raises(NotFound, match="command_not_found"):
        await host.replicas.start((replica(host, SLEEP), replica(host, ("no-such-thing",), number=1)))
    assert host.told() == []


async def test_a_stopped_job_is_not_started_any_more(host: Host) -> None:
    assert await host.replicas.stop("job-a", "cancelled", 1.0) == 0
    with pytest.raises(Conflict, match="job_ended"):
        await host.replicas.start((replica(host, SLEEP),))
    with pytest.raises(Conflict, match="job_ended"):
        await host.replicas.restart("job-a", 0)


async def test_a_stop_that_comes_with_the_start_leaves_nothing(host: Host) -> None:
    await host.replicas.start((replica(host, SLEEP, SLEEP), replica(host, SLEEP, number=1)))
    await host.replicas.stop("job-a", "cancelled", 1.0)
    assert sorted(host.told()) == ["started 1", "started 1", "stopped 1", "stopped 1"]
    assert host.runs.find("run-a0.1").ended.is_set()
    assert host.runs.find("run-a1.1").ended.is_set()


async def test_a_stop_that_meets_a_failure_leaves_nothing(host: Host) -> None:
    await host.replicas.start((replica(host, SLEEP, SLEEP),))
    started = await host.next("rank_started", 0)
    assert started.pid is not None
    os.kill(started.pid, signal.SIGKILL)
    await host.replicas.stop("job-a", "cancelled", 1.0)
    assert host.told()[-1].startswith("stopped ")
    assert host.told().count("started 1") == 1


async def test_the_end_of_the_host_ends_its_replicas_and_says_why(host: Host) -> None:
    await host.replicas.start((replica(host, SLEEP),))
    await host.next("rank_started")
    assert await host.replicas.end_all("lease_ended", 1.0) == 1
    stopped = await host.next("replica_stopped")
    assert stopped.detail == "lease_ended"
    with pytest.raises(Conflict, match="job_ended"):
        await host.replicas.start((replica(host, SLEEP, job="job-b"),))


async def test_a_restart_by_hand_does_not_count_and_revives_what_was_given_up(host: Host) -> None:
    script = f"test -e {host.context.directory}/mended && exec sleep 1000"
    await host.replicas.start((replica(host, ("sh", "-c", script), restart=Restart(max_restarts=0)),))
    await host.next("replica_gave_up")
    (host.context.directory / "mended").touch()
    assert await host.replicas.restart("job-a", 0) == 2
    await host.next("rank_started")
    assert await host.replicas.restart("job-a", 0) == 3
    last = await host.next("rank_started")
    assert last.run == "run-a0.3"
    assert host.told() == ["started 1", "failed 1", "gave_up 1", "started 2", "started 3"]


async def test_two_who_restart_it_at_once_get_one_new_attempt(host: Host) -> None:
    script = f"test -e {host.context.directory}/mended && exec sleep 1000"
    await host.replicas.start((replica(host, ("sh", "-c", script), restart=Restart(max_restarts=0)),))
    await host.next("replica_gave_up")
    (host.context.directory / "mended").touch()
    for expected in (2, 3):  # given up, then running
        attempts: list[int] = []

        async def restart(attempts: list[int] = attempts) -> None:
            attempts.append(await host.replicas.restart("job-a", 0))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(restart)
            tasks.start_soon(restart)
        await host.next("rank_started")
        assert attempts == [expected, expected]
    assert host.told() == ["started 1", "failed 1", "gave_up 1", "started 2", "started 3"]


async def test_who_is_not_there_cannot_be_restarted(host: Host) -> None:
    with pytest.raises(NotFound, match="job_not_found"):
        await host.replicas.restart("job-a", 0)
    await host.replicas.start((replica(host, SLEEP),))
    with pytest.raises(NotFound, match="replica_not_found"):
        await host.replicas.restart("job-a", 1)


def test_each_attempt_has_a_port_and_a_number() -> None:
    processes = tuple(ProcessPlan(rank, f"rank-{rank}", ("x",), {"RANK": str(rank)}, "/") for rank in (0, 1))
    plan = ReplicaPlan("job-a", 0, HostPlan("run-a", 0, processes), AT_ONCE)
    attempt = attempt_plan(plan, 3, 4711)
    assert (attempt.run, attempt.reserved_port) == ("run-a.3", 4711)
    assert attempt.processes[1].env == {
        "RANK": "1",
        "MASTER_PORT": "4711",
        "MILKWEED_ATTEMPT": "3",
        "TORCHELASTIC_RESTART_COUNT": "2",
    }
