"""Failures in a mesh of procs: what each one was, and who hears of it."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import ActorError, MilkweedError
from ..extent import Point
from ..node import Escalation, Feed, Node
from ..proc_records import ProcEvent
from ..remote_error import RemoteException
from ..supervision import Failure
from .host_link import HostLost
from .members import Member

__all__ = [
    "Background",
    "Failures",
    "Supervise",
    "actor_failed",
    "cannot_restart",
    "proc_ended",
    "proc_stopped",
]

logger = logging.getLogger(__name__)

Supervise = Callable[[Failure], Any]
Background = Callable[[Coroutine[Any, Any, None]], object]
"""Runs a coroutine in a task that ends with the mesh."""


class Failures:
    """Tells them, on the node's loop: all who listen, and those up the tree until one has handled it.

    `supervise` is the `__supervise__` of the actor that spawned the mesh.
    """

    def __init__(self, here: Node, mesh: str, supervise: Supervise | None, background: Background) -> None:
        self._node = here
        self._mesh = mesh
        self._supervise = supervise
        self._background = background
        self._feeds: list[Feed[Failure]] = []
        self._closed = False

    def listen(self) -> Feed[Failure]:
        """Gets all from now on, until it is `ignored` or the mesh is stopped. Any thread."""
        feed: Feed[Failure] = Feed()
        self._feeds.append(feed)
        if self._closed:
            feed.close()
        return feed

    def ignore(self, feed: Feed[Failure]) -> None:
        """Any thread."""
        self._feeds.remove(feed)
        feed.close()

    def close(self) -> None:
        self._closed = True
        for feed in tuple(self._feeds):
            feed.close()

    def tell(self, failure: Failure) -> None:
        """Those who listen."""
        for feed in self._feeds:
            feed.put(failure)

    def escalate(self, failure: Failure) -> None:
        """The owner actor's `__supervise__`; where that does not handle it, whoever owns this process."""
        self._background(self._escalate(failure))

    async def _escalate(self, failure: Failure) -> None:
        if self._supervise is not None:
            try:
                handled = self._supervise(failure)
                if inspect.isawaitable(handled):
                    handled = await handled
            except Exception:
                logger.exception("__supervise__ of the owner of %s raised", self._mesh)
                handled = False
            if handled:
                return
        self._node.part(Escalation, Escalation).escalate(failure)


def proc_ended(
    mesh: str, member: Member, point: Point, event: ProcEvent | HostLost, restarts: int
) -> Failure:
    """A proc is no more, and nobody asked for that; what its host ended is the host's failure.

    Args:
        restarts: how many there have been in the whole mesh.
    """
    where = tuple(point.items())
    if isinstance(event, HostLost) or event.exit.ended_by is not None:
        why = str(event) if isinstance(event, HostLost) else f"it is ending: {event.exit.ended_by}"
        return Failure(
            "host",
            member.host.name,
            mesh,
            (member.rank,),
            where,
            reason=why,
            at=time.time(),
            restarts=restarts,
        )
    return Failure(
        "proc",
        member.spec.proc,
        mesh,
        (member.rank,),
        where,
        exit=event.exit,
        at=event.at,
        tail=event.tail,
        stacks=event.stacks,
        restarts=member.restarts,
    )


def proc_stopped(mesh: str, member: Member) -> Failure:
    """What those hear who call a proc that was asked to end."""
    return Failure("proc", member.spec.proc, mesh, (member.rank,), reason="it was stopped", at=time.time())


def actor_failed(
    mesh: str, member: Member, actor: str, point: Point, method: str, error: RemoteException
) -> Failure:
    """An endpoint that nobody awaits raised; `point` is the actor's place in its own mesh."""
    return Failure(
        "actor",
        f"{actor}.{method}",
        mesh,
        (member.rank,),
        tuple(point.items()),
        exception=error.type_name.rpartition(".")[2],
        message=error.text,
        at=time.time(),
        stacks=error.traceback,
    )


def cannot_restart(mesh: str, member: Member, error: MilkweedError) -> Failure:
    """A proc, or an actor on it, could not be made again."""
    return Failure(
        "proc",
        member.spec.proc,
        mesh,
        (member.rank,),
        exception=error.exception_type if isinstance(error, ActorError) else error.code,
        message=error.cause,
        at=time.time(),
        restarts=member.restarts,
    )
