"""The control socket: a proc answers here though its main thread or its loop is busy.

One request a line, as JSON, answered in order:

    {"op": "ping"}                              {"ok": true, "main": {"endpoint": ..., "busy_s": ...} or null,
                                                 "loop_lag_s": ..., "calls": n, "actors": n}
    {"op": "cancel", "sender": s, "call": n}    {"cancelled": true or false, "where": "Trainer.step"}
    {"op": "stacks"}                            {"threads": [{"name": ..., "frames": [...]}]}
    {"op": "inside"}                            {"inside": `records.Inside`}
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
import time
import traceback
from typing import Any

from ..codec import to_json
from ..control_socket import ControlSocket
from ..node.interrupt import interrupt_thread
from ..node.looking import task_stack, thread_waits, user_tasks
from ..records import Inside, ServedNote
from .actors import Actors
from .calls import ServedCall
from .main_thread import MainThread

__all__ = ["Control"]

_PING_S = 0.02
_FRAMES = 60


class Control:
    """What a proc answers there."""

    def __init__(
        self,
        listener: socket.socket,
        node_id: str,
        loop: asyncio.AbstractEventLoop,
        loop_thread: int,
        main: MainThread,
        actors: Actors,
    ) -> None:
        self._socket = ControlSocket(listener, self._answer)
        self._node_id = node_id
        self._loop = loop
        self._loop_thread = loop_thread
        self._main = main
        self._actors = actors
        self._asked_at: float | None = None

    def start(self) -> None:
        self._socket.start()

    def close(self) -> None:
        self._socket.close()

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's sockets."""
        self._socket.abandon()

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "ping":
                return self._ping()
            case "cancel":
                return self._cancel(str(request["sender"]), int(request["call"]))
            case "stacks":
                return {"threads": _stacks()}
            case "inside":
                return {"inside": to_json(self._inside())}
            case other:
                return {"error": f"unknown op {other!r}"}

    def _inside(self) -> Inside:
        calls = self._actors.served()
        tasks = frozenset(call.task for call in calls if call.task is not None)
        return Inside(
            self._node_id,
            thread_waits(self._main.ident),
            (*self._on_main(), *map(self._note, calls)),
            tuple(user_tasks(self._loop, without=tasks)),
        )

    def _on_main(self) -> tuple[ServedNote, ...]:
        running, busy = self._main.running, self._main.busy()
        if running is None or busy is None:
            return ()
        sender = running.peer.sender.origin if isinstance(running, ServedCall) else ""
        return (ServedNote(running.label, "main", sender, round(busy[1], 3)),)

    @staticmethod
    def _note(call: ServedCall) -> ServedNote:
        sender = call.peer.sender.origin
        if call.task is None:
            return ServedNote(call.label, "waiting", sender)
        return ServedNote(call.label, "task", sender, stack=task_stack(call.task))

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
