"""The way from an owner of procs to the agent of one host; on the node's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from ..call import ActorRef, Session, open_connection
from ..errors import MilkweedError, Unavailable
from ..proc_records import ProcEvent, ProcHealth, ProcOutput, ProcStarted, SpawnProcs
from ..records import ProcessStacks

if TYPE_CHECKING:
    from ..services.procs import Procs

__all__ = ["HostLink", "HostLost"]

logger = logging.getLogger(__name__)

_POLL_S = 30.0
_SPAWN_S = 60.0
_END_S = 30.0


class HostLost(Exception):
    """The agent is gone, and with it everything on its host; says how it is known."""


OnEnd = Callable[[ProcEvent | HostLost], None]


def _cause(error: BaseException) -> str:
    return error.cause if isinstance(error, MilkweedError) else str(error)


class HostLink:
    """`run` is its life: it holds what was spawned, until it is cancelled or the host is lost."""

    def __init__(self, owner: str, name: str, socket: str) -> None:
        self.name = name
        self.lost: HostLost | None = None
        self._owner = owner
        self._socket = socket
        self._listeners: dict[str, OnEnd] = {}
        self._procs: ActorRef[Procs] | None = None
        self._session: Session | None = None
        self._up = asyncio.Event()

    async def run(self) -> None:
        reason = "its agent ended"
        cancelled = False
        try:
            from ..services.procs import Procs

            async with open_connection(Path(self._socket), role="owner", peer=self.name) as session:
                self._session = session
                procs = self._procs = session.actor(Procs.__name__, Procs).within(None)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(procs.call_one, Procs.hold, self._owner)
                    await anyio.lowlevel.checkpoint()  # it is sent before anything that rests on it
                    self._up.set()
                    await self._follow(procs)
        except* asyncio.CancelledError:  # the program ends, and nobody is to hear of it as a failure
            self._listeners.clear()
            cancelled = True
        except* MilkweedError as errors:
            reason = "; ".join(dict.fromkeys(_cause(one) for one in errors.exceptions))
        finally:
            self._lose(HostLost(reason))
        if cancelled:  # bare: a task that ends with a group is reported as a failed one when the program ends
            raise asyncio.CancelledError

    async def _follow(self, procs: ActorRef[Procs]) -> None:
        from ..services.procs import Procs

        after = 0
        while True:
            for event in await procs.call_one(Procs.events, self._owner, after, _POLL_S):
                after = event.seq
                listener = self._listeners.pop(event.proc, None)
                if listener is not None:
                    listener(event)

    def _lose(self, why: HostLost) -> None:
        self.lost = why
        self._procs = self._session = None
        self._up.set()
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener(why)

    def abandon(self) -> None:
        """In a forked child: lets go of what holds the procs for the parent."""
        if self._session is not None:
            self._session.abandon()

    async def spawn(self, request: SpawnProcs, on_end: Callable[[str], OnEnd]) -> tuple[ProcStarted, ...]:
        """Starts procs; `on_end(name)` gives what is called, once, at the end of that one.

        Raises:
            MilkweedError: as `Procs.spawn`; host_lost.
        """
        from ..services.procs import Procs

        procs = await self._agent()
        for spec in request.procs:
            self._listeners[spec.proc] = on_end(spec.proc)
        try:
            return await procs.within(_SPAWN_S).call_one(Procs.spawn, request)
        except BaseException as error:
            for spec in request.procs:
                self._listeners.pop(spec.proc, None)
            if isinstance(error, MilkweedError) and error.code == "connection_lost":
                raise self._unreachable() from None
            raise

    async def end(self, procs: tuple[str, ...], grace_s: float) -> int:
        """Ends procs with their trees; how many processes there were."""
        from ..services.procs import Procs

        agent = await self._agent()
        return await agent.within(_END_S + grace_s).call_one(Procs.end, self._owner, procs, grace_s)

    async def output(self, cursors: Mapping[str, tuple[int, int]], max_bytes: int) -> tuple[ProcOutput, ...]:
        from ..services.procs import Procs

        agent = await self._agent()
        return await agent.within(_END_S).call_one(Procs.output, self._owner, cursors, max_bytes)

    async def stacks(self, procs: tuple[str, ...]) -> tuple[ProcessStacks, ...]:
        """Of procs and their Python children; `rank` is the place in the order asked."""
        from ..services.stacks import Stacks

        await self._agent()
        assert self._session is not None
        stacks = self._session.actor(Stacks.__name__, Stacks).within(_END_S)
        return await stacks.call_one(Stacks.dump_procs, self._owner, procs)

    async def health(self, procs: tuple[str, ...]) -> tuple[ProcHealth, ...]:
        from ..services.procs import Procs

        agent = await self._agent()
        return await agent.within(_END_S).call_one(Procs.health, self._owner, procs)

    async def _agent(self) -> ActorRef[Procs]:
        await self._up.wait()
        if self._procs is None:
            raise self._unreachable()
        return self._procs

    def _unreachable(self) -> Unavailable:
        return Unavailable("host_lost", f"{self.name} is lost: {self.lost}", "Spawn on another host.")
