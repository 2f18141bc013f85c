"""An owner of procs, for tests: it holds them by a connection of its own to the agent of a guarded host."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio

from milkweed.runtime.call import ActorRef, Connection, open_connection
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.proc_records import ProcEvent, ProcHealth, ProcSpec, ProcStarted, SpawnProcs
from milkweed.runtime.services.procs import Procs
from milkweed.runtime.services.stacks import Stacks
from milkweed.runtime.tasks import background_tasks
from tests.runtime.hosts import DEADLINE_S, ROOT, GuardedHost

__all__ = ["Owner", "ask", "open_owner", "request_of"]


def request_of(
    *names: str, owner: str = "me", env: Mapping[str, str] | None = None, warm: bool = False, **more: str
) -> SpawnProcs:
    specs = tuple(ProcSpec(name, dict(env or {})) for name in names)
    fields = {"python": sys.executable, "cwd": str(ROOT), **more}
    return SpawnProcs(owner, specs, sys_path=(), warm=warm, **fields)


@dataclass
class Owner:
    """`seen` is the number of the last event that it took."""

    name: str
    connection: Connection
    procs: ActorRef[Procs]
    stacks: ActorRef[Stacks]
    seen: int = 0

    async def spawn(self, *names: str, **more: object) -> tuple[ProcStarted, ...]:
        request = request_of(*names, owner=self.name, **more)  # type: ignore[arg-type]
        return await self.procs.call_one(Procs.spawn, request)

    async def events(self, count: int = 1) -> tuple[ProcEvent, ...]:
        """The next events, at least that many."""
        found: list[ProcEvent] = []
        with anyio.fail_after(DEADLINE_S):
            while len(found) < count:
                found += await self.procs.call_one(Procs.events, self.name, self.seen, 5.0)
                self.seen = found[-1].seq if found else self.seen
        return tuple(found)

    async def end(self, *names: str, grace_s: float = 0.0) -> int:
        return await self.procs.call_one(Procs.end, self.name, names or None, grace_s)

    async def health(self, *names: str) -> tuple[ProcHealth, ...]:
        return await self.procs.call_one(Procs.health, self.name, names or None)


async def hold(procs: ActorRef[Procs], name: str) -> None:
    with suppress(Unavailable):  # the agent is gone, which the test will see
        await procs.within(None).call_one(Procs.hold, name)


@asynccontextmanager
async def open_owner(host: GuardedHost, name: str = "me") -> AsyncIterator[Owner]:
    async with (
        open_connection(host.address, role="controller") as connection,
        background_tasks() as tasks,
    ):
        procs = connection.actor("Procs", Procs)
        tasks.start_soon(hold, procs, name)
        stacks = connection.actor("Stacks", Stacks)
        yield Owner(name, connection, procs.within(DEADLINE_S), stacks.within(DEADLINE_S))


def ask(started: ProcStarted, code: str) -> str:
    """Has a stand-in's main thread run a line of Python; returns `answer` as text."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(DEADLINE_S)
        peer.connect(started.socket)
        peer.sendall(code.encode() + b"\n")
        with peer.makefile() as lines:
            return lines.readline().rstrip("\n")


def tell(started: ProcStarted, code: str) -> None:
    """As `ask`, without waiting for the answer."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(started.socket)
        peer.sendall(code.encode() + b"\n")
