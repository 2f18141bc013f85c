"""What counts as the same answer, and what does not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from milkweed.server.transcripts.answers import Answer
from milkweed.server.transcripts.compare import compare, field_of, unmet
from milkweed.server.transcripts.format import ExpectStep, ToolStep

FAILED: dict[str, Any] = {
    "run": "${run1}",
    "state": "failed",
    "ranks": {"failed": "0-3"},
    "first_failure": {"rank": 2, "exception": "ModuleNotFoundError: No module named 'tqdm'", "line": 3},
    "output_tail": "took 3.1 s",
    "duration_s": 3.1,
}


def step(**result: Any) -> ToolStep:
    return ToolStep(name="run_on_mesh", result={**FAILED, **result})


def now(**result: Any) -> Answer:
    return Answer(result={**FAILED, **result})


def test_times_ids_and_wording_do_not_matter() -> None:
    live = now(run="run-8zz", duration_s=9.9, output_tail="took 2.7 s", lease_left_s=3, first_failure={
        **FAILED["first_failure"], "rank": 0,
    })
    assert compare(step(), live) == ()


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"state": "succeeded"}, "state"),
        ({"ranks": {"failed": "0-1", "ended": "2-3"}}, "ranks"),
        ({"first_failure": {**FAILED["first_failure"], "exception": "KeyError: 1"}}, "first_failure.exception"),
        ({"first_failure": {**FAILED["first_failure"], "line": 4}}, "first_failure.line"),
        ({"health": "hung"}, "health"),
    ],
)
def test_states_ranks_causes_and_places_do(changed: dict[str, Any], where: str) -> None:
    (difference,) = compare(step(), now(**changed))
    assert difference.where == where
    assert str(difference).startswith(f"{where}: recorded ")


def test_a_run_that_went_on_well_may_have_ended_well_since() -> None:
    running = {"run": "${run1}", "state": "running", "ranks": {"running": "0-3"}, "matched": True}
    recorded = ToolStep(name="wait_for_run", result=running)
    ended = {**running, "state": "succeeded", "ranks": {"succeeded": "0-3"}}
    assert compare(recorded, Answer(result=ended)) == ()
    assert {one.where for one in compare(recorded, Answer(result={**ended, "state": "failed"}))} == {"state", "ranks"}
    assert [one.where for one in compare(recorded, Answer(result={**ended, "matched": False}))] == ["matched"]
    hung = ToolStep(name="wait_for_run", result={**running, "health": "hung"})
    assert {one.where for one in compare(hung, Answer(result=ended))} == {"health", "state", "ranks"}


def test_numbers_in_an_exceptions_words_may_differ() -> None:
    def failure(words: str) -> dict[str, Any]:
        return {"first_failure": {**FAILED["first_failure"], "exception": words}}

    recorded = step(**failure("RuntimeError: Timed out after 10023 ms at 0x7f3a"))
    assert compare(recorded, now(**failure("RuntimeError: Timed out after 9981 ms at 0x55aa"))) == ()
    assert len(compare(recorded, now(**failure("RuntimeError: Connection closed")))) == 1


def test_errors_are_compared_by_their_codes() -> None:
    refused = ToolStep(name="run_on_mesh", text="mesh_not_found: no mesh 'x'. Call list_meshes.", is_error=True)
    assert compare(refused, Answer("mesh_not_found: no mesh 'y'; meshes: none", is_error=True)) == ()
    (difference,) = compare(refused, Answer("invalid_argument: command is empty", is_error=True))
    assert (difference.recorded, difference.live) == ("mesh_not_found", "invalid_argument")
    (difference,) = compare(refused, Answer(result={"state": "ready"}))
    assert difference.where == "outcome"


def test_text_is_compared_by_the_facts_in_it() -> None:
    dump = "ranks 1-3 (3): all_reduce at train.py:41\nrank 0: recv at train.py:38, 12 s"
    recorded = ToolStep(name="stack_dump", text=dump)
    assert compare(recorded, Answer("rank 0: recv at /w/train.py:38, 9 s\nranks 1-3: at train.py:41")) == ()
    (difference,) = compare(recorded, Answer(dump.replace("1-3", "2-3")))
    assert (difference.where, difference.recorded, difference.live) == ("ranks", ["0", "1-3"], ["0", "2-3"])
    assert compare(ToolStep(name="read_remote_file", text="a"), Answer("b")) == ()


def test_fields_are_found_by_their_paths() -> None:
    result = {"runs": [{"state": "failed"}], "first_failure": {"rank": 2}}
    assert field_of(result, "runs[0].state") == "failed"
    assert field_of(result, "first_failure.rank") == 2
    assert field_of(result, "runs[3].state") is None
    assert field_of(None, "x") is None


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({"field": "state", "equals": "failed"}, True),
        ({"field": "state", "equals": "succeeded"}, False),
        ({"field": "first_failure.exception", "contains": "tqdm"}, True),
        ({"field": "output_tail", "matches": r"took \d"}, True),
        ({"contains": "loss"}, True),
        ({"contains": "accuracy"}, False),
        ({"number": r"loss ([\d.]+)", "at_most": 2.5}, True),
        ({"number": r"loss ([\d.]+)", "at_most": 2.0}, False),
        ({"number": r"accuracy ([\d.]+)", "at_most": 2.0}, False),
        ({"field": "duration_s", "at_least": 3.0}, True),
        ({"field": "state", "at_least": 3.0}, False),
        ({"field": "nothing", "equals": 1}, False),
    ],
)
def test_an_expectation_is_met_or_told_in_words(condition: dict[str, Any], holds: bool) -> None:
    words = unmet(ExpectStep(**condition), Answer("step 9 loss 2.25", FAILED))
    assert (words == "") is holds


def test_a_number_that_is_none_meets_no_bound() -> None:
    assert unmet(ExpectStep(field="loss", at_most=2.0), Answer(result={"loss": math.nan}))
