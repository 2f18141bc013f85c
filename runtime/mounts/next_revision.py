"""The next revision of a workspace while it is put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .excludes import Excluded
from .manifest import DIRECTORY, FILE, Entry, join, split

if TYPE_CHECKING:
    from .workspace import Workspace

__all__ = ["NextRevision"]


class NextRevision:
    """The manifest is changed at once; what was changed is kept, for those who follow."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._manifest = workspace.manifest
        self.removed: list[bytes] = []
        self.put: dict[bytes, Entry] = {}

    async def one(self, path: bytes, found: Entry | Excluded | None, *, deep: bool) -> None:
        if not path and (not isinstance(found, Entry) or found.kind != DIRECTORY):  # the root has just gone
            return
        if path and split(path)[0] not in self._manifest.directories:
            return
        before = self._manifest.entry(path)
        if isinstance(found, Excluded):
            self._workspace.excluded[path] = found
        elif self._workspace.excluded:
            self._workspace.excluded.pop(path, None)
        if found is None or isinstance(found, Excluded):
            self._remove(path)
            return
        # With another mode it may be read where it could not, and be watched.
        if found.kind == DIRECTORY and (deep or before is None or before[:2] != found[:2]):
            if before is not None and before.kind != DIRECTORY:
                self._remove(path)
            self._put(path, found)
            await self.subtree(path)
        else:
            if before is not None and before.kind == DIRECTORY != found.kind:
                self._remove(path)
            self._put(path, found)

    async def subtree(self, top: bytes) -> None:
        workspace, manifest = self._workspace, self._manifest
        scanned = await workspace.scanned(top)
        if not top:
            workspace.unreadable.clear()
            workspace.excluded.clear()
        workspace.note(scanned)
        for path, content in scanned.directories.items():
            for name in manifest.directories.get(path, {}).keys() - content.keys():
                self._remove(join(path, name))
            for name, found in content.items():
                inside = join(path, name)
                before = manifest.entry(inside) if path in manifest.directories else None
                if before is not None and (before.kind == DIRECTORY) != (found.kind == DIRECTORY):
                    self._remove(inside)
                self._put(inside, found)

    def _put(self, path: bytes, found: Entry) -> None:
        before = self._manifest.entry(path)
        shown = self._workspace.present(path, before, found)
        if shown != before:
            self._manifest.put(path, shown)
            self._workspace.changed(path, before if path else None, shown if path else None)
            self.put[path] = shown
            if shown.kind == FILE:
                self._workspace.changed_lately(path)

    def _remove(self, path: bytes) -> None:
        changes = self._manifest.remove(path)
        for change in changes:
            inside = join(change.directory, change.name)
            self.put.pop(inside, None)
            assert change.before is not None
            self._workspace.changed(inside, change.before, None)
            if change.before.kind == DIRECTORY:
                self._workspace.unwatch(inside)
            else:
                self._workspace.forget(inside, change.before)
        if changes:
            self.removed.append(path)
