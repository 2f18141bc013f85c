"""What a supervisor does about its children, as a pure state machine: `step(state, event) -> (state,
actions)`.

A child goes down -> starting -> running and ends: well (`done`), or by a failure, which its policy answers
with a restart or, once there were too many, with an escalation. Attempts of a child are numbered, and an
event names the attempt that it is of: what is late, repeated or of nobody changes nothing.

The clock is in the events, in seconds from anywhere; one that runs backwards stands still here. As in
Erlang/OTP, the restarts of all children count together, and more than `max_restarts` of them in `window_s`
are an escalation: the children that live are ended, and nothing is started any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from .failure import Failure

__all__ = [
    "Action",
    "Child",
    "ChildEnded",
    "ChildStarted",
    "End",
    "Escalate",
    "Event",
    "GiveUp",
    "Restart",
    "RestartChild",
    "Start",
    "State",
    "StopAll",
    "Timer",
    "WakeAt",
    "begin",
    "step",
]

Strategy = Literal["one_for_one", "one_for_all"]
ChildPhase = Literal["down", "starting", "running", "ending", "done", "stopped"]
Phase = Literal["running", "given_up", "stopping"]

_ALIVE = ("starting", "running", "ending")


@dataclass(frozen=True, slots=True)
class Restart:
    """The policy. `one_for_all` ends the others when one fails, waits for their ends and starts all again.

    Attempt n after a failure waits `backoff_s` x 2^(n-1), at most `backoff_max_s`; n counts from 1 again
    after `window_s` without a failure.
    """

    strategy: Strategy = "one_for_one"
    max_restarts: int = 3
    window_s: float = 60.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0

    def delay_s(self, streak: int) -> float:
        """How long to wait before restart number `streak` (from 1) of a row."""
        # Beyond 2^32 the limit is what counts.
        return min(self.backoff_max_s, self.backoff_s * 2.0 ** min(streak - 1, 32))


@dataclass(frozen=True, slots=True)
class Child:
    """`attempt` is the latest that was started, 0 before the first; `due`: it is to be started then, once
    down.
    """

    name: str
    attempt: int = 0
    phase: ChildPhase = "down"
    due: float | None = None

    @property
    def alive(self) -> bool:
        return self.phase in _ALIVE


@dataclass(frozen=True, slots=True)
class State:
    """`recent` are the times of the restarts in the window, `streak` those in a row, `total` all that there
    were.
    """

    policy: Restart
    children: tuple[Child, ...]
    phase: Phase = "running"
    now: float = 0.0
    recent: tuple[float, ...] = ()
    streak: int = 0
    total: int = 0
    quiet_from: float = 0.0
    wake: float | None = None

    def child(self, name: str) -> Child | None:
        return next((child for child in self.children if child.name == name), None)

    @property
    def over(self) -> bool:
        """Nothing is alive, and nothing will be unless it is asked for."""
        return not any(child.alive or child.due is not None for child in self.children)


@dataclass(frozen=True, slots=True)
class ChildStarted:
    child: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """`failure` is None where it ended well; where it was asked to end, how it ended does not matter."""

    child: str
    attempt: int
    failure: Failure | None
    at: float


@dataclass(frozen=True, slots=True)
class Timer:
    """The time that a `WakeAt` asked for has come. One that comes early is asked for again."""

    at: float


@dataclass(frozen=True, slots=True)
class RestartChild:
    """Somebody wants it restarted (with all others, where one stands for all): at once, and it counts for
    nothing.
    """

    child: str
    at: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """What no restart can mend: ends what is left and escalates."""

    failure: Failure
    at: float


@dataclass(frozen=True, slots=True)
class StopAll:
    at: float


Event: TypeAlias = ChildStarted | ChildEnded | Timer | RestartChild | GiveUp | StopAll


@dataclass(frozen=True, slots=True)
class Start:
    child: str
    attempt: int


@dataclass(frozen=True, slots=True)
class End:
    """End this attempt, which may not have told yet that it started; a `ChildEnded` of it is owed."""

    child: str
    attempt: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send a `Timer` at that time; it takes the place of an earlier `WakeAt`."""

    at: float


@dataclass(frozen=True, slots=True)
class Escalate:
    """The last decision: given up, after `restarts` of them."""

    failure: Failure
    reason: str
    restarts: int


Action: TypeAlias = Start | End | WakeAt | Escalate
Result: TypeAlias = tuple[State, tuple[Action, ...]]


def begin(policy: Restart, children: Iterable[str] | Mapping[str, int], at: float) -> Result:
    """Starts all children; a mapping has the number of the last attempt that each had before (0: none)."""
    known = children if isinstance(children, Mapping) else dict.fromkeys(children, 0)
    state = State(policy, tuple(Child(name, last, due=at) for name, last in known.items()), now=at)
    return _go_on(state, ())


