"""Unix sockets: connecting to one, and serving actors on one to peers of the same user."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc

from ..actor import Actor
from ..errors import MilkweedError, Unavailable
from ..tasks import background_tasks
from .connection import Connection

__all__ = ["connect_stream", "open_connection", "serve"]

logger = logging.getLogger(__name__)

DRAIN_S = 2.0
_LOOK_S = 2.0


@asynccontextmanager
async def open_connection(
    path: Path, *, role: str, peer: str = "peer", actors: Mapping[str, Actor] | None = None
) -> AsyncIterator[Connection]:
    """Connects to a unix socket for the length of a `with` block.

    Raises:
        Unavailable: nobody listens there.
        ProtocolError: the peer is not Milkweed, or another version.
    """
    connection = Connection(await connect_stream(path, peer), role=role, peer=peer, actors=actors)
    async with background_tasks() as tasks:
        await tasks.start(connection.run)
        yield connection


async def connect_stream(path: Path, peer: str) -> anyio.abc.ByteStream:
    try:
        return await anyio.connect_unix(path)
    except OSError as error:
        raise Unavailable(
            "connection_lost", f"{peer} does not listen ({error.strerror})", "See mesh_status."
        ) from None


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

    async def handle(stream: anyio.abc.SocketStream) -> None:
        if _peer_uid(stream) != os.getuid():
            await stream.aclose()
            return
        connection = Connection(stream, role=role, actors=actors)
        connections.add(connection)
        try:
            await connection.run()
        except MilkweedError as error:
            logger.warning("refused a peer: %s", error)
        finally:
            connections.discard(connection)

    async def listen(*, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        while True:
            async with await _listener(path) as listener, background_tasks() as accepting:
                accepting.start_soon(listener.serve, handle, group)
                task_status.started()
                inode = _inode(path)
                while _inode(path) == inode:  # noqa: ASYNC110 - nobody tells of a removal
                    await anyio.sleep(_LOOK_S)
            logger.warning("%s was removed and is made again", path)
            task_status = anyio.TASK_STATUS_IGNORED

    connections: set[Connection] = set()
    try:
        async with anyio.create_task_group() as group:
            await group.start(listen)
            task_status.started()
            if stop is not None:
                await stop.wait()
                with anyio.move_on_after(DRAIN_S):
                    async with anyio.create_task_group() as draining:
                        for connection in connections:
                            draining.start_soon(connection.drain)
                group.cancel_scope.cancel()
    finally:
        path.unlink(missing_ok=True)


async def _listener(path: Path) -> anyio.abc.SocketListener:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return await anyio.create_unix_listener(path, mode=0o600)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _peer_uid(stream: anyio.abc.SocketStream) -> int:
    raw: socket.socket = stream.extra(anyio.abc.SocketAttribute.raw_socket)
    _pid, uid, _gid = struct.unpack("3i", raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(uid)
