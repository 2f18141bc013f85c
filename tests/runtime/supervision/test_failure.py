from __future__ import annotations

import json

import pytest

from milkweed.runtime.codec import from_json, to_json
from milkweed.runtime.records import Exit
from milkweed.runtime.supervision import Failure


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Failure("proc", "p3", exit=Exit(signal=9)), "proc p3: SIGKILL"),
        (Failure("proc", "p3", exit=Exit(signal=64)), "proc p3: SIGRTMAX"),
        (
            Failure("proc", "p3", exit=Exit(signal=11), stacks='  File "/w/sub/a.py", line 3 in f'),
            "proc p3: SIGSEGV at sub/a.py:3 in f",
        ),
        (Failure("proc", "p3", exit=Exit(signal=99)), "proc p3: signal 99"),
        (Failure("rank", "2 of replica 1", ranks=(2,), exit=Exit(code=1)), "rank 2 of replica 1: exit 1"),
        (Failure("proc", "p3", exit=Exit(error="no such file")), "proc p3: never started: no such file"),
        (Failure("proc", "p3", exit=Exit()), "proc p3: ended, how is not known"),
        (Failure("actor", "a", exception="ValueError", message="no\nlayer"), "actor a: ValueError: no layer"),
        (Failure("actor", "a", exception="KeyError"), "actor a: KeyError"),
        (Failure("host", "1", reason="its agent was killed"), "host 1: its agent was killed"),
        (
            Failure("proc", "p", point=(("hosts", 0), ("gpus", 3)), exit=Exit(code=2), restarts=1),
            "proc p (hosts=0, gpus=3): exit 2 (restarted 1 time)",
        ),
        (
            Failure("actor", "a", ranks=(0, 1, 2), exception="E", restarts=2),
            "actor a (ranks 0-2): E (restarted 2 times)",
        ),
    ],
)
def test_a_failure_is_told_in_one_line(failure: Failure, words: str) -> None:
    assert failure.summary() == words


def test_a_long_message_is_cut_before_what_follows_it() -> None:
    line = Failure("actor", "a", exception="ValueError", message="x" * 999, restarts=3).summary()
    assert len(line) <= 200
    assert line.endswith("xxx... (restarted 3 times)")


def test_a_failure_can_be_written_and_read() -> None:
    failure = Failure("proc", "p", "m", (1,), (("gpus", 1),), Exit(signal=9), tail=("a", "b"), restarts=2)
    assert from_json(Failure, json.loads(json.dumps(to_json(failure)))) == failure
