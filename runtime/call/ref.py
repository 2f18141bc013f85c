"""Somebody else's actor, called by message, with the types of its endpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from ..actor import Actor

__all__ = ["ActorRef"]

A = TypeVar("A", bound=Actor)
P = ParamSpec("P")
T = TypeVar("T")


class Requests(Protocol):
    """What carries a call: a session."""

    async def request(
        self, actor: str, method: str, args: Any, kwargs: Any, deadline_s: float | None
    ) -> Any: ...


class ActorRef(Generic[A]):
    """Somebody else's actor, called by message over one connection."""

    def __init__(self, session: Requests, name: str, cls: type[A], deadline_s: float | None) -> None:
        self._session = session
        self._name = name
        self._cls = cls
        self._deadline_s = deadline_s

    def within(self, deadline_s: float | None) -> ActorRef[A]:
        """The same actor with another deadline for its calls, in seconds; None waits for ever."""
        return ActorRef(self._session, self._name, self._cls, deadline_s)

    async def call_one(
        self, method: Callable[Concatenate[A, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Calls one endpoint and returns its result.

        Raises:
            MilkweedError: what the endpoint raised; `connection_lost`, `deadline_exceeded` or
            `internal_error`.
        """
        result: T = await self._session.request(self._name, method.__name__, args, kwargs, self._deadline_s)
        return result
