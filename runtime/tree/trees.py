"""What a node keeps of the trees that it sends over: plans, connections to relays, numbers of messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..addresses import ProcAddress
from ..node import Node
from .envelope import Header, Mode
from .line import PATIENCE_S, TreeLine
from .routing import FAN_OUT, MOST_OWN, Branch, branches

__all__ = ["LEAST_RANKS", "Plan", "Routes", "Trees"]

LEAST_RANKS = 64
_AVOID_S = 30.0
_PLANS = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """How ranks are reached: their procs' sockets by position, the relays that the caller sends to, and the
    positions that those reach."""

    sockets: tuple[str, ...]
    branches: tuple[Branch, ...]
    positions: Sequence[int]


class Routes:
    """The plans of the slices of one mesh; any thread."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Sequence[int], frozenset[int]], Plan] = {}

    def plan(self, trees: Trees, ranks: Sequence[int], addresses: Sequence[ProcAddress]) -> Plan:
        """Of the procs at `addresses`, which are those of `ranks`."""
        avoid = trees.to_avoid(addresses)
        known = self._plans.get((ranks, avoid))
        if known is None:
            while len(self._plans) >= _PLANS:
                self._plans.pop(next(iter(tuple(self._plans))), None)
            known = self._plans[ranks, avoid] = trees.plan(addresses, avoid)
        return known


class Trees:
    """One a node; any thread.

    Ranks are called over a tree where there are `least_ranks` of them or more, on two hosts or more.
    """

    def __init__(self, node: Node) -> None:
        self.least_ranks = LEAST_RANKS
        self.fan_out = FAN_OUT
        self.most_own = MOST_OWN
        self.patience_s = PATIENCE_S
        self._node = node
        self._lock = threading.Lock()
        self._lines: dict[str, TreeLine] = {}
        self._last = 0
        self._open: dict[int, None] = {}
        self._avoid: dict[str, float] = {}

    def plan(
        self,
        addresses: Sequence[ProcAddress],
        avoid: frozenset[int] = frozenset(),
        among: Sequence[int] | None = None,
    ) -> Plan:
        sockets = tuple(address.socket for address in addresses)
        tree = branches(addresses, among=among, fan_out=self.fan_out, most_own=self.most_own, avoid=avoid)
        return Plan(sockets, tree, range(len(sockets)) if among is None else tuple(among))

    def open_line(self, socket: str) -> TreeLine | None:
        """The connection to a relay, where there is one."""
        return self._lines.get(socket)

    def line(self, socket: str) -> TreeLine:
        """The connection to a relay, made if there is none. Raises Unavailable: connection_lost."""
        found = self._lines.get(socket)
        if found is not None and not found.connection.is_closed:
            return found
        with self._lock:
            found = self._lines.get(socket)
            if found is None or found.connection.is_closed:
                found = self._lines[socket] = TreeLine(self._node, self._node.id, socket, self.patience_s)
                found.connection.on_closed.append(lambda _: self._forget(socket))
            return found

    def _forget(self, socket: str) -> None:
        with self._lock:
            if (line := self._lines.get(socket)) is not None and line.connection.is_closed:
                del self._lines[socket]

    def header(self, mode: Mode, plan: Plan, *, flush_s: float = 0.0, operation: bytes = b"") -> Header:
        """Numbers a message to all that a plan reaches; it is open until `finished`."""
        sent = self._node.sent_by_tree
        sockets = [plan.sockets[position] for position in plan.positions]
        with self._lock:
            now = time.monotonic_ns()
            number = self._last = max(now, self._last + 1)
            previous = [sent.get(socket, 0) for socket in sockets] if sent else []
            sent.update(dict.fromkeys(sockets, number))
            self._open[number] = None
            done = next(iter(self._open))
        most = previous[0] if previous else 0
        others = {at: one for at, one in zip(plan.positions, previous, strict=False) if one != most}
        return Header(mode, number, most, done, now, flush_s, others, operation)

    def arrived(self, number: int, socket: str) -> None:
        """A proc is known to have taken a message: what is sent to it directly need not be behind that."""
        sent = self._node.sent_by_tree
        if sent.get(socket) == number:
            sent.pop(socket, None)

    def finished(self, number: int) -> None:
        with self._lock:
            self._open.pop(number, None)

    def avoid(self, socket: str) -> None:
        """A relay failed: another one of its host is to be taken for some time."""
        self._avoid[socket] = time.monotonic() + _AVOID_S

    def to_avoid(self, addresses: Sequence[ProcAddress]) -> frozenset[int]:
        """Positions of those that are to be no relays now."""
        if not self._avoid:
            return frozenset()
        now = time.monotonic()
        for socket, until in self._avoid.copy().items():
            if until <= now:
                self._avoid.pop(socket, None)
        return frozenset(at for at, address in enumerate(addresses) if address.socket in self._avoid)

    def statistics(self) -> dict[str, int]:
        """Counts of what there is now: `relays` connected to, `open` messages."""
        alive = [one for one in tuple(self._lines.values()) if not one.connection.is_closed]
        return {"relays": len(alive), "open": len(self._open)}
