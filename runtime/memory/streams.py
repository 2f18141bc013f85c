"""Sockets that carry regions: all of it or an error, straight from and into the memory itself."""

from __future__ import annotations

import math
import os
import select
import socket

from .. import _native_memory as native

__all__ = ["Offering", "has_left", "receive", "receive_into", "send", "tune"]

_LOOK_S, _LOOKS = 1, 4  # a host that is gone without a word is noticed after so many seconds
_LEAST_SHARED = 1024 * 1024
_UNTAKEN_MS = 20_000  # a process that is stopped takes nothing either, and may go on


def tune(sock: socket.socket) -> None:
    """A host that is gone is noticed, though it says nothing; small requests do not wait for more."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNTAKEN_MS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _LOOK_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _LOOK_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _LOOKS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def has_left(sock: socket.socket) -> bool:
    """Whether the peer says nothing any more; does not wait."""
    watched = select.poll()
    watched.register(sock, select.POLLRDHUP)
    return bool(watched.poll(0))


def receive(sock: socket.socket, count: int, *, idle: float = math.inf, deadline: float = math.inf) -> bytes:
    """
    Raises:
        ConnectionError: the peer is gone. TimeoutError.
    """
    data = bytearray(count)
    with memoryview(data) as view:
        receive_into(sock, view, idle=idle, deadline=deadline)
    return bytes(data)


def receive_into(
    sock: socket.socket, view: memoryview, *, idle: float = math.inf, deadline: float = math.inf
) -> None:
    """Fills the view; `idle`: so many seconds the peer may do nothing.

    Raises:
        ConnectionError: the peer is gone. TimeoutError.
    """
    if view.nbytes:
        _raise_for(*native.receive(sock.fileno(), native.address_of(view), view.nbytes, idle, deadline))


def send(
    sock: socket.socket,
    head: bytes,
    view: memoryview | None = None,
    *,
    idle: float = math.inf,
    deadline: float = math.inf,
) -> None:
    """Sends both.

    Raises:
        ConnectionError: the peer is gone. TimeoutError.
    """
    size = 0 if view is None else view.nbytes
    address = native.address_of(view) if view is not None and size else 0
    _raise_for(*native.send(sock.fileno(), head, address, size, idle, deadline))


class Offering:
    """Sends regions on one connection: over TCP from the memory itself, where kernel and device can."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.verdict = native.IS_COPIED if sock.family == socket.AF_UNIX else native.UNTRIED

    def send(self, head: bytes, view: memoryview, *, idle: float, deadline: float = math.inf) -> None:
        """Sends both; the memory is in use until it returns or raises.

        Raises:
            ConnectionError: the peer is gone. TimeoutError. The connection is then of no further use.
        """
        if view.nbytes < _LEAST_SHARED or self.verdict == native.IS_COPIED:
            send(self._sock, head, view, idle=idle, deadline=deadline)
            return
        send(self._sock, head, idle=idle, deadline=deadline)
        status, number, self.verdict = native.send_from(
            self._sock.fileno(), native.address_of(view), view.nbytes, self.verdict, idle, deadline
        )
        _raise_for(status, number)


def _raise_for(status: int, number: int) -> None:
    if status == native.LATE:
        raise TimeoutError
    if status == native.OWNER_LOST:
        raise ConnectionResetError("the peer closed")
    if status == native.FAILED:
        raise OSError(number, os.strerror(number))
