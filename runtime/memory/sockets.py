"""`unix` and `tcp`: the owner's process sends and receives, from and into the region itself."""

from __future__ import annotations

import hmac
import os
import socket
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from secrets import token_bytes
from typing import Literal

from .. import _native_memory as native
from ..call import peer_uid
from ..errors import MilkweedError, ProtocolError
from ..mesh_secret import MeshSecrets
from .common_mesh import common_mesh
from .handle import Handle, Machine, Owner
from .outcomes import DONE, error_of
from .protocol import CODE_BYTES, NONCE_BYTES, REPLY_BYTES, Request, Session, hello
from .providers import Job, Line, Unreachable
from .streams import receive, receive_into, send, tune

__all__ = ["Sockets"]

_CONNECT_S = 5.0
_RETRY_S = 0.005
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
            raise Unreachable("its owner listens on no address")
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


def _connect(sock: socket.socket, address: tuple[str, int] | str, deadline: float) -> None:
    while True:
        try:
            sock.connect(address)
        except BlockingIOError:  # of a unix socket: so many wait that its backlog is full
            if time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return


class _Streams:
    """Connections to one owner; those that are idle are kept for the next transfer."""

    quick = 0

    def __init__(
        self, name: str, owner: Owner, mesh: str, secret: bytes, forget: Callable[[_Streams], None]
    ) -> None:
        self.owner = owner
        self._name = name
        self._mesh = mesh
        self._secret = secret
        self._forget = forget
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._closed = False

    def move(self, job: Job) -> None:
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
            with self._connection(job) as connection:
                status, number = connection.move(job, at, length)
        except TimeoutError:
            # A peer that does nothing may be gone before the time is over.
            status, number = native.LATE if time.monotonic() >= job.deadline else native.OWNER_LOST, 0
        except OSError:
            status, number = native.OWNER_LOST, 0
        if status != DONE:
            status = native.STOPPED if job.stop.is_set() else status
            raise error_of(status, job.handle, write=job.write, number=number)

    @contextmanager
    def _connection(self, job: Job) -> Iterator[_Connection]:
        """One that is kept if it was used to the end."""
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        is_new = connection is None
        if connection is None:
            connection = _Connection(self._connected(job), self.owner, self._mesh, self._secret, job)
        try:
            if not is_new:
                connection.begin(job)
            yield connection
            connection.end()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._idle) < _IDLE_KEPT and not connection.is_broken and not self._closed:
                self._idle.append(connection)
                return
        connection.close()

    def _connected(self, job: Job) -> socket.socket:
        tcp = self.owner.tcp if self._name == "tcp" else None
        family = socket.AF_UNIX if tcp is None else socket.AF_INET6 if ":" in tcp[0] else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.settimeout(max(0.0, min(_CONNECT_S, job.deadline - time.monotonic())) or 1e-3)
            _connect(sock, tcp or f"\0{self.owner.unix}", job.deadline)
            tune(sock)
            if tcp is None and peer_uid(sock) != os.getuid():
                raise Unreachable("its owner is of another user")
        except Unreachable:
            sock.close()
            raise
        except ConnectionRefusedError:
            sock.close()
            raise  # nobody listens there any more
        except OSError as error:
            sock.close()
            if time.monotonic() >= job.deadline:
                raise TimeoutError from None
            raise Unreachable(f"{self.owner}: {error.strerror or error}", lasting=False) from None
        return sock

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


class _Connection:
    """To one owner; of one transfer at a time."""

    def __init__(self, sock: socket.socket, owner: Owner, mesh: str, secret: bytes, job: Job) -> None:
        self.is_broken = False
        self._sock = sock
        self._number = 0
        self._lock = threading.Lock()
        self._job: Job | None = None
        self.begin(job)  # an owner that is stopped does not greet, and whoever waits for it may leave
        try:
            self._session = self._greeted(owner, mesh, secret, job)
        except BaseException:
            sock.close()
            raise

    def _greeted(self, owner: Owner, mesh: str, secret: bytes, job: Job) -> Session:
        asking = token_bytes(NONCE_BYTES)
        send(self._sock, hello(asking, mesh), deadline=job.deadline)
        answer = receive(self._sock, NONCE_BYTES + CODE_BYTES, deadline=job.deadline)
        session = Session(secret, owner.token, asking, answer[:NONCE_BYTES])
        if not hmac.compare_digest(answer[NONCE_BYTES:], session.serving_proof):
            raise ProtocolError(
                "protocol_error",
                f"what listens where {owner} did is not that process, or is of another mesh",
                "Look at who does.",
            )
        send(self._sock, session.asking_proof)
        return session

    def begin(self, job: Job) -> None:
        self._job = job
        # Not held by what it holds itself: its memory is let go when it ends, not when that circle is found.
        of = weakref.ref(job)
        job.on_cancel(lambda: self._interrupt(of()))

    def end(self) -> None:
        with self._lock:
            self._job = None

    def _interrupt(self, job: Job | None) -> None:
        with self._lock:
            if job is not None and self._job is job:
                self.is_broken = True
                with suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)

    def move(self, job: Job, at: int, length: int) -> tuple[int, int]:
        """Status and errno.

        Raises:
            OSError: the peer is gone, or the time is over (TimeoutError).
            ProtocolError: it is not the owner that answers.
        """
        handle = job.handle
        self._number += 1
        request = Request(job.write, handle.slot, handle.generation, job.offset + at, length)
        view = job.local.view[at : at + length]
        with view:
            send(self._sock, self._session.request(request, handle.key, self._number), deadline=job.deadline)
            status, number = self._reply(job)
            if status == DONE and job.write:
                send(self._sock, b"", view, deadline=job.deadline)
                status, number = self._reply(job)
            elif status == DONE:
                receive_into(self._sock, view, deadline=job.deadline)
        return status, number

    def _reply(self, job: Job) -> tuple[int, int]:
        data = receive(self._sock, REPLY_BYTES, deadline=job.deadline)
        return self._session.read_reply(data, self._number, job.handle.key, DONE)

    def close(self) -> None:
        self._sock.close()
