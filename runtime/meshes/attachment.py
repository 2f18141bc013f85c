"""The meshes that this program is attached to, and telling their keepers what nobody here handled.

A keeper knows us as long as a call to it is open, and may be killed meanwhile. We do not start it again,
since what we start may end with us; its clients do, and we tell it again what it should know.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from ..attach_records import AttachPlace, Controller
from ..call import ActorRef, Session, open_connection
from ..errors import MilkweedError
from ..node import Escalation, Node
from ..supervision import Failure
from .telling import Telling

if TYPE_CHECKING:
    from ..keeper.controllers import Controllers

__all__ = ["Attachments"]

logger = logging.getLogger(__name__)

_MOST = 100
_RETRY_S = 0.5
_REPORT_S = 10.0
_LAST_WORDS_S = 1.0


class Attachments:
    """One a node."""

    def __init__(self, here: Node) -> None:
        self._node = here
        self._reporters: dict[str, _Reporter] = {}
        here.before_close(self._finish)
        here.in_child(self._abandon)

    def add(self, place: AttachPlace) -> None:
        """From now on the mesh's keeper hears of failures; once a mesh. Any thread."""
        self._node.loop.call_soon_threadsafe(self._add, place)

    def _add(self, place: AttachPlace) -> None:
        if place.keeper in self._reporters:
            return
        controller = Controller(
            self._node.id, os.getpid(), place.run, self._tell_at(Path(place.keeper).parent)
        )
        reporter = self._reporters[place.keeper] = _Reporter(controller, Path(place.keeper), place.mesh)
        self._node.part(Escalation, Escalation).add_listener(reporter.unhandled)
        self._node.start(reporter.run())

    def _tell_at(self, directory: Path) -> str:
        """Where this program tells of itself; empty where it cannot: that is for those who debug it alone."""
        try:
            return str(self._node.part(Telling, lambda here: Telling(here, directory)).path)
        except OSError as error:
            logger.warning("no control socket in %s: %s", directory, error)
            return ""

    def _finish(self) -> None:
        """A failure may be what ends the program: it is told all the same."""
        self._node.start(self._all_told()).get(_LAST_WORDS_S)

    def _abandon(self) -> None:
        for reporter in self._reporters.values():
            reporter.abandon()

    async def _all_told(self) -> None:
        for reporter in self._reporters.values():
            await reporter.told.wait()


class _Reporter:
    """One mesh's; on the node's loop. `told` is set while the keeper knows all."""

    def __init__(self, controller: Controller, keeper: Path, mesh: str) -> None:
        self.told = asyncio.Event()
        self.told.set()
        self._controller = controller
        self._keeper = keeper
        self._mesh = mesh
        self._known: list[Failure] = []
        self._new: deque[Failure] = deque()
        self._news = asyncio.Event()
        self._session: Session | None = None

    def unhandled(self, failure: Failure) -> None:
        if len(self._known) + len(self._new) < _MOST:
            self._new.append(failure)
            self.told.clear()
            self._news.set()

    def abandon(self) -> None:
        """In a forked child, which is not attached: the keeper is to see when its parent ends."""
        if self._session is not None:
            self._session.abandon()

    async def run(self) -> None:
        """For as long as the mesh is there."""
        from ..keeper.controllers import Controllers

        while self._keeper.parent.is_dir():
            try:
                peer = f"the keeper of {self._mesh}"
                async with open_connection(self._keeper, role="controller", peer=peer) as session:
                    self._session = session
                    keeper = session.actor(Controllers.__name__, Controllers)
                    async with anyio.create_task_group() as tasks:
                        known = tuple(self._known)
                        tasks.start_soon(
                            keeper.within(None).call_one, Controllers.hold, self._controller, known
                        )
                        await anyio.lowlevel.checkpoint()  # it is sent before what rests on it
                        await self._tell(keeper.within(_REPORT_S))
            except* MilkweedError as errors:
                logger.debug("%s: %s", self._mesh, errors.exceptions[0])
            await asyncio.sleep(_RETRY_S)

    async def _tell(self, keeper: ActorRef[Controllers]) -> None:
        from ..keeper.controllers import Controllers

        while True:
            while self._new:
                await keeper.call_one(Controllers.report, self._controller.id, self._new[0])
                self._known.append(self._new.popleft())
            self.told.set()
            self._news.clear()
            await self._news.wait()
