"""What hosts write over a tree, as runs ask for it: cleared, or in scratch folders of each host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..errors import MilkweedError
from ..mesh import format_ranks
from ..services.mounts import Mounts
from .hosts import Hosts
from .tree import Tree

__all__ = ["Prepared", "TreeWriting"]

T = TypeVar("T")

_CHANGE_S = 40.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """`revision` is the workspace's that hosts show."""

    revision: int = 0
    notes: tuple[str, ...] = ()


class TreeWriting:
    def __init__(self, tree: Tree, hosts: Hosts) -> None:
        self._tree = tree
        self._hosts = hosts

    async def discard(self, hosts: Iterable[int]) -> tuple[str, ...]:
        """Clears what these hosts wrote over the tree: how much that was, in words.

        Raises:
            MilkweedError: of the first host that could not.
        """
        wanted = [host for host in hosts if self._tree.mode(host) in ("mount", "copy")]
        answers = await self._hosts.ask(
            wanted,
            lambda link: link.call_within(_CHANGE_S, Mounts, Mounts.discard, self._tree.place(link.host), []),
        )
        cleared = {host: answer for host, answer in _without_errors(answers).items() if answer[0]}
        if not cleared:
            return ()
        files = sum(count for count, _ in cleared.values())
        size = sum(size for _, size in cleared.values())
        plural = "s" if len(cleared) > 1 else ""
        return (f"discarded {files:,} files ({size:,} bytes) of host{plural} {format_ranks(cleared)}",)

    async def scratch(self, hosts: Iterable[int], folders: Sequence[str]) -> tuple[str, ...]:
        """Makes folders of the tree plain directories of each host; what the hosts say of it.

        Raises:
            MilkweedError: of the first host that could not.
        """
        if not folders:
            return ()
        answers = await self._hosts.ask(
            hosts,
            lambda link: link.call_within(
                _CHANGE_S, Mounts, Mounts.scratch, self._tree.place(link.host), list(folders)
            ),
        )
        return tuple(dict.fromkeys(note for notes in _without_errors(answers).values() for note in notes))


def _without_errors(answers: Mapping[int, T | MilkweedError]) -> dict[int, T]:
    """
    Raises:
        MilkweedError: the first of them.
    """
    found = {}
    for host, answer in answers.items():
        if isinstance(answer, MilkweedError):
            raise answer
        found[host] = answer
    return found
