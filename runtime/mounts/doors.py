"""Where a feed is reached: by a unix socket on one host, or `tcp://ADDRESS:PORT` between hosts.

Over TCP both ends first prove that they know the secret of one mesh, by the challenge that sockets of buffers
begin with (`memory/protocol.py`). What follows is neither signed nor hidden: that network is trusted.

What TCP alone takes is imported by it: a mount process is started again after each kill.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.abc

from ..actor import Actor
from ..call import Session, connect, serve
from ..errors import InvalidArgument, MilkweedError, ProtocolError, Unavailable

if TYPE_CHECKING:
    from ..mesh_secret import MeshSecrets

__all__ = ["connect_feed", "serve_feed"]

logger = logging.getLogger(__name__)

_TCP = "tcp://"
_TOKEN = b"a feed of files"  # so that no proof is one to an owner of buffers
_GREET_S = 5.0
_BACKLOG = 128
_NO_DESCRIPTOR_S = 0.2


async def connect_feed(address: str, peer: str) -> socket.socket:
    """A connected socket, on which both ends know each other.

    Raises:
        Unavailable: connection_lost, nobody listens there; directory_unusable, a secret cannot be read.
        ProtocolError: who listens there does not know the secret.
        InvalidArgument: an address of no kind; this process is of no mesh.
    """
    if not address.startswith(_TCP):
        return await connect(Path(address), peer)
    host, port = _host_and_port(address)
    mesh, secret = _own_mesh(address)
    sock = socket.socket(_family(host), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        async with asyncio.timeout(_GREET_S):
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
            await _ask(sock, mesh, secret, peer)
    except OSError as error:  # a TimeoutError too
        sock.close()
        why = error.strerror or "it does not answer"
        raise Unavailable("connection_lost", f"{peer} at {address}: {why}", "See mesh_status.") from None
    except BaseException:
        sock.close()
        raise
    return sock


async def serve_feed(
    address: str,
    actors: Mapping[str, Actor],
    *,
    role: str,
    task_status: anyio.abc.TaskStatus[str] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Until cancelled; started with the address that others can take, where the port was 0.

    Raises:
        OSError: the address cannot be had.
        InvalidArgument: one of no kind; this process is of no mesh.
    """
    if not address.startswith(_TCP):
        async with anyio.create_task_group() as group:
            await group.start(_serve_unix, Path(address), actors, role)
            task_status.started(address)
        return
    host, port = _host_and_port(address)
    _own_mesh(address)
    family = _family(host)
    with closing(socket.create_server((host, port), family=family, backlog=_BACKLOG)) as listener:
        listener.setblocking(False)
        async with anyio.create_task_group() as group:
            task_status.started(f"{address.rpartition(':')[0]}:{listener.getsockname()[1]}")
            while True:
                try:
                    sock, _ = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:
                    logger.warning("cannot accept: %s", error.strerror)
                    await anyio.sleep(_NO_DESCRIPTOR_S)
                else:
                    group.start_soon(_serve_peer, sock, actors, role)


async def _serve_unix(
    path: Path, actors: Mapping[str, Actor], role: str, *, task_status: anyio.abc.TaskStatus[None]
) -> None:
    await serve(path, actors, role=role, task_status=task_status)


async def _serve_peer(sock: socket.socket, actors: Mapping[str, Actor], role: str) -> None:
    try:
        async with asyncio.timeout(_GREET_S):
            await _answer(sock)
        await Session(sock, role=role, actors=actors).run()
    except TimeoutError:
        logger.warning("refused a peer: it says nothing")
    except (MilkweedError, OSError) as error:
        logger.warning("refused a peer: %s", error)
    finally:
        sock.close()


async def _ask(sock: socket.socket, mesh: str, secret: bytes, peer: str) -> None:
    from hmac import compare_digest

    from ..memory.protocol import CODE_BYTES, NONCE_BYTES, hello
    from ..memory.protocol import Session as Proofs
    from ..memory.streams import tune

    tune(sock)
    loop = asyncio.get_running_loop()
    asking = os.urandom(NONCE_BYTES)
    await loop.sock_sendall(sock, hello(asking, mesh))
    answer = await _received(sock, NONCE_BYTES + CODE_BYTES)
    proofs = Proofs(secret, _TOKEN, asking, answer[:NONCE_BYTES])
    if not compare_digest(answer[NONCE_BYTES:], proofs.serving_proof):
        raise ProtocolError(
            "protocol_error", f"what listens where {peer} should is of another mesh", "Look at who does."
        )
    await loop.sock_sendall(sock, proofs.asking_proof)


async def _answer(sock: socket.socket) -> None:
    """
    Raises:
        ProtocolError: the peer does not prove that it is of a mesh of ours.
    """
    from hmac import compare_digest

    from ..memory.protocol import CODE_BYTES, HELLO_BYTES, NONCE_BYTES, mesh_of, nonce_of
    from ..memory.protocol import Session as Proofs
    from ..memory.streams import tune

    tune(sock)
    said = await _received(sock, HELLO_BYTES)
    secrets, serving = _secrets(), os.urandom(NONCE_BYTES)
    mesh = mesh_of(said, filter(None, secrets.names))
    secret = None if mesh is None else secrets.of(mesh)
    # Where the mesh is not ours, nothing is proved, as the peer sees.
    proofs = Proofs(secret or os.urandom(NONCE_BYTES), _TOKEN, nonce_of(said), serving)
    await asyncio.get_running_loop().sock_sendall(sock, serving + proofs.serving_proof)
    if not compare_digest(await _received(sock, CODE_BYTES), proofs.asking_proof):
        raise ProtocolError("protocol_error", "a peer does not know this mesh's secret", "See who it is.")


async def _received(sock: socket.socket, count: int) -> bytes:
    """No byte more: what follows is the session's.

    Raises:
        ConnectionError: the peer has left.
    """
    data = b""
    while len(data) < count:
        more = await asyncio.get_running_loop().sock_recv(sock, count - len(data))
        if not more:
            raise ConnectionResetError(errno.ECONNRESET, "it left")
        data += more
    return data


def _secrets() -> MeshSecrets:
    from ..mesh_secret import MeshSecrets
    from ..node import node

    return node().part(MeshSecrets, MeshSecrets.of_process)


def _own_mesh(address: str) -> tuple[str, bytes]:
    """A mesh that this process is of, and its secret."""
    secrets = _secrets()
    for mesh in secrets.names:
        if mesh and (secret := secrets.of(mesh)):  # the one without a name is no mesh
            return mesh, secret
    raise InvalidArgument(
        "invalid_argument",
        f"{address} is for processes of a mesh, and this one knows the secret of none",
        "Set MILKWEED_MESH and MILKWEED_SECRET_FILE where it starts.",
    )


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(_TCP).rpartition(":")
    if not host or not port.isascii() or not port.isdigit():
        raise InvalidArgument("invalid_argument", f"no address: {address}", "Write tcp://ADDRESS:PORT.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
