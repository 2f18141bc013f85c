"""Whether the ranks of a run on one host move or stand still: typed events in, a new state and actions out.

A rank moves when it prints, reports a step, starts a collective, or reads and writes much. One that does none
of that may still compute: so a run where nothing moves is looked at (its stacks are taken), less and less
often the longer it is quiet, and it is still when all its living ranks are at the same place in looks far
enough apart. A run in which anything moves is never looked at.

Times are of one clock that never goes back; the machine knows no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from .policy import WatchPolicy

__all__ = [
    "Action",
    "AskFlightRecorder",
    "Event",
    "FlightSeq",
    "MovesAgain",
    "Sample",
    "Sampled",
    "SaveEvidence",
    "StacksTaken",
    "State",
    "Still",
    "TakeStacks",
    "begin",
    "step",
]


@dataclass(frozen=True, slots=True)
class Sample:
    """What is seen of a rank from outside. `output` counts the bytes that it wrote; `progress` and `files`
    are other values whenever its metrics grew; `cpu_s` and `io` are sums over its process tree, `wakes`
    counts how often its main thread went to sleep. Of a sample that was no full one these are None.
    """

    rank: int
    output: int
    progress: str = ""
    cpu_s: float | None = None
    io: int | None = None
    wakes: int | None = None
    os_state: str = ""
    files: str | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """Event: all ranks here that live, and only they, were sampled."""

    at: float
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class StacksTaken:
    """Event: the looks that were asked for. A signature is None where a rank could not be dumped."""

    at: float
    signatures: Mapping[int, str | None]


@dataclass(frozen=True, slots=True)
class FlightSeq:
    """Event: how many collectives each rank has started by now."""

    at: float
    sequences: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TakeStacks:
    """Action: to be answered by `StacksTaken`, unless something has moved by then."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AskFlightRecorder:
    """Action: to be answered, before `StacksTaken`, by `FlightSeq`, or not at all."""

    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SaveEvidence:
    """Action: keep the last stacks and samples, before anybody is told."""

    since: float


@dataclass(frozen=True, slots=True)
class Still:
    """Action: tell that nothing here has moved since then."""

    since: float


@dataclass(frozen=True, slots=True)
class MovesAgain:
    """Action: tell that something moves."""


_Verdict = Literal["still", "nearly", ""]
Event = Sampled | StacksTaken | FlightSeq
Action = TakeStacks | AskFlightRecorder | SaveEvidence | Still | MovesAgain


@dataclass(frozen=True, slots=True)
class RankState:
    """A rank since it was last seen to move, at `moved_at`.

    `looks` are those in a row that found it where it was, from `first_look` to `last_look`; `elsewhere`: an
    earlier look of the same pause found it somewhere else. `full` is the latest full sample with its time,
    `base` the one before the first look. `io_rises`: in how many samples in a row it had read or written.
    """

    last: Sample
    moved_at: float
    full: tuple[float, Sample] | None = None
    base: tuple[float, Sample] | None = None
    io_rises: int = 0
    sequence: int = -1
    signature: str | None = None
    looks: int = 0
    failed_looks: int = 0
    first_look: float = 0.0
    last_look: float = 0.0
    elsewhere: bool = False

    def moved(self, at: float) -> RankState:
        """It was seen to move: looks before that say nothing any more."""
        return replace(
            self,
            moved_at=at,
            base=None,
            io_rises=0,
            looks=0,
            failed_looks=0,
            elsewhere=False,
        )

    @property
    def cores(self) -> float | None:
        """CPU over the looks; None where there is too little to tell."""
        return self._rate("cpu_s")

    @property
    def wakes(self) -> float | None:
        """How often a second it woke up, over the looks."""
        return self._rate("wakes")

    def _rate(self, what: Literal["cpu_s", "wakes"]) -> float | None:
        if self.base is None or self.full is None or self.full[0] <= self.base[0]:
            return None
        before, after = getattr(self.base[1], what), getattr(self.full[1], what)
        return None if None in (before, after) else (after - before) / (self.full[0] - self.base[0])

    @property
    def since(self) -> float:
        """Since when it may stand where it stands."""
        return self.first_look if self.elsewhere else self.moved_at


@dataclass(frozen=True, slots=True)
class State:
    """`look_at`: when the next look is due; `looking`: one was asked for and is awaited.

    `longest` is the longest pause after which anything moved again, but for the one before the first output.
    """

    ranks: Mapping[int, RankState] = field(default_factory=dict)
    look_at: float = 0.0
    looking: bool = False
    still_since: float | None = None
    longest: float | None = None

    @property
    def moved_at(self) -> float | None:
        """When anything was last seen to move; None where there is nothing."""
        return max((rank.moved_at for rank in self.ranks.values()), default=None)


def begin() -> State:
    return State()


def step(policy: WatchPolicy, state: State, event: Event) -> tuple[State, tuple[Action, ...]]:
    """The state after an event, and what is to be done about it, in that order."""
    if isinstance(event, Sampled):
        return _sampled(policy, state, event)
    if isinstance(event, FlightSeq):
        return _moved_on(policy, state, _sequenced(state, event))
    return _looked(policy, state, event)


