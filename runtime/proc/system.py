"""The actor that every proc has: makes the others, and tells their failures to the proc's owner."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from ..actor import Actor, endpoint
from ..addresses import SYSTEM
from ..call import Connection
from ..errors import InvalidArgument
from ..extent import Extent, Point
from ..node import Escalation, node
from ..pickling import loads
from ..remote_error import RemoteException
from .actor_table import LiveActor
from .actors import Actors
from .context import ActorContext
from .main_thread import MainThread

__all__ = ["System"]

logger = logging.getLogger(__name__)

_HERE = Point(0, Extent(), 0)


class System(Actor):
    """Its endpoints run on the loop."""

    def __init__(self, main: MainThread) -> None:
        self._main = main
        self._escalation = node().part(Escalation, Escalation)
        self.actors: Actors | None = None

    def add_to(self, actors: Actors) -> None:
        self.actors = actors
        actors.add(LiveActor.of(self, ActorContext(SYSTEM, "proc", _HERE)))

    def own(self, connection: Connection) -> None:
        """From now on failures are told over this connection."""
        self._escalation.adopted_by(connection)

    @endpoint
    async def create(
        self, actor_id: str, name: str, point: Point, on_loop: bool, body: bytes, *buffers: memoryview
    ) -> None:
        """Makes an actor. `body` is (class, args, kwargs), pickled; `on_loop`: it has no sync endpoint.

        Raises:
            InvalidArgument: unreadable_arguments, where class or arguments cannot be made here.
            Exception: what its `__init__` raises.
        """
        where = ActorContext(actor_id, name, point)
        making = _Making(where, body, buffers)
        if on_loop:
            actor = making.make()
        else:
            self._main.put(making)
            try:
                actor = await making.made()
            except asyncio.CancelledError:
                self._main.cancel(making)
                raise
        assert self.actors is not None
        self.actors.add(actor)

    @endpoint
    async def ready(self) -> None:
        """The actors that are to be here are: what came for others meanwhile is refused."""
        assert self.actors is not None
        self.actors.ready()

    @endpoint
    async def remove(self, actor_id: str) -> bool:
        """Whether there was such an actor."""
        assert self.actors is not None
        return self.actors.remove(actor_id)

    @endpoint
    async def statistics(self) -> dict[str, int]:
        assert self.actors is not None
        return self.actors.statistics()

    def failed(self, where: ActorContext, method: str, error: BaseException) -> None:
        """An endpoint raised, and nobody awaits it; any thread."""
        remote = RemoteException.of(error)
        if not self._escalation.tell_owner("actor_failed", where.actor_id, where.point, method, remote):
            logger.error("%s.%s raised: %s", where.name, method, remote.traceback)


class _Making:
    """A job for the main thread: an actor's `__init__`."""

    def __init__(self, where: ActorContext, body: bytes, buffers: tuple[memoryview, ...]) -> None:
        self.label = f"{where.name}.__init__"
        self.cancelled = False
        self._where = where
        self._pickled = (body, buffers)
        self._loop = asyncio.get_running_loop()
        self._made: asyncio.Future[LiveActor] = self._loop.create_future()

    async def made(self) -> LiveActor:
        return await self._made

    def make(self) -> LiveActor:
        try:
            cls, args, kwargs = loads(*self._pickled)
        except Exception as error:
            raise InvalidArgument(
                "unreadable_arguments",
                f"the actor's class or arguments cannot be made here: {type(error).__name__}: {error}",
                "They must be importable on this side: look at sys.path and the versions here.",
            ) from error
        actor = LiveActor.of(cls.__new__(cls), self._where)
        actor.context.copy().run(actor.instance.__init__, *args, **kwargs)
        return actor

    def run(self, main: MainThread) -> None:
        try:
            actor = main.interruptible(self, self.make)
        except BaseException as error:
            self._settle(self._made.set_exception, _plain(error))
            if isinstance(error, SystemExit | KeyboardInterrupt):
                main.leave(error)
        else:
            self._settle(self._made.set_result, actor)

    def drop_in_turn(self) -> None:
        self._settle(self._made.cancel)

    def _settle(self, how: Any, *value: Any) -> None:
        def settle() -> None:
            if not self._made.done():
                how(*value)

        self._loop.call_soon_threadsafe(settle)


def _plain(error: BaseException) -> BaseException:
    """A future takes no StopIteration, and SystemExit would end the loop."""
    if isinstance(error, StopIteration) or not isinstance(error, Exception):
        return InvalidArgument(
            "invalid_argument", f"__init__ raised {type(error).__name__}: {error}", "Mend it."
        )
    return error
