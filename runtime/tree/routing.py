"""Which proc passes a message on to which: a tree over the hosts of the ranks called. Pure.

Hosts are taken in the order of their first rank. Where ranks lie host by host, a branch holds ranks that
follow each other, its relay's own before those below it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..addresses import ProcAddress

__all__ = ["FAN_OUT", "MOST_OWN", "Branch", "branches"]

FAN_OUT = 8
MOST_OWN = 32


@dataclass(frozen=True, slots=True)
class Branch:
    """A relay, by the socket of its proc, and what it passes on: to procs of its host (`own`, by position in
    the call, its own proc among them), and to the relays `below`."""

    relay: int
    socket: str
    own: tuple[tuple[int, str], ...]
    below: tuple[Branch, ...] = ()

    def positions(self) -> Iterator[int]:
        """All that it reaches, its own host's first."""
        for position, _ in self.own:
            yield position
        for branch in self.below:
            yield from branch.positions()


def branches(
    addresses: Sequence[ProcAddress],
    *,
    among: Sequence[int] | None = None,
    fan_out: int = FAN_OUT,
    most_own: int = MOST_OWN,
    avoid: Collection[int] = (),
) -> tuple[Branch, ...]:
    """The relays that the caller itself sends to, `fan_out` at most, with all below them.

    Of the addresses only those at the positions `among` are taken, where it is given. There is one relay a
    host, or one for each `most_own` of its ranks where it has more; none of `avoid` (positions), unless there
    is no other.
    """
    by_host: dict[str, list[int]] = {}
    for position in range(len(addresses)) if among is None else among:
        by_host.setdefault(addresses[position].host, []).append(position)
    groups = [
        tuple(positions[start : start + most_own])
        for positions in by_host.values()
        for start in range(0, len(positions), most_own)
    ]

    def branch(part: Sequence[tuple[int, ...]]) -> Branch:
        own = part[0]
        relay = next((position for position in own if position not in avoid), own[0])
        return Branch(
            relay,
            addresses[relay].socket,
            tuple((position, addresses[position].socket) for position in own),
            forest(part[1:]),
        )

    def forest(part: Sequence[tuple[int, ...]]) -> tuple[Branch, ...]:
        return tuple(map(branch, _even(part, fan_out)))

    return forest(groups)


def _even(groups: Sequence[tuple[int, ...]], most: int) -> list[Sequence[tuple[int, ...]]]:
    """Cut into at most that many parts, none empty, whose lengths differ by one at most."""
    parts = min(most, len(groups))
    bounds = [len(groups) * at // parts for at in range(parts + 1)] if parts else [0]
    return [groups[start:end] for start, end in pairwise(bounds)]
