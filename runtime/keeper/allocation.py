"""The hosts of one mesh: started by the scheduler with the engine's command, remembered on disk, given back.

`mesh.json` beside the index holds the scheduler's handles, so that a keeper that starts again finds its
hosts.
"""

from __future__ import annotations

import errno
import json
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
from ..schedulers import HostHandle, HostPlace

__all__ = ["Allocation"]


_OF_A_LIVE_HOST = ("tmp", "var-tmp", "mounts", "workspace", "shown")


@dataclass(frozen=True, slots=True)
class _Record:
    handles: tuple[HostHandle, ...]
    lease_boot: str
    lease_deadline: float


class Allocation:
    def __init__(self, mesh: str, spec: MeshSpec, paths: MeshPaths) -> None:
        self.scheduler = schedulers.find(spec.scheduler)
        self.engine = engines.find(spec.engine)
        self._mesh = mesh
        self._spec = spec
        self._paths = paths
        self._handles: tuple[HostHandle, ...] = ()
        self.resumed = False
        self._lease = (boot_id(), boottime_s() + spec.lease_minutes * 60)

    @property
    def lease(self) -> tuple[str, float]:
        """Boot id and CLOCK_BOOTTIME deadline."""
        return self._lease

    def lease_left_s(self) -> float:
        boot, deadline = self._lease
        return deadline - boottime_s() if boot == boot_id() else 0.0

    def set_lease(self, left_s: float) -> None:
        """
        Raises:
            Unavailable: disk_full or directory_unusable; the lease is as it was.
        """
        lease = (boot_id(), boottime_s() + left_s)
        self._save(lease)
        self._lease = lease

    async def start_or_resume(self) -> tuple[HostHandle, ...]:
        """The handles of the hosts: those on record, else of hosts started now (what an earlier try left is
        ended).

        Raises:
            Unavailable: allocation_failed; InvalidArgument: what the scheduler cannot give.
        """
        record = self._load()
        if record is not None:
            self.resumed = True
            self._handles, self._lease = record.handles, (record.lease_boot, record.lease_deadline)
            return self._handles
        self.scheduler.check(self._spec)
        self._paths.sockets.mkdir(mode=0o700, exist_ok=True)
        self._handles = await self.scheduler.start(self._mesh, self._spec, self._paths.host, self._command)
        try:
            self._save(self._lease)
        except Unavailable:
            await self.give_back()
            raise
        return self._handles

    def _command(self, place: HostPlace) -> Sequence[str]:
        return self.engine.prepare(self._mesh, self._spec, place, self._paths)

    async def end_host(self, host: int) -> None:
        """Ends what a lost host left, if its guard could not."""
        await self.scheduler.end_host(self._mesh, host)
        await self._unmount(self._paths.host(host))

    async def give_back(self) -> int:
        """Ends what is left of the hosts; returns how many processes that were."""
        ended = await self.scheduler.give_back(self._mesh, self._spec, self._handles)
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
        for handle in self._handles:
            for directory in _OF_A_LIVE_HOST:
                remove_tree(self._paths.host(handle.host) / directory)

    def spooled(self, host: int) -> tuple[HostEvent, ...]:
        """A host's events as its disk has them, for when it no longer answers."""
        return Spool.read(self._paths.host(host) / "spool.jsonl")

    def _save(self, lease: tuple[str, float]) -> None:
        fresh = self._paths.record.with_name("mesh.json.new")
        try:
            fresh.write_text(json.dumps(to_json(_Record(self._handles, *lease))))
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
