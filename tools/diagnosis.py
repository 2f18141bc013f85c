"""A diagnosis as an answer: the cause first, and no more than helps."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from ..runtime.mesh import format_ranks
from ..runtime.records import RunState
from .results import Result
from .verdicts.causes import Diagnosis, Finding, RankCase, RunCase
from .verdicts.causes.case import names
from .verdicts.causes.said import said
from .verdicts.failures import exit_in_words
from .words import clip

__all__ = ["DiagnosisResult", "Possible", "describe"]

_EVIDENCE = 4
_EVIDENCE_OF_OTHER = 1
_BUSY = 0.2


class Possible(BaseModel):
    """What it may be instead."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    cause: str
    finding: str
    evidence: list[str] = []


class DiagnosisResult(Result):
    run: str
    state: RunState
    cause: str = Field(default="", description="in a word; empty where nothing is found to be wrong")
    finding: str = Field(default="", description="the cause in a sentence, with its ranks")
    ranks: str = Field(default="", description="that it is about")
    evidence: list[str] = Field(default=[], description="the strongest first")
    next: str = ""
    other: Possible | None = Field(default=None, description="about as likely")
    notes: list[str] = Field(default=[], description="what could not be looked at")

    def summary(self) -> str:
        head = f"{self.run} is {self.state}: {self.cause + ': ' if self.cause else ''}{self.finding}"
        lines = [head, *(f"- {line}" for line in self.evidence)]
        if self.other is not None:
            lines.append(f"or {self.other.cause}: {self.other.finding}")
        return "\n".join(filter(None, [*lines, *self.notes, self.next]))


def describe(case: RunCase, diagnosis: Diagnosis) -> DiagnosisResult:
    """At most about 1.5 KB of JSON, whatever the evidence."""
    cause, other = diagnosis.cause, diagnosis.other
    notes = _notes(case)
    if cause is None:
        return DiagnosisResult(
            run=case.run,
            state=case.state,
            finding=clip(_nothing(case, diagnosis), 300),
            evidence=[clip(line, 280) for line in _last_words(case)],
            notes=notes,
        )
    return DiagnosisResult(
        run=case.run,
        state=case.state,
        cause=cause.kind,
        finding=clip(cause.summary, 300),
        ranks=clip(format_ranks(cause.ranks), 80) if cause.ranks else "",
        evidence=[clip(line, 280 if at == 0 else 150) for at, line in enumerate(cause.evidence[:_EVIDENCE])],
        next=clip(cause.next, 220),
        other=_possible(other) if other is not None else None,
        notes=notes,
    )


def _possible(other: Finding) -> Possible:
    evidence = [clip(line, 120) for line in other.evidence[:_EVIDENCE_OF_OTHER]]
    return Possible(cause=other.kind, finding=clip(other.summary, 160), evidence=evidence)


def _nothing(case: RunCase, diagnosis: Diagnosis) -> str:
    if case.state == "succeeded":
        return "It succeeded, and nothing is found to be wrong; whether it has learnt is not judged."
    if diagnosis.progress:
        return f"It makes progress: within {case.moment_s:.1f} s its ranks went on. It is not hung."
    if case.alive:
        busy = [one for one in case.alive if one.process is not None and (one.process.cpu or 0.0) >= _BUSY]
        if busy:
            return _computing(case, busy)
        return "No progress was seen in the moment that it was looked at, and nothing that explains it."
    if case.state == "cancelled":
        return f"It was cancelled{_why(case)}, and nothing is found to be wrong.{_ends(case)}"
    return f"It is {case.state}{_why(case)}; nothing that explains it was found.{_ends(case)}"


def _computing(case: RunCase, busy: Sequence[RankCase]) -> str:
    place = case.place_of(busy[0])
    where = f"rank {busy[0].rank} at {place}; " if place else ""
    verb = "compute" if len(busy) > 1 else "computes"
    who = names(busy).capitalize()
    idle = [one for one in case.waiting if one not in busy]
    wait = f"{names(idle)} wait{'' if len(idle) > 1 else 's'} in {idle[0].collective}; " if idle else ""
    return f"{who} {verb}: {where}{wait}whether that gets on cannot be seen, as nothing is printed."


def _why(case: RunCase) -> str:
    return f": {case.reason}" if case.reason and case.reason != case.state else ""


def _ends(case: RunCase) -> str:
    """How those ended that failed by themselves, where nobody told why."""
    ends: dict[str, list[int]] = {}
    for one in case.ranks:
        if one.failed and one.exit is not None:
            ends.setdefault(exit_in_words(one.exit), []).append(one.rank)
    told = [f"{format_ranks(ranks)}: {end}" for end, ranks in list(ends.items())[:3]]
    return f" Ends of ranks: {'; '.join(told)}." if told else ""


def _last_words(case: RunCase) -> tuple[str, ...]:
    first = case.first_failure
    return said(first) or (f"rank {first.rank} wrote nothing",) if first is not None else ()


def _notes(case: RunCase) -> list[str]:
    notes = [
        f"host {host.host} told nothing: {clip(host.error, 80)}" for host in case.hosts.values() if host.error
    ]
    late = {name for host in case.hosts.values() for name in host.late}
    notes += [f"not in time: {', '.join(sorted(late))}"] if late else []
    return notes[:3] + ([f"{len(notes) - 3} more hosts"] if len(notes) > 3 else [])
