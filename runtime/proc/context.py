"""Who and where an endpoint's code is: `current_rank()` and the like."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from ..errors import Conflict
from ..extent import Point

__all__ = ["ActorContext", "current", "current_instance", "current_rank", "current_size", "enter"]


@dataclass(frozen=True, slots=True)
class ActorContext:
    """What an actor knows of itself: the name of its mesh, and its place there."""

    actor_id: str
    name: str
    point: Point


_current: ContextVar[ActorContext] = ContextVar("milkweed_actor")
_instance: ContextVar[object] = ContextVar("milkweed_instance")


def current() -> ActorContext | None:
    """The actor whose endpoint is running here, if one is."""
    return _current.get(None)


def current_instance() -> object:
    """The running actor itself, None where none is."""
    return _instance.get(None)


def enter(context: ActorContext, instance: object) -> None:
    _current.set(context)
    _instance.set(instance)


def current_rank() -> Point:
    """The place of the running actor in its mesh: `.rank`, and `["gpus"]` its coordinate in a dimension.

    Raises:
        Conflict: not_in_an_actor, no endpoint is running here.
    """
    return _here().point


def current_size() -> dict[str, int]:
    """Names and sizes of the dimensions of the running actor's mesh. Raises Conflict as `current_rank`."""
    return _here().point.extent.sizes


def _here() -> ActorContext:
    found = _current.get(None)
    if found is None:
        raise Conflict("not_in_an_actor", "no actor's endpoint is running here", "Call it in an endpoint.")
    return found
