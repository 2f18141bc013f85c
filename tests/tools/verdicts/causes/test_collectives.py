"""The collectives of all ranks side by side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.evidence import Collective, Flight, HostEvidence
from milkweed.tools.verdicts.causes.collectives import (
    advances,
    find_difference,
    find_lateness,
    is_between,
    last_numbers,
    writes,
)

from .building import ALL_REDUCE, case, flight, rank

STACK = ["train.py:5 main", ALL_REDUCE]
SAME = ("all_reduce",) * 3


def test_equal_collectives_do_not_differ() -> None:
    assert find_difference(case(rank(0, ops=flight(*SAME)), rank(1, ops=flight(*SAME)))) is None
    assert find_difference(case()) is None
    assert find_difference(case(rank(0, ops=flight(*SAME)), rank(1))) is None


def test_a_rank_that_is_behind_does_not_differ() -> None:
    assert find_difference(case(rank(0, ops=flight(*SAME)), rank(1, ops=flight("all_reduce")))) is None


def test_the_number_at_which_ranks_began_different_things() -> None:
    run = case(
        rank(0, ops=flight(*SAME, "broadcast")),
        rank(1, ops=flight(*SAME, "all_reduce")),
        rank(2, ops=flight(*SAME, "all_reduce")),
    )
    found = find_difference(run)
    assert found is not None
    assert found.of_op
    assert found.seq == 4
    assert dict(found.what) == {"all_reduce": (1, 2), "broadcast": (0,)}


def test_a_difference_that_was_got_through_is_none() -> None:
    ops = [("broadcast", *SAME), ("all_reduce", *SAME)]
    assert find_difference(case(*(rank(n, ops=flight(*mine)) for n, mine in enumerate(ops)))) is None


@pytest.mark.parametrize(
    ("one", "other", "differs"),
    [
        ("all_reduce 4x2", "all_reduce 4x3", True),
        ("broadcast 4", "broadcast 5", True),
        ("all_reduce 4x2", "all_reduce 4x2", False),
        ("all_gather 4", "all_gather 5", False),
        ("barrier 1", "barrier 2", False),
    ],
)
def test_shapes_differ_only_where_they_must_not(one: str, other: str, differs: bool) -> None:
    found = find_difference(case(rank(0, ops=flight(one)), rank(1, ops=flight(other))))
    assert (found is not None) is differs
    if found is not None:
        assert not found.of_op
        assert "4" in next(iter(found.what))


def test_types_differ_too() -> None:
    half = Flight((Collective(1, "all_reduce", sizes=((8,),), dtypes=("Half",)),))
    found = find_difference(case(rank(0, ops=flight("all_reduce")), rank(1, ops=half)))
    assert found is not None
    assert set(found.what) == {"all_reduce of 8 Float", "all_reduce of 8 Half"}


def test_point_to_point_operations_have_numbers_of_their_own() -> None:
    def sends(op: str) -> Flight:
        return Flight((Collective(1, op, p2p=True),))

    run = case(rank(0, ops=sends("send")), rank(1, ops=sends("recv")))
    assert find_difference(run) is None
    assert last_numbers(run.ranks) == {0: 0, 1: 0}


def test_numbers_are_of_one_group() -> None:
    other = Flight((Collective(3, "all_reduce"), Collective(9, "barrier", group="1")))
    ranks = (rank(0, ops=other), rank(1, ops=flight(*SAME)), rank(2))
    assert last_numbers(ranks) == {0: 3, 1: 3}
    assert last_numbers(ranks, "1") == {0: 9, 1: 0}


def test_a_rank_advances_when_it_begins_another_and_writes_when_its_output_grows() -> None:
    moved = rank(0, stack=STACK, ops=flight(*SAME), ops_then=flight(*SAME, "all_reduce"), grows=1)
    assert advances(moved)
    assert writes(moved)
    still = rank(0, stack=STACK, ops=flight(*SAME))
    assert not advances(still)
    assert not writes(still)
    assert not advances(rank(0, ops=flight(*SAME), code=1))


@pytest.mark.parametrize(("quiet_s", "between"), [(1.0, True), (2.4, True), (2.6, False), (60.0, False)])
def test_the_next_collective_may_not_be_due_yet(quiet_s: float, between: bool) -> None:
    ops = flight(*SAME, *SAME, every=1.0)
    assert is_between(case(rank(0, ops=ops), now=5.0 + quiet_s)) is between


def test_of_rare_collectives_half_a_minute_is_the_most() -> None:
    ops = flight(*SAME, *SAME, every=600.0)
    assert not is_between(case(rank(0, ops=ops), now=3000.0 + 31))
    assert is_between(case(rank(0, ops=ops), now=3000.0 + 29))


def test_too_few_collectives_tell_nothing_of_the_next() -> None:
    assert not is_between(case(rank(0, ops=flight(*SAME)), now=2.1))
    assert not is_between(case(rank(0, ops=flight(*SAME, *SAME), code=1), now=5.1))


MANY = ("all_reduce",) * 10


def test_the_rank_that_comes_last_to_most_is_late() -> None:
    found = find_lateness(
        case(*(rank(n, ops=flight(*MANY, lag=0.6 if n == 2 else 0.01 * n)) for n in range(4)))
    )
    assert found is not None
    assert (found.ranks, found.count, found.share) == ((2,), 10, 1.0)
    assert found.behind_s == pytest.approx(0.57)
    assert found.every_s == pytest.approx(1.0, rel=0.15)


def test_a_clock_that_is_ahead_is_no_lateness() -> None:
    ranks = [rank(n, host=n, ops=flight(*MANY, lag=0.6 if n == 1 else 0.0)) for n in range(2)]
    hosts = [HostEvidence(0), HostEvidence(1, clock=0.6)]
    assert find_lateness(case(*ranks, hosts=hosts)) is None
    assert find_lateness(case(*ranks)) is not None


def test_ranks_that_are_late_in_turn_or_hardly_are_no_stragglers() -> None:
    hardly = [rank(n, ops=flight(*MANY, lag=0.02 * n)) for n in range(2)]
    assert find_lateness(case(*hardly)) is None
    entries: list[list[Collective]] = [[], []]
    for at in range(10):
        for n in range(2):
            entries[n].append(Collective(at + 1, "all_reduce", at=at + 0.5 * (at % 2 == n)))
    assert find_lateness(case(*(rank(n, ops=Flight(tuple(mine))) for n, mine in enumerate(entries)))) is None


def test_too_few_collectives_or_ranks_make_no_straggler() -> None:
    few = [rank(n, ops=flight(*SAME, lag=0.6 * n)) for n in range(2)]
    assert find_lateness(case(*few)) is None
    assert find_lateness(case(rank(0, ops=flight(*MANY)))) is None
    assert find_lateness(case()) is None


ENTRIES = st.builds(
    Collective,
    seq=st.integers(0, 9),
    op=st.sampled_from(["all_reduce", "barrier", "gather"]),
    group=st.sampled_from(["0", "1"]),
    sizes=st.just(()) | st.just(((2, 3),)),
    at=st.floats(0, 100),
    p2p=st.booleans(),
)
FLIGHTS = st.builds(Flight, st.lists(ENTRIES, max_size=8).map(tuple))


@given(st.lists(FLIGHTS, min_size=1, max_size=4))
def test_any_entries_can_be_compared(flights: list[Flight]) -> None:
    run = case(*(rank(n, ops=ops, stack=STACK) for n, ops in enumerate(flights)))
    find_difference(run)
    is_between(run)
    late = find_lateness(run)
    assert late is None or set(late.ranks) < set(range(len(flights)))
    everything_equal = case(*(rank(n, ops=flights[0]) for n in range(3)))
    assert find_difference(everything_equal) is None
    assert find_lateness(everything_equal) is None


def test_one_rank_that_comes_behind_all_is_late_alone_whoever_is_next_to_it() -> None:
    """The next to last changes from one collective to the next."""
    entries: list[list[Collective]] = [[], [], [], []]
    for at in range(12):
        for n in range(4):
            lag = 0.5 if n == 3 else 0.3 if n == at % 3 and at % 4 == 0 else 0.0
            entries[n].append(Collective(at + 1, "all_reduce", at=at + lag))
    found = find_lateness(case(*(rank(n, ops=Flight(tuple(mine))) for n, mine in enumerate(entries))))
    assert found is not None
    assert found.ranks == (3,)
