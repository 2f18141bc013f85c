"""Small files that were fetched beside others, until they are opened: what `following` says."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Final

from .attributes import Attributes
from .following import SMALL, Following
from .lives import Lives
from .nodes import Node
from .remote_host import Bytes, RemoteHost, Unanswered

__all__ = ["MOST_READY", "SmallFiles"]

MOST_READY: Final = 512
"""Files that wait to be opened, at most."""

Opened = tuple[Attributes, Bytes | None]


class _Batch:
    def __init__(self, host: RemoteHost, paths: list[bytes]) -> None:
        self.at = time.monotonic()
        self.task = asyncio.ensure_future(self._fetch(host, paths))

    async def _fetch(self, host: RemoteHost, paths: list[bytes]) -> dict[bytes, Opened | None]:
        try:
            return dict(zip(paths, await host.open_several(paths, SMALL), strict=True))
        except Unanswered:
            return {}


class SmallFiles:
    """What was fetched is believed for the life of attributes."""

    def __init__(self, lives: Lives) -> None:
        self._lives = lives
        self._following = Following()
        self._ready: OrderedDict[tuple[int, bytes], _Batch] = OrderedDict()

    async def opened(self, host: RemoteHost, node: Node) -> Opened:
        """A file's attributes, and its bytes where they are few.

        Raises:
            Unanswered: it cannot be had.
        """
        batch = self._ready.pop((node.host, node.path), None)
        if batch is not None and batch.at > time.monotonic() - self._lives.life_s:
            found = (await asyncio.shield(batch.task)).get(node.path)
            if found is not None:
                return found
        self._fetch_ahead(host, node)
        return await host.open(node.path, SMALL)

    def _fetch_ahead(self, host: RemoteHost, node: Node) -> None:
        remembered = self._lives.remembered(node.directory)
        if remembered is None:
            return
        directory = node.path[: len(node.path) - len(node.name)]
        names = self._following.after(node.directory, node.name, *remembered)
        if not names:
            return
        batch = _Batch(host, [directory + name for name in names])
        for name in names:
            self._ready[node.host, directory + name] = batch
        while len(self._ready) > MOST_READY:
            self._ready.popitem(last=False)
