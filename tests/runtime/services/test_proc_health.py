"""Verdicts on a proc from what it answers, and from its threads where it does not."""

from __future__ import annotations

import pytest

from milkweed.runtime.records import Frame, ThreadStack
from milkweed.runtime.services.proc_health import judge_answer, judge_threads

BUSY = {"busy_s": 2.5, "endpoint": "Trainer.step"}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"ok": True, "main": None, "loop_lag_s": 0.0}, ("ok", 0.0, "")),
        ({"ok": True}, ("ok", 0.0, "")),
        ({"ok": True, "main": BUSY, "loop_lag_s": 0.1}, ("busy", 2.5, "Trainer.step")),
        ({"ok": True, "main": BUSY, "loop_lag_s": 3.0}, ("blocked", 3.0, "")),
    ],
)
def test_an_answer_is_judged(answer: dict[str, object], verdict: tuple[str, float, str]) -> None:
    assert judge_answer(answer) == verdict


def thread(name: str, *, owns_gil: bool = False) -> ThreadStack:
    return ThreadStack(name, (Frame(f"in_{name}", "/x/y.py", 3),), owns_gil=owns_gil)


def test_the_thread_that_holds_the_gil_is_named() -> None:
    threads = (thread("MainThread"), thread("worker", owns_gil=True))
    assert judge_threads(threads) == ("holds_gil", "in_worker (y.py:3)")


def test_without_one_the_main_thread_is_where_it_stands() -> None:
    assert judge_threads((thread("MainThread"), thread("worker"))) == ("silent", "in_MainThread (y.py:3)")
    assert judge_threads(()) == ("silent", "")
