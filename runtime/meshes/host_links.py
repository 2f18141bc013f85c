"""The way to each host that this process has spawned procs on."""

from __future__ import annotations

import asyncio

from ..node import Node, node
from .host_link import HostLink

__all__ = ["HostLinks", "host_links"]


class HostLinks:
    """One a node; on its loop, where nothing else is said."""

    def __init__(self, here: Node) -> None:
        self._node = here
        self._links: dict[str, tuple[HostLink, asyncio.Task[None]]] = {}
        here.in_child(self._abandon)

    def has_lost(self, socket: str) -> bool:
        """Whether that host was there and is no more. Any thread."""
        found = self._links.get(socket)
        return found is not None and found[0].lost is not None

    def _abandon(self) -> None:
        for link, _ in self._links.values():
            link.abandon()

    def link(self, name: str, socket: str) -> HostLink:
        """The way to a host, opened if it is not."""
        found = self._links.get(socket)
        if found is None or found[0].lost is not None:
            link = HostLink(self._node.id, name, socket)
            found = self._links[socket] = (link, self._node.loop.create_task(link.run()))
        return found[0]


def host_links() -> HostLinks:
    """Those of this process's node."""
    return node().part(HostLinks, HostLinks)
