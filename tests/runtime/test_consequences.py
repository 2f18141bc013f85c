"""Which rank's failure the others follow from."""

from __future__ import annotations

from milkweed.runtime.consequences import find_cause

HEADER = "Traceback (most recent call last):"
LOST = (HEADER, '  File "a.py", line 1', "ConnectionResetError: [Errno 104] Connection reset by peer")
RAISED = (HEADER, '  File "a.py", line 3', "RuntimeError: lost a device", "")


def test_the_first_failure_is_the_cause_unless_it_only_lost_its_connection() -> None:
    assert find_cause([RAISED, LOST]) == 0
    assert find_cause([LOST, LOST, RAISED]) == 2
    assert find_cause([("step 3",), RAISED]) == 0
    assert find_cause([LOST]) == 0
    assert find_cause([]) == 0


def test_one_that_was_only_ended_is_no_cause() -> None:
    assert find_cause([LOST, ("step 7", "loss 0.5"), ()]) == 0
