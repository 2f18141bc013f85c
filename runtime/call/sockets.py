"""Unix sockets: connecting to one, and serving actors on one to peers of the same user."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import anyio.abc

from ..actor import Actor
from ..errors import MilkweedError, Unavailable
from ..tasks import background_tasks
from .session import Session

__all__ = ["accepted", "bind", "connect", "open_connection", "peer_uid", "serve"]

logger = logging.getLogger(__name__)

_DRAIN_S = 2.0
_LOOK_S = 2.0
_BACKLOG = 1024
_RETRY_S = 0.005
_NO_DESCRIPTOR_S = 0.2


@asynccontextmanager
async def open_connection(
    path: Path, *, role: str, peer: str = "peer", actors: Mapping[str, Actor] | None = None
) -> AsyncIterator[Session]:
    """Connects to a unix socket for the length of a `with` block.

    Raises:
        Unavailable: nobody listens there.
        ProtocolError: the peer is not Milkweed, or another version.
    """
    session = Session(await connect(path, peer), role=role, peer=peer, actors=actors)
    async with background_tasks() as tasks:
        await tasks.start(session.run)
        yield session


async def connect(path: Path, peer: str) -> socket.socket:
    """A connected socket, or Unavailable(connection_lost): nobody listens there."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        await _connect(sock, path)
    except OSError as error:
        sock.close()
        raise Unavailable(
            "connection_lost", f"{peer} does not listen ({error.strerror})", "See mesh_status."
        ) from None
    except BaseException:
        sock.close()
        raise
    return sock


async def _connect(sock: socket.socket, path: Path) -> None:
    while True:
        try:
            sock.connect(str(path))
        except BlockingIOError:  # so many wait to be accepted that the listener's backlog is full
            await asyncio.sleep(_RETRY_S)
        else:
            return


async def serve(
    path: Path,
    actors: Mapping[str, Actor],
    *,
    role: str,
    stop: anyio.Event | None = None,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Listens on a unix socket (mode 0600) until cancelled, or until `stop`: then calls under way are
    answered first.

    A socket left there by a dead process is replaced; the caller makes sure that there is one listener. A
    socket that somebody removed is made again: connections that are there go on.
    """

    async def handle(sock: socket.socket) -> None:
        session = Session(sock, role=role, actors=actors)
        sessions.add(session)
        try:
            await session.run()
        except MilkweedError as error:
            logger.warning("refused a peer: %s", error)
        finally:
            sessions.discard(session)

    def accept(listener: socket.socket) -> None:
        if (sock := accepted(listener)) is not None:
            group.start_soon(handle, sock)

    async def listen(*, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        loop = asyncio.get_running_loop()
        while True:
            with closing(bind(path)) as listener:
                loop.add_reader(listener, accept, listener)
                try:
                    task_status.started()
                    inode = _inode(path)
                    while _inode(path) == inode:  # noqa: ASYNC110 - nobody tells of a removal
                        await anyio.sleep(_LOOK_S)
                finally:
                    loop.remove_reader(listener)
            logger.warning("%s was removed and is made again", path)
            task_status = anyio.TASK_STATUS_IGNORED

    sessions: set[Session] = set()
    try:
        async with anyio.create_task_group() as group:
            await group.start(listen)
            task_status.started()
            if stop is not None:
                await stop.wait()
                with anyio.move_on_after(_DRAIN_S):
                    async with anyio.create_task_group() as draining:
                        for session in sessions:
                            draining.start_soon(session.drain)
                group.cancel_scope.cancel()
    finally:
        path.unlink(missing_ok=True)


def accepted(listener: socket.socket) -> socket.socket | None:
    """The next connection of a listener that is readable; None if there is none, or of another user."""
    try:
        sock, _ = listener.accept()
    except (BlockingIOError, ConnectionAbortedError):
        return None
    except OSError as error:
        logger.warning("cannot accept: %s", error.strerror)
        time.sleep(_NO_DESCRIPTOR_S)  # the listener stays readable: without a pause this would spin
        return None
    if peer_uid(sock) == os.getuid():
        return sock
    sock.close()
    return None


def bind(path: Path) -> socket.socket:
    """A listening unix socket of mode 0600; one that is there already is replaced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # Whoever sees the socket can connect to it: it gets its name when it listens.
        fresh = path.with_name(f".{path.name}")
        fresh.unlink(missing_ok=True)
        listener.bind(str(fresh))
        fresh.chmod(0o600)
        listener.listen(_BACKLOG)
        fresh.rename(path)
    except BaseException:
        listener.close()
        raise
    return listener


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def peer_uid(sock: socket.socket) -> int:
    _pid, uid, _gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)
