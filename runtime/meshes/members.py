"""The procs of a mesh as their owner knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from ..addresses import ProcAddress
from ..proc_records import ProcSpec, ProcStarted
from ..supervision import Failure

__all__ = ["HostRef", "Member", "by_host"]


@dataclass(frozen=True, slots=True)
class HostRef:
    """A host that procs can be spawned on: its agent's socket."""

    name: str
    socket: str


@dataclass(slots=True, eq=False)
class Member:
    """One proc, through all its attempts: where it is, and its latest death.

    `ended` is of the latest attempt: its failure, None if it was asked to end.
    """

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

    @property
    def restarts(self) -> int:
        return max(0, self.attempt - 1)

    def begins(self) -> None:
        """A new attempt; on the loop."""
        self.ended = asyncio.get_running_loop().create_future()

    def is_up(self, started: ProcStarted) -> None:
        """The process of this attempt is there, or was: it may have ended since."""
        self.address = ProcAddress(self.spec.proc, self.host.name, started.socket, started.control)
        self.pid, self.start = started.pid, started.start
        self.attempt += 1
        if self.ended is not None and not self.ended.done():
            self.alive = True

    def dies(self, death: Failure) -> None:
        self.alive = False
        self.death = death

    def settle(self, failure: Failure | None) -> None:
        """Those who wait for the end of this attempt go on."""
        if self.ended is not None and not self.ended.done():
            self.ended.set_result(failure)


def by_host(members: Iterable[Member]) -> list[list[Member]]:
    """The members of each host, in the order given."""
    found: dict[str, list[Member]] = {}
    for member in members:
        found.setdefault(member.host.socket, []).append(member)
    return list(found.values())
