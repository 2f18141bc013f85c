"""The scheduler seam: what gives hosts.

A scheduler starts one command on each of N hosts, tells where they are, says what becomes of them, and gives
them back. It knows neither the engine (whose command it starts) nor the tools. Everything it must remember is
in the `Ticket`, which the keeper stores, and in files of the mesh's directory: a keeper that starts again
goes on with those.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..paths import MeshPaths
from ..records import MeshSpec
from .events import AllocationEvent

__all__ = [
    "AllocationPlan",
    "HostHandle",
    "HostPlace",
    "Order",
    "Scheduler",
    "SchedulerView",
    "Tell",
    "Ticket",
]


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """What a scheduler offers here, now."""

    name: str
    available: bool
    reason: str = ""
    hosts: str = ""
    devices: str = ""
    limits: str = ""
    expected_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AllocationPlan:
    """What would be asked for. `script` is what the scheduler would be given, where it is given one.

    `elsewhere` says which of the hosts may be other machines than this one; empty where none can be.
    """

    script: str = ""
    elsewhere: str = ""
    warnings: tuple[str, ...] = ()
    expected_start_at: float | None = None


@dataclass(frozen=True, slots=True)
class HostPlace:
    """One host that is about to start: its number, name, address and its own directory.

    Where the scheduler cannot know them yet, `name` and `address` are empty: the host finds them in its
    environment (`agent.main.told_place`). `enter` is a command prefix that takes a process into the host
    (empty where it is there already); `leave` are commands that clean up after its last process.
    """

    host: int
    name: str
    address: str
    directory: Path
    enter: tuple[str, ...] = ()
    leave: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class HostHandle:
    """A host that was given. On this machine `pid` and `start_time` (clock ticks since boot) name its guard
    for ever; 0 where the scheduler knows it in another way.
    """

    host: int
    name: str
    address: str
    pid: int = 0
    start_time: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What a mesh asks for, and the command to start on each host."""

    mesh: str
    spec: MeshSpec
    paths: MeshPaths
    command: Callable[[HostPlace], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Names what was asked for: `job` as the scheduler does, `handles` where hosts are given at once."""

    job: str = ""
    handles: tuple[HostHandle, ...] = ()


Tell = Callable[[AllocationEvent], Awaitable[None]]


class Scheduler(Protocol):
    """All of it is safe to repeat, and none of it waits in a queue but `watch`."""

    name: str

    async def capacity(self) -> SchedulerView:
        """What can be had here, within seconds; reads only."""
        ...

    async def plan(self, mesh: str, spec: MeshSpec, paths: MeshPaths) -> AllocationPlan:
        """What `submit` would ask for, without an effect.

        Raises:
            InvalidArgument, Unavailable: it cannot be given, with the reason and the mend.
        """
        ...

    async def submit(self, order: Order) -> Ticket:
        """Asks for the hosts; the command is started on each as soon as it is given, as a daemon that
        outlives the caller. What an earlier try for this mesh left is ended first.

        Raises:
            InvalidArgument, Unavailable: allocation_failed; nothing of the mesh is left.
        """
        ...

    async def reattach(self, order: Order, ticket: Ticket | None) -> Ticket | None:
        """What an earlier keeper asked for; without its ticket, what is found. None: there is nothing."""
        ...

    async def watch(self, order: Order, ticket: Ticket, tell: Tell) -> None:
        """Tells what becomes of it, from what is the case now; returns when nothing more can happen."""
        ...

    async def addresses(self, order: Order, ticket: Ticket) -> tuple[HostHandle, ...]:
        """The hosts that it has now, in order of their numbers; none while it waits."""
        ...

    async def extend(self, order: Order, ticket: Ticket, left_s: float) -> None:
        """The hosts are to be kept for that long from now.

        Raises:
            Unavailable: lease_fixed, the scheduler does not allow it.
        """
        ...

    async def end_host(self, order: Order, host: int) -> int:
        """Ends what is left of a lost host, where the scheduler can reach it.

        Returns:
            The number of processes that had to be ended.
        """
        ...

    async def release(self, order: Order, ticket: Ticket | None) -> int:
        """Ends what is left of the hosts and all that belonged to the allocation, in the queue too.

        Returns:
            The number of processes that had to be ended.

        Raises:
            Unavailable: scheduler_unusable, it does not answer; what it still has is said.
        """
        ...
