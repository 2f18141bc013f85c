"""Starting, watching, restarting and stopping the replica jobs of one mesh."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..actor import Actor, endpoint
from ..errors import Conflict, MilkweedError, NotFound
from ..index import Index
from ..job_records import JobRequest, JobStatus, JobView, ReplicaPlan, ReplicaView
from ..mesh import Extent, format_ranks
from ..records import EndReason
from ..services.replicas import Replicas
from ..services.runs import Runs
from .hosts import Hosts
from .job_lifecycle import is_over
from .jobbook import JobBook
from .launchers import command_text
from .links import CALL_S
from .mesh_keeper import END_GRACE_S, MeshKeeper
from .replica_plans import Slot, place, plan_replica, run_request
from .run_control import RunControl
from .runbook import RunBook
from .tree_writing import Prepared

__all__ = ["ReplicaControl"]

logger = logging.getLogger(__name__)

_RESTART_S = 10.0
_UNREACHED = ("host_lost", "deadline_exceeded")


class ReplicaControl(Actor):
    """Restarts in place are the hosts' own; here it is said what goes where, and what came of it."""

    def __init__(
        self,
        keeper: MeshKeeper,
        index: Index,
        hosts: Hosts,
        jobs: JobBook,
        runs: RunBook,
        control: RunControl,
    ) -> None:
        self._keeper = keeper
        self._index = index
        self._hosts = hosts
        self._jobs = jobs
        self._runs = runs
        self._control = control
        self._stopping: dict[str, float] = {}

    @endpoint
    async def start(self, request: JobRequest) -> JobView:
        """Starts a job once every host has agreed to it; a refusal leaves nothing running.

        A job that was asked for in the same words and is not over is that job.

        Raises:
            InvalidArgument, NotFound: the request cannot be served.
            Conflict: slots_in_use, mesh_not_ready, mesh_released. Unavailable: host_lost.
        """
        async with self._keeper.changing:
            self._keeper.require_live()
            running = self._jobs.unfinished()
            for view in running:
                if view.request == request and view.job not in self._stopping:
                    return view
            spec = self._keeper.mesh.spec
            taken = {view.job: _places_of(view) for view in running}
            slots = place(
                request, Extent(hosts=spec.hosts, gpus=spec.procs_per_host), self._hosts.ready(), taken
            )
            job = self._index.new_job_id()
            plans = self._plan(request, job, slots)
            prepared = await self._control.prepare((plan.plan.host for plan in plans), request.scratch)
            await self._check(plans)
            return await self._start(request, job, slots, plans, prepared)

    @endpoint
    async def status(self, job: str, wait_s: float) -> JobStatus:
        """A job with the runs of its latest attempts; with `wait_s`, once there is news of a replica.

        Raises:
            NotFound: job_not_found.
        """
        self._found(job)
        view = await self._jobs.wait_news(job, wait_s)
        silent = {link.host: link for link in self._hosts.in_state("silent")}
        mute = sorted(silent.keys() & {one.host for one in view.replicas})
        if mute and not is_over(view):
            warning = f"host {format_ranks(mute)} does not answer: what its replicas do is not known"
            view = replace(view, warnings=(*view.warnings, warning))
        return JobStatus(view, {one.replica: self._runs.view(one.run) for one in view.replicas if one.run})

    @endpoint
    async def all(self) -> tuple[JobView, ...]:
        """All jobs, newest first, as the keeper knows them."""
        return tuple(self._jobs.view(view.job) for view in self._index.jobs(self._keeper.mesh.mesh))

    @endpoint
    async def restart(self, job: str, replica: int) -> JobStatus:
        """Ends a replica's attempt and starts another at once; it counts as no failure.

        Raises:
            NotFound: job_not_found, replica_not_found. Conflict: job_ended. Unavailable: host_lost.
        """
        view = self._found(job)
        if not 0 <= replica < len(view.replicas):
            known = format_ranks(range(len(view.replicas)))
            raise NotFound(
                "replica_not_found", f"{job} has no replica {replica}; its replicas are {known}", "Name one."
            )
        if is_over(view) or job in self._stopping:
            raise Conflict(
                "job_ended", f"{job} has ended ({view.state})", "Call start_replicas for a new one."
            )
        host = view.replicas[replica].host
        self._hosts.require_ready([host])
        attempt = await self._hosts[host].call(Replicas, Replicas.restart, job, replica)
        await self._jobs.wait_attempt(job, replica, attempt, _RESTART_S)
        return await self.status(job, 0.0)

    @endpoint
    async def stop(self, job: str, grace_s: float) -> JobStatus:
        """Ends a job on all hosts: SIGTERM, then SIGKILL after the grace. A job that is over stays so."""
        if is_over(self._found(job)):
            return await self.status(job, 0.0)
        self._stopping[job] = grace_s
        await self._end(job, "cancelled", grace_s)
        view = await self._jobs.wait_over(job, grace_s + END_GRACE_S)
        if is_over(view):
            del self._stopping[job]
            return await self.status(job, 0.0)
        found = await self.status(job, 0.0)
        warning = "what runs on hosts that do not answer ends when they do, or with the release"
        return replace(found, view=replace(found.view, warnings=(*found.view.warnings, warning)))

    async def resume_stops(self) -> None:
        """Ends what an earlier keeper left half started, and, on hosts that answer again, what was stopped
        while they did not; for ever."""
        for job in self._jobs.half_started:
            self._jobs.explain(job, "its keeper was killed while it started")
            self._stopping[job] = END_GRACE_S
        while True:
            ready = self._hosts.ready()
            for job, grace_s in list(self._stopping.items()):
                await self._end(job, "cancelled", grace_s)
                lost = {link.host for link in self._hosts.in_state("lost")}
                everywhere = bool(ready) and lost.union(ready).issuperset(self._hosts.links)
                if job in self._jobs.half_started and everywhere:
                    self._jobs.end(job, "stopped")
                if is_over(self._jobs.view(job)):
                    self._stopping.pop(job, None)
            if self._hosts.ready() == ready:
                await self._hosts.next_return()

    def _found(self, job: str) -> JobView:
        view = self._jobs.view(job)
        if view.mesh != self._keeper.mesh.mesh:
            raise NotFound("job_not_found", f"{job} is a job of {view.mesh}", "Call replica_status.")
        return view

    def _plan(self, request: JobRequest, job: str, slots: Sequence[Slot]) -> list[ReplicaPlan]:
        placement = self._control.placement("")
        plans = [
            plan_replica(request, job, replica, slot, replace(placement, run=self._index.new_run_id()))
            for replica, slot in enumerate(slots)
        ]
        return [replace(plan, plan=self._control.on_its_host(plan.plan)) for plan in plans]

    async def _check(self, plans: Sequence[ReplicaPlan]) -> None:
        first = {plan.plan.host: plan.plan for plan in reversed(plans)}
        answers = await self._hosts.ask(first, lambda link: link.call(Runs, Runs.check, first[link.host]))
        for answer in answers.values():
            if isinstance(answer, MilkweedError):
                raise answer

    async def _start(
        self,
        request: JobRequest,
        job: str,
        slots: Sequence[Slot],
        plans: Sequence[ReplicaPlan],
        prepared: Prepared,
    ) -> JobView:
        by_host: dict[int, tuple[ReplicaPlan, ...]] = defaultdict(tuple)
        for plan in plans:
            by_host[plan.plan.host] += (plan,)
        replicas = tuple(
            ReplicaView(plan.replica, slot.host, slot.slot, plan.plan.run)
            for slot, plan in zip(slots, plans, strict=True)
        )
        self._jobs.add(
            JobView(
                job=job,
                mesh=self._keeper.mesh.mesh,
                state="starting",
                command=command_text(run_request(request, slots[0].ranks)),
                request=request,
                replicas=replicas,
                created_at=time.time(),
                warnings=prepared.notes,
                host_copies=self._control.take_host_copies(by_host),
            )
        )
        answers = await self._hosts.ask(
            by_host, lambda link: link.call(Replicas, Replicas.start, by_host[link.host])
        )
        for answer in answers.values():
            # A host that is lost or silent may have started its part: its events, or its loss, will tell.
            if isinstance(answer, MilkweedError) and answer.code not in _UNREACHED:
                await self._end(job, "cancelled", END_GRACE_S)
                self._jobs.end(job, f"a host refused it: {answer.cause}")
                raise answer
        self._jobs.began(job)
        return self._jobs.view(job)

    async def _end(self, job: str, reason: EndReason, grace_s: float) -> None:
        hosts = {one.host for one in self._jobs.view(job).replicas}.intersection(self._hosts.ready())
        answers = await self._hosts.ask(
            hosts,
            lambda link: link.call_within(grace_s + CALL_S, Replicas, Replicas.stop, job, reason, grace_s),
        )
        for host, answer in answers.items():
            if isinstance(answer, MilkweedError):
                logger.warning("%s could not be stopped on host %d: %s", job, host, answer)


def _places_of(view: JobView) -> list[tuple[int, int]]:
    """(host, local rank) of what a job has of the mesh; what a replica that is over had is free again."""
    size = view.request.procs_per_replica
    return [
        (one.host, local)
        for one in view.replicas
        if _holds(one)
        for local in range(one.slot * size, (one.slot + 1) * size)
    ]


def _holds(replica: ReplicaView) -> bool:
    # One that was given up may be restarted.
    return replica.state not in ("succeeded", "lost", "stopped")
