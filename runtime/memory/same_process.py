"""`local`: a buffer that is used in the process that owns it."""

from __future__ import annotations

from .. import _native_memory as native
from .handle import Handle
from .outcomes import DONE, error_of
from .providers import Job, Line, Unreachable
from .regions import Regions

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
            there = region.memory.address + job.offset
            to, source = (there, job.local.address) if job.write else (job.local.address, there)
            apart = abs(to - source) >= job.length
            return native.copy(to, source, job.length, job.threads if apart else 1, job.stop, job.deadline)
        finally:
            self._regions.leave(region)
