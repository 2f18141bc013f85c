"""When a run stands still, and that one which moves is left alone: the machine, played through a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milkweed.runtime.watching import State, WatchPolicy, begin, step
from milkweed.runtime.watching.machine import (
    Action,
    AskFlightRecorder,
    FlightSeq,
    MovesAgain,
    Sample,
    Sampled,
    SaveEvidence,
    StacksTaken,
    Still,
    TakeStacks,
)

POLICY = WatchPolicy()


@dataclass
class Rank:
    """What a rank is like at a time: how much it has printed, where it is, how much CPU it has used."""

    output: Callable[[float], int] = lambda at: 7
    place: Callable[[float], str | None] = lambda at: "here"
    cores: float = 0.0
    wakes: float = 0.0
    progress: Callable[[float], str] = lambda at: ""
    io: Callable[[float], int] = lambda at: 0
    sequence: Callable[[float], int] | None = None
    lives: Callable[[float], bool] = lambda at: True


@dataclass
class Play:
    """Carries out the machine's actions on ranks, as the service would."""

    ranks: Mapping[int, Rank]
    policy: WatchPolicy = POLICY
    state: State = field(default_factory=begin)
    told: list[tuple[float, Action]] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)

    def run(self, until: float, start: float = 0.0) -> Play:
        at = start
        while at <= until:
            living = {number: rank for number, rank in self.ranks.items() if rank.lives(at)}
            samples = tuple(
                Sample(n, r.output(at), r.progress(at), r.cores * at, r.io(at), int(r.wakes * at), files="")
                for n, r in living.items()
            )
            self._take(Sampled(at, samples), at)
            at += self.policy.sample_s
        return self

    def _take(self, event: Sampled | StacksTaken | FlightSeq, at: float) -> None:
        self.state, actions = step(self.policy, self.state, event)
        for action in actions:
            if isinstance(action, AskFlightRecorder):
                asked = {n: r.sequence(at) for n in action.ranks if (r := self.ranks[n]).sequence}
                self._take(FlightSeq(at, asked), at)
            elif isinstance(action, TakeStacks):
                self.looks.append(at)
                self._take(StacksTaken(at + 0.2, {n: self.ranks[n].place(at) for n in action.ranks}), at)
            else:
                self.told.append((at, action))

    @property
    def still(self) -> list[tuple[float, float]]:
        """(when it was told, since when)"""
        return [(at, action.since) for at, action in self.told if isinstance(action, Still)]

    @property
    def moves(self) -> list[float]:
        return [at for at, action in self.told if isinstance(action, MovesAgain)]


def play(*ranks: Rank, until: float = 200.0, policy: WatchPolicy = POLICY) -> Play:
    return Play(dict(enumerate(ranks)), policy).run(until)


def printing(every: float, until: float = 1e9) -> Callable[[float], int]:
    return lambda at: int(min(at, until) / every)


def test_ranks_that_wait_at_one_place_are_still_after_two_looks_and_since_they_printed_last() -> None:
    found = play(Rank(printing(1, until=40)), Rank(printing(1, until=30)))
    ((at, since),) = found.still
    assert since == pytest.approx(40, abs=2)
    assert since + POLICY.quiet_s + POLICY.apart_s <= at <= since + 35


def test_evidence_is_kept_before_anybody_is_told() -> None:
    found = play(Rank())
    assert [type(action) for _, action in found.told] == [SaveEvidence, Still]


def test_one_rank_that_prints_keeps_all_of_them_from_being_looked_at() -> None:
    found = play(Rank(printing(5)), Rank(), Rank(), until=2000)
    assert (found.looks, found.told) == ([], [])


@pytest.mark.parametrize(
    "moving",
    [
        Rank(progress=lambda at: f"{at // 10}"),
        Rank(io=lambda at: int(at * 5e4)),
        Rank(lives=lambda at: True, output=printing(12)),
    ],
    ids=["steps", "input and output", "lines"],
)
def test_whatever_moves_counts(moving: Rank) -> None:
    found = play(moving, Rank(), until=2000)
    assert (found.looks, found.told) == ([], [])


def test_a_quiet_rank_that_is_elsewhere_at_each_look_is_never_still_and_rarely_looked_at() -> None:
    found = play(Rank(place=lambda at: f"line {at}", cores=1.0), until=3600)
    assert found.told == []
    assert len(found.looks) < 3600 / POLICY.longest_s + 5
    pauses = [b - a for a, b in zip(found.looks, found.looks[1:], strict=False)]
    assert pauses[0] < pauses[1] < pauses[2] <= POLICY.longest_s + POLICY.sample_s


def test_collectives_that_go_on_are_a_movement() -> None:
    found = play(Rank(sequence=int), until=600)
    assert found.told == []


def test_collectives_that_do_not_go_on_are_none() -> None:
    assert len(play(Rank(sequence=lambda at: 12), until=60).still) == 1


def test_a_rank_that_burns_its_cpu_needs_a_minute_and_more_looks() -> None:
    found = play(Rank(cores=1.0))
    ((at, _),) = found.still
    assert POLICY.busy_s <= at <= POLICY.busy_s + 20
    assert len([look for look in found.looks if look <= at]) == POLICY.busy_looks


def test_a_rank_that_sleeps_and_wakes_needs_as_much() -> None:
    ((at, _),) = play(Rank(wakes=20)).still
    assert at >= POLICY.busy_s


def test_what_is_read_or_written_now_and_then_is_no_movement() -> None:
    found = play(Rank(io=lambda at: int(at / 10) * 500_000))
    assert len(found.still) == 1


