"""The kernel's inode numbers of a gather mount. Pure.

Number 1 is the mount itself, those after it are the hosts. Any other stands for one file of one host under
one name: another file that takes the name gets another number, so that what the kernel holds never mixes. A
directory is the one of its name.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from typing import Final

from .attributes import Attributes, is_same_file

__all__ = ["ROOT", "Node", "Nodes"]

ROOT: Final = 1


@dataclass(slots=True, eq=False)
class Node:
    """`path` is below what is shown of the `host`; `known_at` is when `attributes` were told."""

    number: int
    host: int
    path: bytes
    attributes: Attributes | None = None
    known_at: float = 0.0
    lookups: int = 0

    @property
    def is_host(self) -> bool:
        return not self.path

    @property
    def directory(self) -> tuple[int, bytes]:
        """What it is in."""
        return self.host, self.path.rpartition(b"/")[0]

    @property
    def name(self) -> bytes:
        return self.path.rpartition(b"/")[2]

    def may_be(self, attributes: Attributes) -> bool:
        """Whether a file with these attributes is the one that the node stands for."""
        known = self.attributes
        if known is None or self.is_host:
            return True
        if known.kind != attributes.kind:
            return False
        return stat.S_ISDIR(known.mode) or is_same_file(known.version, attributes.version)

    def child(self, name: bytes) -> bytes:
        return self.path + b"/" + name if self.path else name


class Nodes:
    def __init__(self, hosts: tuple[int, ...]) -> None:
        self.hosts = {b"%d" % host: Node(ROOT + 1 + at, host, b"") for at, host in enumerate(hosts)}
        self._by_number = {node.number: node for node in self.hosts.values()}
        self._by_path: dict[tuple[int, bytes], Node] = {}
        self._next = ROOT + 1 + len(hosts)

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> Node | None:
        """None for the mount itself, and for what the kernel was never told."""
        return self._by_number.get(number)

    def told(self, parent: Node, name: bytes, attributes: Attributes, now: float) -> Node:
        """The node of an entry, which the kernel hears of once more."""
        path = parent.child(name)
        key = (parent.host, path)
        node = self._by_path.get(key)
        if node is None or not node.may_be(attributes):
            node = Node(self._next, parent.host, path)
            self._next += 1
            self._by_path[key] = self._by_number[node.number] = node
        node.lookups += 1
        if node.attributes != attributes:
            node.attributes = attributes
        node.known_at = now
        return node

    def untold(self, number: int, times: int) -> None:
        """The kernel has forgotten it so many times."""
        node = self._by_number.get(number)
        if node is None or node.is_host:
            return
        node.lookups -= times
        if node.lookups <= 0:
            del self._by_number[number]
            if self._by_path.get((node.host, node.path)) is node:
                del self._by_path[node.host, node.path]