def _sampled(policy: WatchPolicy, state: State, event: Sampled) -> tuple[State, tuple[Action, ...]]:
    ranks = {
        sample.rank: _follow(policy, state.ranks.get(sample.rank), sample, event.at, looking=state.looking)
        for sample in event.samples
    }
    # A rank that ends was not standing still, and those that waited for it may go on.
    if state.ranks.keys() - ranks.keys():
        ranks = {rank: one.moved(event.at) for rank, one in ranks.items()}
    state, actions = _moved_on(policy, state, ranks)
    if not ranks or state.looking or event.at < state.look_at:
        return state, actions
    asked = tuple(sorted(ranks))
    return replace(state, looking=True), (*actions, AskFlightRecorder(asked), TakeStacks(asked))


def _follow(
    policy: WatchPolicy, before: RankState | None, sample: Sample, at: float, *, looking: bool
) -> RankState:
    if before is None:
        return _measured(RankState(sample, at), sample, at)
    old, rises = before.last, 0
    moved = sample.output != old.output or sample.progress != old.progress
    if sample.files is not None and old.files is not None:
        moved = moved or sample.files != old.files
    if sample.io is not None and old.io is not None and not looking:  # a look makes it write its recorder
        rises = before.io_rises + 1 if abs(sample.io - old.io) >= policy.io_bytes else 0
        moved = moved or rises >= policy.io_samples
    return _measured(before.moved(at) if moved else replace(before, io_rises=rises), sample, at)


def _measured(rank: RankState, sample: Sample, at: float) -> RankState:
    rank = replace(rank, last=sample)
    return rank if sample.cpu_s is None else replace(rank, full=(at, sample))


def _sequenced(state: State, event: FlightSeq) -> dict[int, RankState]:
    ranks = dict(state.ranks)
    for number, sequence in event.sequences.items():
        if (rank := ranks.get(number)) is not None and sequence != rank.sequence:
            known = rank.sequence >= 0
            ranks[number] = replace(rank.moved(event.at) if known else rank, sequence=sequence)
    return ranks


def _moved_on(
    policy: WatchPolicy, state: State, ranks: Mapping[int, RankState]
) -> tuple[State, tuple[Action, ...]]:
    """The state with these ranks: whatever moved starts the wait for a look anew."""
    before, fresh = state.moved_at, replace(state, ranks=ranks)
    now = fresh.moved_at
    if now is None:
        return State(), ()
    if before is not None and now <= before:
        return fresh, ()
    longest = state.longest
    if before is not None:  # the pause before the first movement is that of a start, and tells of no rhythm
        longest = 0.0 if longest is None else max(longest, now - before)
    fresh = replace(fresh, look_at=now + policy.quiet_s, looking=False, still_since=None, longest=longest)
    return fresh, (MovesAgain(),) if state.still_since is not None else ()


def _looked(policy: WatchPolicy, state: State, event: StacksTaken) -> tuple[State, tuple[Action, ...]]:
    if not state.looking or state.moved_at is None:  # something moved while they were taken
        return state, ()
    quiet = event.at - state.moved_at
    ranks = {
        number: _seen(rank, event.signatures.get(number), event.at) for number, rank in state.ranks.items()
    }
    verdicts = {_judge(policy, rank, quiet, state.longest or 0.0) for rank in ranks.values()}
    hurry = "nearly" in verdicts and "" not in verdicts
    ahead = policy.hurry_s if hurry else min(max(quiet, policy.quiet_s), policy.longest_s)
    state = replace(state, ranks=ranks, looking=False, look_at=event.at + ahead)
    if state.still_since is not None:
        if any(rank.elsewhere and rank.looks == 1 for rank in ranks.values()):
            return replace(state, still_since=None), (MovesAgain(),)
        return state, ()
    if verdicts != {"still"}:
        return state, ()
    since = max(rank.since for rank in ranks.values())
    return replace(state, still_since=since), (SaveEvidence(since), Still(since))


def _seen(rank: RankState, signature: str | None, at: float) -> RankState:
    if signature is None and rank.signature is not None and rank.failed_looks == 0:
        return replace(rank, failed_looks=1)  # a dump may fail once, which tells nothing
    if rank.looks and signature == rank.signature:
        return replace(rank, looks=rank.looks + 1, last_look=at, failed_looks=0)
    known = rank.looks > 0 and rank.signature is not None and signature is not None
    return replace(
        rank,
        signature=signature,
        looks=1,
        failed_looks=0,
        first_look=at,
        last_look=at,
        base=rank.full,
        elsewhere=rank.elsewhere or known,
    )


def _judge(policy: WatchPolicy, rank: RankState, quiet: float, longest: float) -> _Verdict:
    """`still`, `nearly` where only some looks are missing, or nothing. `quiet` is that of all ranks."""
    patience = min(policy.patience * longest, policy.patience_s)
    if quiet < patience or rank.last_look - rank.first_look < policy.apart_s:
        return ""
    computes = rank.cores is None or rank.cores > policy.busy
    if rank.signature is None:
        return "still" if quiet >= policy.busy_s and not computes else ""
    if not computes and (rank.wakes or 0.0) <= policy.wakes:
        return "still"
    if quiet < policy.busy_s:
        return ""
    return "still" if rank.looks >= policy.busy_looks else "nearly"