def step(state: State, event: Event) -> Result:
    """The state after an event, and what is to be done, in that order."""
    if isinstance(event, ChildStarted | ChildEnded):
        return _of_child(state, event)
    if isinstance(event, Timer):
        return _timer(state, event.at)
    if state.phase != "running" or (isinstance(event, RestartChild) and state.child(event.child) is None):
        return state, ()
    state = _at(state, event.at)
    match event:
        case RestartChild(name):
            return _restart(state, name, state.now, after_failure=False)
        case GiveUp(failure):
            return _give_up(state, failure, failure.how)
        case StopAll():
            return _end_all(state, "stopping")


def _of_child(state: State, event: ChildStarted | ChildEnded) -> Result:
    child = state.child(event.child)
    if child is None or child.attempt != event.attempt or not child.alive:
        return state, ()
    if isinstance(event, ChildEnded):
        return _ended(_at(state, event.at), child, event.failure)
    if child.phase != "starting":
        return state, ()
    return _with(state, replace(child, phase="running")), ()


def _timer(state: State, at: float) -> Result:
    if state.wake is None:
        return state, ()
    if at < state.wake:
        return state, (WakeAt(state.wake),)
    return _go_on(replace(_at(state, at), wake=None), ())


def _ended(state: State, child: Child, failure: Failure | None) -> Result:
    if child.phase == "ending":
        return _go_on(_with(state, replace(child, phase="stopped" if child.due is None else "down")), ())
    if failure is None:
        return _go_on(_with(state, replace(child, phase="done")), ())
    state = _with(state, replace(child, phase="down"))
    policy = state.policy
    recent = tuple(at for at in state.recent if at > state.now - policy.window_s)
    if len(recent) >= policy.max_restarts:
        plural = "" if policy.max_restarts == 1 else "s"
        reason = f"more than {policy.max_restarts} restart{plural} in {policy.window_s:g} s"
        return _give_up(state, failure, reason if policy.max_restarts else "it is not to be restarted")
    quiet = state.now - state.quiet_from > policy.window_s
    streak = 1 if quiet else state.streak + 1
    due = state.now + policy.delay_s(streak)
    state = replace(state, recent=(*recent, state.now), streak=streak, total=state.total + 1, quiet_from=due)
    return _restart(state, child.name, due, after_failure=True)


def _restart(state: State, name: str, due: float, *, after_failure: bool) -> Result:
    """Has the child (or all) started at `due`, once it is down."""
    actions: list[Action] = []
    children = []
    for one in state.children:
        if one.name != name and state.policy.strategy == "one_for_one":
            children.append(one)
            continue
        if one.phase in ("starting", "running"):
            actions.append(End(one.name, one.attempt))
            children.append(replace(one, phase="ending", due=due))
        else:
            # Two failures of one moment are one restart, and the later time counts; who asks does not wait.
            at = max(due, one.due or due) if after_failure else due
            children.append(replace(one, phase="ending" if one.phase == "ending" else "down", due=at))
    return _go_on(replace(state, children=tuple(children)), actions)


def _give_up(state: State, failure: Failure, reason: str) -> Result:
    state, actions = _end_all(state, "given_up")
    return state, (*actions, Escalate(failure, reason, state.total))


def _end_all(state: State, phase: Phase) -> Result:
    living = [child for child in state.children if child.phase in ("starting", "running")]
    children = tuple(_to_end(child) for child in state.children)
    state = replace(state, children=children, phase=phase, wake=None)
    return state, tuple(End(child.name, child.attempt) for child in living)


def _to_end(child: Child) -> Child:
    if child.alive:
        return replace(child, phase="ending", due=None)
    return replace(child, phase="done" if child.phase == "done" else "stopped", due=None)


def _go_on(state: State, actions: Iterable[Action]) -> Result:
    """Starts what is due, and asks to be woken for what will be."""
    found = list(actions)
    waiting = [child for child in state.children if child.due is not None]
    together = state.policy.strategy == "one_for_all"
    if not (together and any(child.alive for child in waiting)):
        for child in waiting:
            if child.due is not None and child.due <= state.now and not child.alive:
                started = replace(child, attempt=child.attempt + 1, phase="starting", due=None)
                found.append(Start(child.name, started.attempt))
                state = _with(state, started)
    later = [child.due for child in state.children if child.due is not None and child.due > state.now]
    wake = min(later, default=None)
    if wake is not None and wake != state.wake:
        found.append(WakeAt(wake))
    return replace(state, wake=wake), tuple(found)


def _with(state: State, changed: Child) -> State:
    children = tuple(changed if child.name == changed.name else child for child in state.children)
    return replace(state, children=children)


def _at(state: State, at: float) -> State:
    return replace(state, now=max(at, state.now))
