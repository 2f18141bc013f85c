"""A conversation about one buffer with the process that owns it, on the asyncio loop that opens it."""

from __future__ import annotations

import asyncio
import hmac
import os
import socket
from contextlib import suppress
from secrets import token_bytes

from ...call import peer_uid
from ...errors import MilkweedError, ProtocolError, Unavailable
from ...mesh_secret import MeshSecrets
from ..common_mesh import common_mesh
from ..handle import Handle, Machine, Owner
from ..outcomes import DONE, error_of
from ..protocol import CODE_BYTES, NONCE_BYTES, REPLY_BYTES, Request, Session, hello
from ..providers import Unreachable
from ..streams import tune
from .messages import Message, pack, unpack
from .sealing import HEAD_BYTES, Opener, Sealer

__all__ = ["Line", "open_line", "taken_over"]

_RETRY_S = 0.005


class Line:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sealer: Sealer, opener: Opener
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._sealer = sealer
        self._opener = opener

    def send(self, message: Message) -> None:
        """Does not wait: there is little of it, and a peer that is gone is told by `receive`."""
        if not self._writer.is_closing():
            self._writer.write(self._sealer.seal(pack(message)))

    async def receive(self) -> Message | None:
        """The peer's next message; None when it has left.

        Raises:
            ProtocolError: what comes is not the peer's.
        """
        try:
            head = await self._reader.readexactly(HEAD_BYTES)
            rest = await self._reader.readexactly(Opener.rest(head))
        except (OSError, asyncio.IncompleteReadError):
            return None
        return unpack(self._opener.open(head, rest))

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """Without sending what is unsent."""
        self._writer.transport.abort()


async def taken_over(sock: socket.socket, sealer: Sealer, opener: Opener) -> Line:
    """Of a socket on which the conversation has begun."""
    sock.setblocking(False)
    return Line(*await asyncio.open_connection(sock=sock), sealer, opener)


async def open_line(handle: Handle, secrets: MeshSecrets, here: Machine) -> Line:
    """
    Raises:
        Unavailable: buffer_owner_lost, transport_unusable.
        ProtocolError: what listens there is not the owner, or is of another mesh.
        MilkweedError: what is wrong with the buffer.
    """
    try:
        mesh, secret = common_mesh(handle.owner, secrets)
    except Unreachable as why:
        raise Unavailable(
            "transport_unusable", f"{handle.owner}: {why.reason}", "Look at which meshes both are of."
        ) from None
    sock = await _connected(handle.owner, here)
    writer = None
    try:
        reader, writer = await asyncio.open_connection(sock=sock)
        return Line(reader, writer, *await _begun(reader, writer, handle, mesh, secret))
    except BaseException as error:
        if writer is not None:
            writer.transport.abort()
        else:
            sock.close()
        if isinstance(error, OSError | asyncio.IncompleteReadError):
            raise _lost(handle.owner) from None
        raise


async def _connected(owner: Owner, here: Machine) -> socket.socket:
    is_unix = here.shares_network(owner.machine)
    if here.is_cut_off(owner.machine):  # what has its address here is not it
        raise Unavailable(
            "transport_unusable",
            f"no way leads to {owner}: it is in the network of simulated hosts, or this process is",
            "Broadcast from an actor on those hosts, or from a controller that milkweed runs there.",
        )
    if not is_unix and owner.tcp is None:
        raise Unavailable(
            "transport_unusable",
            f"{owner} is on another host and listens on no address",
            "Start it with MILKWEED_BUFFER_ADDRESS set to one.",
        )
    family = socket.AF_UNIX if is_unix else _family(owner)
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        if is_unix:
            await _connect_unix(sock, f"\0{owner.unix}")
            if peer_uid(sock) != os.getuid():
                raise _of_another_user(owner)
        else:
            assert owner.tcp is not None
            await asyncio.get_running_loop().sock_connect(sock, owner.tcp)
        tune(sock)
    except MilkweedError:
        sock.close()
        raise
    except ConnectionRefusedError:
        sock.close()
        raise _lost(owner) from None
    except OSError as error:
        sock.close()
        raise Unavailable(
            "transport_unusable", f"{owner}: {error.strerror or error}", "Look at the network between."
        ) from None
    except BaseException:
        sock.close()
        raise
    return sock


def _family(owner: Owner) -> socket.AddressFamily:
    return socket.AF_INET6 if owner.tcp is not None and ":" in owner.tcp[0] else socket.AF_INET


async def _connect_unix(sock: socket.socket, name: str) -> None:
    while True:
        try:
            sock.connect(name)
        except BlockingIOError:  # so many wait that its backlog is full, and nothing tells when it is not
            await asyncio.sleep(_RETRY_S)
        else:
            return


async def _begun(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handle, mesh: str, secret: bytes
) -> tuple[Sealer, Opener]:
    asking = token_bytes(NONCE_BYTES)
    writer.write(hello(asking, mesh))
    answer = await reader.readexactly(NONCE_BYTES + CODE_BYTES)
    session = Session(secret, handle.owner.token, asking, answer[:NONCE_BYTES])
    if not hmac.compare_digest(answer[NONCE_BYTES:], session.serving_proof):
        raise ProtocolError(
            "protocol_error",
            f"what listens where {handle.owner} did is not that process, or is of another mesh",
            "Look at who does.",
        )
    request = Request(False, handle.slot, handle.generation, 0, 0, talk=True)
    writer.write(session.asking_proof + session.request(request, handle.key, 1))
    status, number = session.read_reply(await reader.readexactly(REPLY_BYTES), 1, handle.key, DONE)
    if status != DONE:
        raise error_of(status, handle, write=True, number=number)
    asks, serves = session.talk_keys(handle.key, 1)
    return Sealer(asks), Opener(serves)


def _lost(owner: Owner) -> Unavailable:
    return Unavailable(
        "buffer_owner_lost", f"{owner}, which owns the buffer, has ended", "Look at why it did."
    )


def _of_another_user(owner: Owner) -> Unavailable:
    return Unavailable("transport_unusable", f"{owner} is of another user", "Use buffers of your own.")
