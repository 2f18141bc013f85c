"""A connection to an owner, on which requests about its regions are made: one at a time."""

from __future__ import annotations

import hmac
import math
import os
import select
import socket
import threading
import time
import weakref
from contextlib import closing, suppress
from secrets import token_bytes
from typing import Literal

from .. import _native_memory as native
from ..call import peer_uid
from ..errors import ProtocolError
from .grant import Grant
from .handle import Handle, Owner
from .outcomes import DONE
from .protocol import CODE_BYTES, NONCE_BYTES, REPLY_BYTES, SEALED_BYTES, Request, Session, hello
from .providers import Job, Unreachable
from .staging import filling, reading
from .streams import receive, receive_into, send, tune

__all__ = ["Connection", "Refused", "open_connection"]

_CONNECT_S = 5.0
_RETRY_S = 0.005
_LOOK_MS = 20


class Refused(Exception):
    """The owner did not grant it: status and errno, as `outcomes` has them."""

    def __init__(self, status: int, number: int) -> None:
        super().__init__(status, number)
        self.status = status
        self.number = number


def open_connection(
    name: Literal["unix", "tcp"],
    owner: Owner,
    mesh: str,
    secret: bytes,
    job: Job,
    deadline: float,
    reached_by: float = math.inf,
) -> Connection:
    """One that is in use by `job`. By `reached_by` its host is to have answered, by `deadline` its process.

    Raises:
        Unreachable: this way does not lead there.
        OSError: nobody listens there any more; TimeoutError.
        ProtocolError: it is not the owner that answers.
    """
    tcp = owner.tcp if name == "tcp" else None
    family = socket.AF_UNIX if tcp is None else socket.AF_INET6 if ":" in tcp[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    reached_by = min(reached_by, deadline)
    try:
        sock.settimeout(max(0.0, min(_CONNECT_S, reached_by - time.monotonic())) or 1e-3)
        _connect(sock, tcp or f"\0{owner.unix}", reached_by)
        tune(sock)
        if tcp is None and peer_uid(sock) != os.getuid():
            raise Unreachable("its owner is of another user")
    except (Unreachable, ConnectionRefusedError):
        sock.close()
        raise
    except OSError as error:
        sock.close()
        if time.monotonic() >= reached_by:
            raise TimeoutError from None
        raise Unreachable(f"{owner}: {error.strerror or error}", lasting=False) from None
    return Connection(sock, owner, mesh, secret, job, deadline)


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


class Connection:
    """To one owner; of one transfer at a time."""

    def __init__(
        self, sock: socket.socket, owner: Owner, mesh: str, secret: bytes, job: Job, deadline: float
    ) -> None:
        self.is_broken = False
        self.has_answered = False
        self._sock = sock
        self._number = 0
        self._lock = threading.Lock()
        self._job: Job | None = None
        self.begin(job)  # an owner that is stopped does not greet, and whoever waits for it may leave
        try:
            self._session = self._greeted(owner, mesh, secret, deadline)
        except BaseException:
            sock.close()
            raise

    def _greeted(self, owner: Owner, mesh: str, secret: bytes, deadline: float) -> Session:
        asking = token_bytes(NONCE_BYTES)
        send(self._sock, hello(asking, mesh), deadline=deadline)
        answer = receive(self._sock, NONCE_BYTES + CODE_BYTES, deadline=deadline)
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
        self.has_answered = False
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
        send(self._sock, self._session.request(request, handle.key, self._number), deadline=job.deadline)
        status, number = self._reply(handle, job.deadline)
        if status == DONE and job.write:
            with closing(reading(job.local, at, length)) as pieces:
                for piece in pieces:
                    send(self._sock, b"", piece.view, deadline=job.deadline)
            status, number = self._reply(handle, job.deadline)
        elif status == DONE:
            with closing(filling(job.local, at, length)) as pieces:
                for piece in pieces:
                    receive_into(self._sock, piece.view, deadline=job.deadline)
        return status, number

    def grant(self, handle: Handle, deadline: float, *, write: bool, staged: bool = False) -> Grant:
        """What it takes to reach the region, or its stage, by RDMA, for as long as this connection is open.

        Raises:
            Refused.
            OSError, ProtocolError: as `move`.
        """
        self._number += 1
        request = Request(write, handle.slot, handle.generation, 0, 0, rdma=True, staged=staged)
        send(self._sock, self._session.request(request, handle.key, self._number), deadline=deadline)
        status, number = self._reply(handle, deadline)
        if status != DONE:
            raise Refused(status, number)
        head = receive(self._sock, SEALED_BYTES, deadline=deadline)
        rest = receive(self._sock, self._session.length_of_sealed(head), deadline=deadline)
        return Grant.unpack(self._session.read_sealed(head + rest, self._number, handle.key))

    def has_ended(self) -> bool:
        """Of one that is idle: nothing can come on it but its end."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | select.POLLRDHUP)
        return bool(poll.poll(0))

    def give_up_after(self, seconds: float) -> None:
        """What its host has not acknowledged by then, it never will; of one on which little is sent."""
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))

    def fileno(self) -> int:
        return self._sock.fileno()

    def ask_stage(self, job: Job, at: int, length: int, area: int) -> None:
        """Has so much of the region loaded into the area, or stored from it; the answer is to be awaited.

        Raises:
            OSError: as `move`.
        """
        handle = job.handle
        self._number += 1
        request = Request(
            job.write, handle.slot, handle.generation, job.offset + at, length, staged=True, area=area
        )
        send(self._sock, self._session.request(request, handle.key, self._number), deadline=job.deadline)

    def stage_answer(self, job: Job, later: int) -> tuple[int, int]:
        """Status and errno of what was asked before the last `later`; STOPPED as soon as the job is.

        Raises:
            OSError, ProtocolError: as `move`.
        """
        watched = select.poll()
        watched.register(self._sock, select.POLLIN)
        while not watched.poll(_LOOK_MS):
            if job.stop.is_set():
                return native.STOPPED, 0
            if time.monotonic() >= job.deadline:
                return native.LATE, 0
        data = receive(self._sock, REPLY_BYTES, deadline=job.deadline)
        return self._session.read_reply(data, self._number - later, job.handle.key, DONE)

    def _reply(self, handle: Handle, deadline: float) -> tuple[int, int]:
        data = receive(self._sock, REPLY_BYTES, deadline=deadline)
        self.has_answered = True
        return self._session.read_reply(data, self._number, handle.key, DONE)

    def close(self) -> None:
        self._sock.close()
