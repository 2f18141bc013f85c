"""How the procs of a mesh are started, at first and again, reached and ended; on the node's loop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from ..addresses import SYSTEM, address_of, read_address
from ..call import Connection
from ..errors import MilkweedError, Unavailable
from ..node import Node
from ..pickling import dumps, loads
from ..proc_records import ProcEvent, SpawnProcs
from ..wire import WireFrame
from .explaining import proc_lost
from .host_link import HostLink, HostLost
from .host_links import HostLinks
from .members import HostRef, Member

__all__ = ["Spawner"]

logger = logging.getLogger(__name__)

_LAST_WORDS_S = 0.2

OnEnd = Callable[[Member, ProcEvent | HostLost], None]
OnTold = Callable[[Member, str, tuple[Any, ...]], None]
"""(member, what, arguments): a proc tells its owner something."""


class Spawner:
    """`on_end` hears of each end of a proc that has started, once an attempt."""

    def __init__(
        self, here: Node, links: HostLinks, request: SpawnProcs, on_end: OnEnd, on_told: OnTold
    ) -> None:
        self.restarts = 0
        self._node = here
        self._links = links
        self._request = request
        self._on_end = on_end
        self._on_told = on_told
        self._lost: set[str] = set()

    async def start(self, members: Sequence[Member]) -> None:
        """Starts procs of one host, at the addresses that they had; all of them, or none.

        Raises:
            MilkweedError: as the service `Procs`; host_lost.
        """
        by_name = {member.spec.proc: member for member in members}
        for member in members:
            member.begins()
            if (old := self._open_connection(member)) is not None:
                _close_old(old)  # before there can be one to the new process
        request = replace(self._request, procs=tuple(member.spec for member in members))
        started = await self.link(members[0]).spawn(
            request, lambda name: partial(self._on_end, by_name[name])
        )
        for member, one in zip(members, started, strict=True):
            member.is_up(one)
            self._lost.discard(member.host.socket)
            # The first message says that this is its owner's connection.
            self._connection(member, one.socket)

    async def start_again(self, member: Member) -> None:
        """Raises as `start`."""
        self.restarts += 1
        await self.start([member])

    def ready(self, member: Member) -> None:
        """Its actors are made; what came for them meanwhile waits there."""
        with suppress(Unavailable):  # it has ended
            body, buffers = dumps(((), {}))
            self.connection(member).send_tell((address_of(SYSTEM, "ready") + body, buffers))

    def link(self, member: Member) -> HostLink:
        """The way to the agent of its host."""
        return self._links.link(member.host.name, member.host.socket)

    def connection(self, member: Member) -> Connection:
        """
        Raises:
            Unavailable: proc_lost, it has ended.
        """
        if member.address is None or not member.alive:
            raise proc_lost(member.death, member.spec.proc)
        return self._connection(member, member.address.socket)

    def _connection(self, member: Member, socket: str) -> Connection:
        return self._node.connection(
            socket, f"proc {member.spec.proc}", handler=_OwnersDesk(member, self._on_told)
        )

    def _open_connection(self, member: Member) -> Connection | None:
        return None if member.address is None else self._node.open_connection(member.address.socket)

    def host_lost(self, host: HostRef) -> bool:
        """Whether that is news: once, until something has been started there again."""
        if host.socket in self._lost:
            return False
        self._lost.add(host.socket)
        return True

    async def end(self, member: Member) -> None:
        """Ends one with its tree, at once; nothing where its host is lost."""
        link = self.link(member)
        if link.lost is None:
            try:
                await link.end((member.spec.proc,), 0.0)
            except MilkweedError as error:
                logger.warning("cannot end proc %s: %s", member.spec.proc, error)

    def close_connection(self, member: Member) -> None:
        """Of a proc that has ended; soon: what it answered last may still be on its way."""
        if (old := self._open_connection(member)) is not None:
            self._node.loop.call_later(_LAST_WORDS_S, _close_old, old)


def _close_old(connection: Connection) -> None:
    """Of a proc that ended: a child of it that lives on would keep its callers waiting."""
    if not connection.is_closed:
        connection.close("the process ended")


class _OwnersDesk:
    """What a proc tells its owner."""

    def __init__(self, member: Member, on_told: OnTold) -> None:
        self._member = member
        self._on_told = on_told

    def called(self, _connection: Connection, frame: WireFrame) -> None:
        _, method, arguments = read_address(frame.body)
        try:
            args, _kwargs = loads(arguments, frame.buffers)
        except Exception as error:
            logger.warning("what %s told cannot be read: %r", self._member.spec.proc, error)
            return
        self._on_told(self._member, method, args)

    def cancelled(self, _connection: Connection, _call: int) -> None: ...

    def ended(self, _connection: Connection) -> None: ...
