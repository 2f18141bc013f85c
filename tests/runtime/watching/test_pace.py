"""When a run has become slow, and that pauses, starts and uneven steps are no slowness."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.watching import WatchPolicy
from milkweed.runtime.watching.pace import Pace, follow

POLICY = WatchPolicy()


def watched(step_at: Callable[[float], int | None], until: float) -> list[tuple[float, Pace]]:
    """What is thought at each look."""
    pace, found, at = Pace(), [], 1000.0
    while at <= 1000.0 + until:
        pace = follow(POLICY, pace, at, step_at(at - 1000.0))
        found.append((at - 1000.0, pace))
        at += POLICY.pace_s
    return found


def slow_times(step_at: Callable[[float], int | None], until: float) -> list[float]:
    return [at for at, pace in watched(step_at, until) if pace.slow is not None]


def steady(rate: float) -> Callable[[float], int]:
    return lambda at: int(at * rate)


@pytest.mark.parametrize("rate", [20.0, 1.0, 0.08])
def test_a_run_at_its_pace_is_not_slow(rate: float) -> None:
    assert slow_times(steady(rate), 3600) == []


@pytest.mark.parametrize("rate", [20.0, 1.0, 0.2])
def test_a_run_that_becomes_slow_is_told_with_both_paces_and_since_when(rate: float) -> None:
    def step_at(at: float) -> int:
        return int(rate * (min(at, 600) + max(0.0, at - 600) / 5))

    found = watched(step_at, 1500)
    told = next((at, pace.slow) for at, pace in found if pace.slow is not None)
    at, slow = told
    assert slow is not None
    assert 600 < at <= 600 + 5 * 60 + 10
    assert 590 <= slow.since - 1000 <= 610 + 60
    assert slow.usual_s == pytest.approx(1 / rate, rel=0.2)
    assert slow.step_s == pytest.approx(5 / rate, rel=0.4)
    assert all(pace.slow == slow for later, pace in found if later > at)


def test_a_run_that_is_at_its_pace_again_is_no_longer_slow() -> None:
    def step_at(at: float) -> int:
        slow = max(0.0, min(at, 900) - 600)
        return int(2 * (at - slow + slow / 6))

    times = slow_times(step_at, 2000)
    assert 600 < times[0] <= 700
    assert 900 <= times[-1] <= 960


@pytest.mark.parametrize("pause", [30, 45, 90, 400])
def test_a_pause_for_an_evaluation_is_no_slowness(pause: int) -> None:
    def step_at(at: float) -> int:
        whole, rest = divmod(at, 200 + pause)
        return int(4 * (200 * whole + min(rest, 200)))

    assert slow_times(step_at, 4000) == []


def test_a_start_that_takes_long_says_nothing_of_the_usual_pace() -> None:
    assert slow_times(lambda at: None if at < 300 else int((at - 300) * 2), 1500) == []


def test_steps_that_begin_anew_with_each_epoch_go_on() -> None:
    assert slow_times(lambda at: int(at * 3) % 100, 1500) == []


def test_a_program_that_tells_of_few_of_its_steps_is_not_slow() -> None:
    assert slow_times(lambda at: int(at * 2) // 100 * 100, 3600) == []


def test_a_run_that_takes_no_steps_at_all_is_none_that_is_slow() -> None:
    assert slow_times(lambda at: int(min(at, 600) * 2), 3600) == []


@given(st.lists(st.tuples(st.floats(0, 100), st.none() | st.integers(0, 10**15)), max_size=60))
def test_no_series_of_looks_breaks_it(looks: list[tuple[float, int | None]]) -> None:
    pace, at = Pace(), 0.0
    for ahead, step in looks:
        at += ahead
        pace = follow(POLICY, pace, at, step)
        assert len(pace.times) == len(pace.done)
        assert pace.slow is None or pace.slow.step_s > pace.slow.usual_s > 0
