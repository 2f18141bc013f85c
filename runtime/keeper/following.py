"""Following an allocation: what its scheduler tells becomes links to hosts, and states of the mesh."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Protocol

import anyio
import anyio.abc

from ..errors import MilkweedError
from ..paths import MeshPaths
from ..records import HostEvent, MeshState, MeshView
from ..schedulers import HostHandle
from ..schedulers.events import (
    AllocationEvent,
    Ended,
    Ending,
    Lost,
    Preempted,
    Queued,
    Running,
    Starting,
)
from .allocation import Allocation
from .hosts import Hosts
from .links import HostLink
from .runbook import RunBook

__all__ = ["Followed", "Following"]

logger = logging.getLogger(__name__)

_ASK_AGAIN_S = 1.0


class Followed(Protocol):
    """The mesh, as far as this changes it."""

    @property
    def mesh(self) -> MeshView: ...
    @property
    def is_ending(self) -> bool: ...
    def say(self, kind: str, detail: str) -> None: ...
    def put(self, state: MeshState, reason: str) -> None: ...
    def take(self, host: int, events: tuple[HostEvent, ...]) -> None: ...
    def host_changed(self, host: int) -> None: ...
    async def end_after_scheduler(self, why: str) -> None: ...


class Following:
    """`queue`: where the mesh waits, None while it has hosts; `ending`: why all will be taken soon."""

    def __init__(
        self, mesh: Followed, allocation: Allocation, hosts: Hosts, runs: RunBook, paths: MeshPaths
    ) -> None:
        self.queue: Queued | None = None
        self.ending = ""
        self._mesh = mesh
        self._allocation = allocation
        self._hosts = hosts
        self._runs = runs
        self._paths = paths

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            await self._allocation.watch(partial(self._told, tasks))

    async def _told(self, tasks: anyio.abc.TaskGroup, event: AllocationEvent) -> None:
        if self._mesh.is_ending and not isinstance(event, Lost):
            return  # by which it comes
        match event:
            case Queued():
                self._wait(event)
            case Starting():
                await self._take_up(tasks)
            case Running():
                logger.info("the command runs on all hosts")
            case Lost(hosts, why):
                self._lose(hosts, why)
            case Ending(why):
                self._mesh.say("mesh_ending", why)
                self.ending = why
            case Preempted(why):
                self._mesh.say("mesh_preempted", why)
                self._lose(self._hosts.links, why)
            case Ended(_, why):
                self._runs.blame(why, time.time())
                tasks.start_soon(self._mesh.end_after_scheduler, why)

    def _lose(self, hosts: Iterable[int], why: str) -> None:
        for host in hosts:
            if host in self._hosts.links:
                self._hosts[host].lose(why)
        if why:
            self._runs.blame(why, time.time())

    def _wait(self, event: Queued) -> None:
        self._lose(self._hosts.links, "")
        self._allocation.hold_lease()
        self.queue = event
        self._mesh.put("queued", event.reason)

    async def _take_up(self, tasks: anyio.abc.TaskGroup) -> None:
        """Follows the hosts that were given, those that are given again too."""
        self.queue, self.ending = None, ""
        self._allocation.begin_lease()
        if self._mesh.mesh.state == "queued":
            self._mesh.put("starting", "")
        for handle in await self._addresses():
            before = self._hosts.links.get(handle.host)
            if before is not None:
                if not before.is_given_up:
                    continue
                await before.lost.wait()
            link = self._hosts.links[handle.host] = HostLink(
                handle,
                paths=self._paths,
                engine=self._allocation.engine,
                on_events=self._mesh.take,
                changed=self._mesh.host_changed,
                lease_left_s=self._allocation.lease_left_s,
                after=before.after if before else 0,
            )
            tasks.start_soon(link.run)

    async def _addresses(self) -> tuple[HostHandle, ...]:
        while True:
            try:
                return await self._allocation.addresses()
            except MilkweedError as error:
                logger.warning("it is not known where the hosts are: %s", error)
                await anyio.sleep(_ASK_AGAIN_S)
