"""`rdma`: the network cards of both hosts do it. The owner takes no part, but for the first contact."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import OrderedDict
from contextlib import suppress

from .. import _native_memory as native
from ..errors import MilkweedError
from ..mesh_secret import MeshSecrets
from .common_mesh import common_mesh
from .connection import Connection, Refused, open_connection
from .grant import Grant
from .handle import READ, WRITE, Handle, Machine, Owner
from .outcomes import DONE, error_of
from .pinned import Pinned
from .providers import Job, Line, Unreachable
from .ucx import RDMA_VARIABLE, Ucx, may_pin

__all__ = ["Rdma"]

_CONNECT_S = 3.0
_ASK_AGAIN_S = 0.7  # after a failure, which took a second by itself: a dead host is told of within two
_OWNERS_KEPT = 256
_REGIONS_KEPT = 1024

_REFUSALS = {
    errno.ENODEV: "its owner has no RDMA",
    errno.ENOMEM: "its owner may not pin so much memory (ulimit -l there)",
    errno.EIO: "its owner cannot register it with UCX: see its log",
}


_Key = tuple[int, int, bytes]


class Rdma:
    name = "rdma"
    at_hand = False

    def __init__(self, ucx: Ucx, machine: Machine, own: bytes, secrets: MeshSecrets) -> None:
        self._ucx = ucx
        self._machine = machine
        self._own = own
        self._secrets = secrets
        self._lock = threading.Lock()
        self._lines: OrderedDict[bytes, _Line] = OrderedDict()

    def reach(self, handle: Handle) -> Line:
        owner = handle.owner
        if owner.token == self._own:
            raise Unreachable("it is this process")
        if owner.tcp is None:
            raise Unreachable("its owner listens on no address")
        if self._machine.is_cut_off(owner.machine):
            raise Unreachable("no way leads into the network of simulated hosts, or out of it")
        engine = self._ucx.engine()
        mesh, secret = common_mesh(owner, self._secrets)
        with self._lock:
            line = self._lines.get(owner.token)
            if line is None:
                line = self._lines[owner.token] = _Line(engine, owner, mesh, secret)
                if len(self._lines) > _OWNERS_KEPT:
                    self._lines.popitem(last=False)[1].close()
            return line

    def close(self) -> None:
        for line in tuple(self._lines.values()):
            line.close()


class _Line:
    """To one owner. `_link` is made when it is needed, and again when it has failed."""

    quick = 0

    def __init__(self, engine: native.Ucx, owner: Owner, mesh: str, secret: bytes) -> None:
        self._engine = engine
        self._owner = owner
        self._mesh = mesh
        self._secret = secret
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._stuck: list[Pinned] = []

    def move(self, job: Job) -> None:
        for within in (_CONNECT_S, _ASK_AGAIN_S):
            link = self._connected(job, min(job.deadline, time.monotonic() + within))
            status, number = link.move(job)
            if status == DONE:
                return
            if status not in (native.FAILED, native.OWNER_LOST):
                raise error_of(status, job.handle, write=job.write, number=number)
            # Both ends are asked again: it may have been dropped, its owner may be gone.
            if number == native.UCX_IN_PROGRESS:
                self._stuck.append(job.local)
            self._forget(link)
        raise self._failed(job, number)

    def _failed(self, job: Job, number: int) -> Exception:
        reason = f"UCX: {self._engine.words(number)}"
        if not may_pin(job.length):
            return Unreachable(
                f"{reason}; {job.length} bytes may not be pinned here (ulimit -l)", forbidden=True
            )
        return Unreachable(reason, lasting=False)

    def _connected(self, job: Job, deadline: float) -> _Link:
        """A link that knows the job's region.

        Raises:
            Unreachable: RDMA does not lead there.
            MilkweedError: `outcomes`.
        """
        with self._lock:
            try:
                if self._link is None:
                    self._link = _Link(self._engine, self._owner, self._mesh, self._secret, job, deadline)
                self._link.learn(job, deadline)
            except Refused as refused:
                if refused.status == native.FAILED:
                    reason = _REFUSALS.get(refused.number, os.strerror(refused.number))
                    raise Unreachable(reason, forbidden=refused.number == errno.ENOMEM) from None
                raise error_of(refused.status, job.handle, write=job.write) from None
            except (Unreachable, MilkweedError):
                self._close_link()
                raise
            except TimeoutError:
                self._close_link()
                late = time.monotonic() >= job.deadline
                status = native.LATE if late else native.OWNER_LOST
                raise error_of(status, job.handle, write=job.write) from None
            except OSError:
                self._close_link()
                raise error_of(native.OWNER_LOST, job.handle, write=job.write) from None
            return self._link

    def _forget(self, link: _Link) -> None:
        with self._lock:
            if self._link is link:
                self._close_link()

    def _close_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def close(self) -> None:
        """In a forked child, where the lock may be held for ever, too."""
        self._close_link()


class _Link:
    """A connection on which the owner grants regions, and the endpoint by which they are reached."""

    def __init__(
        self, engine: native.Ucx, owner: Owner, mesh: str, secret: bytes, job: Job, deadline: float
    ) -> None:
        self._engine = engine
        self._connection: Connection = open_connection("tcp", owner, mesh, secret, job, deadline)
        self._connection.end()  # the job that opened it has no part in it
        self._endpoint: int | None = None
        self._regions: OrderedDict[_Key, tuple[int, int]] = OrderedDict()  # its number here, its rights

    def learn(self, job: Job, deadline: float) -> None:
        """
        Raises:
            Refused; Unreachable.
            OSError, ProtocolError: `Connection.move`.
        """
        key, right = _key(job), WRITE if job.write else READ
        if (known := self._regions.get(key)) is not None:
            self._regions.move_to_end(key)
            if not known[1] & right:
                raise Refused(native.FORBIDDEN, 0)
            return
        grant = self._connection.grant(job.handle, deadline, write=job.write)
        try:
            if self._endpoint is None:
                self._endpoint = self._connected(grant, deadline)
            number = self._engine.attach(
                self._endpoint,
                job.handle.slot,
                job.handle.generation,
                grant.region,
                grant.region_key,
                grant.word,
                grant.word_key,
            )
        except RuntimeError as error:
            raise Unreachable(str(error)) from None
        self._regions[key] = number, grant.rights
        if len(self._regions) > _REGIONS_KEPT:
            self._engine.detach(self._endpoint, self._regions.popitem(last=False)[1][0])

    def _connected(self, grant: Grant, deadline: float) -> int:
        """By rdma_cm where both have it: the network's own way to find a path."""
        wanted = os.environ.get(RDMA_VARIABLE)
        if grant.listener is not None and wanted != "address":
            try:
                return self._engine.connect(
                    grant.worker, grant.listener, grant.lanes, grant.lanes_key, deadline
                )
            except RuntimeError:
                if wanted == "cm":
                    raise
        elif wanted == "cm":
            raise RuntimeError("its owner has no listener of rdma_cm")
        return self._engine.connect(grant.worker, None, grant.lanes, grant.lanes_key, deadline)

    def move(self, job: Job) -> tuple[int, int]:
        """Status, and UCX's own where it failed."""
        known = self._regions.get(_key(job))
        if known is None or self._endpoint is None:
            return native.FAILED, native.UCX_CANCELED  # another thread has given the link up
        try:
            return self._engine.move(
                self._endpoint,
                known[0],
                job.write,
                job.offset,
                job.length,
                job.local.address,
                0,
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


def _key(job: Job) -> _Key:
    return job.handle.slot, job.handle.generation, job.handle.key
