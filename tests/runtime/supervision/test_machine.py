"""The machine's decisions, by example and by random histories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from milkweed.runtime.records import Exit
from milkweed.runtime.supervision import (
    Action,
    ChildEnded,
    ChildStarted,
    End,
    Escalate,
    Event,
    Failure,
    GiveUp,
    Restart,
    RestartChild,
    Start,
    State,
    StopAll,
    Timer,
    WakeAt,
    begin,
    step,
)

DEAD = Failure("proc", "x", exit=Exit(signal=9))


def after(state: State, *events: Event) -> tuple[State, tuple[Action, ...]]:
    """The state after all events, and what the last one led to."""
    actions: tuple[Action, ...] = ()
    for event in events:
        state, actions = step(state, event)
    return state, actions


def running(policy: Restart, *names: str) -> State:
    state, _ = begin(policy, names, 0.0)
    return after(state, *(ChildStarted(name, 1) for name in names))[0]


def phases(state: State) -> list[str]:
    return [child.phase for child in state.children]


def test_all_children_are_started_with_the_attempt_after_their_last() -> None:
    assert begin(Restart(), ["a", "b"], 5.0)[1] == (Start("a", 1), Start("b", 1))
    assert begin(Restart(), {"a": 3}, 5.0)[1] == (Start("a", 4),)


def test_one_for_one_restarts_the_one_that_failed_after_its_back_off() -> None:
    state, actions = after(running(Restart(backoff_s=0.5), "a", "b"), ChildEnded("a", 1, DEAD, 10.0))
    assert actions == (WakeAt(10.5),)
    state, actions = after(state, Timer(10.5))
    assert actions == (Start("a", 2),)
    assert phases(state) == ["starting", "running"]


def test_one_for_all_ends_the_others_waits_for_their_ends_and_starts_all() -> None:
    state, actions = after(running(Restart("one_for_all"), "a", "b", "c"), ChildEnded("b", 1, DEAD, 10.0))
    assert actions == (End("a", 1), End("c", 1), WakeAt(10.1))
    state, actions = after(state, ChildEnded("a", 1, DEAD, 10.2), Timer(10.2))
    assert actions == ()
    state, actions = after(state, ChildEnded("c", 1, None, 10.3))
    assert actions == (Start("a", 2), Start("b", 2), Start("c", 2))
    assert state.total == 1


def test_one_for_all_starts_those_that_were_done_again_too() -> None:
    state = running(Restart("one_for_all", backoff_s=0.0), "a", "b")
    _, actions = after(state, ChildEnded("a", 1, None, 1.0), ChildEnded("b", 1, DEAD, 2.0))
    assert actions == (Start("a", 2), Start("b", 2))


def test_a_child_that_ends_well_is_done_and_all_of_them_are_the_end() -> None:
    state, _ = after(running(Restart(), "a", "b"), ChildEnded("a", 1, None, 1.0))
    assert not state.over
    state, actions = after(state, ChildEnded("b", 1, None, 2.0))
    assert (state.over, actions) == (True, ())


def test_more_restarts_than_the_window_allows_end_the_rest_and_escalate() -> None:
    state = running(Restart(max_restarts=2, window_s=60.0, backoff_s=1.0), "a", "b")
    state, _ = after(
        state, ChildEnded("a", 1, DEAD, 10.0), Timer(11.0), ChildEnded("a", 2, DEAD, 20.0), Timer(22.0)
    )
    state, actions = after(state, ChildEnded("a", 3, DEAD, 30.0))
    assert actions == (End("b", 1), Escalate(DEAD, "more than 2 restarts in 60 s", 2))
    assert (state.phase, phases(state), state.over) == ("given_up", ["stopped", "ending"], False)
    state, actions = after(state, ChildEnded("b", 1, DEAD, 31.0))
    assert (state.over, actions) == (True, ())


def test_restarts_that_the_window_has_forgotten_count_no_more() -> None:
    state = running(Restart(max_restarts=1, window_s=10.0, backoff_s=1.0), "a")
    state, _ = after(state, ChildEnded("a", 1, DEAD, 10.0), Timer(11.0))
    state, actions = after(state, ChildEnded("a", 2, DEAD, 20.0))
    assert [type(action) for action in actions] == [WakeAt]


def test_without_restarts_the_first_failure_escalates() -> None:
    _, actions = after(running(Restart(max_restarts=0), "a"), ChildEnded("a", 1, DEAD, 1.0))
    assert actions == (Escalate(DEAD, "it is not to be restarted", 0),)


def test_the_back_off_doubles_up_to_its_limit_and_starts_anew_after_a_quiet_window() -> None:
    state = running(Restart(max_restarts=99, window_s=60.0, backoff_s=1.0, backoff_max_s=5.0), "a")
    at, waits = 0.0, []
    for attempt, pause in enumerate([1.0, 1.0, 1.0, 1.0, 61.0, 1.0], start=1):
        at += pause
        state, _ = after(state, ChildEnded("a", attempt, DEAD, at))
        assert state.wake is not None
        waits.append(state.wake - at)
        at = state.wake
        state, _ = after(state, Timer(at))
    assert waits == [1.0, 2.0, 4.0, 5.0, 1.0, 2.0]


def test_a_timer_that_comes_early_is_asked_for_again() -> None:
    state, _ = after(running(Restart(backoff_s=1.0), "a"), ChildEnded("a", 1, DEAD, 10.0))
    assert after(state, Timer(10.9)) == (state, (WakeAt(11.0),))


def test_a_restart_that_is_asked_for_is_at_once_and_counts_for_nothing() -> None:
    state, actions = after(running(Restart(max_restarts=0), "a", "b"), RestartChild("a", 5.0))
    assert actions == (End("a", 1),)
    state, actions = after(state, ChildEnded("a", 1, DEAD, 6.0))
    assert actions == (Start("a", 2),)
    assert (state.total, state.recent) == (0, ())


def test_a_restart_that_is_asked_for_does_not_wait_for_the_back_off() -> None:
    state, _ = after(running(Restart(backoff_s=9.0), "a"), ChildEnded("a", 1, DEAD, 10.0))
    _, actions = after(state, RestartChild("a", 11.0))
    assert actions == (Start("a", 2),)


def test_a_restart_of_one_is_a_restart_of_all_where_one_stands_for_all() -> None:
    state, actions = after(running(Restart("one_for_all"), "a", "b"), RestartChild("a", 5.0))
    assert actions == (End("a", 1), End("b", 1))
    _, actions = after(state, ChildEnded("b", 1, None, 5.1), ChildEnded("a", 1, None, 5.2))
    assert actions == (Start("a", 2), Start("b", 2))


def test_a_stop_ends_all_and_nothing_is_started_after_it() -> None:
    state, _ = after(running(Restart(backoff_s=1.0), "a", "b"), ChildEnded("a", 1, DEAD, 10.0))
    state, actions = after(state, StopAll(10.5))
    assert actions == (End("b", 1),)
    assert after(state, Timer(11.0))[1] == ()
    state, actions = after(state, ChildEnded("b", 1, DEAD, 12.0))
    assert (state.over, actions, phases(state)) == (True, (), ["stopped", "stopped"])


def test_what_no_restart_mends_is_given_up_at_once() -> None:
    lost = Failure("host", "1", reason="its agent was killed")
    state, actions = after(running(Restart(), "a"), GiveUp(lost, 3.0))
    assert actions == (End("a", 1), Escalate(lost, "its agent was killed", 0))
    assert after(state, GiveUp(lost, 4.0)) == (state, ())


def test_events_of_other_attempts_and_of_nobody_change_nothing() -> None:
    state = running(Restart(), "a")
    for event in (
        ChildEnded("a", 2, DEAD, 1.0),
        ChildEnded("a", 0, DEAD, 1.0),
        ChildEnded("z", 1, DEAD, 1.0),
    ):
        assert step(state, event) == (state, ())
    for other in (ChildStarted("z", 1), ChildStarted("a", 1), RestartChild("z", 1.0), Timer(9.0)):
        assert step(state, other) == (state, ())


def test_a_clock_that_runs_backwards_stands_still() -> None:
    state, _ = after(running(Restart(backoff_s=1.0), "a", "b"), ChildEnded("a", 1, DEAD, 10.0))
    state, actions = after(state, ChildEnded("b", 1, DEAD, 5.0))
    assert (state.now, actions) == (10.0, ())
    assert state.wake == 11.0


@dataclass
class Life:
    """An attempt as the world has it."""

    child: str
    attempt: int
    told: bool = False
    asked_to_end: bool = False


class Histories(RuleBasedStateMachine):
    """A world that does what it is told, with failures, wishes and repeated events whenever they come."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[str, Life] = {}
        self.restarts: list[float] = []
        self.escalated = 0
        self.stopped = False
        self.now = 0.0
        self.wake: float | None = None
        self.seen: list[Event] = []
        self.owed: set[str] = set()

    @rule(
        policy=st.builds(
            Restart,
            strategy=st.sampled_from(["one_for_one", "one_for_all"]),
            max_restarts=st.integers(0, 3),
            window_s=st.sampled_from([1.0, 5.0]),
            backoff_s=st.sampled_from([0.0, 0.5, 2.0]),
            backoff_max_s=st.sampled_from([1.0, 4.0]),
        ),
        children=st.integers(1, 3),
    )
    @precondition(lambda self: not hasattr(self, "state"))
    def set_out(self, policy: Restart, children: int) -> None:
        self.state, actions = begin(policy, [f"c{number}" for number in range(children)], 0.0)
        self.carry_out(actions)

    def carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Start(child, attempt):
                    assert not self.escalated, "an escalation is final"
                    assert not self.stopped, "so is a stop"
                    assert child not in self.alive, "two attempts of one child"
                    if self.state.policy.strategy == "one_for_all":
                        ending = [life for life in self.alive.values() if life.asked_to_end]
                        assert not ending, "all have ended before one is started again"
                    self.alive[child] = Life(child, attempt)
                case End(child, attempt):
                    assert self.alive[child].attempt == attempt
                    assert not self.alive[child].asked_to_end, "asked twice"
                    self.alive[child].asked_to_end = True
                case WakeAt(at):
                    self.wake = at
                case Escalate():
                    self.escalated += 1

    def tell(self, event: Event) -> None:
        before = self.state
        self.state, actions = step(before, event)
        self.seen.append(event)
        for _ in range(self.state.total - before.total):
            self.restarts.append(self.state.now)
        self.carry_out(actions)
        again, repeated = step(self.state, event)
        if not isinstance(event, RestartChild):
            assert again == self.state, "a repeated event changes nothing"
            assert not [action for action in repeated if not isinstance(action, WakeAt)]

    started = precondition(lambda self: hasattr(self, "state"))
    busy = precondition(lambda self: bool(self.alive))

    @busy
    @rule(data=st.data())
    def comes_up(self, data: st.DataObject) -> None:
        life = data.draw(st.sampled_from(sorted(self.alive.values(), key=lambda one: one.child)))
        life.told = True
        self.tell(ChildStarted(life.child, life.attempt))

    @busy
    @rule(data=st.data(), well=st.booleans())
    def ends(self, data: st.DataObject, well: bool) -> None:
        life = data.draw(st.sampled_from(sorted(self.alive.values(), key=lambda one: one.child)))
        del self.alive[life.child]
        self.tell(ChildEnded(life.child, life.attempt, None if well else DEAD, self.now))
        child = self.state.child(life.child)
        assert child is not None
        if not (well or life.asked_to_end):
            answered = child.due is not None or child.name in self.alive or self.escalated
            assert answered, "every failure leads to a restart or to an escalation"

    @started
    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 6.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        if self.wake is not None and self.now >= self.wake:
            self.wake = None
            self.tell(Timer(self.now))

    @started
    @rule()
    def timer_comes_early_or_for_nothing(self) -> None:
        self.tell(Timer(self.now))

    @started
    @rule(number=st.integers(0, 3))
    def somebody_wants_a_restart(self, number: int) -> None:
        self.tell(RestartChild(f"c{number}", self.now))

    @started
    @rule(data=st.data())
    def an_old_event_comes_again(self, data: st.DataObject) -> None:
        old = [event for event in self.seen if isinstance(event, ChildStarted | ChildEnded)]
        if old:
            event = data.draw(st.sampled_from(old))
            current = self.alive.get(event.child)
            if current is None or current.attempt != event.attempt or isinstance(event, ChildStarted):
                assert step(self.state, event)[1] == ()

    @started
    @precondition(lambda self: len(self.seen) > 8)
    @rule(give_up=st.booleans())
    def it_is_to_end(self, give_up: bool) -> None:
        self.tell(GiveUp(DEAD, self.now) if give_up else StopAll(self.now))
        self.stopped = self.stopped or not give_up

    @invariant()
    def the_machine_knows_what_lives(self) -> None:
        if hasattr(self, "state"):
            assert {child.name for child in self.state.children if child.alive} == self.alive.keys()

    @invariant()
    def it_escalates_at_most_once(self) -> None:
        assert self.escalated <= 1

    @invariant()
    def restarts_stay_within_the_intensity(self) -> None:
        for at in self.restarts:
            policy = self.state.policy
            within = [other for other in self.restarts if at - policy.window_s < other <= at]
            assert len(within) <= policy.max_restarts

    @invariant()
    def it_is_never_stuck(self) -> None:
        if hasattr(self, "state") and not self.state.over and not self.alive:
            assert self.wake is not None, "nothing lives, something is due, and nobody will wake it"

    def teardown(self) -> None:
        """Whatever happened, everything that was started can be ended."""
        if hasattr(self, "state"):
            self.tell(StopAll(self.now))
            for life in list(self.alive.values()):
                assert life.asked_to_end
                del self.alive[life.child]
                self.tell(ChildEnded(life.child, life.attempt, DEAD, self.now))
            assert self.state.over


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(st.integers(1, 10_000), st.floats(0.0, 60.0), st.floats(0.0, 600.0))
def test_the_back_off_never_exceeds_its_limit_and_never_shrinks(row: int, first: float, limit: float) -> None:
    policy = Restart(backoff_s=first, backoff_max_s=limit)
    assert 0.0 <= policy.delay_s(row) <= limit
    assert policy.delay_s(row) <= policy.delay_s(row + 1)
    assert replace(policy, backoff_max_s=1e300).delay_s(1) == first
