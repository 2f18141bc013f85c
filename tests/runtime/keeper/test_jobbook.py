"""The jobs of a mesh as its keeper has them, without hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.errors import NotFound
from milkweed.runtime.index import Index
from milkweed.runtime.job_records import JobRequest, JobView, ReplicaView
from milkweed.runtime.keeper.jobbook import JobBook
from milkweed.runtime.keeper.journal import Journal
from milkweed.runtime.keeper.runbook import RunBook
from milkweed.runtime.records import Exit, HostEvent, ReplicaNote

pytestmark = pytest.mark.anyio


class Keeper:
    """What a keeper knows; a new one has what the index has."""

    def __init__(self, index: Index) -> None:
        journal = Journal()
        self.runs = RunBook("mesh-a", index, journal)
        self.jobs = JobBook("mesh-a", index, journal, self.runs)

    def hears(self, *events: HostEvent) -> None:
        self.jobs.take(0, events)
        self.runs.take(0, events)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index(tmp_path / "index.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def keeper(index: Index) -> Keeper:
    """One job with one replica of two ranks, which has begun."""
    made = Keeper(index)
    request = JobRequest(("x",), 1, 2)
    made.jobs.add(JobView("job-a", "mesh-a", "starting", "x", request, (ReplicaView(0, 0, 0, "run-a"),), 1.0))
    made.jobs.began("job-a")
    return made


def of_replica(seq: int, kind: str, attempt: int, **more: object) -> HostEvent:
    note = ReplicaNote("job-a", 0, attempt, attempt - 1)
    return HostEvent(seq, float(seq), f"replica_{kind}", f"run-a.{attempt}", note=note, **more)  # type: ignore[arg-type]


def of_rank(seq: int, kind: str, attempt: int, rank: int, **more: object) -> HostEvent:
    return HostEvent(seq, float(seq), f"rank_{kind}", f"run-a.{attempt}", rank, **more)  # type: ignore[arg-type]


HISTORY = (
    of_replica(1, "started", 1),
    of_rank(2, "started", 1, 0, pid=70),
    of_rank(3, "started", 1, 1, pid=71),
    of_rank(4, "exited", 1, 1, exit=Exit(signal=9)),
    of_rank(5, "exited", 1, 0, exit=Exit(signal=15, ended_by="peer_failed")),
    of_replica(6, "failed", 1, rank=1, exit=Exit(signal=9)),
    of_replica(7, "started", 2),
    of_rank(8, "started", 2, 0, pid=80),
)


def test_each_attempt_is_a_run(keeper: Keeper) -> None:
    keeper.hears(*HISTORY)
    first, second = keeper.runs.view("run-a.1"), keeper.runs.view("run-a.2")
    assert (first.state, first.reason, first.job) == ("failed", "rank 1 failed", "job-a")
    assert (second.state, [rank.pid for rank in second.ranks]) == ("running", [80, None])


def test_a_successor_that_hears_it_all_again_knows_the_same(keeper: Keeper, index: Index) -> None:
    keeper.hears(*HISTORY[:4])
    successor = Keeper(index)
    successor.hears(*HISTORY)
    keeper.hears(*HISTORY[4:])
    assert successor.jobs.view("job-a") == keeper.jobs.view("job-a")
    for run in ("run-a.1", "run-a.2"):
        assert successor.runs.view(run) == keeper.runs.view(run) == index.run(run)


def test_events_of_jobs_that_nobody_knows_change_nothing(keeper: Keeper) -> None:
    note = ReplicaNote("job-z", 0, 1)
    keeper.hears(HostEvent(1, 1.0, "replica_started", "run-z.1", note=note))
    with pytest.raises(NotFound):
        keeper.runs.view("run-z.1")


def test_a_change_of_state_is_an_event_of_the_keeper_once(keeper: Keeper, index: Index) -> None:
    gave_up = of_replica(9, "gave_up", 2, detail="so it is")
    keeper.hears(*HISTORY, gave_up)
    keeper.hears(gave_up)
    told = [
        (e.event.kind, e.event.detail) for e in index.events("mesh-a", 99) if e.event.kind.startswith("job_")
    ]
    assert told == [("job_failed", "job-a: replica 0 was given up: so it is")]


@pytest.mark.parametrize(
    ("hears", "news"),
    [
        (lambda keeper: keeper.hears(*HISTORY[:3]), False),
        (lambda keeper: keeper.hears(*HISTORY[:6]), True),
        (lambda keeper: keeper.hears(*HISTORY), True),
        (lambda keeper: keeper.jobs.host_lost(0, "its agent was killed", 9.0), True),
    ],
    ids=["it began", "it failed", "it failed and came back", "its host was lost"],
)
async def test_a_wait_ends_with_news(keeper: Keeper, hears: Callable[[Keeper], None], news: bool) -> None:
    returned = False

    async def wait() -> None:
        nonlocal returned
        await keeper.jobs.wait_news("job-a", 1000.0)
        returned = True

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            hears(keeper)
            await anyio.wait_all_tasks_blocked()
            assert returned == news
            tasks.cancel_scope.cancel()


def test_a_job_that_had_not_begun_everywhere_is_found_as_such(keeper: Keeper, index: Index) -> None:
    request = JobRequest(("x",), 1)
    keeper.jobs.add(
        JobView("job-b", "mesh-a", "starting", "x", request, (ReplicaView(0, 1, 0, "run-b"),), 2.0)
    )
    successor = Keeper(index)
    assert successor.jobs.half_started == ("job-b",)
    successor.jobs.explain("job-b", "its keeper was killed")
    successor.jobs.end("job-b", "stopped")
    assert (index.job("job-b").state, index.job("job-b").reason) == ("stopped", "its keeper was killed")
