"""Who takes from whom, as a pure function of what has happened."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import Conflict, Unavailable
from milkweed.runtime.memory.broadcast.chain import (
    SOURCE,
    Begin,
    Chain,
    Cut,
    Event,
    GivenUp,
    Have,
    Heard,
    Out,
    Ready,
    Silent,
    Take,
    Whole,
    begin,
    step,
)

LOST = Unavailable("buffer_owner_lost", "it has ended", "")
DROPPED = Conflict("buffer_dropped", "it was dropped", "")
LATE = Unavailable("deadline_exceeded", "silent", "")
AWAY = Unavailable("transport_unusable", "no way", "")
PIECES = 256


def run(chain: Chain, *events: Event) -> Chain:
    for event in events:
        chain, _ = step(chain, event)
    return chain


def begun(*hosts: int, source: int = 100) -> Chain:
    return run(begin(hosts, source, PIECES), *map(Ready, range(len(hosts))), Begin())


def upstreams(chain: Chain) -> list[int | None]:
    return [member.upstream for member in chain.members]


def codes(chain: Chain) -> list[str | None]:
    return [member.error.code if member.error else None for member in chain.members]


def test_hosts_follow_each_other_and_one_of_a_host_takes_for_all_of_it() -> None:
    assert upstreams(begun(1, 2, 3)) == [SOURCE, 0, 1]
    assert upstreams(begun(1, 2, 1, 2, 3)) == [SOURCE, 0, 0, 1, 1]


def test_those_of_the_sources_host_take_from_it_and_the_chain_begins_there() -> None:
    assert upstreams(begun(1, 100, 100, 2)) == [SOURCE, SOURCE, SOURCE, 0]


def test_nothing_is_taken_before_it_begins() -> None:
    chain = begin([1, 2], 100, PIECES)
    assert step(chain, Ready(0))[1] == ()
    chain, takes = step(run(chain, Ready(0), Ready(1)), Begin())
    assert takes == (Take(0, SOURCE), Take(1, 0))


def test_one_that_is_ready_late_holds_nobody_up() -> None:
    chain = run(begin([1, 2, 3], 100, PIECES), Ready(0), Ready(2), Begin())
    assert upstreams(chain) == [SOURCE, None, 0]
    chain, takes = step(chain, Ready(1))
    assert takes == (Take(1, 2),)


def test_those_behind_a_dead_one_take_from_the_one_before_it() -> None:
    chain, takes = step(begun(1, 2, 3), Out(1, LOST))
    assert (takes, codes(chain)) == ((Take(2, 0),), [None, "buffer_owner_lost", None])


def test_another_of_its_host_takes_the_place_of_a_dead_first_one() -> None:
    chain, takes = step(begun(1, 2, 2, 2, 3), Out(1, LOST))
    assert set(takes) == {Take(2, 0), Take(3, 2), Take(4, 2)}
    assert upstreams(chain) == [SOURCE, None, 0, 2, 2]


def test_one_that_died_after_it_had_all_has_an_error() -> None:
    chain = run(begun(1, 2), Whole(0), Out(0, LOST), Whole(1))
    assert (chain.over, codes(chain)) == (True, ["buffer_owner_lost", None])


def test_a_silent_one_is_passed_by_and_when_it_is_heard_it_takes_from_the_last() -> None:
    chain, takes = step(begun(1, 2, 3), Silent(1))
    assert set(takes) == {Take(2, 0), Take(1, 2)}
    chain, takes = step(chain, Heard(1))
    assert (takes, upstreams(chain)) == ((), [SOURCE, 2, 0])


def test_nobody_waits_for_a_silent_one_alone() -> None:
    chain = run(begun(1, 2, 3), Silent(1), GivenUp(1, LATE), Whole(0))
    assert not chain.over
    chain = run(chain, Whole(2))
    assert (chain.over, codes(chain)) == (True, [None, "deadline_exceeded", None])


def test_one_that_is_heard_again_in_time_is_waited_for() -> None:
    chain = run(begun(1, 2), Silent(1), GivenUp(1, LATE), Heard(1), Whole(0))
    assert (chain.over, codes(chain)) == (False, [None, None])


def test_a_source_that_is_gone_is_an_error_of_all_at_once() -> None:
    chain = run(begun(1, 2, 3), Cut(0, SOURCE, DROPPED))
    assert (chain.over, codes(chain)) == (True, ["buffer_dropped"] * 3)


def test_one_that_has_all_of_it_stands_in_for_a_source_that_is_gone() -> None:
    chain = run(begun(1, 2, 3), Whole(0), Cut(1, 0, AWAY))
    assert upstreams(chain)[1:] == [SOURCE, 1]
    chain, takes = step(chain, Cut(1, SOURCE, LOST))
    assert set(takes) == {Take(2, 0), Take(1, 2)}


def test_one_that_cannot_reach_the_source_takes_from_another() -> None:
    chain, takes = step(begun(1, 2, 3), Cut(0, SOURCE, AWAY))
    assert set(takes) == {Take(1, SOURCE), Take(0, 2)}
    assert upstreams(chain) == [2, SOURCE, 1]


def test_one_that_can_reach_nobody_has_the_last_error() -> None:
    chain = run(begun(1, 2), Cut(1, 0, AWAY), Cut(1, SOURCE, LATE))
    assert (upstreams(chain), codes(chain)) == ([SOURCE, None], [None, "deadline_exceeded"])


def test_what_was_said_of_another_upstream_is_too_late() -> None:
    chain = run(begun(1, 2, 3), Out(1, LOST))
    assert step(chain, Cut(2, 1, AWAY)) == (chain, ())


def test_a_host_behind_a_slow_link_goes_to_the_end_with_all_its_receivers() -> None:
    chain = begun(1, 2, 2, 3, 4)
    for have in range(4):
        assert upstreams(chain) == [SOURCE, 0, 1, 1, 3]
        chain = run(chain, Have(0, 60 + 20 * have), *(Have(at, 2 * have) for at in (2, 3, 4)))
        chain = run(chain, Have(1, 2 * have))
    assert upstreams(chain) == [SOURCE, 4, 1, 0, 3]


def test_one_that_was_held_up_and_is_far_behind_stays_where_it_is() -> None:
    chain = begun(1, 2, 3)
    for have in range(6):
        chain = run(chain, Have(0, 100 + 20 * have), Have(1, 20 * have), Have(2, 20 * have))
    assert upstreams(chain) == [SOURCE, 0, 1]


def test_a_host_that_sends_slowly_to_one_after_the_other_goes_to_the_end_itself() -> None:
    chain = begun(1, 2, 3, 4)
    for have in range(4):
        chain = run(chain, Have(0, 30 * have), Have(1, 60 + 20 * have), Have(3, have), Have(2, have))
    assert upstreams(chain) == [SOURCE, 0, 3, 1]
    for have in range(4, 8):
        chain = run(chain, Have(0, 30 * have), Have(1, 60 + 20 * have), Have(2, have), Have(3, have))
    assert upstreams(chain) == [SOURCE, 2, 3, 0]


def test_hosts_that_are_as_fast_as_each_other_stay_where_they_are() -> None:
    chain = begun(1, 2, 3)
    for have in range(0, PIECES, 3):
        chain = run(chain, Have(0, have), Have(1, max(0, have - 8)), Have(2, max(0, have - 16)))
    assert upstreams(chain) == [SOURCE, 0, 1]


EVENTS = st.sampled_from(["ready", "have", "whole", "cut", "out", "silent", "given up", "heard", "gone"])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.data())
def test_whatever_happens_who_takes_is_served_and_nobody_waits_in_a_circle(
    hosts: list[int], data: st.DataObject
) -> None:
    chain = begin(hosts, 0, PIECES)
    told: dict[int, int] = {}
    steps = data.draw(st.lists(st.tuples(EVENTS, st.integers(0, len(hosts) - 1)), max_size=40))
    started = data.draw(st.integers(0, 10))
    for number, (what, at) in enumerate(steps):
        if number == started:
            chain, takes = step(chain, Begin())
            told |= {take.member: take.upstream for take in takes}
        event = _event(chain, what, at)
        if event is None:
            continue
        chain, takes = step(chain, event)
        told |= {take.member: take.upstream for take in takes}
        _check(chain, told)
    chain = run(chain, Begin())
    for at, member in enumerate(chain.members):
        if member.phase == "opening":
            chain = run(chain, Out(at, LOST))
    for at in range(len(hosts)):
        chain = run(chain, Heard(at), Whole(at))
    assert chain.over


def _event(chain: Chain, what: str, at: int) -> Event | None:
    member = chain.members[at]
    if what == "ready":
        return Ready(at) if member.phase == "opening" else None
    if member.phase == "opening":
        return Out(at, LOST) if what == "out" else None
    if what == "cut" and member.upstream is not None:
        return Cut(at, member.upstream, AWAY)
    if what == "gone" and member.upstream == SOURCE:
        return Cut(at, SOURCE, DROPPED)
    if what == "given up":
        return GivenUp(at, LATE) if member.silent else None
    if what == "heard":
        return Heard(at) if member.silent else None
    plain = {"have": Have(at, at * 30), "whole": Whole(at), "out": Out(at, LOST), "silent": Silent(at)}
    return plain.get(what)


def _check(chain: Chain, told: dict[int, int]) -> None:
    may_help = any(member.silent for member in chain.members)
    for at, member in enumerate(chain.members):
        assert (member.phase == "failed") <= (member.error is not None)
        if member.phase != "taking" or not chain.begun:
            continue
        if member.upstream is None:
            assert may_help
            continue
        assert told[at] == member.upstream
        assert member.upstream not in member.apart
        seen, above = {at}, member.upstream
        while above != SOURCE and chain.members[above].phase != "whole":
            assert above not in seen, "a circle"
            assert chain.members[above].phase == "taking" or may_help
            seen.add(above)
            nearest = chain.members[above].upstream
            if nearest is None:
                assert may_help
                break
            above = nearest
        assert above != SOURCE or chain.lost is None or may_help
