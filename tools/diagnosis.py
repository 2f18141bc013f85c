"""A diagnosis as an answer: the cause first, and no more than helps."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from ..runtime.mesh import format_ranks
from ..runtime.records import RunState
from .results import Result
from .verdicts.causes import Diagnosis, Finding, RunCase
from .words import clip

__all__ = ["DiagnosisResult", "Possible", "describe"]

_EVIDENCE = 4
_EVIDENCE_OF_OTHER = 1


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
        return DiagnosisResult(run=case.run, state=case.state, finding=_nothing(case, diagnosis), notes=notes)
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
        return "It succeeded, and nothing is found to be wrong."
    if diagnosis.progress:
        return f"It makes progress: within {case.moment_s:.1f} s its ranks went on. It is not hung."
    if case.alive:
        return "No progress was seen in the moment that it was looked at, and nothing that explains it."
    return (
        f"It is {case.state}{': ' + case.reason if case.reason else ''}; nothing that explains it was found."
    )


def _notes(case: RunCase) -> list[str]:
    notes = [
        f"host {host.host} told nothing: {clip(host.error, 80)}" for host in case.hosts.values() if host.error
    ]
    late = {name for host in case.hosts.values() for name in host.late}
    notes += [f"not in time: {', '.join(sorted(late))}"] if late else []
    return notes[:3] + ([f"{len(notes) - 3} more hosts"] if len(notes) > 3 else [])
