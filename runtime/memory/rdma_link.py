"""The user's end of RDMA to one owner: what it grants is asked once, and then reached without it."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple

from .. import _native_memory as native
from .connection import Connection, Refused, open_connection
from .device import DeviceMemory
from .grant import Grant
from .handle import READ, WRITE, Owner
from .holding import Held
from .outcomes import DONE
from .providers import Job
from .ucx import RDMA_VARIABLE

__all__ = ["Link", "NotConnected"]

_REGIONS_KEPT = 1024
_CONNECT_S = 3.0  # by UCX, in one of its two ways
_ACKNOWLEDGE_S = 3.0

_Key = tuple[int, int, bytes]


class _Known(NamedTuple):
    """A region: its number here, and what its owner says of it, whatever a handle does."""

    number: int
    rights: int
    size: int

    def refusal(self, job: Job) -> int:
        """The status of a transfer that is not to be; DONE where it may."""
        if job.offset + job.length > self.size:
            return native.OUT_OF_RANGE
        return DONE if self.rights & (WRITE if job.write else READ) else native.FORBIDDEN


class NotConnected(Exception):
    """UCX does not reach the owner, for now."""


class Link:
    """A connection on which the owner grants regions, and the endpoint by which they are reached."""

    is_staged = False
    is_spent = False

    def __init__(
        self, engine: native.Ucx, owner: Owner, mesh: str, secret: bytes, job: Job, reached_by: float
    ) -> None:
        self._engine = engine
        self._connection: Connection = open_connection(
            "tcp", owner, mesh, secret, job, job.deadline, reached_by
        )
        self._connection.end()  # the job that opened it has no part in it
        self._connection.give_up_after(_ACKNOWLEDGE_S)
        self._endpoint: int | None = None
        self._regions: OrderedDict[_Key, _Known] = OrderedDict()

    def knows(self, job: Job) -> bool:
        known = self._regions.get(_key(job))
        return known is not None and known.refusal(job) == DONE

    def learn(self, job: Job) -> None:
        """
        Raises:
            Refused; NotConnected.
            OSError, ProtocolError: `Connection.move`.
        """
        key = _key(job)
        if (known := self._regions.get(key)) is None:
            known = self._granted(key, job)
        self._regions.move_to_end(key)
        if (status := known.refusal(job)) != DONE:
            raise Refused(status, 0)

    def _granted(self, key: _Key, job: Job) -> _Known:
        self._connection.begin(job)
        try:
            grant = self._connection.grant(job.handle, job.deadline, write=job.write, staged=self.is_staged)
        finally:
            self._connection.end()
        try:
            if self._endpoint is None:
                self._endpoint = self._connected(grant, job.deadline)
            number = self._attached(self._endpoint, job, grant)
        except RuntimeError as error:
            raise NotConnected(str(error)) from None
        known = self._regions[key] = _Known(number, grant.rights, grant.size)
        if len(self._regions) > _REGIONS_KEPT:
            self._engine.detach(self._endpoint, self._regions.popitem(last=False)[1].number)
        return known

    def _attached(self, endpoint: int, job: Job, grant: Grant) -> int:
        slot = job.handle.slot if grant.stage is None else grant.stage
        return self._engine.attach(
            endpoint, slot, grant.alive, grant.region, grant.region_key, grant.word, grant.word_key
        )

    def _connected(self, grant: Grant, deadline: float) -> int:
        """By rdma_cm where both have it: the network's own way to find a path."""
        wanted = os.environ.get(RDMA_VARIABLE)
        if grant.listener is not None and wanted != "address":
            try:
                return self._engine.connect(
                    grant.worker, grant.listener, grant.lanes, grant.lanes_key, _soon(deadline)
                )
            except RuntimeError:
                if wanted == "cm":
                    raise
        elif wanted == "cm":
            raise RuntimeError("its owner has no listener of rdma_cm")
        return self._engine.connect(grant.worker, None, grant.lanes, grant.lanes_key, _soon(deadline))

    def move(self, job: Job) -> tuple[int, int]:
        """Status, and UCX's own where it failed."""
        return self._moved(job, job.offset, job.length, job.local)

    def _moved(self, job: Job, offset: int, length: int, local: Held) -> tuple[int, int]:
        known = self._regions.get(_key(job))
        if known is None or self._endpoint is None:
            return native.FAILED, native.UCX_CANCELED  # another thread has given the link up
        try:
            return self._engine.move(
                self._endpoint,
                known.number,
                job.write,
                offset,
                length,
                local.address,
                local.kind if isinstance(local, DeviceMemory) else 0,
                job.stop,
                job.deadline,
                self._connection.fileno(),
            )
        except RuntimeError:  # or is about to
            return native.FAILED, native.UCX_CANCELED

    def close(self) -> None:
        """The owner takes it as a sign that nothing of this process is under way any more."""
        if self._endpoint is not None:
            with suppress(RuntimeError):  # UCX has ended
                self._engine.disconnect(self._endpoint)
        self._connection.close()


def _soon(deadline: float) -> float:
    return min(deadline, time.monotonic() + _CONNECT_S)


def _key(job: Job) -> _Key:
    return job.handle.slot, job.handle.generation, job.handle.key
