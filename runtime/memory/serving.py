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

from ..call import peer_uid
from ..errors import ProtocolError, Unavailable
from ..mesh_secret import MeshSecrets
from .asked import Asked, Talks
from .granting import Grants
from .protocol import CODE_BYTES, HELLO_BYTES, NONCE_BYTES, Session, mesh_of, nonce_of
from .regions import Regions
from .streams import receive, send, tune

__all__ = ["Server"]

logger = logging.getLogger(__name__)

_MOST_PEERS = 512
_HANDSHAKE_S = 5.0
_NO_ROOM_S = 0.2
_END_S = 1.0


class Server:
    """A thread for each listener, and for each peer, which wait and send without the GIL."""

    def __init__(self, regions: Regions, secrets: MeshSecrets, talks: Talks, grants: Grants) -> None:
        self._regions = regions
        self._grants = grants
        self._secrets = secrets
        self._talks = talks
        self._listeners: list[socket.socket] = []
        self._peers: dict[socket.socket, threading.Thread] = {}
        self._asked: dict[socket.socket, Asked] = {}
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
            self._take_place()
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

    def _take_place(self) -> None:
        """That of who has asked nothing for longest, where all are taken: who needs one again comes again.

        Where all have something to do, those who come wait, as any do before they are accepted.
        """
        while not self._places.acquire(blocking=False) and not self._closed:
            since = [
                (at, asked) for asked in tuple(self._asked.values()) if (at := asked.idle_since) is not None
            ]
            if since:
                min(since, key=lambda each: each[0])[1].end_if_idle()
            if self._places.acquire(timeout=_NO_ROOM_S):
                return

    def _serve(self, sock: socket.socket) -> None:
        try:
            if _may_ask(sock):
                tune(sock)
                asked = Asked(sock, self._greet(sock), self._regions, self._talks, self._grants)
                self._asked[sock] = asked
                asked.answer_all()
        except ProtocolError as error:
            logger.warning("refused a peer: %s", error)
        except OSError:
            pass  # it has left
        finally:
            self._forget(sock)

    def _forget(self, sock: socket.socket) -> None:
        self._asked.pop(sock, None)
        sock.close()
        self._peers.pop(sock, None)
        self._places.release()

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


def _may_ask(sock: socket.socket) -> bool:
    return sock.family != socket.AF_UNIX or peer_uid(sock) == os.getuid()
