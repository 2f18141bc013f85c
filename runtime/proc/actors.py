"""The actors of one process, and what happens to a message for them.

A message names an actor and an endpoint. Messages of one sender to one actor start in the order in which they
were sent: behind a sync one that waits for the main thread the sender's later ones wait too. Senders whose
messages pile up here are not read until some are done.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..actor import Actor, endpoints_of, is_async
from ..addresses import read_address
from ..call import Connection
from ..errors import NotFound
from ..pickling import dumps
from ..wire import SAME_VERSION, Kind, WireFrame
from .calls import ServedCall
from .context import ActorContext, enter
from .main_thread import MainThread

__all__ = ["MOST_WAITING", "Actors", "LiveActor"]

logger = logging.getLogger(__name__)

MOST_WAITING = 1024
_LEAST_WAITING = 256

OnFailure = Callable[[ActorContext, str, BaseException], None]


@dataclass(slots=True)
class LiveActor:
    """An instance, its place, and the context that its endpoints run in."""

    instance: Any
    where: ActorContext
    context: contextvars.Context
    cls_name: str
    endpoints: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, instance: Actor, where: ActorContext) -> LiveActor:
        context = contextvars.copy_context()
        context.run(enter, where, instance)
        kind = type(instance)
        endpoints = {name: is_async(kind, name) for name in endpoints_of(kind)}
        return cls(instance, where, context, kind.__name__, endpoints)


@dataclass(slots=True, eq=False)
class _Mailbox:
    """Messages of one sender to one actor that wait for `ahead`, a sync one that has not begun."""

    ahead: ServedCall | None = None
    waiting: deque[ServedCall] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _Sender:
    """One connection: its calls that are not done, its mailboxes, and how many messages wait for their turn.

    The lock guards mailboxes and counts; the main thread says under it that a call begins.
    """

    connection: Connection
    lock: threading.Lock = field(default_factory=threading.Lock)
    calls: dict[int, ServedCall] = field(default_factory=dict)
    boxes: dict[str, _Mailbox] = field(default_factory=dict)
    waiting: int = 0
    paused: bool = False


class Actors:
    """Handles the messages of all connections of a process; on the loop's thread.

    `system` is an actor of our own, whose endpoints are async and are called under the empty id.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, main: MainThread, on_failure: OnFailure) -> None:
        self._loop = loop
        self._main = main
        self._on_failure = on_failure
        self._actors: dict[str, LiveActor] = {}
        self._senders: dict[Connection, _Sender] = {}

    def add(self, actor: LiveActor) -> None:
        self._actors[actor.where.actor_id] = actor

    def remove(self, actor_id: str) -> bool:
        return self._actors.pop(actor_id, None) is not None

    def ids(self) -> tuple[str, ...]:
        return tuple(name for name in self._actors if name)

    def get(self, actor_id: str) -> LiveActor | None:
        return self._actors.get(actor_id)

    def statistics(self) -> dict[str, int]:
        """Counts of what there is now: `actors`, `senders`, `calls` under way, `waiting` for their turn."""
        return {
            "actors": len(self.ids()),
            "senders": len(self._senders),
            "calls": sum(len(sender.calls) for sender in self._senders.values()),
            "waiting": sum(sender.waiting for sender in self._senders.values()),
        }

    def called(self, connection: Connection, frame: WireFrame) -> None:
        sender = self._senders.get(connection)
        if sender is None:
            sender = self._senders[connection] = _Sender(connection)
        actor_id, method, arguments = read_address(frame.body)
        actor = self._actors.get(actor_id)
        if actor is None or method not in actor.endpoints:
            self._refuse(connection, frame, actor_id, method, actor)
            return
        call = ServedCall(connection, frame, arguments, actor, method, started=self._started, done=self._done)
        sender.calls[call.call] = call
        box = sender.boxes.get(actor_id)
        if box is not None and box.ahead is not None:
            with sender.lock:
                # The main thread may have begun the one ahead just now.
                if box.ahead is not None:
                    box.waiting.append(call)
                    self._note_waiting(sender)
                    return
        self._begin(sender, call)

    def cancelled(self, connection: Connection, call: int) -> None:
        sender = self._senders.get(connection)
        found = None if sender is None else sender.calls.get(call)
        if found is not None:
            self.cancel(found)

    def cancel(self, call: ServedCall) -> None:
        """An async call ends at its next await, a sync one at its next bytecode; on the loop's thread."""
        call.cancelled = True
        if call.task is not None:
            call.task.cancel()
        elif not call.actor.endpoints[call.method]:
            self._main.cancel(call)

    def find(self, sender_id: str, call: int) -> ServedCall | None:
        """A call that is not done, by its sender's node and its number; any thread."""
        for sender in tuple(self._senders.values()):
            if sender.connection.peer_hello.get("id") == sender_id and (found := sender.calls.get(call)):
                return found
        return None

    def ended(self, connection: Connection) -> None:
        """A sender that left wants no answers; what it told goes on."""
        sender = self._senders.pop(connection, None)
        if sender is not None:
            for call in tuple(sender.calls.values()):
                if not call.is_tell:
                    self.cancel(call)

    def _begin(self, sender: _Sender, call: ServedCall) -> None:
        if call.cancelled:
            call.drop()
        elif call.actor.endpoints[call.method]:
            if call.is_tell:
                with sender.lock:
                    self._note_waiting(sender)
            call.task = self._loop.create_task(call.run_async(), context=call.actor.context.copy())
        else:
            with sender.lock:
                sender.boxes.setdefault(call.actor.where.actor_id, _Mailbox()).ahead = call
                self._note_waiting(sender)
            self._main.put(call)

    def _note_waiting(self, sender: _Sender) -> None:
        sender.waiting += 1
        if sender.waiting >= MOST_WAITING and not sender.paused:
            sender.paused = True
            sender.connection.pause()

    def _started(self, call: ServedCall) -> None:
        """A sync call begins, or is dropped in its turn: those behind it may begin. On the main thread."""
        sender = self._senders.get(call.connection)
        if sender is None:
            return
        with sender.lock:
            sender.waiting -= 1
            box = sender.boxes[call.actor.where.actor_id]
            if box.ahead is call:
                box.ahead = None
            wanted = bool(box.waiting) or self._can_resume(sender)
        if wanted:
            self._loop.call_soon_threadsafe(self._go_on, sender, box)

    def _go_on(self, sender: _Sender, box: _Mailbox) -> None:
        while True:
            with sender.lock:
                if box.ahead is not None or not box.waiting:
                    break
                sender.waiting -= 1
                following = box.waiting.popleft()
            self._begin(sender, following)
        with sender.lock:
            resume = self._can_resume(sender)
            sender.paused = sender.paused and not resume
        if resume:
            sender.connection.resume()

    @staticmethod
    def _can_resume(sender: _Sender) -> bool:
        return sender.paused and sender.waiting <= _LEAST_WAITING

    def _done(self, call: ServedCall, error: BaseException | None) -> None:
        """Any thread."""
        sender = self._senders.get(call.connection)
        if sender is not None:
            sender.calls.pop(call.call, None)
            if call.is_tell and call.task is not None:
                with sender.lock:
                    sender.waiting -= 1
                if self._can_resume(sender):
                    self._go_on(sender, _Mailbox())
        if error is not None:
            self._on_failure(call.actor.where, call.method, error)

    @staticmethod
    def _refuse(
        connection: Connection, frame: WireFrame, actor_id: str, method: str, actor: LiveActor | None
    ) -> None:
        if actor is None:
            error = NotFound(
                "actor_not_found", f"there is no actor {actor_id!r} here (any more)", "Spawn it again."
            )
        else:
            error = NotFound(
                "endpoint_not_found", f"{actor.cls_name} has no endpoint {method!r} here", SAME_VERSION
            )
        if frame.kind is Kind.TELL:
            logger.warning("%s", error)
        else:
            connection.reply(Kind.ERROR, frame.call, dumps(error))
