"""Actors: private state whose endpoints are called by message.

    class Files(Actor):
        @endpoint
        async def size(self, path: str) -> int: ...

An endpoint is an async method. Called on the instance it is an ordinary coroutine; called on an `ActorRef`
(see `call.py`) it is a message to wherever the actor lives. Only marked methods can be called by message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["Actor", "endpoint", "endpoints_of"]

_MARK = "__milkweed_endpoint__"

EndpointT = TypeVar("EndpointT", bound=Callable[..., Awaitable[Any]])


class Actor:
    """Base of everything that is called by message."""


def endpoint(method: EndpointT) -> EndpointT:
    """Marks an async method as callable by message."""
    setattr(method, _MARK, True)
    return method


def endpoints_of(actor: Actor | type[Actor]) -> frozenset[str]:
    """Names of the endpoints of an actor or of its class."""
    cls = actor if isinstance(actor, type) else type(actor)
    return frozenset(name for name in dir(cls) if getattr(getattr(cls, name, None), _MARK, False))
