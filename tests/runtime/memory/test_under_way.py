from __future__ import annotations

import pytest

from milkweed.runtime.memory.under_way import threads_for

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("mib", "idle", "active", "threads"),
    [
        (64, 0, 1, 1),
        (64, 1, 1, 2),
        (64, 100, 1, 8),
        (16, 100, 1, 2),
        (64, 3, 2, 2),
        (64, 3, 16, 1),
        (1, 9, 1, 1),
    ],
)
def test_a_transfer_takes_the_idle_processors_and_shares_them(
    mib: int, idle: int, active: int, threads: int
) -> None:
    assert threads_for(mib * MIB, idle, active) == threads
