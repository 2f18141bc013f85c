"""The procs of one mesh as their owner has them, from spawn to stop; on the node's loop.

Without a policy a death is told and no more: the others go on. With one (`Restart`) a supervisor starts procs
again, at the addresses that they had and with the actors that were spawned on them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..addresses import ProcAddress, address_of, read_address
from ..call import Connection
from ..errors import ActorError, Conflict, MilkweedError, Unavailable
from ..extent import Point
from ..node import Escalation, Feed, Node
from ..pickling import Pickled, dumps, loads
from ..proc_records import ProcEvent, ProcHealth, ProcSpec, ProcStarted, SpawnProcs
from ..records import ProcessStacks
from ..region import Region
from ..remote_error import RemoteException
from ..supervision import Escalate, Failure, Restart, Supervisor
from ..supervision.supervisor import Hands
from ..wire import WireFrame
from .asking import ask
from .following import Follower, OnLine
from .host_link import HostLink, HostLost
from .owner import Owner

__all__ = ["Crew", "HostRef", "Member", "SpawnedActors"]

logger = logging.getLogger(__name__)

_KNOWN_S = 1.0
_LAST_LOOK_S = 1.0
_LAST_WORDS_S = 0.2
_STEP = "See failures(); with a restart policy it would come again. Spawn it again."

Supervise = Callable[[Failure], Any]


@dataclass(frozen=True, slots=True)
class HostRef:
    """A host that procs can be spawned on: its agent's socket."""

    name: str
    socket: str


