"""The host's own service: its events, its lease, its end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import anyio

from ..actor import Actor, endpoint
from ..agent.context import HostContext
from ..agent.lease import LeaseHolder
from ..errors import Unavailable
from ..records import EndReason, HostEvent

__all__ = ["EndedHost", "Host", "HostFacts"]


@dataclass(frozen=True, slots=True)
class HostFacts:
    agent_pid: int
    directory: str
    lease_left_s: float


@dataclass(frozen=True, slots=True)
class EndedHost:
    """What the end of a host ended; `events` are the last there will be, after the number asked for."""

    processes: int
    events: tuple[HostEvent, ...]


class Ends(Protocol):
    async def end_all(self, reason: EndReason, grace_s: float) -> int: ...


class Host(Actor):
    def __init__(self, context: HostContext, lease: LeaseHolder, *services: Ends, last: Ends) -> None:
        """`last` is what the others stand on while they end."""
        self._context = context
        self._lease = lease
        self._services = services
        self._last = last
        self.ending = anyio.Event()

    @endpoint
    async def facts(self) -> HostFacts:
        return HostFacts(os.getpid(), str(self._context.directory), self._lease.left_s())

    @endpoint
    async def events(self, after: int, wait_s: float) -> tuple[HostEvent, ...]:
        """Events with a number above `after`, oldest first; waits up to `wait_s` for the first one.

        Raises:
            Unavailable: host_ending, when there are no more and there never will be.
        """
        events = await self._context.spool.after(after, 0.0 if self.ending.is_set() else wait_s)
        if not events and self.ending.is_set():
            raise Unavailable("host_ending", f"{self._context.name} is ending", "See mesh_status.")
        return events

    @endpoint
    async def set_lease(self, left_s: float) -> None:
        """The lease ends `left_s` from now, unless it would end later or is over."""
        self._lease.extend(left_s)

    @endpoint
    async def end(self, reason: EndReason, grace_s: float, after: int) -> EndedHost:
        """Ends all runs and procs, then the agent (once this has been answered)."""
        counts: list[int] = []

        async def end(service: Ends) -> None:
            counts.append(await service.end_all(reason, grace_s))

        async with anyio.create_task_group() as tasks:
            for service in self._services:
                tasks.start_soon(end, service)
        await end(self._last)
        # Being an event, this also answers those who wait for one.
        self._context.spool.append("host_ending", detail=reason)
        events = await self._context.spool.after(after, 0.0)
        self.ending.set()
        return EndedHost(sum(counts), events)
