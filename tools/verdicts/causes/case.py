"""A run and all that is known of it, prepared for rules: what ranks failed with, wait in, have begun."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ....runtime.evidence import (
    Collective,
    Fault,
    Fingerprint,
    Flight,
    Group,
    HostEvidence,
    ProcessFacts,
)
from ....runtime.mesh import format_ranks
from ....runtime.metrics.series import RankMetrics
from ....runtime.records import Exit, Frame, ProcessStacks, RankState, RunState
from ..failures import RankFailure, first_failure
from ..folding import name_ranks
from ..frames import is_library, is_native, place
from ..stacks import main_thread
from ..tracebacks import PythonFailure
from ..waits import Wait, find_wait

__all__ = ["Look", "RankCase", "RunCase"]


@dataclass(frozen=True)
class Look:
    """One rank at one moment: its stacks, its children's, and its collectives."""

    stacks: tuple[ProcessStacks, ...] = ()
    flight: Flight = field(default_factory=Flight)
    output_size: int = 0

    @cached_property
    def own(self) -> ProcessStacks | None:
        """The rank's own process, else a child that stands for it."""
        return min(self.stacks, key=lambda one: one.child_of is not None, default=None)

    @cached_property
    def children(self) -> tuple[ProcessStacks, ...]:
        return tuple(one for one in self.stacks if one is not self.own)

    @cached_property
    def frames(self) -> tuple[Frame, ...]:
        """Python frames of the main thread, innermost first."""
        thread = main_thread(self.own) if self.own is not None else None
        return tuple(frame for frame in thread.frames if not is_native(frame.file)) if thread else ()

    @cached_property
    def user_frames(self) -> tuple[Frame, ...]:
        return tuple(frame for frame in self.frames if not is_library(frame.file))

    @cached_property
    def wait(self) -> Wait:
        return find_wait(self.frames)


@dataclass(frozen=True, slots=True)
class RankCase:
    """`text` is the end of its output, cleaned. `first` is how it was looked at, `second` a moment later;
    `kept` where that was before it was ended, which leaves no second look. `woke`: how often its main thread
    did between the two, None where that is not known. `unprinted`: its output does not show the failure.
    `native`: of one that held the GIL, what native code it was in, innermost first; None where that was not
    looked at. `note`: what is to be known of its output."""

    rank: int
    host: int
    state: RankState
    exit: Exit | None = None
    started_at: float | None = None
    ended_at: float | None = None
    text: str = ""
    failure: PythonFailure | None = None
    first: Look = field(default_factory=Look)
    second: Look | None = None
    kept: bool = False
    process: ProcessFacts | None = None
    faults: tuple[Fault, ...] = ()
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    metrics: RankMetrics | None = None
    group: Group | None = None
    woke: int | None = None
    unprinted: bool = False
    native: tuple[Frame, ...] | None = None
    note: str = ""

    @property
    def alive(self) -> bool:
        return self.exit is None and self.state == "running"

    @property
    def latest(self) -> Look:
        return self.second if self.second is not None and self.second.stacks else self.first

    @property
    def flight(self) -> Flight:
        return (
            self.second.flight
            if self.second is not None and self.second.flight.entries
            else self.first.flight
        )

    @property
    def collective(self) -> str:
        """The collective that it is in; empty where it is in none. Backward is in one that it has begun."""
        wait = self.latest.wait
        if wait.kind == "collective":
            return wait.what
        if wait.kind == "backward" and self.flight.entries and not self.flight.entries[-1].done:
            return f"{self.flight.entries[-1].op} (backward)"
        return ""

    @property
    def has_gil(self) -> bool:
        """Whether one of its threads had the GIL whenever it was looked at."""
        own = [look.own for look in (self.first, self.second) if look is not None and look.own is not None]
        return bool(own) and all(any(thread.owns_gil for thread in one.threads) for one in own)

    @property
    def failed(self) -> bool:
        """By itself, and not because Milkweed ended it."""
        return self.exit is not None and not self.exit.ok and self.exit.ended_by is None

    @property
    def last_begun(self) -> Collective | None:
        """Its latest collective of the whole world's group."""
        return next((one for one in reversed(self.flight.entries) if not one.p2p and one.group == "0"), None)


@dataclass(frozen=True)
class RunCase:
    """`source` gives the text of a file of the user's; `moment_s` is the time between the two looks."""

    run: str
    mesh: str
    state: RunState
    ranks: tuple[RankCase, ...]
    hosts: Mapping[int, HostEvidence] = field(default_factory=dict)
    reason: str = ""
    workspace: str = ""
    now: float = 0.0
    moment_s: float = 0.0
    source: Callable[[str], str | None] = lambda _file: None
    mend: Callable[[str], str] = lambda _words: ""
    notes: tuple[str, ...] = ()

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @cached_property
    def by_rank(self) -> Mapping[int, RankCase]:
        return {one.rank: one for one in self.ranks}

    @cached_property
    def first_failure(self) -> RankCase | None:
        """The rank whose failure the others follow from, as far as time and words tell."""
        failures = [
            RankFailure(one.rank, one.host, one.exit, one.ended_at, one.failure)
            for one in self.ranks
            if one.exit is not None and one.failed
        ]
        found = first_failure(failures)
        return self.by_rank[found.rank] if found is not None else None

    @cached_property
    def alive(self) -> tuple[RankCase, ...]:
        return tuple(one for one in self.ranks if one.alive)

    @cached_property
    def looked_at(self) -> tuple[RankCase, ...]:
        """Ranks whose stacks are known, of now or of when they were about to be ended."""
        return tuple(one for one in self.ranks if one.latest.frames)

    @cached_property
    def waiting(self) -> tuple[RankCase, ...]:
        """Those of them that are in a collective."""
        return tuple(one for one in self.looked_at if one.collective)

    def place_of(self, rank: RankCase) -> str:
        """Where the user's code is: `train.py:41 step: loss.backward()`."""
        return self.place_in(rank.latest)

    def place_in(self, look: Look) -> str:
        frames = look.user_frames or look.frames
        return self.frame_words(frames[0]) if frames else ""

    def frame_words(self, frame: Frame) -> str:
        line = self.line_of(frame.file, frame.line)
        return f"{place(frame, self.workspace)}{': ' + line[:90] if line else ''}"

    def line_of(self, file: str, number: int) -> str:
        text = self.source(file)
        lines = text.splitlines() if text else []
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def clock_of(self, rank: RankCase) -> float:
        """By how much its host's clock is ahead."""
        host = self.hosts.get(rank.host)
        return host.clock if host is not None else 0.0


def numbers(ranks: Iterable[RankCase]) -> tuple[int, ...]:
    return tuple(one.rank for one in ranks)


def names(ranks: Sequence[RankCase] | Sequence[int]) -> str:
    """`rank 3`, `ranks 0-2`."""
    return name_ranks([one if isinstance(one, int) else one.rank for one in ranks])


def spans(ranks: Iterable[int]) -> str:
    return format_ranks(ranks)
