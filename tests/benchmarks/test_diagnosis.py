"""The table of `make bench-diagnosis`: what counts as met."""

from __future__ import annotations

from typing import Any

from benchmarks.diagnosis.cases import Asked, lines_of
from benchmarks.harness import Line
from tests.diagnosis.cases import Case
from tests.diagnosis.judging import Judged, Told


def asked(kind: str, *verdicts: Any, size: int = 100, seconds: float = 1.0) -> dict[str, list[Asked]]:
    case = Case(f"{kind}/plain", kind, "plain.py", while_running=True)
    return {kind: [(case, Judged(one), Told({"finding": "x" * size}, seconds)) for one in verdicts]}


def lines(*found: dict[str, list[Asked]]) -> dict[str, Line]:
    return {line.name: line for line in lines_of({kind: one for each in found for kind, one in each.items()})}


def test_each_of_the_first_six_kinds_must_be_right_always() -> None:
    assert lines(asked("nan_loss", "right", "right"))["nan_loss: not right"].verdict == "met"
    one = lines(asked("nan_loss", "right", "near", "wrong"))["nan_loss: not right"]
    assert (one.measured, one.unit, one.verdict, one.note) == (
        2,
        "of 3",
        "missed",
        "1 right, 1 near, 1 wrong",
    )


def test_of_the_others_nine_in_ten() -> None:
    found = lines(asked("segfault", *["right"] * 9), asked("stopped", "near"))
    assert found["the other kinds: not right"].measured == 10
    assert found["the other kinds: not right"].verdict == "met"
    assert found["stopped: not right"].verdict == ""
    assert lines(asked("stopped", "near"))["the other kinds: not right"].verdict == "missed"


def test_a_cause_of_a_run_that_is_well_is_one_too_many() -> None:
    found = lines(asked("healthy", "right", "right"), asked("slow", "right", "wrong"))
    assert found["healthy: a cause is told"].verdict == "met"
    assert found["slow: a cause is told"].verdict == "missed"
    assert "the other kinds: not right" not in found


def test_the_longest_answer_counts() -> None:
    assert lines(asked("healthy", "right", size=1400))["the longest answer"].verdict == "met"
    assert lines(asked("healthy", "right", size=1600))["the longest answer"].verdict == "missed"
    assert lines() == {}


def test_a_case_that_could_not_be_run_is_wrong_and_has_no_size() -> None:
    case = Case("nan_loss/plain", "nan_loss", "plain.py")
    found = lines({"nan_loss": [(case, Judged("wrong", ("could not be run",)), None)]})
    assert found["nan_loss: not right"].verdict == "missed"
    assert "the longest answer" not in found
