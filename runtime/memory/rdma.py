"""`rdma`: the network cards of both hosts do it. The owner takes no part, but for the first contact."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections import OrderedDict

from .. import _native_memory as native
from ..errors import MilkweedError
from ..mesh_secret import MeshSecrets
from .common_mesh import common_mesh
from .connection import Refused
from .handle import Handle, Machine, Owner
from .holding import Held
from .outcomes import DONE, error_of
from .pinned import Pinned
from .providers import AT_OWNER, Job, Line, Unreachable
from .rdma_link import Link, NotConnected
from .rdma_staged import StagedLink
from .staging import failing, on_host, wait_until_ready
from .ucx import Ucx, may_pin

__all__ = ["Rdma"]

logger = logging.getLogger(__name__)

_REACH_S = 3.0
_REACH_AGAIN_S = 0.7  # after a failure, which took a second by itself: a dead host is told of within two
_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 960.0  # until it is tried again where UCX did not connect
_OWNERS_KEPT = 256
_LOOK_S = 0.02

_REFUSALS = {
    errno.ENODEV: "its owner has no RDMA",
    errno.ENOMEM: "its owner may not pin so much memory (ulimit -l there)",
    errno.EIO: "its owner cannot register it with UCX: see its log",
    errno.EOPNOTSUPP: "its owner's UCX does not register memory of that device",
}


class _DeviceUnreached(Unreachable):
    """As it seems by the card: memory of one of both ends is on a device."""


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
    """To one owner. Links are made when they are needed, and again when they have failed."""

    quick = 0

    def __init__(self, engine: native.Ucx, owner: Owner, mesh: str, secret: bytes) -> None:
        self._engine = engine
        self._owner = owner
        self._mesh = mesh
        self._secret = secret
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of who uses the staged one
        self._links: dict[bool, Link] = {}  # by whether it is the staged one
        self._stuck: list[Held] = []
        self._reason = ""
        self._pause_s = _PAUSE_S
        self._paused_until = 0.0
        self._reached = engine.memory_types  # kinds of memory, as bits, of the devices here
        self._unreached: set[str] = set()  # its owner's devices

    def move(self, job: Job) -> None:
        """What the cards reach, by them alone; of other devices, by way of the host's memory."""
        if isinstance(job.local, Pinned):
            self._move(job)
            return
        if self._reached >> job.local.kind & 1:
            try:
                with failing(job.local, job):
                    wait_until_ready(job.local, job.deadline, job.stop.is_set)
                self._move(job)
            except _DeviceUnreached as why:
                logger.warning("memory on %s goes through the host's: %s", job.local.where, why.reason)
                self._reached &= ~(1 << job.local.kind)
            else:
                return
        with on_host(job) as jobs:
            for one in jobs:
                self._move(one)

    def _move(self, job: Job) -> None:
        device = job.handle.device
        if device not in self._unreached:
            try:
                self._attempt(job, staged=False)
            except _DeviceUnreached as why:
                if not device:
                    raise
                logger.warning("buffers on %s go through its host's memory: %s", device, why.reason)
                self._unreached.add(device)
            else:
                return
        job.staged.add(AT_OWNER)
        _wait_for_turn(self._turn, job)
        try:
            self._attempt(job, staged=True)
        finally:
            self._turn.release()

    def _attempt(self, job: Job, *, staged: bool) -> None:
        for within in (_REACH_S, _REACH_AGAIN_S):
            link = self._connected(job, time.monotonic() + within, staged=staged)
            status, number = self._tried(link, job)
            if link.is_spent:
                self._forget(link)
            if status == DONE:
                return
            if status not in (native.FAILED, native.OWNER_LOST):
                raise error_of(status, job.handle, write=job.write, number=number)
            # Both ends are asked again: it may have been dropped, its owner may be gone.
            if number == native.UCX_IN_PROGRESS:
                self._stuck.append(job.local)
            self._forget(link)
        raise self._failed(job, number)

    @staticmethod
    def _tried(link: Link, job: Job) -> tuple[int, int]:
        try:
            return link.move(job)
        except TimeoutError:
            return native.LATE if time.monotonic() >= job.deadline else native.OWNER_LOST, 0
        except OSError:
            return native.OWNER_LOST, 0

    def _failed(self, job: Job, number: int) -> Exception:
        reason = f"UCX: {self._engine.words(number)}"
        if not may_pin(job.length):
            return Unreachable(
                f"{reason}; {job.length} bytes may not be pinned here (ulimit -l)",
                lasting=False,  # fewer may
                forbidden=True,
            )
        of_device = job.handle.device or not isinstance(job.local, Pinned)
        return (_DeviceUnreached if of_device else Unreachable)(reason, lasting=False)

    def _connected(self, job: Job, reached_by: float, *, staged: bool) -> Link:
        """A link that knows the job's region. An owner that is stopped, or pins much, is waited for.

        Raises:
            Unreachable: RDMA does not lead there.
            MilkweedError: `outcomes`.
        """
        link = self._links.get(staged)
        if link is not None and link.knows(job):
            return link  # without its owner, which others may be waiting for
        _wait_for_turn(self._lock, job)
        try:
            link = self._links.get(staged)
            if link is None:
                if time.monotonic() < self._paused_until:
                    raise Unreachable(self._reason, lasting=False)
                kind = StagedLink if staged else Link
                link = kind(self._engine, self._owner, self._mesh, self._secret, job, reached_by)
                self._links[staged] = link
            link.learn(job)
            self._pause_s = _PAUSE_S
            return link
        except Refused as refused:
            if refused.status == native.FAILED:
                raise _refused(refused.number) from None
            raise error_of(refused.status, job.handle, write=job.write) from None
        except NotConnected as error:
            self._close_link(staged)
            if time.monotonic() >= job.deadline:
                raise error_of(native.LATE, job.handle, write=job.write) from None
            self._reason, self._paused_until = str(error), time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            raise Unreachable(self._reason, lasting=False) from None
        except (Unreachable, MilkweedError):
            self._close_link(staged)
            raise
        except OSError:  # TimeoutError too
            self._close_link(staged)
            late = time.monotonic() >= job.deadline
            status = native.STOPPED if job.stop.is_set() else native.LATE if late else native.OWNER_LOST
            raise error_of(status, job.handle, write=job.write) from None
        finally:
            self._lock.release()

    def _forget(self, link: Link) -> None:
        with self._lock:
            if self._links.get(link.is_staged) is link:
                self._close_link(link.is_staged)

    def _close_link(self, staged: bool) -> None:
        link = self._links.pop(staged, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """In a forked child, where the lock may be held for ever, too."""
        for staged in tuple(self._links):
            self._close_link(staged)


def _wait_for_turn(lock: threading.Lock, job: Job) -> None:
    """
    Raises:
        MilkweedError: the job was over before.
    """
    while not lock.acquire(timeout=_LOOK_S):
        if job.stop.is_set() or time.monotonic() >= job.deadline:
            status = native.STOPPED if job.stop.is_set() else native.LATE
            raise error_of(status, job.handle, write=job.write)


def _refused(number: int) -> Unreachable:
    reason = _REFUSALS.get(number, os.strerror(number))
    if number == errno.EOPNOTSUPP:
        return _DeviceUnreached(reason)
    # What is wrong with one region is not with the next.
    return Unreachable(reason, lasting=number == errno.ENODEV, forbidden=number == errno.ENOMEM)