def test_what_a_look_makes_a_rank_write_is_no_movement() -> None:
    class Written(Play):
        def _take(self, event: Sampled | StacksTaken | FlightSeq, at: float) -> None:
            if isinstance(event, StacksTaken):
                samples = (Sample(0, 7, "", 0.0, 9_000_000 * (1 + len(self.looks)), 0, files=""),)
                super()._take(Sampled(at, samples), at)
            super()._take(event, at)

    looks: list[float] = []
    found = Written({0: Rank(io=lambda at: 9_000_000 * (1 + len(looks)))}, looks=looks).run(200)
    assert len(found.still) == 1


def test_a_busy_rank_whose_looks_are_alike_by_chance_is_not_still() -> None:
    places = "aaaab"
    found = play(Rank(cores=1.0, place=lambda at: places[int(at / 1.5) % 5]), until=1000)
    assert found.told == []


def test_what_is_no_python_is_still_by_output_and_cpu_alone_after_a_minute() -> None:
    ((at, _),) = play(Rank(place=lambda at: None)).still
    assert at >= POLICY.busy_s
    assert play(Rank(place=lambda at: None, cores=0.5), until=3600).told == []


def test_one_dump_that_fails_does_not_hide_that_it_is_still() -> None:
    found = play(Rank(place=lambda at: None if 25 < at < 40 else "here"))
    assert len(found.still) == 1


def test_a_dump_that_fails_while_it_is_still_is_no_movement() -> None:
    found = play(Rank(place=lambda at: None if 100 < at < 130 else "here"), until=400)
    assert (len(found.still), found.moves) == (1, [])


def test_what_moves_again_is_told_and_may_be_still_again() -> None:
    found = play(Rank(lambda at: 1 if at < 100 else 2), until=110)
    assert len(found.still) == 1
    assert found.moves == [100.0]
    again = found.run(600, start=112)
    assert [since for _, since in again.still] == [0.0, 100.0]


def test_a_stack_that_moves_after_all_is_told() -> None:
    found = play(Rank(place=lambda at: "here" if at < 100 else "there"), until=160)
    assert len(found.still) == 1
    assert len(found.moves) == 1


def test_since_is_when_it_was_first_seen_where_it_stays() -> None:
    found = play(Rank(place=lambda at: "loop" if at < 20 else "stuck"))
    ((_, since),) = found.still
    assert 20 < since < 40


def test_who_has_paused_before_is_given_time() -> None:
    found = play(Rank(printing(50, until=400)), until=900)
    first = found.still[0][0]
    assert 33 <= first < 50 or first >= 400
    assert [since for at, since in found.still if at > 120] == [400]


def test_a_rank_that_ends_is_a_movement_of_those_that_live() -> None:
    found = play(Rank(lives=lambda at: at < 60), Rank(), until=200)
    assert found.moves == [60.0]
    assert found.still[-1][1] == 60.0


def test_a_run_without_ranks_asks_for_nothing() -> None:
    assert step(POLICY, begin(), Sampled(5.0, ()))[1] == ()


def test_stacks_that_nobody_asked_for_change_nothing() -> None:
    state, actions = step(POLICY, begin(), StacksTaken(5.0, {0: "x"}))
    assert (state, actions) == (begin(), ())


ranks_that_stop = st.builds(
    lambda every, stop, cores: (every, stop, cores),
    st.floats(0.5, 12),
    st.floats(0, 300),
    st.sampled_from([0.0, 0.01, 1.0]),
)


@settings(deadline=None)
@given(st.lists(ranks_that_stop, min_size=1, max_size=4))
def test_nothing_is_still_while_anything_moves_and_all_is_within_a_bound_once_nothing_does(
    facts: Sequence[tuple[float, float, float]],
) -> None:
    found = play(*(Rank(printing(every, stop), cores=cores) for every, stop, cores in facts), until=600)
    stopped = max(int(stop / every) * every for every, stop, _ in facts)
    assert len(found.still) == 1
    ((at, since),) = found.still
    assert abs(since - stopped) <= POLICY.sample_s
    assert stopped + POLICY.quiet_s + POLICY.apart_s - POLICY.sample_s <= at <= stopped + 80
    assert all(look >= stopped + POLICY.quiet_s - 2 * POLICY.sample_s for look in found.looks)


events = st.one_of(
    st.builds(
        lambda n, out, cpu: ("sample", n, out, cpu), st.integers(0, 3), st.integers(0, 2), st.floats(0, 5)
    ),
    st.builds(lambda place: ("stacks", place), st.sampled_from(["a", "b", None])),
    st.builds(lambda n: ("flight", n), st.integers(0, 3)),
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 40), events), max_size=60))
def test_still_and_moves_take_turns_and_looks_are_asked_for_one_at_a_time(history: list) -> None:
    state, at = begin(), 0.0
    still = False
    for pause, event in history:
        at += pause
        before = state
        match event:
            case ("sample", count, output, cpu):
                samples = tuple(Sample(n, output, cpu_s=cpu) for n in range(count))
                state, actions = step(POLICY, state, Sampled(at, samples))
                still = still and count > 0
            case ("stacks", place):
                state, actions = step(POLICY, state, StacksTaken(at, dict.fromkeys(range(3), place)))
            case (_, count):
                state, actions = step(POLICY, state, FlightSeq(at, dict.fromkeys(range(3), count)))
        for action in actions:
            if isinstance(action, Still):
                assert not still
                still = True
            elif isinstance(action, MovesAgain):
                assert still
                still = False
            elif isinstance(action, TakeStacks):
                assert not before.looking
                assert state.looking
        assert (state.still_since is not None) == still


def test_a_shorter_policy_is_as_patient_as_it_says() -> None:
    quick = replace(POLICY, sample_s=0.1, quiet_s=0.5, apart_s=0.3)
    ((at, _),) = play(Rank(), until=3, policy=quick).still
    assert at < 1.5
