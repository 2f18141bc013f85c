"""Procs that fail, started again as a policy says, with the actors that were on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import MilkweedError
from ..supervision import Escalate, Failure, Restart, Supervisor
from ..supervision.supervisor import Hands
from .failures import Failures, cannot_restart
from .members import Member
from .spawned_actors import SpawnedActors
from .spawning import Spawner

__all__ = ["Restarting"]


class Restarting:
    """The hands of a supervisor whose children are the members, named by rank. They are up when this is made;
    `run` is its life.
    """

    def __init__(
        self,
        policy: Restart,
        mesh: str,
        members: Sequence[Member],
        spawner: Spawner,
        actors: SpawnedActors,
        failures: Failures,
    ) -> None:
        self._mesh = mesh
        self._members = members
        self._spawner = spawner
        self._actors = actors
        self._failures = failures
        names = {str(member.rank): 0 for member in members}
        self._supervisor = Supervisor(policy, names, Hands(self._live, self._end, self._given_up))

    async def run(self) -> None:
        """Returns when nothing is alive and nothing is to be started."""
        await self._supervisor.run()

    async def _live(self, name: str, attempt: int, started: Callable[[], None]) -> Failure | None:
        """One attempt of a proc; the first one is up already."""
        member = self._members[int(name)]
        if attempt > 1:
            try:
                await self._spawner.start_again(member)
                await self._actors.make_again(member)
                self._spawner.ready(member)
            except MilkweedError as error:
                return await self._not_again(member, error)
        started()
        assert member.ended is not None
        return await asyncio.shield(member.ended)

    async def _not_again(self, member: Member, error: MilkweedError) -> Failure:
        await self._spawner.end(member)
        if error.code in ("connection_lost", "proc_lost") and member.ended is not None:
            died = member.ended.result() if member.ended.done() else None
            if died is not None:
                return died
        return cannot_restart(self._mesh, member, error)

    async def _end(self, name: str, _attempt: int) -> None:
        await self._spawner.end(self._members[int(name)])

    def _given_up(self, escalation: Escalate) -> None:
        self._failures.escalate(replace(escalation.failure, restarts=escalation.restarts))
