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
from ..errors import NotFound, ProtocolError
from ..pickling import dumps
from ..wire import SAME_VERSION, Kind, WireFrame
from .calls import ServedCall
from .context import ActorContext, enter
from .main_thread import MainThread

__all__ = ["MOST_WAITING", "Actors", "LiveActor", "Sender"]

logger = logging.getLogger(__name__)

MOST_WAITING = 1024
_LEAST_WAITING = 256
_MOST_BYTES = 256 * 1024 * 1024
_LEAST_BYTES = 64 * 1024 * 1024
_MOST_EARLY = 4096

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
class Sender:
    """One connection: its calls that are not done, its mailboxes, and how many messages wait for their turn.

    What it told goes on when it is `gone`. The lock guards mailboxes and counts; the main thread says under
    it that a call begins.
    """

    connection: Connection
    lock: threading.Lock = field(default_factory=threading.Lock)
    gone: bool = False
    calls: dict[int, ServedCall] = field(default_factory=dict)
    boxes: dict[str, _Mailbox] = field(default_factory=dict)
    waiting: int = 0
    waiting_bytes: int = 0
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
        self._senders: dict[Connection, Sender] = {}
        # Of a proc that was started again: what comes before its actors are made again.
        self._early: dict[tuple[Connection, int], WireFrame] | None = {}

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's connections."""
        for connection in tuple(self._senders):
            connection.abandon()

    def add(self, actor: LiveActor) -> None:
        self._actors[actor.where.actor_id] = actor

    def ready(self) -> None:
        """All actors that messages may already be here for are made."""
        early, self._early = self._early or {}, None
        for (connection, _), frame in early.items():
            self.called(connection, frame)

    def remove(self, actor_id: str) -> bool:
        for sender in self._senders.values():
            if (box := sender.boxes.get(actor_id)) is not None and box.ahead is None and not box.waiting:
                del sender.boxes[actor_id]
        return self._actors.pop(actor_id, None) is not None

    def ids(self) -> tuple[str, ...]:
        return tuple(name for name in tuple(self._actors) if name)

    def get(self, actor_id: str) -> LiveActor | None:
        return self._actors.get(actor_id)

    def statistics(self) -> dict[str, int]:
        """Counts of what there is now: `actors`, `senders`, `calls` under way, `waiting` for their turn; any
        thread.
        """
        senders = tuple(self._senders.values())
        return {
            "actors": len(self.ids()),
            "senders": len(senders),
            "calls": sum(len(sender.calls) for sender in senders),
            "waiting": sum(sender.waiting for sender in senders),
        }

    def called(self, connection: Connection, frame: WireFrame) -> None:
        sender = self._senders.get(connection)
        if sender is None:
            sender = self._senders[connection] = Sender(connection)
        actor_id, method, arguments = read_address(frame.body)
        actor = self._actors.get(actor_id)
        if actor is None and self._early is not None and len(self._early) < _MOST_EARLY:
            self._early[connection, frame.call] = frame
            return
        if actor is None or method not in actor.endpoints:
            self._refuse(connection, frame, actor_id, method, actor)
            return
        call = ServedCall(sender, frame, arguments, actor, method, self)
        if not call.is_tell:
            if call.call in sender.calls:
                raise ProtocolError("protocol_error", f"two calls of the number {call.call}", SAME_VERSION)
            sender.calls[call.call] = call
        box = sender.boxes.get(actor_id)
        if box is not None:
            with sender.lock:
                # The main thread may have begun the one ahead just now; those that wait still go first.
                if box.ahead is not None or box.waiting:
                    box.waiting.append(call)
                    self._note_waiting(call)
                    return
        self._begin(sender, call)

    def cancelled(self, connection: Connection, call: int) -> None:
        if self._early and self._early.pop((connection, call), None) is not None:
            connection.reply(Kind.ERROR, call, dumps(None))
            return
        sender = self._senders.get(connection)
        found = None if sender is None else sender.calls.get(call)
        if found is not None:
            self.cancel(found)

    def cancel(self, call: ServedCall) -> None:
        """An async call ends at its next await, a sync one at its next bytecode, and one that has not begun
        never will; on the loop's thread.
        """
        if not call.is_async:
            self.cancel_sync(call)
            return
        call.cancelled = True
        if call.task is not None:
            call.task.cancel()
        else:
            call.drop()

    def cancel_sync(self, call: ServedCall) -> None:
        """Any thread."""
        if self._main.cancel(call):
            self.started(call)
            call.drop()

    def find(self, sender_id: str, call: int) -> ServedCall | None:
        """A call that is not done, by its sender's node and its number; any thread."""
        for sender in tuple(self._senders.values()):
            if sender.connection.peer_hello.get("id") == sender_id and (found := sender.calls.get(call)):
                return found
        return None

    def ended(self, connection: Connection) -> None:
        """A sender that left wants no answers; what it told goes on."""
        for early in [one for one in self._early or () if one[0] is connection]:
            if self._early and self._early[early].kind is not Kind.TELL:
                del self._early[early]
        sender = self._senders.pop(connection, None)
        if sender is not None:
            sender.gone = True
            for call in tuple(sender.calls.values()):
                self.cancel(call)

    def _begin(self, sender: Sender, call: ServedCall) -> None:
        if call.cancelled:
            call.drop()
        elif call.is_async:
            if call.is_tell:
                with sender.lock:
                    self._note_waiting(call)
            call.task = self._loop.create_task(call.run_async(), context=call.actor.context.copy())
        else:
            with sender.lock:
                sender.boxes.setdefault(call.actor.where.actor_id, _Mailbox()).ahead = call
                self._note_waiting(call)
            self._main.put(call)

    @staticmethod
    def _note_waiting(call: ServedCall) -> None:
        """Under the sender's lock, on the loop's thread."""
        sender = call.sender
        sender.waiting += 1
        sender.waiting_bytes += call.size
        full = sender.waiting >= MOST_WAITING or sender.waiting_bytes >= _MOST_BYTES
        if full and not sender.paused:
            sender.paused = True
            sender.connection.pause()

    @staticmethod
    def _waits_no_more(call: ServedCall) -> None:
        """Under the sender's lock."""
        call.sender.waiting -= 1
        call.sender.waiting_bytes -= call.size

    def leave(self, error: BaseException) -> None:
        """An endpoint raised what ends a process: SystemExit, KeyboardInterrupt. Any thread."""
        self._main.leave(error)

    def started(self, call: ServedCall) -> None:
        """A sync call begins, or never will: those behind it may begin. Any thread, and once more."""
        sender = call.sender
        with sender.lock:
            box = sender.boxes.get(call.actor.where.actor_id)
            if box is None or box.ahead is not call:
                return
            self._waits_no_more(call)
            box.ahead = None
            wanted = bool(box.waiting) or self._can_resume(sender)
        if wanted:
            self._loop.call_soon_threadsafe(self._go_on, sender, box)

    def _go_on(self, sender: Sender, box: _Mailbox) -> None:
        while True:
            with sender.lock:
                if box.ahead is not None or not box.waiting:
                    break
                following = box.waiting.popleft()
                self._waits_no_more(following)
            self._begin(sender, following)
        self._resume_if_can(sender)

    def _resume_if_can(self, sender: Sender) -> None:
        with sender.lock:
            resume = self._can_resume(sender)
            sender.paused = sender.paused and not resume
        if resume:
            sender.connection.resume()

    @staticmethod
    def _can_resume(sender: Sender) -> bool:
        few = sender.waiting <= _LEAST_WAITING and sender.waiting_bytes <= _LEAST_BYTES
        return sender.paused and few and not sender.gone

    def done(self, call: ServedCall, error: BaseException | None) -> None:
        """It has ended in whatever way, with the exception that a tell raised. Any thread."""
        sender = call.sender
        if not call.is_tell:
            sender.calls.pop(call.call, None)
        elif call.is_async:
            with sender.lock:
                self._waits_no_more(call)
            self._resume_if_can(sender)
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
