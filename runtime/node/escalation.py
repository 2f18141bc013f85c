"""Failures that nobody in this process handles: to whoever owns it, or to the hooks of the root."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..addresses import SYSTEM, address_of
from ..call import Connection
from ..pickling import dumps
from .node import Node, node

if TYPE_CHECKING:
    from ..supervision import Failure  # which is not light

__all__ = ["Escalation", "on_unhandled"]

logger = logging.getLogger(__name__)


class Escalation:
    """One a node; on its loop, where nothing else is said."""

    def __init__(self, _here: Node) -> None:
        self._parent: Connection | None = None
        self._hooks: list[Callable[[Failure], Any]] = []
        self._listeners: list[Callable[[Failure], None]] = []

    def adopted_by(self, parent: Connection) -> None:
        """Our owner speaks over this connection."""
        self._parent = parent

    def add_hook(self, hook: Callable[[Failure], Any]) -> None:
        self._hooks.append(hook)

    def add_listener(self, listener: Callable[[Failure], None]) -> None:
        """It hears of what no hook handled either."""
        self._listeners.append(listener)

    def tell_owner(self, method: str, *args: Any) -> bool:
        """Sends our owner a message; False where there is none. Any thread."""
        if self._parent is None or self._parent.is_closed:
            return False
        body, buffers = dumps((args, {}))
        self._parent.send_tell((address_of(SYSTEM, method) + body, buffers))
        return True

    def escalate(self, failure: Failure) -> None:
        """No `__supervise__` here handled it. At the root it is told to the hooks, and ends nothing."""
        if self.tell_owner("escalated", failure):
            return
        handled = False
        for hook in self._hooks:
            try:
                handled |= hook(failure) is True
            except Exception:
                logger.exception("a hook for failures raised")
        if not handled:
            for listener in self._listeners:
                listener(failure)
            logger.warning("nobody handled: %s", failure.summary())


def on_unhandled(hook: Callable[[Failure], Any]) -> None:
    """Calls `hook` with every failure that reaches this process and that no `__supervise__` handled.

    It runs on the node's thread and is to be quick. One that returns True has handled it; else the failure is
    logged, and a mesh that this program is attached to is degraded. The program is never ended by it.
    """
    here = node()
    here.loop.call_soon_threadsafe(here.part(Escalation, Escalation).add_hook, hook)
