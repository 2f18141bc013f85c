"""One call of an endpoint, from its frame to its answer, on the loop or on the main thread."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from ..call import Connection
from ..errors import InvalidArgument, MilkweedError
from ..node.interrupt import Interrupted
from ..pickling import Pickled, dumps, loads
from ..remote_error import RemoteException
from ..tree import Inbox, Route, send_outcome
from ..wire import Kind, WireFrame

if TYPE_CHECKING:
    from .actor_table import LiveActor
    from .main_thread import MainThread
    from .senders import Peer
    from .turns import Turns

__all__ = ["NumberedCall", "ServedCall", "refuse"]

logger = logging.getLogger(__name__)


class ServedCall:
    """Answered once. `actor` is the one called, `method` its endpoint; a tell is answered by nothing.

    `turns` hears when a sync one begins, when it has ended, and of what is to end the process.
    """

    __slots__ = (
        *("_answered", "_lock", "_turns", "actor", "call", "cancelled", "frame"),
        *("is_async", "is_tell", "method", "peer", "size", "task"),
    )

    def __init__(
        self,
        peer: Peer,
        frame: WireFrame,
        arguments: memoryview | bytes,
        actor: LiveActor,
        method: str,
        turns: Turns,
    ) -> None:
        self.peer = peer
        self.size = len(frame.body)
        if frame.buffers:
            self.size += sum(map(len, frame.buffers))
        self.call = frame.call
        self.frame: tuple[memoryview | bytes, tuple[memoryview, ...]] | None = (arguments, frame.buffers)
        self.actor = actor
        self.method = method
        self.is_async = actor.endpoints[method]
        self.cancelled = False
        self.task: asyncio.Task[None] | None = None
        self.is_tell = frame.kind is Kind.TELL
        self._turns = turns
        self._lock = threading.Lock()
        self._answered = self.is_tell

    @property
    def label(self) -> str:
        return f"{self.actor.cls_name}.{self.method}"

    async def run_async(self) -> None:
        """On the loop."""
        try:
            args, kwargs = self._arguments()
            value = await getattr(self.actor.instance, self.method)(*args, **kwargs)
            self.answer(value)
        except (asyncio.CancelledError, Interrupted):
            self.drop()
            if not self.cancelled:
                raise  # the process ends
        except BaseException as error:
            self.fail(error)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._turns.leave(error)

    def run(self, main: MainThread) -> None:
        """On the main thread."""
        self._turns.started(self)
        try:
            args, kwargs = self._arguments()
            function = getattr(self.actor.instance, self.method)
            self.answer(
                main.interruptible(self, lambda: self.actor.context.copy().run(function, *args, **kwargs))
            )
        except Interrupted:
            if not self.cancelled:
                raise  # the process ends
            self.drop()
        except BaseException as error:
            self.fail(error)
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._turns.leave(error)

    def answer(self, value: Any) -> None:
        """The endpoint returned it; whatever keeps it from crossing is the answer in its place."""
        if not self.is_tell:
            try:
                self._reply(Kind.RESULT, dumps(value))
            except MilkweedError as error:
                self._reply(Kind.ERROR, dumps(RemoteException.of(error)))
        self._turns.done(self, None)

    def fail(self, error: BaseException) -> None:
        if not self.is_tell:
            self._reply(Kind.ERROR, dumps(RemoteException.of(error)))
        self._turns.done(self, error if self.is_tell else None)

    def drop_in_turn(self) -> None:
        """On the main thread: it was cancelled before it began, and has been answered."""

    def drop(self) -> None:
        """It was cancelled. Any thread, and once more."""
        self.frame = None
        self._reply(Kind.ERROR, dumps(None))
        self._turns.done(self, None)

    def _reply(self, kind: Kind, pickled: Pickled) -> None:
        """The first one is sent.

        Raises:
            ProtocolError: it is too large; then there was none.
        """
        with self._lock:
            if not self._answered:
                self._send(kind, pickled)
                self._answered = True

    def _send(self, kind: Kind, pickled: Pickled) -> None:
        self.peer.connection.reply(kind, self.call, pickled)

    def _arguments(self) -> tuple[Any, Any]:
        assert self.frame is not None
        frame, self.frame = self.frame, None  # arguments live no longer than the endpoint uses them
        try:
            args, kwargs = loads(*frame)
        except Exception as error:
            raise InvalidArgument(
                "unreadable_arguments",
                f"the arguments cannot be made here: {type(error).__name__}: {error}",
                "Their classes must be importable on this side: look at sys.path and the versions here.",
            ) from error
        return args, kwargs


class NumberedCall(ServedCall):
    """One that may come again by another way: all who await its outcome have it, and it is kept."""

    __slots__ = ("inbox", "number", "routes")

    inbox: Inbox
    number: int
    routes: list[Route]

    def begin(self, inbox: Inbox, number: int) -> None:
        """Must be called once, before anything else."""
        self.inbox, self.number = inbox, number
        self.routes = [] if self.is_tell else [(self.peer.connection, self.call)]
        inbox.add(self)

    def end(self) -> tuple[Route, ...]:
        """It has ended; where it was awaited."""
        if self.is_tell:
            self.inbox.told(self)
        return tuple(self.routes)

    def _send(self, kind: Kind, pickled: Pickled) -> None:
        for route in self.inbox.finished(self, kind, pickled):
            send_outcome(route, kind, pickled)


def refuse(connection: Connection, frame: WireFrame, error: MilkweedError) -> None:
    """Answers a message that is no call here."""
    if frame.kind is Kind.TELL:
        logger.warning("%s", error)
    else:
        connection.reply(Kind.ERROR, frame.call, dumps(error))
