"""The collectives of all ranks side by side: which rank is behind, which differ, who is late. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ....runtime.evidence import Collective
from .case import RankCase, RunCase

__all__ = [
    "Difference",
    "Lateness",
    "advances",
    "find_difference",
    "find_last",
    "find_lateness",
    "is_between",
    "is_moving",
    "last_numbers",
    "quiet_s",
    "writes",
]

# Operations whose ranks may give tensors of different shapes.
_UNEVEN = ("gather", "scatter", "all_to_all", "alltoall", "allgather", "send", "recv", "barrier")
_LEAST_COMMON = 4
_LATE_S = 0.03
_CLEARLY_S = 0.5
_LATE_SHARE = 0.75
_RECENT = 12
_PATIENCE = 2.5
_MOST_PATIENT_S = 30.0


@dataclass(frozen=True, slots=True)
class Difference:
    """At number `seq` of a group the ranks have begun different things: each with the ranks that did."""

    group: str
    seq: int
    what: Mapping[str, tuple[int, ...]]
    of_op: bool  # else of shapes or types


@dataclass(frozen=True, slots=True)
class Lateness:
    """Ranks that begin most collectives after the others: `share` of `count`, by `behind_s` (median);
    `every_s` is the time between two of them. They are one, or, as those of a slow host, some that come about
    together, and never more than half."""

    ranks: tuple[int, ...]
    count: int
    share: float
    behind_s: float
    every_s: float


def _by_number(case: RunCase) -> dict[tuple[str, int], dict[int, Collective]]:
    found: dict[tuple[str, int], dict[int, Collective]] = defaultdict(dict)
    for rank in case.ranks:
        for entry in rank.flight.entries:
            if not entry.p2p:
                found[entry.group, entry.seq][rank.rank] = entry
    return found


def find_difference(case: RunCase) -> Difference | None:
    """The last one: what came before it has been got through."""
    numbered = _by_number(case)
    latest: dict[str, int] = {}
    for group, seq in numbered:
        latest[group] = max(seq, latest.get(group, 0))
    for (group, seq), entries in sorted(numbered.items(), key=lambda one: -one[0][1]):
        if len(entries) < 2 or seq < latest[group] - 1:
            continue
        ops = _grouped({rank: entry.op for rank, entry in entries.items()})
        if len(ops) > 1:
            return Difference(group, seq, ops, of_op=True)
        (op,) = ops
        if not any(word in op for word in _UNEVEN):
            shapes = _grouped({rank: _shape_words(entry) for rank, entry in entries.items()})
            if len(shapes) > 1:
                return Difference(
                    group, seq, {f"{op} of {shape}": who for shape, who in shapes.items()}, False
                )
    return None


def _grouped(values: Mapping[int, str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = defaultdict(list)
    for rank, value in sorted(values.items()):
        found[value].append(rank)
    return {value: tuple(ranks) for value, ranks in sorted(found.items(), key=lambda one: -len(one[1]))}


def _shape_words(entry: Collective) -> str:
    sizes = ", ".join("x".join(map(str, size)) or "scalar" for size in entry.sizes[:3])
    return f"{sizes} {' '.join(dict.fromkeys(entry.dtypes))}".strip()


def last_numbers(ranks: Sequence[RankCase], group: str = "0") -> dict[int, int]:
    """The number of the latest collective that each rank has begun; ranks without a recorder are left out."""
    found = {}
    for rank in ranks:
        if rank.flight.entries:
            mine = [one.seq for one in rank.flight.entries if one.group == group and not one.p2p]
            found[rank.rank] = max(mine, default=0)
    return found


def advances(rank: RankCase) -> bool:
    """Whether a rank has begun another collective between the two looks."""
    if rank.second is None:
        return False
    before, after = (
        [(one.group, one.seq, one.p2p, one.op) for one in look.flight.entries[-1:]]
        for look in (rank.first, rank.second)
    )
    return bool(after) and before != after


def writes(rank: RankCase) -> bool:
    """Whether a rank has written between the two looks."""
    return rank.second is not None and rank.second.output_size > rank.first.output_size


def is_between(case: RunCase) -> bool:
    """Whether the next collective is not due yet, by the time that went by between the last ones."""
    begun = sorted(
        entry.at - case.clock_of(rank) for rank in case.alive for entry in rank.flight.entries[-_RECENT:]
    )
    gaps = sorted(after - before for before, after in pairwise(begun) if after - before > _LATE_S)
    if len(gaps) < 3:
        return False
    return case.now - begun[-1] < min(_PATIENCE * gaps[len(gaps) // 2], _MOST_PATIENT_S)


def quiet_s(case: RunCase) -> float:
    """For how long no rank that runs has begun a collective; without end where none is known to have."""
    begun = [entry.at - case.clock_of(rank) for rank in case.alive for entry in rank.flight.entries[-1:]]
    return case.now - max(begun) if begun else math.inf


def is_moving(case: RunCase) -> bool:
    """Whether the run gets on: by its collectives where it has any, else by what its ranks write.

    That also where it has had some and no rank is in one now: those that wait for others may still print.
    """
    if any(rank.first.flight.entries for rank in case.alive):
        if any(advances(rank) for rank in case.alive) or is_between(case):
            return True
        if case.waiting:
            return False
    return any(writes(rank) for rank in case.alive)


def find_last(case: RunCase) -> tuple[int, float] | None:
    """Who came last to the latest collective of the world's group, and by how much (0: not at all).

    None where nobody stands out.
    """
    numbered = {seq: entries for (group, seq), entries in _by_number(case).items() if group == "0"}
    if not numbered:
        return None
    latest = numbered[max(numbered)]
    known = [one.rank for one in case.ranks if one.flight.entries]
    absent = [rank for rank in known if rank not in latest]
    if absent:
        return (absent[0], 0.0) if len(absent) == 1 else None
    at = {rank: entry.at - case.clock_of(case.by_rank[rank]) for rank, entry in latest.items()}
    ordered = sorted(at, key=lambda rank: at[rank])
    if len(ordered) < 2 or (behind := at[ordered[-1]] - at[ordered[-2]]) < _CLEARLY_S:
        return None
    return ordered[-1], behind


def find_lateness(case: RunCase) -> Lateness | None:
    """The ranks that the others wait for, where some do."""
    numbered = _by_number(case)
    ops = Counter(group for group, _ in numbered)
    if not ops:
        return None
    arrivals: list[dict[int, float]] = []
    for (_, _), entries in sorted(numbered.items(), key=lambda one: one[0][1]):
        if len(entries) == case.world_size > 1:
            at = {rank: entry.at - case.clock_of(case.by_rank[rank]) for rank, entry in entries.items()}
            arrivals.append(at)
    if len(arrivals) < _LEAST_COMMON:
        return None
    arrivals = arrivals[-64:]
    gaps = [_last_of(at) for at in arrivals]
    # Of many collectives a step only some are where the rank is awaited: those with a gap tell.
    telling = [(last, gap) for last, gap in gaps if gap >= _LATE_S]
    if len(telling) < min(3, len(gaps)):
        return None
    times = Counter(rank for last, _ in telling for rank in last)
    often = tuple(sorted(rank for rank, count in times.items() if count >= _LATE_SHARE * len(telling)))
    together = sum(set(often) <= set(last) for last, _ in telling)
    ranks = often if often and together >= _LATE_SHARE * len(telling) else (times.most_common(1)[0][0],)
    waits = sorted(gap for last, gap in telling if set(ranks) <= set(last))
    share = len(waits) / len(telling)
    span = max(arrivals[-1].values()) - max(arrivals[0].values())
    waited = sum(waits)
    if share < _LATE_SHARE or span <= 0 or waited < 0.25 * span:
        return None
    return Lateness(ranks, len(telling), share, waits[len(waits) // 2], span / max(1, len(telling) - 1))


def _last_of(at: Mapping[int, float]) -> tuple[tuple[int, ...], float]:
    """The ranks behind the longest gap between two arrivals, and that gap; at most half of all are last."""
    ordered = sorted(at, key=lambda rank: at[rank])
    half = len(ordered) - len(ordered) // 2
    first = max(range(half, len(ordered)), key=lambda place: at[ordered[place]] - at[ordered[place - 1]])
    return tuple(ordered[first:]), at[ordered[first]] - at[ordered[first - 1]]
