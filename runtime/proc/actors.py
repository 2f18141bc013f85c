"""The actors of one process, and what happens to a message for them.

A message names an actor and an endpoint. Messages of one sender to one actor start in the order in which they
were sent: behind a sync one that waits for the main thread the sender's later ones wait too. Senders whose
messages pile up here are not read until some are done. A sender is a node: some of its messages may come
through relays (`tree/`), over their connections; those are numbered.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..actor import Actor, endpoints_of, is_async
from ..addresses import read_address
from ..call import Connection
from ..errors import MilkweedError, NotFound, ProtocolError, Unavailable
from ..pickling import dumps
from ..tree import Inbox, is_relayed, read_numbered, standing
from ..wire import SAME_VERSION, Kind, WireFrame
from .calls import NumberedCall, ServedCall
from .context import ActorContext, enter
from .main_thread import MainThread

__all__ = ["MOST_WAITING", "Actors", "LiveActor", "Sender"]

logger = logging.getLogger(__name__)

MOST_WAITING = 1024
_LEAST_WAITING = 256
_MOST_BYTES = 256 * 1024 * 1024
_LEAST_BYTES = 64 * 1024 * 1024
_MOST_EARLY = 4096

_ORPHAN_S = 3.0
_DOUBTFUL_S = 10.0
_MOST_NUMBERS = 4096

RawHandler = Callable[[Connection, WireFrame, memoryview], None]
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
class _Source:
    """A node that sends: its mailboxes, how many messages wait for their turn, and what it sent numbered,
    over whichever connections.

    The lock guards mailboxes and counts; the main thread says under it that a call begins.
    """

    origin: str
    senders: list[Sender] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    boxes: dict[str, _Mailbox] = field(default_factory=dict)
    waiting: int = 0
    waiting_bytes: int = 0
    paused: bool = False
    inbox: Inbox | None = None


@dataclass(slots=True, eq=False)
class Sender:
    """One connection, and its calls that are not done. What it told goes on when it is gone."""

    connection: Connection
    source: _Source
    calls: dict[int, ServedCall] = field(default_factory=dict)


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
        self._sources: dict[str, _Source] = {}
        self._last_numbers: dict[str, int] = {}
        self._since = time.monotonic_ns()
        self._raw: dict[tuple[str, str], RawHandler] = {("", "numbered"): self._numbered}
        # Of a proc that was started again: what comes before its actors are made again.
        self._early: dict[tuple[Connection, int], WireFrame] | None = {}

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's connections."""
        for connection in tuple(self._senders):
            connection.abandon()

    def add_raw(self, method: str, handler: RawHandler) -> None:
        """Has `handler` get the messages for an endpoint of the system's actor as they came."""
        self._raw["", method] = handler

    def add(self, actor: LiveActor) -> None:
        self._actors[actor.where.actor_id] = actor

    def ready(self) -> None:
        """All actors that messages may already be here for are made."""
        early, self._early = self._early or {}, None
        for (connection, _), frame in early.items():
            self.called(connection, frame)

    def remove(self, actor_id: str) -> bool:
        for source in self._sources.values():
            if (box := source.boxes.get(actor_id)) is not None and box.ahead is None and not box.waiting:
                del source.boxes[actor_id]
        return self._actors.pop(actor_id, None) is not None

    def ids(self) -> tuple[str, ...]:
        return tuple(name for name in tuple(self._actors) if name)

    def get(self, actor_id: str) -> LiveActor | None:
        return self._actors.get(actor_id)

    def statistics(self) -> dict[str, int]:
        """Counts of what there is now: `actors`, `senders`, `calls` under way, `waiting` for their turn; any
        thread.
        """
        senders, sources = tuple(self._senders.values()), tuple(self._sources.values())
        return {
            "actors": len(self.ids()),
            "senders": len(senders),
            "calls": sum(len(sender.calls) for sender in senders),
            "waiting": sum(source.waiting for source in sources),
        }

    def called(self, connection: Connection, frame: WireFrame) -> None:
        actor_id, method, arguments = read_address(frame.body)
        actor = self._actors.get(actor_id)
        if actor is None and self._is_early(connection, frame):
            return
        if actor is None or method not in actor.endpoints:
            raw = self._raw.get((actor_id, method))
            if raw is None:
                self._refuse(connection, frame, _not_here(actor_id, method, actor))
            else:
                raw(connection, frame, arguments)
            return
        sender = self._senders.get(connection) or self._sender(connection)
        call = ServedCall(sender, frame, arguments, actor, method, self)
        if not call.is_tell:
            self._enter(sender, call)
        self._take(call)

    def _is_early(self, connection: Connection, frame: WireFrame) -> bool:
        """Keeps what comes before its actor is made again."""
        if self._early is None or len(self._early) >= _MOST_EARLY:
            return False
        self._early[connection, frame.call] = frame
        return True

    @staticmethod
    def _enter(sender: Sender, call: ServedCall) -> None:
        if call.call in sender.calls:
            raise ProtocolError("protocol_error", f"two calls of the number {call.call}", SAME_VERSION)
        sender.calls[call.call] = call

    def _take(self, call: ServedCall) -> None:
        """Its turn among its sender's messages has come."""
        source = call.sender.source
        box = source.boxes.get(call.actor.where.actor_id)
        if box is not None:
            with source.lock:
                # The main thread may have begun the one ahead just now; those that wait still go first.
                if box.ahead is not None or box.waiting:
                    box.waiting.append(call)
                    self._note_waiting(call)
                    return
        self._begin(call)

    def _sender(self, connection: Connection) -> Sender:
        hello = connection.peer_hello
        origin = str(hello.get("for") or hello.get("id") or id(connection))
        source = self._sources.get(origin)
        if source is None:
            source = self._sources[origin] = _Source(origin)
        sender = self._senders[connection] = Sender(connection, source)
        source.senders.append(sender)
        if source.paused:
            connection.pause()
        return sender

    def _numbered(self, connection: Connection, frame: WireFrame, rest: memoryview) -> None:
        envelope, message = read_numbered(rest)
        if read_address(message)[0] not in self._actors and self._is_early(connection, frame):
            return
        sender = self._senders.get(connection) or self._sender(connection)
        source = sender.source
        inbox = source.inbox
        if inbox is None:
            inbox = source.inbox = Inbox(self._last_numbers.pop(source.origin, 0))
        inbox.done(envelope.done)
        if envelope.number and inbox.order.knows(envelope.number):
            if frame.kind is Kind.CALL:
                again = inbox.again(envelope.number, (connection, frame.call))
                if isinstance(again, NumberedCall):
                    sender.calls[frame.call] = again
            return
        stands = standing(envelope, inbox.order.last, time.monotonic_ns() - self._since)
        if stands == "too old":
            self._refuse(connection, frame, _restarted())
            return
        take = self._to_take(sender, inbox, frame, envelope.number, message)
        if stands == "follows":
            _take_all(inbox.order.give_up(envelope.previous))
        _take_all(inbox.order.arrived(envelope, take))
        if stands == "may await":
            self._loop.call_later(_DOUBTFUL_S, lambda: _take_all(inbox.order.give_up(envelope.previous)))

    def _to_take(
        self, sender: Sender, inbox: Inbox, frame: WireFrame, number: int, message: memoryview
    ) -> Callable[[], None]:
        """What is to be done with a numbered message in its turn."""
        actor_id, method, arguments = read_address(message)
        actor = self._actors.get(actor_id)
        if actor is None or method not in actor.endpoints:
            error = _not_here(actor_id, method, actor)
            if number and frame.kind is Kind.CALL:
                inbox.refused(number, Kind.ERROR, dumps(error))
            return partial(self._refuse, sender.connection, frame, error)
        if not number:
            call = ServedCall(sender, frame, arguments, actor, method, self)
        else:
            call = NumberedCall(sender, frame, arguments, actor, method, self)
            call.begin(inbox, number)
        if not call.is_tell:
            self._enter(sender, call)
        return partial(self._take, call)

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

    def served(self) -> list[ServedCall]:
        """The calls of actors that are not answered, but for what the main thread runs; any thread."""
        found = [call for sender in tuple(self._senders.values()) for call in tuple(sender.calls.values())]
        running = self._main.running
        return [call for call in found if call is not running and call.actor.where.actor_id]

    def ended(self, connection: Connection) -> None:
        """A sender that left wants no answers; what it told goes on.

        What came through a relay goes on for a while, in which its sender may ask for it again.
        """
        for early in [one for one in self._early or () if one[0] is connection]:
            if self._early and self._early[early].kind is not Kind.TELL:
                del self._early[early]
        sender = self._senders.pop(connection, None)
        if sender is None:
            return
        sender.source.senders.remove(sender)
        relayed = is_relayed(connection)
        for call in tuple(sender.calls.values()):
            if isinstance(call, NumberedCall) and (call.inbox.left(call, connection) or relayed):
                self._loop.call_later(_ORPHAN_S, self._end_orphan, call)
            else:
                self.cancel(call)
        if not sender.source.senders:
            self._loop.call_later(_ORPHAN_S if relayed else 0.0, self._forget, sender.source)

    def _end_orphan(self, call: NumberedCall) -> None:
        if not call.routes:
            self.cancel(call)

    def _forget(self, source: _Source) -> None:
        """Nothing of this sender's is expected any more; what it sent too early for its order is dropped."""
        if source.senders or self._sources.get(source.origin) is not source:
            return
        del self._sources[source.origin]
        if source.inbox is not None:
            self._last_numbers[source.origin] = source.inbox.order.last
            while len(self._last_numbers) > _MOST_NUMBERS:
                del self._last_numbers[next(iter(self._last_numbers))]

    def _begin(self, call: ServedCall) -> None:
        source = call.sender.source
        if call.cancelled:
            call.drop()
        elif call.is_async:
            if call.is_tell:
                with source.lock:
                    self._note_waiting(call)
            call.task = self._loop.create_task(call.run_async(), context=call.actor.context.copy())
        else:
            with source.lock:
                source.boxes.setdefault(call.actor.where.actor_id, _Mailbox()).ahead = call
                self._note_waiting(call)
            self._main.put(call)

    @staticmethod
    def _note_waiting(call: ServedCall) -> None:
        """Under the sender's lock, on the loop's thread."""
        source = call.sender.source
        source.waiting += 1
        source.waiting_bytes += call.size
        full = source.waiting >= MOST_WAITING or source.waiting_bytes >= _MOST_BYTES
        if full and not source.paused:
            source.paused = True
            for sender in source.senders:
                sender.connection.pause()

    @staticmethod
    def _waits_no_more(call: ServedCall) -> None:
        """Under the sender's lock."""
        call.sender.source.waiting -= 1
        call.sender.source.waiting_bytes -= call.size

    def leave(self, error: BaseException) -> None:
        """An endpoint raised what ends a process: SystemExit, KeyboardInterrupt. Any thread."""
        self._main.leave(error)

    def started(self, call: ServedCall) -> None:
        """A sync call begins, or never will: those behind it may begin. Any thread, and once more."""
        source = call.sender.source
        with source.lock:
            box = source.boxes.get(call.actor.where.actor_id)
            if box is None or box.ahead is not call:
                return
            self._waits_no_more(call)
            box.ahead = None
            wanted = bool(box.waiting) or self._can_resume(source)
        if wanted:
            self._loop.call_soon_threadsafe(self._go_on, source, box)

    def _go_on(self, source: _Source, box: _Mailbox) -> None:
        while True:
            with source.lock:
                if box.ahead is not None or not box.waiting:
                    break
                following = box.waiting.popleft()
                self._waits_no_more(following)
            self._begin(following)
        self._resume_if_can(source)

    def _resume_if_can(self, source: _Source) -> None:
        with source.lock:
            resume = self._can_resume(source)
            source.paused = source.paused and not resume
        if resume:
            for sender in source.senders:
                sender.connection.resume()

    @staticmethod
    def _can_resume(source: _Source) -> bool:
        few = source.waiting <= _LEAST_WAITING and source.waiting_bytes <= _LEAST_BYTES
        return source.paused and few

    def done(self, call: ServedCall, error: BaseException | None) -> None:
        """It has ended in whatever way, with the exception that a tell raised. Any thread."""
        if isinstance(call, NumberedCall):
            for connection, number in call.end():
                if (sender := self._senders.get(connection)) is not None:
                    sender.calls.pop(number, None)
        if not call.is_tell:
            call.sender.calls.pop(call.call, None)
        elif call.is_async:
            source = call.sender.source
            with source.lock:
                self._waits_no_more(call)
            self._resume_if_can(source)
        if error is not None:
            self._on_failure(call.actor.where, call.method, error)

    @staticmethod
    def _refuse(connection: Connection, frame: WireFrame, error: MilkweedError) -> None:
        if frame.kind is Kind.TELL:
            logger.warning("%s", error)
        else:
            connection.reply(Kind.ERROR, frame.call, dumps(error))


def _take_all(messages: Sequence[Callable[[], None]]) -> None:
    for take in messages:
        take()


def _not_here(actor_id: str, method: str, actor: LiveActor | None) -> MilkweedError:
    if actor is None:
        return NotFound(
            "actor_not_found", f"there is no actor {actor_id!r} here (any more)", "Spawn it again."
        )
    return NotFound("endpoint_not_found", f"{actor.cls_name} has no endpoint {method!r} here", SAME_VERSION)


def _restarted() -> MilkweedError:
    return Unavailable(
        "proc_lost",
        "the proc that was sent this call ended, and was started again since",
        "It may have had its effect: look, then call again.",
    )
