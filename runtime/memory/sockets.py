"""`unix` and `tcp`: the owner's process sends and receives, from and into the region itself."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal

from .. import _native_memory as native
from ..errors import MilkweedError
from ..mesh_secret import MeshSecrets
from .common_mesh import common_mesh
from .connection import Connection, open_connection
from .device import DeviceMemory
from .handle import Handle, Machine, Owner
from .outcomes import DONE, error_of
from .providers import AT_OWNER, HERE, Job, Line, Unreachable
from .staging import failing, wait_until_ready

__all__ = ["Sockets"]

_STREAMS = {"unix": 2, "tcp": 4}
_LEAST_A_STREAM = 4 * 1024 * 1024
_IDLE_KEPT = 8
_OWNERS_KEPT = 256


class Sockets:
    """Large transfers go over several connections at once, each with a thread of its own."""

    at_hand = False

    def __init__(self, name: Literal["unix", "tcp"], machine: Machine, secrets: MeshSecrets) -> None:
        self.name = name
        self._machine = machine
        self._secrets = secrets
        self._lock = threading.Lock()
        self._lines: OrderedDict[bytes, _Streams] = OrderedDict()

    def reach(self, handle: Handle) -> Line:
        owner = handle.owner
        if self.name == "unix" and not self._machine.shares_network(owner.machine):
            raise Unreachable("its owner is on another host")
        if self.name == "tcp" and self._machine.is_cut_off(owner.machine):
            raise Unreachable("no way leads into the network of simulated hosts, or out of it")
        if self.name == "tcp" and owner.tcp is None:
            raise Unreachable("its owner listens on no address (MILKWEED_BUFFER_ADDRESS gives it one)")
        mesh, secret = common_mesh(owner, self._secrets)
        with self._lock:
            line = self._lines.get(owner.token)
            if line is None:
                line = _Streams(self.name, owner, mesh, secret, self._forget)
                self._lines[owner.token] = line
                if len(self._lines) > _OWNERS_KEPT:
                    self._lines.popitem(last=False)[1].end()
            return line

    def _forget(self, line: _Streams) -> None:
        """Of an owner that is gone no connection is kept."""
        with self._lock:
            if self._lines.get(line.owner.token) is line:
                del self._lines[line.owner.token]
        line.end()

    def close(self) -> None:
        for line in tuple(self._lines.values()):
            line.close()


class _Streams:
    """Connections to one owner; those that are idle are kept for the next transfer."""

    quick = 0

    def __init__(
        self,
        name: Literal["unix", "tcp"],
        owner: Owner,
        mesh: str,
        secret: bytes,
        forget: Callable[[_Streams], None],
    ) -> None:
        self.owner = owner
        self._name = name
        self._mesh = mesh
        self._secret = secret
        self._forget = forget
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    def move(self, job: Job) -> None:
        if isinstance(job.local, DeviceMemory):
            job.staged.add(HERE)
        if job.handle.device:
            job.staged.add(AT_OWNER)
        with failing(job.local, job):
            wait_until_ready(job.local, job.deadline, job.stop.is_set)
            self._move(job)

    def _move(self, job: Job) -> None:
        most = min(_STREAMS[self._name], len(os.sched_getaffinity(0)))
        streams = max(1, min(most, job.length // _LEAST_A_STREAM))
        size = -(-job.length // streams)
        parts = [(at, min(size, job.length - at)) for at in range(0, job.length, size or 1)] or [(0, 0)]
        failed: list[Exception] = []

        def run(at: int, length: int) -> None:
            try:
                self._move_part(job, at, length)
            except Exception as error:
                failed.append(error)

        threads = [threading.Thread(target=run, args=part, daemon=True) for part in parts[1:]]
        for thread, part in zip(threads, parts[1:], strict=True):
            try:
                thread.start()
            except RuntimeError:  # no thread now
                run(*part)
        run(*parts[0])
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        if any(isinstance(error, MilkweedError) and error.code == "buffer_owner_lost" for error in failed):
            self._forget(self)
        if failed:
            raise failed[0]

    def _move_part(self, job: Job, at: int, length: int) -> None:
        try:
            status, number = self._moved(job, at, length)
        except TimeoutError:
            # A peer that does nothing may be gone before the time is over.
            status, number = native.LATE if time.monotonic() >= job.deadline else native.OWNER_LOST, 0
        except OSError:
            status, number = native.OWNER_LOST, 0
        if status != DONE:
            status = native.STOPPED if job.stop.is_set() else status
            raise error_of(status, job.handle, write=job.write, number=number)

    def _moved(self, job: Job, at: int, length: int) -> tuple[int, int]:
        """As `Connection.move`. What was kept may have ended meanwhile, at an owner that lives."""
        while (connection := self._kept()) is not None:
            try:
                connection.begin(job)
                return self._move_on(connection, job, at, length)
            except ConnectionError:
                if connection.has_answered or connection.is_broken:
                    raise
        connection = open_connection(self._name, self.owner, self._mesh, self._secret, job, job.deadline)
        return self._move_on(connection, job, at, length)

    def _move_on(self, connection: Connection, job: Job, at: int, length: int) -> tuple[int, int]:
        """Keeps it if it was used to the end."""
        try:
            found = connection.move(job, at, length)
            connection.end()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < _IDLE_KEPT and not connection.is_broken and not self._closed:
                self._idle.append(connection)
                return found
        connection.close()
        return found

    def _kept(self) -> Connection | None:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None or not connection.has_ended():
                return connection
            connection.close()

    def end(self) -> None:
        """Of what is idle, now; of what is in use, when it is done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """In a forked child too, where the lock may be held for ever."""
        self._closed = True
        for connection in tuple(self._idle):
            connection.close()
