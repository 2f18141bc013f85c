"""Rules for ranks that no longer do the same: one that has left a loop, collectives that differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ....runtime.records import Frame
from .case import RankCase, RunCase, names, numbers
from .collectives import find_difference, is_moving, last_numbers
from .finding import Finding, Kind
from .loops import Relation, relate
from .said import is_lost, is_or_are, it_or_them, last_lines, short_place, wait_or_waits
from .starting import is_starting

__all__ = ["find_leaving"]


def find_leaving(case: RunCase) -> Iterator[Finding]:
    """One rank is through with what the others still do; or all wait, in different collectives."""
    if is_moving(case):
        return
    gone = [one for one in case.ranks if one.exit is not None and one.exit.ok]
    lost = [one for one in case.ranks if one.failed and one.failure is not None and is_lost(one)]
    raised = [one for one in case.ranks if one.failed and not is_lost(one)]
    waiting = [one for one in case.waiting if one not in gone]
    if gone and (waiting or lost) and not raised and not any(map(is_starting, waiting)):
        yield _gone(case, gone, waiting or lost)
        return
    difference = find_difference(case)
    inside = list(case.waiting)
    leaver = _leaver(case, inside)
    if leaver is not None:
        yield leaver
    if difference is not None:
        words = ", ".join(f"{names(ranks)}: {what}" for what, ranks in list(difference.what.items())[:3])
        places = _places(case, difference.what.values())
        kind: Kind = "collective_mismatch" if difference.of_op else "shape_mismatch"
        what = (
            "different collectives"
            if difference.of_op
            else "the same collective with different shapes or types"
        )
        odd = min(difference.what.values(), key=len)
        yield Finding(
            kind,
            80 if leaver is not None else 92,
            f"The ranks have begun {what} as number {difference.seq} of their group: {words}.",
            odd,
            places,
            "All ranks must call the same collectives in the same order, with equal shapes and types.",
        )
    elif (
        leaver is None
        and len(inside) == len(case.looked_at)
        and (found := _stacks_differ(case, inside) or _groups_differ(case, inside))
    ):
        yield found


def _gone(case: RunCase, gone: Sequence[RankCase], waiting: Sequence[RankCase]) -> Finding:
    first = waiting[0]
    if first.latest.frames:
        what = f"wait{'s' if len(waiting) == 1 else ''} for {it_or_them(gone)} in {first.collective}"
        at: tuple[str, ...] = (f"{names(waiting)} at {case.place_of(first)}",)
    else:
        what = f"failed after that: {str(first.failure)[:80] if first.failure else 'lost their connection'}"
        at = (f"{names([first])} was at {first.failure.file}:{first.failure.line}",) if first.failure else ()
    return Finding(
        "left_early",
        90,
        f"{names(gone).capitalize()} ended well (exit 0) while the others were still in the loop;"
        f" {names(waiting)} {what}.",
        numbers(gone),
        (*at, *_counts(case), *last_lines(gone)),
        "Give every rank the same number of steps (drop_last, Join, or agree on the end by a collective).",
    )


def _through(case: RunCase, relations: Mapping[int, Relation], behind: Mapping[int, int]) -> list[RankCase]:
    """Those that are through with an inner loop and wait in a collective of the same number as the others:
    all are in the same turn of the outer loop."""
    through = [case.by_rank[rank] for rank, relation in relations.items() if relation == "through"]
    others = {behind.get(one.rank) for one in case.waiting if one not in through}
    return [one for one in through if one in case.waiting and {behind.get(one.rank)} == others]


def _leaver(case: RunCase, inside: Sequence[RankCase]) -> Finding | None:
    """A rank that has left the loop (or function) that the others wait in, and does something else now."""
    if not inside:
        return None
    relations = {}
    for one in case.looked_at:
        reference = next(
            (other for other in inside if other.rank != one.rank and _place(other) != _place(one)), None
        )
        if reference is not None:
            relations[one.rank] = relate(one, reference, case.source)
    behind = last_numbers(case.ranks)
    left = [case.by_rank[rank] for rank, relation in relations.items() if relation == "left"]
    if not left:
        left = _through(case, relations, behind)
    stay = [one for one in inside if one not in left]
    if not left or not stay:
        return None
    most = max((behind[one.rank] for one in stay if one.rank in behind), default=0)
    if any(behind.get(one.rank, 0) > most for one in left):
        return None
    return Finding(
        "left_early",
        90,
        f"{names(left).capitalize()} left the loop early and {is_or_are(left)} at"
        f" {short_place(case, left[0])} now;"
        f" {names(stay)} still {wait_or_waits(stay)} in {stay[0].collective} inside it.",
        numbers(left),
        (
            f"{names(left)} at {case.place_of(left[0])}",
            f"{names(stay)} at {case.place_of(stay[0])}",
            *_counts(case),
            *last_lines(left),
        ),
        "Give every rank the same number of steps (drop_last, Join, or agree on the end by a collective).",
    )


def _stacks_differ(case: RunCase, inside: Sequence[RankCase]) -> Finding | None:
    """Of collectives that no recorder tells of: by name alone."""
    names_of: dict[str, list[int]] = {}
    for one in inside:
        names_of.setdefault(one.collective, []).append(one.rank)
    if len(names_of) < 2:
        return None
    words = ", ".join(f"{names(ranks)}: {what}" for what, ranks in names_of.items())
    return Finding(
        "collective_mismatch",
        75,
        f"The ranks wait in different collectives: {words}.",
        tuple(min((tuple(ranks) for ranks in names_of.values()), key=lambda ranks: len(tuple(ranks)))),
        _places(case, [tuple(ranks) for ranks in names_of.values()]),
        "All ranks must call the same collectives in the same order.",
    )


def _groups_differ(case: RunCase, inside: Sequence[RankCase]) -> Finding | None:
    """All wait, and not in one group: each for ranks that would have to come to another group first."""
    ranks_of: dict[str, list[RankCase]] = {}
    for one in inside:
        last = one.flight.entries[-1] if one.flight.entries else None
        if last is None or last.done or last.p2p:
            return None
        ranks_of.setdefault(last.group, []).append(one)
    if len(ranks_of) < 2 or len({_place(one) for one in inside}) < 2:
        return None
    groups = sorted(ranks_of.items(), key=lambda one: -len(one[1]))
    words = ", ".join(
        f"{names(ranks)}: {ranks[0].flight.entries[-1].op} of group {group}" for group, ranks in groups[:3]
    )
    most, fewest = groups[0][1], groups[-1][1]
    return Finding(
        "collective_mismatch",
        84,
        f"The ranks wait in collectives of different groups: {words}.",
        numbers(fewest) if len(fewest) < len(most) else (),
        _places(case, [numbers(ranks) for _, ranks in groups]),
        "Ranks that share several groups must call their collectives in the same order.",
    )


def _place(one: RankCase) -> Frame | None:
    return next(iter(one.latest.user_frames), None)


def _places(case: RunCase, groups: object) -> tuple[str, ...]:
    found = []
    for ranks in groups:  # type: ignore[attr-defined]
        one = case.by_rank[ranks[0]]
        if one.latest.frames:
            found.append(f"{names(ranks)} at {case.place_of(one)}")
        elif one.failure is not None and one.failure.file:
            found.append(f"{names(ranks)} at {one.failure.file}:{one.failure.line}")
    return tuple(found[:3])


def _counts(case: RunCase) -> tuple[str, ...]:
    """How many collectives each has begun, where they differ."""
    found = last_numbers(case.ranks)
    if len(set(found.values())) < 2:
        return ()
    groups: dict[int, list[int]] = {}
    for rank, number in found.items():
        groups.setdefault(number, []).append(rank)
    words = ", ".join(f"{names(ranks)}: {number}" for number, ranks in sorted(groups.items())[:4])
    return (f"collectives begun: {words}",)
