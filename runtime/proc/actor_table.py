"""The actors of a process by their ids, and what comes for them before they are made."""

from __future__ import annotations

import contextvars
from dataclasses import dataclass, field
from typing import Any

from ..actor import Actor, endpoints_of, is_async
from ..call import Connection
from ..errors import MilkweedError, NotFound
from ..pickling import dumps
from ..wire import SAME_VERSION, Kind, WireFrame
from .context import ActorContext, enter

__all__ = ["ActorTable", "EarlyMessages", "LiveActor", "not_here"]

_MOST_EARLY = 4096


@dataclass(slots=True)
class LiveActor:
    """An instance, its place, and the context that its endpoints run in."""

    instance: Any
    where: ActorContext
    context: contextvars.Context
    cls_name: str
    endpoints: dict[str, bool] = field(default_factory=dict)
    """By name, whether it is async."""

    @classmethod
    def of(cls, instance: Actor, where: ActorContext) -> LiveActor:
        context = contextvars.copy_context()
        context.run(enter, where, instance)
        kind = type(instance)
        endpoints = {name: is_async(kind, name) for name in endpoints_of(kind)}
        return cls(instance, where, context, kind.__name__, endpoints)


class ActorTable:
    """The system's own actor is in it, under the empty id."""

    def __init__(self) -> None:
        self._actors: dict[str, LiveActor] = {}

    def add(self, actor: LiveActor) -> None:
        self._actors[actor.where.actor_id] = actor

    def remove(self, actor_id: str) -> bool:
        """Whether it was there."""
        return self._actors.pop(actor_id, None) is not None

    def get(self, actor_id: str) -> LiveActor | None:
        return self._actors.get(actor_id)

    def ids(self) -> tuple[str, ...]:
        """Of all but the system's own; any thread."""
        return tuple(name for name in tuple(self._actors) if name)


class EarlyMessages:
    """Of a proc that was started again: what comes before its actors are made again.

    There is no more of it once it was taken.
    """

    def __init__(self) -> None:
        self._frames: dict[tuple[Connection, int], WireFrame] | None = {}

    def keep(self, connection: Connection, frame: WireFrame) -> bool:
        """Whether it is kept; it is for an actor that is not here."""
        if self._frames is None or len(self._frames) >= _MOST_EARLY:
            return False
        self._frames[connection, frame.call] = frame
        return True

    def take(self) -> list[tuple[Connection, WireFrame]]:
        """All of it, in the order in which it came."""
        frames, self._frames = self._frames or {}, None
        return [(connection, frame) for (connection, _), frame in frames.items()]

    def cancel(self, connection: Connection, call: int) -> bool:
        """Whether it was there; it is answered."""
        if not self._frames or self._frames.pop((connection, call), None) is None:
            return False
        connection.reply(Kind.ERROR, call, dumps(None))
        return True

    def left(self, connection: Connection) -> None:
        """Nobody awaits the calls of a connection that ended; what it told stays."""
        if self._frames:
            self._frames = {
                key: frame
                for key, frame in self._frames.items()
                if key[0] is not connection or frame.kind is Kind.TELL
            }


def not_here(actor_id: str, method: str, actor: LiveActor | None) -> MilkweedError:
    """Why a message cannot be taken: there is no such actor, or it has no such endpoint."""
    if actor is None:
        return NotFound(
            "actor_not_found", f"there is no actor {actor_id!r} here (any more)", "Spawn it again."
        )
    return NotFound("endpoint_not_found", f"{actor.cls_name} has no endpoint {method!r} here", SAME_VERSION)
