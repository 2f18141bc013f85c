"""Blocking sockets that carry regions: all of it or an error, straight from and into the memory itself."""

from __future__ import annotations

import socket
import time

__all__ = ["receive", "receive_into", "send", "tune"]

_PIECE = 4 * 1024 * 1024
_USER_TIMEOUT_MS = 10_000


def tune(sock: socket.socket) -> None:
    """A peer that is gone without a word is noticed; small requests do not wait for more."""
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def receive(sock: socket.socket, count: int) -> bytes:
    """
    Raises:
        ConnectionError: the peer is gone. TimeoutError.
    """
    data = bytearray(count)
    receive_into(sock, memoryview(data))
    return bytes(data)


def receive_into(sock: socket.socket, view: memoryview, deadline: float | None = None) -> None:
    """Fills the view; the socket's own timeout counts for each piece, the deadline for all.

    Raises:
        ConnectionError: the peer is gone. TimeoutError.
    """
    at, size = 0, len(view)
    while at < size:
        _limit(sock, deadline)
        count = sock.recv_into(view[at : at + _PIECE])
        if count == 0:
            raise ConnectionResetError("the peer closed")
        at += count


def send(
    sock: socket.socket, head: bytes, view: memoryview | None = None, deadline: float | None = None
) -> None:
    """Sends both, without a copy in this process.

    Raises:
        ConnectionError: the peer is gone. TimeoutError.
    """
    if view is None or not len(view):
        _limit(sock, deadline)
        sock.sendall(head)
        return
    _limit(sock, deadline)
    at = sock.sendmsg([head, view[:_PIECE]]) - len(head)
    if at < 0:
        sock.sendall(head[at:])
        at = 0
    while at < len(view):
        _limit(sock, deadline)
        piece = view[at : at + _PIECE]
        sock.sendall(piece)
        at += len(piece)


def _limit(sock: socket.socket, deadline: float | None) -> None:
    if deadline is not None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
