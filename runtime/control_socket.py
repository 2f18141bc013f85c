"""A socket that answers lines of JSON on threads of its own, whatever the rest of the process does."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .call import peer_uid

__all__ = ["ControlSocket"]

_NO_ROOM_S = 0.2
_LINE = 64 * 1024
_ERROR = 500


class ControlSocket:
    """One request a line, answered in order by `answer`; only for peers of the same user.

    One thread accepts, and there is one for each peer, of which there are few.
    """

    def __init__(self, listener: socket.socket, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self._listener = listener
        self._answer = answer
        self._peers: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, name="milkweed-control", daemon=True)

    def start(self) -> None:
        self._listener.setblocking(True)
        self._thread.start()

    def close(self) -> None:
        """Accepts no more; peers that are here are answered until they leave."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's sockets."""
        self._listener.close()
        for peer in tuple(self._peers):
            peer.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
                if peer_uid(peer) != os.getuid():
                    peer.close()
                    continue
                thread = threading.Thread(
                    target=self._serve, args=(peer,), name="milkweed-control", daemon=True
                )
                thread.start()
            except (OSError, RuntimeError) as error:
                if self._listener.fileno() < 0 or getattr(error, "errno", 0) in (errno.EBADF, errno.EINVAL):
                    return
                time.sleep(_NO_ROOM_S)  # no descriptor or no thread now; without a pause this would spin

    def _serve(self, peer: socket.socket) -> None:
        self._peers.add(peer)
        try:
            self._answer_all(peer)
        finally:
            self._peers.discard(peer)

    def _answer_all(self, peer: socket.socket) -> None:
        with suppress(OSError), peer, peer.makefile("rwb") as file:
            while line := file.readline(_LINE):
                try:
                    answer = self._answer(json.loads(line))
                except Exception as error:  # whatever a peer sends, this thread goes on
                    answer = {"error": f"{type(error).__name__}: {error}"[:_ERROR]}
                file.write(json.dumps(answer).encode() + b"\n")
                file.flush()
                if not line.endswith(b"\n"):
                    return  # cut off, or longer than any request: what follows would be read amiss
