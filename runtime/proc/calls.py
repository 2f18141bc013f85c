"""One call of an endpoint, from its frame to its answer, on the loop or on the main thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..call import Connection
from ..errors import InvalidArgument
from ..node.interrupt import Interrupted
from ..pickling import dumps, loads
from ..remote_error import RemoteException
from ..wire import Kind, WireFrame

if TYPE_CHECKING:
    from .actors import LiveActor
    from .main_thread import MainThread

__all__ = ["ServedCall"]

logger = logging.getLogger(__name__)


class ServedCall:
    """Answered once. `actor` is the one called, `method` its endpoint; a tell is answered by nothing.

    `started` is called when a sync one begins, `done` when it has ended in whatever way, with the exception
    that a tell raised.
    """

    __slots__ = (
        *("_answered", "actor", "call", "cancelled", "connection", "done", "frame"),
        *("is_tell", "label", "method", "started", "task"),
    )

    def __init__(
        self,
        connection: Connection,
        frame: WireFrame,
        arguments: memoryview | bytes,
        actor: LiveActor,
        method: str,
        *,
        started: Callable[[ServedCall], None],
        done: Callable[[ServedCall, BaseException | None], None],
    ) -> None:
        self.connection = connection
        self.call = frame.call
        self.frame: tuple[memoryview | bytes, tuple[memoryview, ...]] | None = (arguments, frame.buffers)
        self.actor = actor
        self.method = method
        self.label = f"{actor.cls_name}.{method}"
        self.started = started
        self.done = done
        self.cancelled = False
        self.task: asyncio.Task[None] | None = None
        self.is_tell = frame.kind is Kind.TELL
        self._answered = self.is_tell

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
            if not isinstance(error, Exception):
                raise

    def run(self, main: MainThread) -> None:
        """On the main thread."""
        self.started(self)
        try:
            args, kwargs = self._arguments()
            function = getattr(self.actor.instance, self.method)
            self.answer(
                main.interruptible(self, lambda: self.actor.context.copy().run(function, *args, **kwargs))
            )
        except Interrupted:
            self.drop()
        except BaseException as error:
            self.fail(error)
            if not isinstance(error, Exception):
                raise

    def answer(self, value: Any) -> None:
        if self._answered:
            self.done(self, None)
            return
        try:
            pickled = dumps(value)
        except InvalidArgument as error:
            self.fail(error)
            return
        self._answered = True
        self.connection.reply(Kind.RESULT, self.call, pickled)
        self.done(self, None)

    def fail(self, error: BaseException) -> None:
        told, self._answered = self._answered, True
        if not told:
            answer = RemoteException.of(error)
            self.connection.reply(Kind.ERROR, self.call, dumps(answer))
        self.done(self, error if self.is_tell and told else None)

    def drop_in_turn(self) -> None:
        """On the main thread: it was cancelled before it began."""
        self.started(self)
        self.drop()

    def drop(self) -> None:
        """It was cancelled."""
        if not self._answered:
            self._answered = True
            self.connection.reply(Kind.ERROR, self.call, dumps(None))
        self.done(self, None)

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
