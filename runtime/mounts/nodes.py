"""The kernel's inodes: which number stands for what, and which of them a change makes invalid.

A directory keeps its number while it is there. Any other name gets a new number with each new version, so
that the kernel's pages of an old one never pass for the new one's. A number is never used twice. What is kept
is what the kernel has been told of and has not forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from .manifest import DIRECTORY, Change, Entry, FileRef, Manifest, join

__all__ = ["ROOT", "Invalid", "Node", "NodeTable"]

ROOT: Final = 1


@dataclass(slots=True, eq=False)
class Node:
    """`entry` is what stands behind the number; of a directory that went, `is_gone`."""

    number: int
    path: bytes
    entry: Entry
    lookups: int = 0
    is_gone: bool = False

    @property
    def file(self) -> FileRef:
        return FileRef(self.path, self.entry.version, self.entry.size)


class Invalid(NamedTuple):
    """What the kernel is to forget: a name in a directory; with an empty name, the attributes of `number`."""

    number: int
    name: bytes


class NodeTable:
    """Over a manifest, which `changed` is told of when it has changed."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        root = Node(ROOT, b"", manifest.root, lookups=1)
        self._nodes = {ROOT: root}
        self._current: dict[bytes, Node] = {b"": root}
        self._next = ROOT + 1

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, number: int) -> Node | None:
        return self._nodes.get(number)

    def look_up(self, parent: int, name: bytes) -> Node | None:
        """The node of a name, which the kernel is about to be told; None: it is not there."""
        directory = self._nodes.get(parent)
        if directory is None or directory.is_gone:
            return None
        entry = self.manifest.directories.get(directory.path, {}).get(name)
        return self.told(directory, name, entry) if entry is not None else None

    def told(self, directory: Node, name: bytes, entry: Entry) -> Node:
        """The node of an entry of a directory, with one look-up more."""
        path = join(directory.path, name)
        node = self._current.get(path)
        if node is None:
            node = self._current[path] = self._nodes[self._next] = Node(self._next, path, entry)
            self._next += 1
        node.lookups += 1
        return node

    def untold(self, number: int, times: int = 1) -> None:
        """The kernel has forgotten it so many times."""
        node = self._nodes.get(number)
        if node is None or number == ROOT:
            return
        node.lookups -= times
        if node.lookups <= 0:
            del self._nodes[number]
            if self._current.get(node.path) is node:
                del self._current[node.path]

    def changed(self, changes: Iterable[Change]) -> list[Invalid]:
        """What the kernel is to be told after these changes of the manifest."""
        invalid: dict[Invalid, None] = {}
        for change in changes:
            for one in self._invalid(change):
                invalid[one] = None
        return list(invalid)

    def _invalid(self, change: Change) -> Iterable[Invalid]:
        directory, name, _, after = change
        if not name:
            if after is not None:
                self._nodes[ROOT].entry = after
            yield Invalid(ROOT, b"")
            return
        path = join(directory, name)
        node = self._current.get(path)
        if node is not None and after is not None and _is_same(node.entry, after):
            node.entry = after
            yield Invalid(node.number, b"")
            return
        if node is not None:
            del self._current[path]
            node.is_gone = True
        # It may remember that a name was not there.
        if (parent := self._current.get(directory)) is not None:
            yield Invalid(parent.number, name)


def _is_same(before: Entry, after: Entry) -> bool:
    """Whether the number can stay."""
    return before.kind == after.kind and (before.kind == DIRECTORY or before.version == after.version)
