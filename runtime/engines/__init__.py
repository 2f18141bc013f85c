"""Engines start a host's processes and carry messages to its services."""

from ..errors import InvalidArgument
from .base import Engine, HostChannel
from .embedded import EmbeddedEngine

__all__ = ["EmbeddedEngine", "Engine", "HostChannel", "find"]


def find(name: str) -> Engine:
    """
    Raises:
        InvalidArgument: there is no engine of that name.
    """
    if name == EmbeddedEngine.name:
        return EmbeddedEngine()
    raise InvalidArgument(
        "invalid_argument", f"no engine {name!r}; engines: {EmbeddedEngine.name}", "Leave it out."
    )
