"""What `diagnose_run` tells of a case, beside what it should.

async with run_case(find("nan_loss/plain"), meshes) as running:
    judged = judge(running.case, await ask(running, meshes))
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from milkweed.runtime.client import Meshes
from milkweed.tools.registry import Call, Registry
from milkweed.tools.results import Result
from tests.diagnosis.cases import Case
from tests.diagnosis.running import RunningCase

__all__ = ["FINE", "FIRST_SIX", "MOST_BYTES", "Judged", "Told", "Verdict", "ask", "judge"]

Verdict = Literal["right", "near", "wrong"]
FIRST_SIX = (
    "missing_module",
    "nan_loss",
    "left_early",
    "collective_mismatch",
    "out_of_memory",
    "straggler",
)
# Nothing is wrong with these: they have no cause.
FINE = ("healthy", "slow")
MOST_BYTES = 1500


@dataclass(frozen=True, slots=True)
class Told:
    """An answer as a client gets it, and how long it took."""

    fields: Mapping[str, Any]
    seconds: float

    @property
    def text(self) -> str:
        return json.dumps(self.fields, indent=1)

    @property
    def size(self) -> int:
        return len(json.dumps(self.fields, ensure_ascii=False).encode())


@dataclass(frozen=True, slots=True)
class Judged:
    """`near`: the right cause is the second one that is told. `amiss` is what else is not as it should be."""

    verdict: Verdict
    amiss: tuple[str, ...] = ()


async def ask(running: RunningCase, meshes: Meshes) -> Told:
    """The tool's answer about the case's run."""

    async def report(done: float, total: float | None, message: str) -> None:
        pass

    tool = Registry.load().find("diagnose_run")
    started = time.perf_counter()
    answer = await tool(Call(meshes, report, "diagnosis"), {"run": running.run.run})
    assert isinstance(answer, Result)
    return Told(answer.content(), time.perf_counter() - started)


def judge(case: Case, told: Told) -> Judged:
    """How well an answer fits its case. Pure."""
    cause = told.fields.get("cause", "")
    other = (told.fields.get("other") or {}).get("cause", "")
    if cause == ("" if case.kind in FINE else case.kind):
        verdict: Verdict = "right"
    else:
        verdict = "near" if case.kind not in FINE and other == case.kind else "wrong"
    amiss = []
    ranks = told.fields.get("ranks", "")
    if case.expected_ranks and ranks != case.expected_ranks:
        amiss.append(f"ranks {ranks!r} and not {case.expected_ranks!r}")
    if case.words and not any(word in told.text for word in case.words):
        amiss.append(f"tells none of {case.words}")
    if told.size > MOST_BYTES:
        amiss.append(f"has {told.size} bytes")
    return Judged(verdict, tuple(amiss))
