"""The procs of one mesh as their owner has them, from spawn to stop; on the node's loop.

Without a policy a death is told and no more: the others go on. With one (`Restart`) procs are started again,
at the addresses that they had and with the actors that were spawned on them (`restarting.py`). What is told
of a failure, and to whom: `failures.py`; what callers of a proc that died are told: `explaining.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from ..errors import Conflict, MilkweedError
from ..node import Node
from ..proc_records import ProcEvent, ProcHealth, SpawnProcs
from ..records import ProcessStacks
from ..region import Region
from ..supervision import Failure, Restart
from .explaining import Explaining
from .failures import Failures, Supervise, actor_failed, proc_ended, proc_stopped
from .following import Follower, OnLine
from .host_link import HostLost
from .host_links import HostLinks
from .members import Member, by_host
from .restarting import Restarting
from .spawned_actors import SpawnedActors, SpawnedMesh
from .spawning import Spawner

__all__ = ["Crew"]

_LAST_LOOK_S = 1.0


class Crew:
    """See the module. `supervise` is the `__supervise__` of the actor that spawned it."""

    def __init__(
        self,
        here: Node,
        links: HostLinks,
        name: str,
        region: Region,
        members: Sequence[Member],
        request: SpawnProcs,
        policy: Restart | None,
        supervise: Supervise | None,
        on_line: OnLine | None = None,
    ) -> None:
        self.name = name
        self.members = tuple(members)
        self.failures = Failures(here, name, supervise, self._background)
        self._node = here
        self._region = region
        self._policy = policy
        self._on_line = on_line
        self._spawner = Spawner(here, links, request, self._ended, self._told)
        self._explaining = Explaining(here)
        self._actors = SpawnedActors(self.members, self._spawner.connection, self._explaining)
        self._supervising: asyncio.Task[None] | None = None
        self._follower: Follower | None = None
        self._forget_rest: Callable[[], None] = lambda: None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def spawn(self) -> None:
        """Starts all procs; all of them, or none.

        Raises:
            MilkweedError: as the service `Procs`; host_lost.
        """
        groups = by_host(self.members)
        try:
            results = await asyncio.gather(*map(self._spawner.start, groups), return_exceptions=True)
            failures = [one for one in results if isinstance(one, BaseException)]
            if failures:
                raise failures[0]
        except BaseException:
            await asyncio.shield(self.stop(0.0))
            raise
        for member in self.members:
            self._spawner.ready(member)
        if self._on_line is not None:
            by_link = {
                self._spawner.link(group[0]): {member.spec.proc: member.rank for member in group}
                for group in groups
            }
            self._follower = Follower(by_link, self._on_line)
            self._background(self._follower.run())
            self._forget_rest = self._node.before_close(self._print_rest)
        if self._policy is not None:
            restarting = Restarting(
                self._policy, self.name, self.members, self._spawner, self._actors, self.failures
            )
            self._supervising = self._background(restarting.run())

    def _background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._node.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def make_actors(self, spawned: SpawnedMesh) -> dict[int, MilkweedError]:
        """Makes them; the errors by rank of those that could not be, and then there are none.

        Raises:
            Conflict: mesh_stopped.
        """
        if self._stopping:
            raise Conflict("mesh_stopped", f"{self.name} was stopped", "Spawn procs anew.")
        return await self._actors.make(spawned)

    async def remove_actors(self, actor_id: str) -> None:
        """Forgets actors, here and in their procs."""
        await self._actors.remove(actor_id)

    async def stop(self, grace_s: float) -> int:
        """Ends all procs with all that they started; how many processes there were."""
        self._stopping = True
        self._forget_rest()
        self._forget_rest = lambda: None
        if self._supervising is not None:  # what it is just starting is taken back before the rest is ended
            self._supervising.cancel()
            await asyncio.wait((self._supervising,))
        counts = await asyncio.gather(
            *(
                self._spawner.link(group[0]).end(tuple(member.spec.proc for member in group), grace_s)
                for group in by_host(self.members)
            ),
            return_exceptions=True,
        )
        if self._follower is not None:
            await self._follower.finish()
        for task in tuple(self._tasks):
            task.cancel()
        self.failures.close()
        return sum(one for one in counts if isinstance(one, int))

    async def end(self, ranks: Sequence[int], grace_s: float) -> int:
        """Ends some procs, which no policy starts again; how many processes there were."""
        counts = await asyncio.gather(
            *(
                self._spawner.link(group[0]).end(tuple(member.spec.proc for member in group), grace_s)
                for group in by_host([self.members[rank] for rank in ranks])
            )
        )
        return sum(counts)

    def _print_rest(self) -> None:
        """The program ends: what procs have printed by now is not lost."""
        if self._follower is not None and not self._stopping:
            self._node.start(self._follower.finish()).get(_LAST_LOOK_S)

    async def stacks(self, ranks: Sequence[int]) -> tuple[ProcessStacks, ...]:
        """Of procs and of their Python children, by rank; nothing of hosts that do not answer."""
        groups = by_host(self.members[rank] for rank in ranks)
        answers = await asyncio.gather(
            *(
                self._spawner.link(group[0]).stacks(tuple(member.spec.proc for member in group))
                for group in groups
            ),
            return_exceptions=True,
        )
        return tuple(
            replace(one, rank=group[one.rank].rank)
            for group, answer in zip(groups, answers, strict=True)
            if not isinstance(answer, BaseException)
            for one in answer
        )

    async def health(self, ranks: Sequence[int]) -> dict[int, ProcHealth]:
        """How procs are, by rank, whatever keeps them busy; those of a lost host are `gone`."""
        found: dict[int, ProcHealth] = {}
        for group in by_host(self.members[rank] for rank in ranks):
            names = tuple(member.spec.proc for member in group)
            try:
                answers = await self._spawner.link(group[0]).health(names)
            except MilkweedError as error:
                answers = tuple(ProcHealth(name, 0, "gone", where=str(error)) for name in names)
            found |= {member.rank: answer for member, answer in zip(group, answers, strict=True)}
        return found

    def explain(self, rank: int, error: MilkweedError, tell: Callable[[MilkweedError], None]) -> None:
        """Tells why the connection to a rank was lost, once its host has said so; any thread."""
        self._explaining.explain(self.members[rank], error, tell)

    def _ended(self, member: Member, event: ProcEvent | HostLost) -> None:
        """A proc is no more; called once an attempt."""
        asked = self._stopping or (isinstance(event, ProcEvent) and event.exit.ended_by == "cancelled")
        point = self._region.point(member.rank)
        failure = None if asked else proc_ended(self.name, member, point, event, self._spawner.restarts)
        death = failure or proc_stopped(self.name, member)
        member.dies(death)
        self._explaining.died(member, death)
        member.settle(failure)
        self._spawner.close_connection(member)
        if failure is None:
            return
        if failure.what == "host":
            # One failure, though its procs are told of one after the other.
            if not self._spawner.host_lost(member.host):
                return
            group = [one for one in self.members if one.host.socket == member.host.socket]
            ranks = tuple(one.rank for one in group if one is member or one.alive)
            failure = replace(
                failure,
                ranks=ranks,
                point=failure.point if len(ranks) == 1 else (),
                tail=self._follower.last_lines(ranks) if self._follower is not None else (),
            )
        self.failures.tell(failure)
        if self._policy is None:
            self.failures.escalate(failure)

    def _told(self, member: Member, what: str, args: tuple[Any, ...]) -> None:
        """By a proc: an endpoint that nobody awaits raised, or nobody there handled a failure."""
        failure: Failure
        if what == "actor_failed":
            actor_id, point, method, error = args
            failure = actor_failed(self.name, member, self._actors.name(actor_id), point, method, error)
        elif what == "escalated":
            (failure,) = args
        else:
            return
        self.failures.tell(failure)
        self.failures.escalate(failure)
