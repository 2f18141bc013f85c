"""The kernel's inodes: which number stands for what, and which of them a change makes invalid.

A directory keeps its number while it is there. Any other name gets a new number with each new version, so
that the kernel's pages of an old one never pass for the new one's; but when a host begins to write to a file,
its content is the same, and so is its number. A number is never used twice. What is kept is what the kernel
has been told of and has not forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from .manifest import DIRECTORY, Change, Entry, FileRef, join, split

__all__ = ["NOT_OPEN", "ROOT", "Invalid", "Node", "NodeTable", "View"]

ROOT: Final = 1
NOT_OPEN: Final = -1


class View(Protocol):
    """The names that are shown: a manifest, or an overlay of one."""

    @property
    def root(self) -> Entry: ...

    def at(self, directory: bytes, name: bytes) -> Entry | None: ...


@dataclass(slots=True, eq=False)
class Node:
    """`entry` is what stands behind the number; of what went, `is_gone`. `opens` counts the handles
    of programs, which share `fd` where it is the host's own file.
    """

    number: int
    path: bytes
    entry: Entry
    lookups: int = 0
    is_gone: bool = False
    opens: int = 0
    fd: int = NOT_OPEN

    @property
    def file(self) -> FileRef:
        return FileRef(self.path, self.entry.version, self.entry.size)


class Invalid(NamedTuple):
    """What the kernel is to forget: a name in a directory; with an empty name, the attributes of `number`."""

    number: int
    name: bytes


class NodeTable:
    """Over a view, which `changed` is told of when it has changed."""

    def __init__(self, view: View) -> None:
        self._view = view
        root = Node(ROOT, b"", view.root, lookups=1)
        self._nodes = {ROOT: root}
        self._current: dict[bytes, Node] = {b"": root}
        self._next = ROOT + 1

    def __len__(self) -> int:
        return len(self._nodes)

    def node(self, number: int) -> Node | None:
        return self._nodes.get(number)

    def current(self, path: bytes) -> Node | None:
        """What the kernel knows under a path."""
        return self._current.get(path)

    def look_up(self, parent: int, name: bytes) -> Node | None:
        """The node of a name, which the kernel is about to be told; None: it is not there."""
        directory = self._nodes.get(parent)
        if directory is None or directory.is_gone:
            return None
        entry = self._view.at(directory.path, name)
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

    def copied(self, path: bytes) -> None:
        """The same stands behind another entry from now on."""
        node = self._current.get(path)
        if node is not None and (entry := self._entry(path)) is not None:
            node.entry = entry

    def gone(self, path: bytes) -> None:
        """The kernel itself has removed this name."""
        if (node := self._current.pop(path, None)) is not None:
            node.is_gone = True

    def moved(self, old: bytes, new: bytes, kind: int) -> None:
        """What was there is found under another path, with all below it."""
        self.gone(new)
        paths = [old]
        if kind == DIRECTORY:
            inside = old + b"/"
            paths += [path for path in self._current if path.startswith(inside)]
        for path in paths:
            if (node := self._current.pop(path, None)) is not None:
                node.path = new + path[len(old) :]
                self._current[node.path] = node
                self.copied(node.path)

    def changed(self, changes: Iterable[Change]) -> list[Invalid]:
        """What the kernel is to be told after these changes of the manifest."""
        return self.touched(join(change.directory, change.name) for change in changes)

    def touched(self, paths: Iterable[bytes]) -> list[Invalid]:
        """What the kernel is to be told after what is shown under these paths may have changed."""
        invalid: dict[Invalid, None] = {}
        for path in paths:
            for one in self._invalid(path):
                invalid[one] = None
        return list(invalid)

    def name(self, path: bytes) -> list[Invalid]:
        """What has the kernel look a path up again, where it knows the directory."""
        directory, name = split(path)
        parent = self._current.get(directory)
        return [Invalid(parent.number, name)] if parent is not None else []

    def _invalid(self, path: bytes) -> Iterable[Invalid]:
        if not path:
            self._nodes[ROOT].entry = self._view.root
            yield Invalid(ROOT, b"")
            return
        directory, name = split(path)
        after = self._view.at(directory, name)
        node = self._current.get(path)
        if node is not None and after is not None and _is_same(node.entry, after):
            node.entry = after
            yield Invalid(node.number, b"")
            return
        if node is not None:
            del self._current[path]
            node.is_gone = True
            if node.opens:  # it may be asked how many names it has
                yield Invalid(node.number, b"")
        # It may remember that a name was not there.
        yield from self.name(path)

    def _entry(self, path: bytes) -> Entry | None:
        return self._view.at(*split(path)) if path else self._view.root


def _is_same(before: Entry, after: Entry) -> bool:
    """Whether the number can stay."""
    return before.kind == after.kind and (before.kind == DIRECTORY or before.version == after.version)
