"""Each program is told its cause: the commonest form of every kind, and in the full size all of them.

The full size is `make test-nightly`; a case that this machine does not allow is skipped.
"""

from __future__ import annotations

import os
from typing import Any

import anyio
import pytest

from milkweed.runtime.client import Meshes
from tests.diagnosis.cases import CASES, Case
from tests.diagnosis.judging import FINE, Judged, Told, ask, judge
from tests.diagnosis.running import RunningCase, check_case, run_case

pytestmark = pytest.mark.anyio

_SOME_FINE = ("healthy/adversarial", "healthy/vision", "healthy/pretrain", "slow/reporting")
_FULL_SIZE = os.environ.get("MILKWEED_TEST_SCALE") == "nightly"
_CHOSEN = [case for case in CASES if _FULL_SIZE or case.name.endswith("/plain") or case.name in _SOME_FINE]
_COMES_TO_REST_S = 40.0


async def _told(running: RunningCase, meshes: Meshes) -> Told:
    """What is told once the fault is there: at the `ready` line it may be about to come.

    Only an answer that names no cause is asked for again: a wrong one is wrong at any time.
    """
    told = await ask(running, meshes)
    if running.case.while_running and running.case.kind not in FINE:
        with anyio.move_on_after(_COMES_TO_REST_S):
            while not told.fields.get("cause"):
                told = await ask(running, meshes)
    return told


@pytest.mark.parametrize("case", _CHOSEN, ids=lambda case: case.name)
async def test_a_program_is_told_its_cause_its_ranks_and_its_place(case: Case, meshes: Meshes) -> None:
    if why := check_case(case):
        pytest.skip(why)
    async with run_case(case, meshes) as running:
        told = await _told(running, meshes)
    assert judge(case, told) == Judged("right"), told.text


def test_every_kind_has_a_plain_program_and_two_others() -> None:
    names: dict[str, list[str]] = {}
    for case in CASES:
        assert case.name.partition("/")[0] == case.kind
        names.setdefault(case.kind, []).append(case.name)
    assert len(names) == 28
    for kind, found in names.items():
        assert len(set(found)) == len(found) >= 3
        assert f"{kind}/plain" in found or kind == "healthy"


def _answer(**fields: Any) -> Told:
    return Told({"run": "run-1", "state": "failed", **fields}, 0.1)


def _case(kind: str = "left_early", ranks: str = "3", *words: str) -> Case:
    return Case(f"{kind}/plain", kind, f"{kind}/plain.py", expected_ranks=ranks, words=words)


def test_an_answer_is_judged_by_its_cause_and_then_by_what_else_it_tells() -> None:
    right = _answer(cause="left_early", ranks="3", finding="rank 3 left all_reduce")
    assert judge(_case("left_early", "3", "barrier", "all_reduce"), right) == Judged("right")
    assert judge(_case("left_early", "2", "barrier"), right) == Judged(
        "right", ("ranks '3' and not '2'", "tells none of ('barrier',)")
    )
    near = _answer(cause="exception", other={"cause": "left_early"})
    assert judge(_case(ranks=""), near) == Judged("near")
    assert judge(_case("straggler", ""), near) == Judged("wrong")
    assert judge(_case(ranks=""), _answer(finding="nothing")) == Judged("wrong")
    assert judge(_case(ranks=""), _answer(cause="left_early", finding="é" * 800)).amiss


def test_of_a_run_that_is_well_any_cause_is_wrong() -> None:
    assert judge(_case("healthy", ""), _answer(finding="it succeeded")) == Judged("right")
    assert judge(_case("slow", ""), _answer(cause="straggler", other={"cause": "slow"})) == Judged("wrong")
