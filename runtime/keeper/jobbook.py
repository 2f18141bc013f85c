"""The replica jobs of one mesh: their views, kept current from host events, and those who wait for a
change.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial

import anyio

from ..index import Index
from ..job_records import JobView
from ..records import EndReason, HostEvent, RankView, RunView
from .job_lifecycle import began, end_all, fold, is_over, lose_host
from .journal import Journal
from .runbook import RunBook

__all__ = ["JobBook"]

_REMEMBERED = 20
_QUIET = ("pending", "running")


@dataclass(slots=True)
class _Entry:
    view: JobView
    changed: anyio.Event = field(default_factory=anyio.Event)


class JobBook:
    """Synchronous but for the waiting. Jobs that were under way when an earlier keeper died are taken up; one
    that had not begun everywhere is in `half_started`, and is to be ended."""

    def __init__(self, mesh: str, index: Index, journal: Journal, runs: RunBook) -> None:
        self._mesh = mesh
        self._index = index
        self._journal = journal
        self._runs = runs
        self._entries = {view.job: _Entry(view) for view in reversed(index.jobs(mesh, unfinished=True))}
        self.half_started = tuple(
            job for job, entry in self._entries.items() if entry.view.state == "starting"
        )

    def add(self, view: JobView) -> None:
        """
        Raises:
            Unavailable: index_unusable; a job that cannot be recorded must not start.
        """
        self._index.put_job(view)
        self._entries[view.job] = _Entry(view)
        over = [job for job, entry in self._entries.items() if is_over(entry.view)]
        for job in over[:-_REMEMBERED]:
            del self._entries[job]

    def view(self, job: str) -> JobView:
        """
        Raises:
            NotFound: job_not_found.
        """
        entry = self._entries.get(job)
        return entry.view if entry else self._index.job(job)

    def unfinished(self) -> tuple[JobView, ...]:
        return tuple(entry.view for entry in self._entries.values() if not is_over(entry.view))

    def began(self, job: str) -> None:
        """Every host has its part."""
        self._set(job, began(self._entries[job].view))

    def explain(self, job: str, reason: str) -> None:
        """Notes why it will be stopped, before it is; the first reason stays."""
        view = self._entries[job].view
        self._set(job, replace(view, why_stopped=view.why_stopped or reason))

    def end(self, job: str, reason: str) -> None:
        """Whatever of it has not ended by now is stopped."""
        self._set(job, end_all(self._entries[job].view, reason, time.time()))

    def take(self, host: int, events: tuple[HostEvent, ...]) -> None:
        """Folds a host's new events into the jobs they speak of.

        A new attempt is a run from here on: to be called before those events are told to the `RunBook`.
        """
        touched: dict[str, JobView] = {}
        for event in events:
            if event.note is None or (entry := self._entries.get(event.note.job)) is None:
                continue
            before = touched.get(entry.view.job, entry.view)
            touched[entry.view.job] = fold(before, host, event)
            if event.kind == "replica_started":
                self._runs.adopt(_run_of(entry.view, event))
        for job, view in touched.items():
            self._set(job, view)

    def host_lost(self, host: int, why: str, at: float) -> None:
        for job, entry in list(self._entries.items()):
            self._set(job, lose_host(entry.view, host, why, at))

    def close(self, reason: EndReason) -> None:
        """Whatever has not ended by now is stopped with the mesh."""
        for view in self.unfinished():
            self.end(view.job, reason)

    async def wait_news(self, job: str, timeout_s: float) -> JobView:
        """The view when a replica has failed, ended or come back, when the job is over, or the time is up."""
        first = self.view(job)
        with anyio.move_on_after(timeout_s):
            while (entry := self._entries.get(job)) is not None and not (
                is_over(entry.view) or _news(first, entry.view)
            ):
                await entry.changed.wait()
        return self.view(job)

    async def wait_over(self, job: str, timeout_s: float) -> JobView:
        """The view when the job is over or the time is up."""
        with anyio.move_on_after(timeout_s):
            while (entry := self._entries.get(job)) is not None and not is_over(entry.view):
                await entry.changed.wait()
        return self.view(job)

    async def wait_attempt(self, job: str, replica: int, attempt: int, timeout_s: float) -> JobView:
        """The view when that attempt of a replica has begun, or the time is up."""
        with anyio.move_on_after(timeout_s):
            while (entry := self._entries.get(job)) is not None and (
                entry.view.replicas[replica].attempt < attempt
            ):
                await entry.changed.wait()
        return self.view(job)

    def _set(self, job: str, view: JobView) -> None:
        entry = self._entries[job]
        before = entry.view
        if view == before:
            return
        entry.view = view
        self._journal.write(("job", job), partial(self._index.put_job, view))
        if view.state not in (before.state, "running"):
            kind, detail = f"job_{view.state}", f"{job}: {view.reason}" if view.reason else job
            say = partial(self._index.add_keeper_event, self._mesh, kind, detail=detail)
            self._journal.write((kind, job), say)
        entry.changed.set()
        entry.changed = anyio.Event()


def _news(before: JobView, now: JobView) -> bool:
    """Whether a replica failed, ended or came back since; that one has begun is none."""
    return any(
        other.attempt > max(one.attempt, 1)
        or (one.state != other.state and not (one.state in _QUIET and other.state in _QUIET))
        for one, other in zip(before.replicas, now.replicas, strict=True)
    )


def _run_of(view: JobView, event: HostEvent) -> RunView:
    """The run that an attempt is, as it begins. Its host ends the others when one fails: its keeper need
    not.
    """
    assert event.note is not None
    replica = view.replicas[event.note.replica]
    ranks = tuple(RankView(rank, replica.host) for rank in range(view.request.procs_per_replica))
    return RunView(
        run=event.run,
        mesh=view.mesh,
        state="running",
        launcher="spmd",
        command=view.command,
        ranks=ranks,
        created_at=event.at,
        keep_going=True,
        job=view.job,
    )
