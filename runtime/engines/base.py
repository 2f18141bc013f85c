"""The engine seam: what runs on a host, and how its services are called."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar

import anyio

from ..actor import Actor
from ..call import ActorRef
from ..paths import MeshPaths
from ..records import MeshSpec
from ..schedulers import AllocationPlan, HostHandle, HostPlace

__all__ = ["Engine", "HostChannel"]

A = TypeVar("A", bound=Actor)


class HostChannel(Protocol):
    """The way to one host's services; `closed` is set when it is gone for good."""

    closed: anyio.Event

    def actor(self, name: str, cls: type[A]) -> ActorRef[A]: ...


class Engine(Protocol):
    name: str

    def check(self, plan: AllocationPlan) -> None:
        """
        Raises:
            InvalidArgument: unsupported, it cannot reach the hosts that would be given.
        """
        ...

    def prepare(self, mesh: str, spec: MeshSpec, place: HostPlace, paths: MeshPaths) -> list[str]:
        """Writes what the host needs to its directory; returns the command for the scheduler to start."""
        ...

    def connect(self, host: HostHandle, paths: MeshPaths) -> AbstractAsyncContextManager[HostChannel]:
        """
        Raises:
            Unavailable: the host does not answer (yet).
        """
        ...
