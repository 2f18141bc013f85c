"""The replicas of one host, as an actor: started, restarted in place and stopped here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..errors import Conflict, NotFound
from ..job_records import ReplicaPlan
from ..names import quoted
from ..records import EndReason
from .replica import Replica
from .runs import Runs

__all__ = ["Replicas"]


class Replicas(Actor):
    """Made by `Replicas.open`, whose block its background work lives in."""

    def __init__(self, context: HostContext, runs: Runs, tasks: anyio.abc.TaskGroup) -> None:
        self._context = context
        self._runs = runs
        self._tasks = tasks
        self._jobs: dict[str, dict[int, Replica]] = {}
        self._stopped: set[str] = set()
        self._ending: EndReason | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, context: HostContext, runs: Runs) -> AsyncIterator[Replicas]:
        """The service for the length of the block; after it nothing is restarted."""
        async with anyio.create_task_group() as tasks:
            try:
                yield cls(context, runs, tasks)
            finally:
                tasks.cancel_scope.cancel()

    @endpoint
    async def start(self, plans: tuple[ReplicaPlan, ...]) -> None:
        """Starts this host's replicas of a job; those that were started already go on as they are.

        Raises:
            NotFound, InvalidArgument: as `Runs.check`; nothing was started.
            Conflict: job_ended, it was stopped here.
        """
        for plan in plans:
            if plan.job in self._stopped or self._ending is not None:
                raise _ended(plan.job)
            await self._runs.check(plan.plan)
        for plan in plans:
            replicas = self._jobs.setdefault(plan.job, {})
            if plan.replica not in replicas:
                replicas[plan.replica] = Replica(self._context, plan, self._runs, self._tasks)
                replicas[plan.replica].begin()

    @endpoint
    async def restart(self, job: str, replica: int) -> int:
        """Ends a replica's attempt and starts another at once; it counts as no failure.

        Returns:
            The number of that attempt, which may not have started yet where the old one is slow to end.

        Raises:
            NotFound: job_not_found, replica_not_found. Conflict: job_ended, it was stopped here.
        """
        if job in self._stopped or self._ending is not None:
            raise _ended(job)
        if job not in self._jobs:
            raise NotFound(
                "job_not_found", f"no job '{quoted(job)}' on {self._context.name}", "Call replica_status."
            )
        if replica not in self._jobs[job]:
            raise NotFound(
                "replica_not_found",
                f"no replica {replica} of {job} on {self._context.name}",
                "Call replica_status.",
            )
        return await self._jobs[job][replica].restart()

    @endpoint
    async def stop(self, job: str, reason: EndReason, grace_s: float) -> int:
        """Ends a job's replicas here for good (SIGTERM, SIGKILL after `grace_s`), started yet or not.

        Returns:
            How many processes were ended; 0 where they had ended before.
        """
        self._stopped.add(job)
        return await self._stop(list(self._jobs.get(job, {}).values()), reason, grace_s)

    async def end_all(self, reason: EndReason, grace_s: float) -> int:
        """Ends all replicas, then all other runs; returns how many processes. Nothing starts any more."""
        self._ending = self._ending or reason
        every = [one for replicas in self._jobs.values() for one in replicas.values()]
        return await self._stop(every, reason, grace_s) + await self._runs.end_all(reason, grace_s)

    async def _stop(self, replicas: list[Replica], reason: EndReason, grace_s: float) -> int:
        counts = []

        async def stop(one: Replica) -> None:
            counts.append(await one.stop(reason, grace_s))

        async with anyio.create_task_group() as tasks:
            for one in replicas:
                tasks.start_soon(stop, one)
        return sum(counts)


def _ended(job: str) -> Conflict:
    return Conflict("job_ended", f"{job} was stopped", "Call start_replicas for a new one.")
