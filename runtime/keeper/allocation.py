"""The hosts of one mesh: asked for with the engine's command, remembered on disk, given back.

`mesh.json` beside the index holds the scheduler's ticket, so that a keeper that starts again finds its hosts,
or its place in the queue. The lease begins when the hosts are given.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from .. import engines, schedulers
from ..agent.lease import boot_id, boottime_s
from ..agent.spool import Spool
from ..codec import from_json, to_json
from ..errors import Unavailable
from ..mounts.unmount_below import unmount_below
from ..paths import MeshPaths
from ..records import HostEvent, MeshSpec
from ..removing import remove_tree
from ..schedulers import HostHandle, HostPlace, Order, Ticket
from ..schedulers.base import Tell

__all__ = ["Allocation"]

logger = logging.getLogger(__name__)


_OF_A_LIVE_HOST = ("tmp", "var-tmp", "mounts", "workspace", "shown")


@dataclass(frozen=True, slots=True)
class _Record:
    """Without `lease_boot` the lease has not begun."""

    ticket: Ticket
    lease_boot: str = ""
    lease_deadline: float = 0.0


class Allocation:
    def __init__(self, mesh: str, spec: MeshSpec, paths: MeshPaths) -> None:
        self.scheduler = schedulers.find(spec.scheduler)
        self.engine = engines.find(spec.engine)
        self._order = Order(mesh, spec, paths, self._command)
        self._spec = spec
        self._paths = paths
        self._ticket: Ticket | None = None
        self.resumed = False
        self._lease: tuple[str, float] | None = None

    def lease_left_s(self) -> float:
        """All of it while it has not begun."""
        if self._lease is None:
            return self._spec.lease_minutes * 60
        boot, deadline = self._lease
        return deadline - boottime_s() if boot == boot_id() else 0.0

    async def extend_lease(self, left_s: float) -> None:
        """
        Raises:
            Unavailable: lease_fixed, disk_full or directory_unusable; the lease is as it was.
        """
        if self._ticket is not None:
            await self.scheduler.extend(self._order, self._ticket, left_s)
        self._set_lease(_from_now(left_s))

    def begin_lease(self) -> None:
        """The hosts are given; where it has begun it goes on."""
        if self._lease is None:
            self._note_lease(_from_now(self._spec.lease_minutes * 60))

    def hold_lease(self) -> None:
        """The hosts are gone and will be given again: the lease then begins again."""
        if self._lease is not None:
            self._note_lease(None)

    def _note_lease(self, lease: tuple[str, float] | None) -> None:
        """It is what it is, also where the disk does not take it: a later keeper would begin it again."""
        self._lease = lease
        try:
            self._save(lease)
        except Unavailable as error:
            logger.warning("the lease is kept in memory: %s", error)

    def _set_lease(self, lease: tuple[str, float] | None) -> None:
        self._save(lease)
        self._lease = lease

    async def submit_or_resume(self) -> None:
        """Asks the scheduler for hosts, unless an earlier keeper has.

        Raises:
            Unavailable: allocation_failed; InvalidArgument: what the scheduler cannot give, or the engine
                cannot reach.
        """
        record = self._load()
        if record is not None:
            self._ticket = await self.scheduler.reattach(self._order, record.ticket) or record.ticket
            self._lease = (record.lease_boot, record.lease_deadline) if record.lease_boot else None
            self.resumed = self._lease is not None
            return
        self._paths.sockets.mkdir(mode=0o700, exist_ok=True)
        self._ticket = await self.scheduler.reattach(self._order, None)
        if self._ticket is None:
            plan = await self.scheduler.plan(self._order.mesh, self._spec, self._paths)
            self.engine.check(plan)
            self._ticket = await self.scheduler.submit(self._order)
        try:
            self._set_lease(_from_now(self._spec.lease_minutes * 60) if self._ticket.handles else None)
        except Unavailable:
            await self.give_back()
            raise

    async def watch(self, tell: Tell) -> None:
        """`Scheduler.watch` of what was asked for."""
        assert self._ticket is not None
        await self.scheduler.watch(self._order, self._ticket, tell)

    async def addresses(self) -> tuple[HostHandle, ...]:
        """`Scheduler.addresses` of what was asked for."""
        assert self._ticket is not None
        return await self.scheduler.addresses(self._order, self._ticket)

    def _command(self, place: HostPlace) -> Sequence[str]:
        return self.engine.prepare(self._order.mesh, self._spec, place, self._paths)

    async def end_host(self, host: int) -> None:
        """Ends what a lost host left, if its guard could not."""
        await self.scheduler.end_host(self._order, host)
        await self._unmount(self._paths.host(host))

    async def give_back(self) -> int:
        """Ends what is left of the hosts; returns how many processes that were.

        Raises:
            Unavailable: the scheduler does not answer.
        """
        ended = await self.scheduler.release(self._order, self._ticket)
        await self._unmount(self._paths.root)
        return ended

    async def _unmount(self, directory: Path) -> None:
        """What is mounted below, of processes that were ended before they could, with their guard."""
        await anyio.to_thread.run_sync(unmount_below, str(directory))

    def clean_up(self) -> None:
        """Removes what only a live mesh needs and `clean_hosts` leaves; output and spools stay."""
        remove_tree(self._paths.sockets)
        self._paths.secret.unlink(missing_ok=True)
        self.clean_hosts()

    def clean_hosts(self) -> None:
        """Removes what hosts that were given back wrote; output and spools stay."""
        for host in range(self._spec.hosts):
            for directory in _OF_A_LIVE_HOST:
                remove_tree(self._paths.host(host) / directory)

    def spooled(self, host: int) -> tuple[HostEvent, ...]:
        """A host's events as its disk has them, for when it no longer answers."""
        return Spool.read(self._paths.host(host) / "spool.jsonl")

    def _save(self, lease: tuple[str, float] | None) -> None:
        assert self._ticket is not None
        fresh = self._paths.record.with_name("mesh.json.new")
        try:
            fresh.write_text(json.dumps(to_json(_Record(self._ticket, *(lease or ())))))
            os.replace(fresh, self._paths.record)
        except OSError as error:
            code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "directory_unusable"
            raise Unavailable(
                code, f"cannot write {self._paths.record}: {error.strerror}", "Make room on that disk."
            ) from None

    def _load(self) -> _Record | None:
        """None where nothing was started yet.

        Raises:
            Unavailable: directory_unusable, the record is damaged, so nothing can be taken up.
        """
        try:
            return from_json(_Record, json.loads(self._paths.record.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise Unavailable(
                "directory_unusable", f"{self._paths.record} is damaged ({error})", "Allocate the mesh again."
            ) from None


def _from_now(left_s: float) -> tuple[str, float]:
    """Boot id and CLOCK_BOOTTIME deadline."""
    return boot_id(), boottime_s() + left_s
