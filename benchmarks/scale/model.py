"""What each part of Milkweed holds and sends at a number of hosts. Pure: functions of measured constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from milkweed.runtime.addresses import ProcAddress
from milkweed.runtime.tree import Branch, branches

__all__ = ["Constants", "Cost", "Holding", "Shape", "Size", "costs", "holdings", "shape_of"]

HEARTBEAT_S = 2.0
"""How often a keeper asks each host how it is; whoever waits for its events asks again after `POLL_S`."""
POLL_S = 30.0
FOLLOW_S = 0.5
"""How often the owner of quiet procs asks their host for new output."""
KIB, MIB = 1024.0, 1024.0 * 1024.0


@dataclass(frozen=True, slots=True)
class Constants:
    """Measured by `measure.py`; times are processor time in microseconds, memory is private bytes."""

    caller_direct_us: float
    """A call of one rank among many, sent directly, with its answer."""
    caller_tree_us: float
    """The same over a tree: one rank's answer in a bundle."""
    caller_relay_us: float
    """One relay's message and its answer, at the caller."""
    caller_spawn_us: float
    """Of the owner to spawn one proc and make one actor on it."""
    relay_leaf_us: float
    """Passing a call on to one rank and its answer up."""
    rank_us: float
    """One call of an async endpoint at the rank that is called."""
    frame_bytes: float
    """A call with a small argument, directly."""
    numbered_bytes: float
    """What a relay puts before it for a rank."""
    header_bytes: float
    """What the caller puts before it for a relay, once the relay knows its branch."""
    branch_bytes: float
    """Of a branch as first sent, for each rank in it."""
    answer_bytes: float
    """Of a small answer in a bundle."""
    spawn_host_bytes: float
    """Of a request to spawn, for each host."""
    spawn_proc_bytes: float
    """... and for each proc."""
    caller_proc_bytes: float
    """Memory of the owner for each proc: its connection, its member, its address."""
    relay_connection_bytes: float
    """Memory of a relay for each connection below."""
    host_bytes: float
    """Guard, agent and starter of one simulated host, proportionally."""
    proc_bytes: float
    """An idle proc, proportionally (PSS)."""
    keeper_host_bytes: float
    """Memory of the keeper for each host."""
    keeper_host_us: float
    """Of the keeper for each host and second, at rest."""
    owner_host_us: float
    """Of the owner of procs for each host and second, at rest: it asks for new output."""
    agent_us: float
    """Of an agent for each second, at rest, with procs whose owner follows their output."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of everything."""

    hosts: int
    per_host: int
    fan_out: int = 8

    @property
    def ranks(self) -> int:
        return self.hosts * self.per_host


@dataclass(frozen=True, slots=True)
class Shape:
    """The tree: relays that the caller sends to, levels of relays, the most that one relay sends to, and the
    most ranks that lie in one branch of the caller."""

    roots: int
    depth: int
    widest: int
    largest: int


@dataclass(frozen=True, slots=True)
class Cost:
    """One line of the model."""

    what: str
    who: str
    messages: float
    bytes: float
    cpu_ms: float


def shape_of(size: Size) -> Shape:
    addresses = [ProcAddress(f"p{rank}", f"h{rank // size.per_host}", "", "") for rank in range(size.ranks)]
    roots = branches(addresses, fan_out=size.fan_out)
    return Shape(
        len(roots),
        _depth(roots),
        max(len(one.own) + len(one.below) for one in _all(roots)),
        max(len(list(one.positions())) for one in roots),
    )


def _depth(roots: Sequence[Branch]) -> int:
    return 1 + max((_depth(one.below) for one in roots), default=-1) if roots else 0


def _all(roots: Sequence[Branch]) -> list[Branch]:
    return [*roots, *(below for one in roots for below in _all(one.below))]


def costs(of: Constants, size: Size) -> list[Cost]:
    """Messages sent and received, their bytes, and processor time, of one call, broadcast, spawn, failure,
    and of one second at rest.
    """
    shape = shape_of(size)
    ranks, hosts, roots = size.ranks, size.hosts, shape.roots
    tree_out = roots * (of.frame_bytes + of.header_bytes)
    answers = ranks * of.answer_bytes
    widest = shape.widest
    keepers_asking, owners_asking = 1 / HEARTBEAT_S + 1 / POLL_S, 1 / FOLLOW_S + 1 / POLL_S
    return [
        Cost(
            "call, direct",
            "caller",
            2 * ranks,
            ranks * 2 * of.frame_bytes,
            ranks * of.caller_direct_us / 1e3,
        ),
        Cost(
            "call, over the tree",
            "caller",
            2 * roots,
            tree_out + answers,
            (roots * of.caller_relay_us + ranks * of.caller_tree_us) / 1e3,
        ),
        Cost(
            "",
            "widest relay",
            2 * widest + 2,
            widest * (of.frame_bytes + of.numbered_bytes) + shape.largest * of.answer_bytes,
            widest * of.relay_leaf_us / 1e3,
        ),
        Cost("", "rank", 2, 2 * of.frame_bytes + of.numbered_bytes, of.rank_us / 1e3),
        Cost(
            "first call of a slice",
            "caller",
            2 * roots,
            tree_out + answers + ranks * of.branch_bytes,
            (roots * of.caller_relay_us + ranks * of.caller_tree_us) / 1e3,
        ),
        Cost("broadcast", "caller", 2 * roots, tree_out, roots * of.caller_relay_us / 1e3),
        Cost(
            "spawn",
            "owner",
            2 * 3 * hosts + 2 * ranks,
            hosts * of.spawn_host_bytes + ranks * (of.spawn_proc_bytes + 2 * of.frame_bytes),
            ranks * of.caller_spawn_us / 1e3,
        ),
        Cost("a proc dies", "owner", 2, 2 * of.frame_bytes, of.caller_direct_us / 1e3),
        Cost(
            "a relay dies in a call",
            "caller",
            2 * shape.largest,
            shape.largest * (2 * of.frame_bytes + of.numbered_bytes),
            shape.largest * of.caller_direct_us / 1e3,
        ),
        Cost(
            "a second at rest",
            "keeper",
            2 * hosts * keepers_asking,
            2 * hosts * keepers_asking * of.frame_bytes,
            hosts * of.keeper_host_us / 1e3,
        ),
        Cost(
            "",
            "owner",
            2 * hosts * owners_asking,
            2 * hosts * owners_asking * of.frame_bytes,
            hosts * of.owner_host_us / 1e3,
        ),
        Cost(
            "",
            "agent",
            2 * (owners_asking + keepers_asking),
            2 * (owners_asking + keepers_asking) * of.frame_bytes,
            of.agent_us / 1e3,
        ),
    ]


@dataclass(frozen=True, slots=True)
class Holding:
    """What a process holds."""

    who: str
    connections: int
    memory_bytes: float


def holdings(of: Constants, size: Size) -> list[Holding]:
    shape = shape_of(size)
    return [
        Holding("owner", size.ranks + size.hosts + shape.roots, size.ranks * of.caller_proc_bytes),
        Holding("widest relay", shape.widest + 1, shape.widest * of.relay_connection_bytes),
        Holding("agent", 2, of.host_bytes + size.per_host * of.proc_bytes),
        Holding("keeper", size.hosts, size.hosts * of.keeper_host_bytes),
    ]


def most_ranks_called_within(of: Constants, size: Size, milliseconds: float) -> int:
    """How many ranks a caller calls over a tree within that time of its own."""
    left = milliseconds * 1e3 - size.fan_out * of.caller_relay_us
    return max(0, math.floor(left / of.caller_tree_us))
