"""The scheduler seam: what gives hosts.

A scheduler starts one command on each of N hosts, tells where they are, says when one is gone, and gives them
back. It knows neither the engine (whose command it starts) nor the tools. Everything it must remember is in
the `HostHandle`s, which the keeper stores: a keeper that starts again goes on with those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..records import MeshSpec

__all__ = ["HostHandle", "HostPlace", "Scheduler", "SchedulerView"]


@dataclass(frozen=True, slots=True)
class SchedulerView:
    """What a scheduler offers on this machine, now."""

    name: str
    available: bool
    reason: str = ""
    hosts: str = ""
    devices: str = ""
    limits: str = ""
    expected_wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HostPlace:
    """One host that is about to start: its number, name, address and its own directory.

    `enter` is a command prefix that takes a process into the host (empty where it is there already); `leave`
    are commands that clean up after its last process.
    """

    host: int
    name: str
    address: str
    directory: Path
    enter: tuple[str, ...] = ()
    leave: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class HostHandle:
    """Names a started host for ever: the pid of its guard and when that began (clock ticks since boot)."""

    host: int
    name: str
    address: str
    pid: int
    start_time: int


class Scheduler(Protocol):
    name: str

    def describe(self) -> SchedulerView:
        """What can be had here; reads only, quick."""
        ...

    def check(self, spec: MeshSpec) -> None:
        """Refuses what cannot be given, before anything is started.

        Raises:
            InvalidArgument, Unavailable: with the reason and the mend.
        """
        ...

    async def start(
        self,
        mesh: str,
        spec: MeshSpec,
        directory: Callable[[int], Path],
        command: Callable[[HostPlace], Sequence[str]],
    ) -> tuple[HostHandle, ...]:
        """Gets the hosts and starts on each, as a daemon that outlives the caller, what `command` says of it.

        What an earlier try for this mesh left is ended first.

        Raises:
            Unavailable: allocation_failed; nothing of the mesh is left running.
        """
        ...

    async def wait_lost(self, handle: HostHandle) -> None:
        """Returns when the host is gone."""
        ...

    async def end_host(self, mesh: str, host: int) -> int:
        """Ends what is left of a lost host, where the scheduler can reach it; safe to repeat.

        Returns:
            The number of processes that had to be ended.
        """
        ...

    async def give_back(self, mesh: str, spec: MeshSpec, handles: Sequence[HostHandle]) -> int:
        """Ends what is left of the hosts and all that belonged to the allocation; safe to repeat.

        Returns:
            The number of processes that had to be ended.
        """
        ...
