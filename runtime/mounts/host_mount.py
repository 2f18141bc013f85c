"""A source as the kernel of this host shows it, with what the host wrote over it: revision by revision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from .cache import ByteCache
from .conflicts import Settled, Settler
from .deltas import Delta, apply, difference
from .host_changes import HostChanges
from .invalidator import Invalidator
from .manifest import Change, Manifest
from .nodes import Invalid, NodeTable
from .overlay import Overlay
from .remote import RemoteSource
from .upper import Usage

__all__ = ["HostMount"]


class HostMount:
    """`overlay` is the directory of what the host writes; empty where it may not."""

    def __init__(self, source: RemoteSource, manifest: Manifest, cache: ByteCache, overlay: str) -> None:
        self.manifest = manifest
        self.overlay = Overlay(manifest)
        self.table = NodeTable(self.overlay)
        self.changes: HostChanges | None = None
        if overlay:
            self.changes = HostChanges(Path(overlay), self.overlay, cache)
            self.changes.give_way = cache.give_way
            self._settler = Settler(self.changes, cache)
        self._source = source
        self._changed = anyio.Event()
        self._settling = anyio.Lock()

    def close(self) -> None:
        if self.changes is not None:
            self.changes.close()

    async def next_change(self) -> None:
        await self._changed.wait()

    async def follow(self, invalidator: Invalidator) -> None:
        """Shows each revision; to ask for the next one says that the kernel knows this one, and the client
        what it has won over what was written here.
        """
        manifest = self.manifest
        await self._settle(None, invalidator)
        while True:
            news = await self._source.since(manifest.epoch, manifest.revision)
            delta = news if isinstance(news, Delta) else difference(manifest, news)
            changes = apply(manifest, delta)
            manifest.epoch = delta.epoch
            await self._settle(changes, invalidator)

    async def discard(self, keep: Sequence[bytes], invalidator: Invalidator) -> Usage:
        """Nothing of what was written here is left, but for these paths: how much that was."""
        if self.changes is None:
            return Usage(0, 0)
        async with self._settling:
            await invalidator.tell(self._show(self._settler.discard(keep)))
            return await self._settler.discarded()

    async def _settle(self, changes: Sequence[Change] | None, invalidator: Invalidator) -> None:
        async with self._settling:
            settled = Settled() if self.changes is None else await self._settler.settle(changes)
            invalid = self._show(settled, changes or ())
            changed, self._changed = self._changed, anyio.Event()
            changed.set()
            await invalidator.tell(invalid)
        if self.changes is not None and self.changes.untold:
            await self._source.kept(tuple(self.changes.untold))
            self.changes.told()

    def _show(self, settled: Settled, changes: Sequence[Change] = ()) -> list[Invalid]:
        """What the kernel is to forget."""
        for one in settled.moved:
            self.table.moved(*one)
        invalid = self.table.changed(changes) + self.table.touched(settled.touched)
        for one in settled.moved:
            invalid += self.table.name(one.new)
        return invalid
