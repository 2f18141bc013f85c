"""Who reads from whom, what goes on at once, for how long, and which links are slow. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .records import LinkCheck

__all__ = [
    "Visit",
    "apart",
    "median",
    "rounds_of",
    "share_s",
    "size_for",
    "slow_links",
    "tell_apart",
    "visits_of",
]

_FEW = 4
_LEAST_S, _MOST_S = 0.03, 0.5
_MUCH_S = 0.2
_SLOW, _SLOW_SIMULATED = 0.5, 0.2
_WITHIN_A_MACHINE = ("local", "shared", "process_vm", "unix")


@dataclass(frozen=True, slots=True)
class Visit:
    """One host offers memory, and the readers read it, one after the other; itself first."""

    source: int
    readers: tuple[int, ...]


def visits_of(hosts: Sequence[int]) -> tuple[Visit, ...]:
    """Each host reads within itself and from the next one; of few hosts, the first from all others."""
    visits = []
    for at, source in enumerate(hosts):
        readers = [source, hosts[at - 1]]
        if len(hosts) <= _FEW:
            readers.append(hosts[0])
        visits.append(Visit(source, tuple(dict.fromkeys(readers))))
    return tuple(visits)


def rounds_of(visits: Sequence[Visit], machines: Mapping[int, str]) -> tuple[tuple[Visit, ...], ...]:
    """Visits that may go on at once: in a round no machine takes part in two of them.

    Simulated hosts share a machine, and would take its processors from each other.
    """
    rounds: list[list[Visit]] = []
    busy: list[set[str]] = []
    for visit in visits:
        needed = {machines[host] for host in (visit.source, *visit.readers)}
        at = next((at for at, taken in enumerate(busy) if not taken & needed), len(rounds))
        if at == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[at].append(visit)
        busy[at] |= needed
    return tuple(map(tuple, rounds))


def share_s(rounds: Sequence[Sequence[Visit]], budget_s: float) -> float:
    """How long one reader may take, so that all rounds together keep to the budget, as far as that goes."""
    turns = sum(max(len(visit.readers) for visit in one) for one in rounds)
    return min(_MOST_S, max(_LEAST_S, budget_s / max(1, turns)))


def size_for(seconds: float) -> int:
    """How much memory is offered, in bytes: to make it and to read it first takes time of its own."""
    return (64 if seconds >= _MUCH_S else 16) * 1024 * 1024


def median(numbers: Collection[float]) -> float:
    """Of at least one. The module `statistics` would import for longer than many a command takes."""
    ordered = sorted(numbers)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2


def slow_links(links: Sequence[LinkCheck], machines: Mapping[int, str]) -> dict[tuple[int, int], float]:
    """Links below half of the median speed of their transport, as (reader, source), with that median in GB/s.

    What moves within a machine is as fast as the machine: there the best speeds of machines are compared, so
    that hosts which are simulated by one are not told apart by what else went on meanwhile. For the same
    reason a link of a network that one machine simulates is slow below a fifth.
    """
    speeds: dict[str, dict[object, float]] = {}
    places: dict[tuple[int, int], tuple[str, object]] = {}
    for link in links:
        if link.measured is not None:
            way, ends = link.measured.transport, (link.reader, link.source)
            place: object = machines.get(link.source) if way in _WITHIN_A_MACHINE else ends
            kind = speeds.setdefault(way, {})
            kind[place] = max(kind.get(place, 0.0), link.measured.gb_per_s)
            places[ends] = way, place
    medians = {way: median(kind.values()) for way, kind in speeds.items()}
    slow = {}
    for (reader, source), (way, place) in places.items():
        simulated = way not in _WITHIN_A_MACHINE and machines.get(reader) == machines.get(source)
        if speeds[way][place] < (_SLOW_SIMULATED if simulated else _SLOW) * medians[way]:
            slow[reader, source] = medians[way]
    return slow


def apart(machines: Mapping[int, tuple[object, ...]], most: int) -> tuple[int, ...]:
    """One host of each of at most `most` places, evenly chosen; none where there is one place alone."""
    first: dict[tuple[object, ...], int] = {}
    for host, place in sorted(machines.items()):
        first.setdefault(place, host)
    hosts = list(first.values())
    if len(hosts) < 2:
        return ()
    count = min(most, len(hosts))
    return tuple(hosts[at * len(hosts) // count] for at in range(count))


def tell_apart(
    slow: Collection[tuple[int, int]], measured: Collection[tuple[int, int]], hosts: Iterable[int]
) -> tuple[Visit, ...]:
    """Reads that tell which end of a slow link is at fault: of each end with a third host, in its direction.

    Not of a link that has an end in common with more of the slow ones than its other end: that is the one.
    All links are (reader, source).
    """
    often = Counter(host for ends in slow for host in set(ends))
    wanted: dict[int, list[int]] = {}
    for reader, source in slow:
        others = [host for host in hosts if host not in (reader, source)]
        if reader == source or often[reader] != often[source] or not others:
            continue
        third = min(others, key=lambda host: often[host])
        for one in ((third, source), (reader, third)):
            if one not in measured and one[0] not in wanted.get(one[1], ()):
                wanted.setdefault(one[1], []).append(one[0])
    return tuple(Visit(source, tuple(readers)) for source, readers in wanted.items())
