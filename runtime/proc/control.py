"""The control socket: a proc answers here though its main thread or its loop is busy.

One request a line, as JSON, answered in order:

    {"op": "ping"}                              {"ok": true, "main": {"endpoint": ..., "busy_s": ...} or null,
                                                 "loop_lag_s": ..., "calls": n, "actors": n}
    {"op": "cancel", "sender": s, "call": n}    {"cancelled": true or false, "where": "Trainer.step"}
    {"op": "stacks"}                            {"threads": [{"name": ..., "frames": [...]}]}
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

from ..call import peer_uid
from ..node.interrupt import interrupt_thread
from .actors import Actors
from .main_thread import MainThread

__all__ = ["Control"]

_PING_S = 0.02
_NO_ROOM_S = 0.2
_LINE = 64 * 1024
_ERROR = 500
_FRAMES = 60


class Control:
    """Threads of its own: one that accepts, and one for each peer, of which there are few."""

    def __init__(
        self,
        listener: socket.socket,
        loop: asyncio.AbstractEventLoop,
        loop_thread: int,
        main: MainThread,
        actors: Actors,
    ) -> None:
        self._listener = listener
        self._loop = loop
        self._loop_thread = loop_thread
        self._main = main
        self._actors = actors
        self._asked_at: float | None = None
        self._peers: set[socket.socket] = set()

    def start(self) -> None:
        self._listener.setblocking(True)
        threading.Thread(target=self._accept, name="milkweed-control", daemon=True).start()

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
                if self._listener.fileno() < 0 or getattr(error, "errno", 0) == errno.EBADF:
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

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "ping":
                return self._ping()
            case "cancel":
                return self._cancel(str(request["sender"]), int(request["call"]))
            case "stacks":
                return {"threads": _stacks()}
            case other:
                return {"error": f"unknown op {other!r}"}

    def _ping(self) -> dict[str, Any]:
        busy = self._main.busy()
        counts = self._actors.statistics()
        return {
            "ok": True,
            "main": None if busy is None else {"endpoint": busy[0], "busy_s": round(busy[1], 3)},
            "loop_lag_s": round(self._lag(), 3),
            "calls": counts["calls"],
            "actors": counts["actors"],
        }

    def _lag(self) -> float:
        """For how long the loop has not come to what it was asked, as far as pings tell."""
        turned = threading.Event()

        def turn() -> None:
            self._asked_at = None
            turned.set()

        if self._asked_at is None:
            self._asked_at = time.monotonic()
        asked_at = self._asked_at
        self._loop.call_soon_threadsafe(turn)
        return 0.0 if turned.wait(_PING_S) else time.monotonic() - asked_at

    def _cancel(self, sender: str, number: int) -> dict[str, Any]:
        call = self._actors.find(sender, number)
        if call is None:
            return {"cancelled": True, "where": ""}
        if not call.is_async:
            self._actors.cancel_sync(call)
        else:
            self._loop.call_soon_threadsafe(self._actors.cancel, call)
            # An endpoint that blocks its loop is interrupted as a sync one would be.
            if self._lag() >= _PING_S and call.task is not None and _running_task(self._loop) is call.task:
                call.cancelled = True
                interrupt_thread(self._loop_thread)
        return {"cancelled": False, "where": call.label}


def _running_task(loop: asyncio.AbstractEventLoop) -> object:
    """The task whose step the loop is in, asked from another thread."""
    return asyncio.tasks._current_tasks.get(loop)  # type: ignore[attr-defined]  # noqa: SLF001


def _stacks() -> list[dict[str, Any]]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        {
            "name": names.get(ident, str(ident)),
            "frames": [
                f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in traceback.extract_stack(top)
            ][-_FRAMES:],
        }
        for ident, top in sys._current_frames().items()  # noqa: SLF001 - documented, for such uses
    ]