@dataclass(slots=True, eq=False)
class Member:
    """One proc: where it is, and its latest death."""

    rank: int
    host: HostRef
    spec: ProcSpec
    address: ProcAddress | None = None
    pid: int = 0
    start: str = ""
    attempt: int = 0
    alive: bool = False
    death: Failure | None = None
    ended: asyncio.Future[Failure | None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SpawnedActors:
    """Actors on some of the procs: what makes them again. `points` is by rank of the proc."""

    actor_id: str
    name: str
    points: Mapping[int, Point]
    on_loop: bool
    pickled: Pickled


class Crew:
    """See the module. `supervise` is the `__supervise__` of the actor that spawned it."""

    def __init__(
        self,
        here: Node,
        owner: Owner,
        name: str,
        region: Region,
        members: Sequence[Member],
        request: SpawnProcs,
        policy: Restart | None,
        supervise: Supervise | None,
        on_line: OnLine | None = None,
    ) -> None:
        self.name = name
        self.region = region
        self.members = tuple(members)
        self.feeds: list[Feed[Failure]] = []
        self._node = here
        self._owner = owner
        self._request = request
        self._policy = policy
        self._supervise = supervise
        self._on_line = on_line
        self._follower: Follower | None = None
        self._forget_rest: Callable[[], None] = lambda: None
        self._actors: dict[str, SpawnedActors] = {}
        self._waiting: dict[int, list[Callable[[Failure], None]]] = {}
        self._supervisor: Supervisor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost: set[str] = set()
        self._restarts = 0
        self._stopping = False

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping

    @property
    def addresses(self) -> tuple[ProcAddress, ...]:
        return tuple(member.address for member in self.members if member.address is not None)

    async def spawn(self) -> None:
        """Starts all procs; all of them, or none.

        Raises:
            MilkweedError: as the service `Procs`; host_lost.
        """
        groups = self._by_host(range(len(self.members)))
        try:
            results = await asyncio.gather(*map(self._spawn_on, groups), return_exceptions=True)
            failures = [one for one in results if isinstance(one, BaseException)]
            if failures:
                raise failures[0]
        except BaseException:
            await asyncio.shield(self.stop(0.0))
            raise
        for member in self.members:
            self._ready(member)
        if self._on_line is not None:
            by_link = {
                self._link(group[0]): {member.spec.proc: member.rank for member in group} for group in groups
            }
            self._follower = Follower(by_link, self._on_line)
            self._background(self._follower.run())
            self._forget_rest = self._node.before_close(self._print_rest)
        if self._policy is not None:
            names = {str(member.rank): 0 for member in self.members}
            hands = Hands(self._live, self._end_attempt, self._given_up)
            self._supervisor = Supervisor(self._policy, names, hands)
            self._background(self._supervisor.run())

    async def _spawn_on(self, members: Sequence[Member]) -> None:
        link = self._link(members[0])
        by_name = {member.spec.proc: member for member in members}
        for member in members:
            member.ended = asyncio.get_running_loop().create_future()
            address = member.address
            if address is not None and (old := self._node.open_connection(address.socket)) is not None:
                self._close_old(old)  # before there can be one to the new process
        request = replace(self._request, procs=tuple(member.spec for member in members))
        started = await link.spawn(request, lambda name: partial(self._ended, by_name[name]))
        for member, one in zip(members, started, strict=True):
            self._is_up(member, one)

    def _is_up(self, member: Member, started: ProcStarted) -> None:
        member.address = ProcAddress(member.spec.proc, member.host.name, started.socket, started.control)
        member.pid, member.start = started.pid, started.start
        member.attempt += 1
        self._lost.discard(member.host.socket)
        if member.ended is not None and not member.ended.done():
            member.alive = True
        # The first message says that this is its owner's connection.
        self._node.connection(started.socket, f"proc {member.spec.proc}", handler=self._desk(member))

    def _ready(self, member: Member) -> None:
        """Its actors are made; what came for them meanwhile waits there."""
        with suppress(Unavailable):  # it has ended
            body, buffers = dumps(((), {}))
            self.connection(member).send_tell((address_of("", "ready") + body, buffers))

    @staticmethod
    def _close_old(connection: Connection) -> None:
        """Of a proc that ended: a child of it that lives on would keep its callers waiting."""
        if not connection.is_closed:
            connection.close("the process ended")

    def _link(self, member: Member) -> HostLink:
        return self._owner.link(member.host.name, member.host.socket)

    def _desk(self, member: Member) -> _OwnersDesk:
        return _OwnersDesk(self, member)

    def connection(self, member: Member) -> Connection:
        """
        Raises:
            Unavailable: proc_lost, it has ended.
        """
        if member.address is None or not member.alive:
            raise proc_lost(member.death, member.spec.proc)
        return self._node.connection(
            member.address.socket, f"proc {member.spec.proc}", handler=self._desk(member)
        )

    async def make_actors(self, spawned: SpawnedActors) -> dict[int, MilkweedError]:
        """Makes them; the errors by rank of those that could not be, and then there are none."""

        async def make(rank: int) -> MilkweedError | None:
            try:
                await self._make_one(self.members[rank], spawned)
            except Unavailable as error:
                return await self._explained(rank, error)
            except MilkweedError as error:
                return error
            return None

        if self._stopping:
            raise Conflict("mesh_stopped", f"{self.name} was stopped", "Spawn procs anew.")
        self._actors[spawned.actor_id] = spawned
        results = await asyncio.gather(*(make(rank) for rank in spawned.points))
        errors = {
            rank: error for rank, error in zip(spawned.points, results, strict=True) if error is not None
        }
        if errors:
            await self.remove_actors(spawned.actor_id)
        return errors

    async def _make_one(self, member: Member, spawned: SpawnedActors) -> None:
        body, buffers = spawned.pickled
        await ask(
            self.connection(member),
            "",
            "create",
            spawned.actor_id,
            spawned.name,
            spawned.points[member.rank],
            spawned.on_loop,
            body,
            *map(pickle.PickleBuffer, buffers),
            deadline_s=None,
        )

    async def remove_actors(self, actor_id: str) -> None:
        """Forgets actors, here and in their procs."""
        spawned = self._actors.pop(actor_id, None)
        if spawned is None:
            return

        async def remove(rank: int) -> None:
            member = self.members[rank]
            if member.alive:
                await ask(self.connection(member), "", "remove", actor_id, deadline_s=5.0)

        await asyncio.gather(*(remove(rank) for rank in spawned.points), return_exceptions=True)

    async def stop(self, grace_s: float) -> int:
        """Ends all procs with all that they started; how many processes there were."""
        self._stopping = True
        self._forget_rest()
        self._forget_rest = lambda: None
        ended = await asyncio.gather(
            *(
                self._link(group[0]).end(tuple(member.spec.proc for member in group), grace_s)
                for group in self._by_host(range(len(self.members)))
            ),
            return_exceptions=True,
        )
        if self._follower is not None:
            await self._follower.finish()
        if self._supervisor is not None:
            self._supervisor.stop()
        for task in tuple(self._tasks):
            task.cancel()
        for feed in self.feeds:
            feed.close()
        return sum(one for one in ended if isinstance(one, int))

    def _print_rest(self) -> None:
        """The program ends: what procs have printed by now is not lost."""
        if self._follower is not None and not self._stopping:
            self._node.start(self._follower.finish()).get(_LAST_LOOK_S)

    async def stacks(self, ranks: Sequence[int]) -> tuple[ProcessStacks, ...]:
        """Of procs and of their Python children, by rank; nothing of hosts that do not answer."""
        groups = self._by_host(ranks)
        answers = await asyncio.gather(
            *(self._link(group[0]).stacks(tuple(member.spec.proc for member in group)) for group in groups),
            return_exceptions=True,
        )
        return tuple(
            replace(one, rank=group[one.rank].rank)
            for group, answer in zip(groups, answers, strict=True)
            if not isinstance(answer, BaseException)
            for one in answer
        )

    def _by_host(self, ranks: Iterable[int]) -> list[list[Member]]:
        found: dict[str, list[Member]] = {}
        for rank in ranks:
            member = self.members[rank]
            found.setdefault(member.host.socket, []).append(member)
        return list(found.values())

    async def health(self, ranks: Sequence[int]) -> dict[int, ProcHealth]:
        """How procs are, by rank, whatever keeps them busy; those of a lost host are `gone`."""
        found: dict[int, ProcHealth] = {}
        for group in self._by_host(ranks):
            names = tuple(member.spec.proc for member in group)
            try:
                answers = await self._link(group[0]).health(names)
            except MilkweedError as error:
                answers = tuple(ProcHealth(name, 0, "gone", where=str(error)) for name in names)
            found |= {member.rank: answer for member, answer in zip(group, answers, strict=True)}
        return found

    def _ended(self, member: Member, event: ProcEvent | HostLost) -> None:
        """A proc is no more; called once an attempt."""
        asked = self._stopping or (isinstance(event, ProcEvent) and event.exit.ended_by == "cancelled")
        failure = None if asked else self._failure(member, event)
        member.alive = False
        member.death = failure or Failure(
            "proc", member.spec.proc, self.name, (member.rank,), reason="it was stopped", at=time.time()
        )
        for tell in self._waiting.pop(member.rank, []):
            tell(member.death)
        if member.ended is not None and not member.ended.done():
            member.ended.set_result(failure)
        address = member.address
        if address is not None and (old := self._node.open_connection(address.socket)) is not None:
            # What it answered last may still be on its way.
            self._node.loop.call_later(_LAST_WORDS_S, self._close_old, old)
        if failure is None:
            return
        if failure.what == "host":
            # One failure, though its procs are told of one after the other.
            if member.host.socket in self._lost:
                return
            self._lost.add(member.host.socket)
            group = [one for one in self.members if one.host.socket == member.host.socket]
            ranks = tuple(one.rank for one in group if one is member or one.alive)
            failure = replace(failure, ranks=ranks, point=failure.point if len(ranks) == 1 else ())
        self._died(failure)

    def _died(self, failure: Failure) -> None:
        self._tell(failure)
        if self._policy is None:
            self._background(self.handle(failure))

    def _failure(self, member: Member, event: ProcEvent | HostLost) -> Failure:
        point = tuple(self.region.point(member.rank).items())
        if isinstance(event, HostLost) or event.exit.ended_by is not None:
            why = str(event) if isinstance(event, HostLost) else f"it is ending: {event.exit.ended_by}"
            return Failure(
                "host",
                member.host.name,
                self.name,
                (member.rank,),
                point,
                reason=why,
                at=time.time(),
                restarts=self._restarts,
            )
        return Failure(
            "proc",
            member.spec.proc,
            self.name,
            (member.rank,),
            point,
            exit=event.exit,
            at=event.at,
            tail=event.tail,
            stacks=event.stacks,
            restarts=max(0, member.attempt - 1),
        )

    def _tell(self, failure: Failure) -> None:
        for feed in self.feeds:
            feed.put(failure)

    async def handle(self, failure: Failure) -> None:
        """Up the tree: the owner actor's `__supervise__`, then whoever owns this process."""
        if self._supervise is not None:
            try:
                handled = self._supervise(failure)
                if inspect.isawaitable(handled):
                    handled = await handled
            except Exception:
                logger.exception("__supervise__ of the owner of %s raised", self.name)
                handled = False
            if handled:
                return
        self._node.part(Escalation, Escalation).escalate(failure)

    def actor_failed(
        self, member: Member, actor_id: str, point: Point, method: str, error: RemoteException
    ) -> None:
        """An endpoint that nobody awaits raised."""
        spawned = self._actors.get(actor_id)
        failure = Failure(
            "actor",
            f"{spawned.name if spawned else actor_id}.{method}",
            self.name,
            (member.rank,),
            tuple(point.items()),
            exception=error.type_name.rpartition(".")[2],
            message=error.text,
            at=time.time(),
            stacks=error.traceback,
        )
        self._tell(failure)
        self._background(self.handle(failure))

    def escalated(self, failure: Failure) -> None:
        """A proc of ours could not deal with a failure of something it owns."""
        self._tell(failure)
        self._background(self.handle(failure))

    async def _live(self, name: str, attempt: int, started: Callable[[], None]) -> Failure | None:
        """One attempt of a proc, for the supervisor; the first one is up already."""
        member = self.members[int(name)]
        if attempt > 1:
            self._restarts += 1
            try:
                await self._spawn_on([member])
                for spawned in tuple(self._actors.values()):
                    if member.rank in spawned.points:
                        await self._make_one(member, spawned)
                self._ready(member)
            except MilkweedError as error:
                return await self._not_again(member, error)
        started()
        assert member.ended is not None
        return await asyncio.shield(member.ended)

    async def _not_again(self, member: Member, error: MilkweedError) -> Failure:
        await self._end_member(member)
        if error.code in ("connection_lost", "proc_lost") and member.ended is not None:
            died = member.ended.result() if member.ended.done() else None
            if died is not None:
                return died
        exception = error.exception_type if isinstance(error, ActorError) else error.code
        return Failure(
            "proc",
            member.spec.proc,
            self.name,
            (member.rank,),
            exception=exception,
            message=error.cause,
            at=time.time(),
            restarts=max(0, member.attempt - 1),
        )

    async def _end_attempt(self, name: str, _attempt: int) -> None:
        await self._end_member(self.members[int(name)])

    async def _end_member(self, member: Member) -> None:
        link = self._link(member)
        if link.lost is None:
            try:
                await link.end((member.spec.proc,), 0.0)
            except MilkweedError as error:
                logger.warning("cannot end proc %s: %s", member.spec.proc, error)

    def _given_up(self, escalation: Escalate) -> None:
        failure = replace(escalation.failure, restarts=escalation.restarts)
        self._background(self.handle(failure))

    def _background(self, work: Any) -> None:
        task = self._node.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def explain(self, rank: int, error: MilkweedError, tell: Callable[[MilkweedError], None]) -> None:
        """Tells why the connection to a rank was lost, once its host has said so; any thread."""

        def look() -> None:
            member = self.members[rank]
            just_now = member.death is not None and time.time() - member.death.at < _KNOWN_S
            if not member.alive or just_now:  # it may have been started again since
                tell(proc_lost(member.death, member.spec.proc))
                return
            told = partial(_tell_death, tell, member.spec.proc)
            waiting = self._waiting.setdefault(rank, [])
            waiting.append(told)
            self._node.loop.call_later(_KNOWN_S, wait_no_more, waiting, told)

        def wait_no_more(waiting: list[Callable[[Failure], None]], told: Callable[[Failure], None]) -> None:
            if told in waiting:
                waiting.remove(told)
            tell(error)

        self._node.loop.call_soon_threadsafe(look)

    async def _explained(self, rank: int, error: MilkweedError) -> MilkweedError:
        if error.code != "connection_lost":
            return error
        known: asyncio.Future[MilkweedError] = self._node.loop.create_future()
        self.explain(rank, error, lambda why: None if known.done() else known.set_result(why))
        return await known


def _tell_death(tell: Callable[[MilkweedError], None], proc: str, failure: Failure) -> None:
    tell(proc_lost(failure, proc))


def proc_lost(failure: Failure | None, proc: str) -> Unavailable:
    if failure is None:
        return Unavailable("proc_lost", f"proc {proc} does not answer any more", _STEP)
    # What faulthandler says first is told by the signal and the place.
    words = next((line for line in reversed(failure.tail) if not line.startswith("Fatal Python error")), "")
    last = f"; its last output: {words[:200]}" if words else ""
    return Unavailable("proc_lost", f"{failure.summary()}{last}", _STEP)


class _OwnersDesk:
    """What procs tell their owner."""

    def __init__(self, crew: Crew, member: Member) -> None:
        self._crew = crew
        self._member = member

    def called(self, _connection: Connection, frame: WireFrame) -> None:
        _, method, arguments = read_address(frame.body)
        try:
            args, _kwargs = loads(arguments, frame.buffers)
        except Exception as error:
            logger.warning("what %s told cannot be read: %r", self._member.spec.proc, error)
            return
        if method == "actor_failed":
            self._crew.actor_failed(self._member, *args)
        elif method == "escalated":
            self._crew.escalated(args[0])

    def cancelled(self, _connection: Connection, _call: int) -> None: ...

    def ended(self, _connection: Connection) -> None: ...
