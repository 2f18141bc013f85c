"""The owner's end of sockets: its regions, for those who know a mesh's secret and a buffer's key."""

from __future__ import annotations

import errno
import hmac
import logging
import os
import socket
import threading
import time
from contextlib import suppress
from secrets import token_bytes
from typing import Protocol

from .. import _native_memory as native
from ..call import peer_uid
from ..errors import ProtocolError, Unavailable
from ..mesh_secret import MeshSecrets
from .broadcast.sealing import Opener, Sealer
from .outcomes import DONE
from .protocol import CODE_BYTES, HELLO_BYTES, NONCE_BYTES, REQUEST_BYTES, Request, Session, mesh_of, nonce_of
from .regions import Region, Regions
from .streams import Offering, receive, receive_into, send, tune

__all__ = ["Server", "Talks"]

logger = logging.getLogger(__name__)

_MOST_PEERS = 512
_HANDSHAKE_S = 5.0
_PROGRESS_S = 10.0
_NO_ROOM_S = 0.2
_END_S = 1.0


class Talks(Protocol):
    """What is more than reads and writes: it has the connection to itself."""

    def talk(self, sock: socket.socket, sealer: Sealer, opener: Opener, region: Region) -> None:
        """Returns when the talk is over.

        Raises:
            ProtocolError. OSError: the peer has left.
        """

    def end(self) -> None:
        """Whoever waits in a talk is woken: the process ends."""


class Server:
    """A thread for each listener, and for each peer, which wait and send without the GIL."""

    def __init__(self, regions: Regions, secrets: MeshSecrets, talks: Talks) -> None:
        self._regions = regions
        self._secrets = secrets
        self._talks = talks
        self._listeners: list[socket.socket] = []
        self._peers: dict[socket.socket, threading.Thread] = {}
        self._places = threading.BoundedSemaphore(_MOST_PEERS)
        self._closed = False

    def listen(self, listener: socket.socket) -> None:
        self._listeners.append(listener)
        threading.Thread(
            target=self._accept, args=(listener,), name="milkweed-memory-accept", daemon=True
        ).start()

    def close(self) -> None:
        """In a forked child too, which has no such threads."""
        self._closed = True
        for sock in (*self._listeners, *tuple(self._peers)):
            sock.close()

    def end(self) -> None:
        """Ends listeners and peers, and waits for the threads of these, for a while.

        The interpreter aborts the program where one of them comes back from native code when it has ended.
        """
        self._closed = True
        threads = tuple(self._peers.values())
        for sock in (*self._listeners, *tuple(self._peers)):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._talks.end()
        until = time.monotonic() + _END_S
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed:
            self._places.acquire()  # those who find none wait, as any do before they are accepted
            try:
                sock, _ = listener.accept()
            except OSError as error:
                self._places.release()
                if error.errno in (errno.EBADF, errno.EINVAL):
                    return
                time.sleep(_NO_ROOM_S)  # no descriptor now; without a pause this would spin
                continue
            thread = threading.Thread(target=self._serve, args=(sock,), name="milkweed-memory", daemon=True)
            self._peers[sock] = thread
            try:
                thread.start()
            except RuntimeError:  # no thread now
                self._forget(sock)

    def _serve(self, sock: socket.socket) -> None:
        try:
            if _may_ask(sock):
                tune(sock)
                self._answer_all(sock, self._greet(sock))
        except ProtocolError as error:
            logger.warning("refused a peer: %s", error)
        except OSError:
            pass  # it has left
        finally:
            self._forget(sock)

    def _forget(self, sock: socket.socket) -> None:
        sock.close()
        self._peers.pop(sock, None)
        self._places.release()

    def _answer_all(self, sock: socket.socket, session: Session) -> None:
        number, offering = 0, Offering(sock)
        while True:
            request = receive(sock, REQUEST_BYTES)
            number += 1
            if self._answer(sock, offering, session, request, number):
                return

    def _greet(self, sock: socket.socket) -> Session:
        deadline = time.monotonic() + _HANDSHAKE_S
        said = receive(sock, HELLO_BYTES, deadline=deadline)
        asking = nonce_of(said)
        serving = token_bytes(NONCE_BYTES)
        session = Session(self._secret(said), self._regions.token, asking, serving)
        send(sock, serving + session.serving_proof, deadline=deadline)
        if not hmac.compare_digest(receive(sock, CODE_BYTES, deadline=deadline), session.asking_proof):
            raise ProtocolError("protocol_error", "a peer does not know this mesh's secret", "See who it is.")
        return session

    def _secret(self, said: bytes) -> bytes:
        """That of the mesh which a hello names; where it is not ours we prove nothing, as the peer sees."""
        mesh = mesh_of(said, self._secrets.names)
        try:
            found = None if mesh is None else self._secrets.of(mesh)
        except Unavailable as error:
            logger.warning("%s", error)
            found = None
        return token_bytes(NONCE_BYTES) if found is None else found

    def _answer(
        self, sock: socket.socket, offering: Offering, session: Session, data: bytes, number: int
    ) -> bool:
        """Whether nothing follows it."""
        request = session.read_request(data, number)
        region = self._regions.enter(request.slot, request.generation)
        if region is None:
            send(sock, session.reply(native.DROPPED, number, None), idle=_PROGRESS_S)
            return False
        try:
            if not request.talk:
                self._move(sock, offering, session, data, number, request, region)
                return False
        finally:
            self._regions.leave(region)
        self._talk(sock, session, data, number, region)
        return True

    def _talk(self, sock: socket.socket, session: Session, data: bytes, number: int, region: Region) -> None:
        if not session.is_signed(data, region.key):
            send(sock, session.reply(native.WRONG_KEY, number, None), idle=_PROGRESS_S)
            return
        send(sock, session.reply(DONE, number, region.key), idle=_PROGRESS_S)
        asks, serves = session.talk_keys(region.key, number)
        self._talks.talk(sock, Sealer(serves), Opener(asks), region)

    def _move(
        self,
        sock: socket.socket,
        offering: Offering,
        session: Session,
        data: bytes,
        number: int,
        request: Request,
        region: Region,
    ) -> None:
        if not session.is_signed(data, region.key):
            send(sock, session.reply(native.WRONG_KEY, number, None), idle=_PROGRESS_S)
            return
        status = region.refusal(region.key, request.offset, request.length, write=request.write)
        if status != DONE:
            send(sock, session.reply(status, number, None), idle=_PROGRESS_S)
            return
        view = region.memory.view[request.offset : request.offset + request.length]
        with view:
            granted = session.reply(DONE, number, region.key)
            if request.write:
                send(sock, granted, idle=_PROGRESS_S)
                receive_into(sock, view, idle=_PROGRESS_S)
                send(sock, session.reply(DONE, number, region.key), idle=_PROGRESS_S)
            else:
                offering.send(granted, view, idle=_PROGRESS_S)


def _may_ask(sock: socket.socket) -> bool:
    return sock.family != socket.AF_UNIX or peer_uid(sock) == os.getuid()
