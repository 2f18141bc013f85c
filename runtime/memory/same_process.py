"""`local`: a buffer that is used in the process that owns it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from .. import _native_memory as native
from .device import DeviceMemory
from .handle import Handle
from .holding import Held
from .outcomes import DONE, error_of
from .pinned import Pinned
from .providers import AT_OWNER, Job, Line, Unreachable
from .regions import Regions
from .staging import failing, filling, on_host, reading, wait_until_ready

__all__ = ["SameProcess"]


class SameProcess:
    name = "local"
    at_hand = True

    def __init__(self, regions: Regions) -> None:
        self._line = _Copy(regions)
        self._token = regions.token

    def reach(self, handle: Handle) -> Line:
        if handle.owner.token != self._token:
            raise Unreachable("it is another process")
        return self._line

    def close(self) -> None: ...


class _Copy:
    quick = 256 * 1024

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def move(self, job: Job) -> None:
        status, number = self._moved(job)
        if status != DONE:
            raise error_of(status, job.handle, write=job.write, number=number)

    def _moved(self, job: Job) -> tuple[int, int]:
        region = self._regions.enter(job.handle.slot, job.handle.generation)
        if region is None:
            return native.DROPPED, 0
        try:
            status = region.refusal(job.handle.key, job.offset, job.length, write=job.write)
            if status != DONE:
                return status, 0
            if isinstance(region.memory, Pinned) and isinstance(job.local, Pinned):
                return _copied(region.memory, job.local, job)
            return self._staged(region.memory, job)
        finally:
            self._regions.leave(region)

    def _staged(self, memory: Held, job: Job) -> tuple[int, int]:
        if isinstance(memory, DeviceMemory):
            job.staged.add(AT_OWNER)
        with on_host(job) as jobs, failing(memory, job):
            wait_until_ready(memory, job.deadline, job.stop.is_set)
            for one in jobs:
                assert isinstance(one.local, Pinned)
                # A piece of the region, or, where it is of the host, all that this job is about.
                with closing((filling if job.write else reading)(memory, one.offset, one.length)) as pieces:
                    at = 0
                    for piece in pieces:
                        near = one.local.part(at, piece.size)
                        status, number = _copied(piece, near, replace(one, offset=0, length=piece.size))
                        if status != DONE:
                            return status, number
                        at += piece.size
        return DONE, 0


def _copied(memory: Pinned, local: Pinned, job: Job) -> tuple[int, int]:
    there = memory.address + job.offset
    to, source = (there, local.address) if job.write else (local.address, there)
    apart = abs(to - source) >= job.length
    return native.copy(to, source, job.length, job.threads if apart else 1, job.stop, job.deadline)
