"""Each call's turn among the messages of its sender, and its way from there to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .calls import NumberedCall, ServedCall
from .context import ActorContext
from .mailboxes import Mailbox, Sender
from .main_thread import MainThread
from .senders import Senders

__all__ = ["OnFailure", "Turns"]

OnFailure = Callable[[ActorContext, str, BaseException], None]
"""(actor, endpoint, what it raised): nobody awaits it; any thread."""


class Turns:
    """Begins calls: async ones on the loop, sync ones on the main thread. On the loop's thread, where nothing
    else is said.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, main: MainThread, senders: Senders, on_failure: OnFailure
    ) -> None:
        self._loop = loop
        self._main = main
        self._senders = senders
        self._on_failure = on_failure

    def take(self, call: ServedCall) -> None:
        """It has come; it begins when its sender's earlier messages to the same actor have."""
        if not call.peer.sender.is_behind(call):
            self._begin(call)

    def _begin(self, call: ServedCall) -> None:
        sender = call.peer.sender
        if call.cancelled:
            call.drop()
        elif call.is_async:
            if call.is_tell:
                sender.hold(call)
            call.task = self._loop.create_task(
                call.run_async(), name=call.method, context=call.actor.context.copy()
            )
        else:
            sender.put_ahead(call)
            self._main.put(call)

    def started(self, call: ServedCall) -> None:
        """A sync call begins, or never will: those behind it may begin. Any thread, and once more."""
        sender = call.peer.sender
        box = sender.begun(call)
        if box is not None:
            self._loop.call_soon_threadsafe(self._go_on, sender, box)

    def _go_on(self, sender: Sender, box: Mailbox) -> None:
        while (call := sender.following(box)) is not None:
            self._begin(call)
        sender.resume_if_few()

    def done(self, call: ServedCall, error: BaseException | None) -> None:
        """It has ended in whatever way, with the exception that a tell raised. Any thread."""
        if isinstance(call, NumberedCall):
            for connection, number in call.end():
                if (peer := self._senders.known(connection)) is not None:
                    peer.calls.pop(number, None)
        if not call.is_tell:
            call.peer.calls.pop(call.call, None)
        elif call.is_async:
            call.peer.sender.released(call)
        if error is not None:
            self._on_failure(call.actor.where, call.method, error)

    def leave(self, error: BaseException) -> None:
        """An endpoint raised what ends a process: SystemExit, KeyboardInterrupt. Any thread."""
        self._main.leave(error)

    def cancel(self, call: ServedCall) -> None:
        """An async call ends at its next await, a sync one at its next bytecode, and one that has not begun
        never will.
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
