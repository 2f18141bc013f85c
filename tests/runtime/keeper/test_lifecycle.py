from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.keeper.lifecycle import PEER_GRACE_S, fold, is_over, lose_host, peers_to_end
from milkweed.runtime.records import Exit, HostEvent, Launcher, RankView, RunView, Slowness


def run_of(ranks: int = 4, launcher: Launcher = "spmd", *, keep_going: bool = False) -> RunView:
    views = tuple(RankView(rank, rank // 2) for rank in range(ranks))
    return RunView("run-a", "mesh-a", "running", launcher, "x", views, created_at=1.0, keep_going=keep_going)


def exited(rank: int, ending: Exit, at: float = 5.0) -> HostEvent:
    return HostEvent(1, at, "rank_exited", "run-a", rank, exit=ending)


def after(view: RunView, *events: HostEvent) -> RunView:
    for event in events:
        view = fold(view, event)
    return view


def test_a_run_succeeds_when_every_rank_has() -> None:
    view = after(run_of(), *(exited(rank, Exit(code=0), at=rank) for rank in range(4)))
    assert (view.state, view.ended_at) == ("succeeded", 3)


def test_a_rank_that_fails_makes_the_run_failed_but_not_before_all_have_ended() -> None:
    view = after(run_of(), exited(0, Exit(code=1)), exited(1, Exit(code=0)), exited(2, Exit(code=0)))
    assert view.state == "running"
    view = after(view, exited(3, Exit(signal=11)))
    assert (view.state, view.reason) == ("failed", "ranks 0,3 failed")


def test_peers_of_a_failed_rank_are_ended_after_a_grace() -> None:
    action = peers_to_end(after(run_of(), exited(1, Exit(code=1), at=7.0)))
    assert action is not None
    assert (action.ranks, action.at) == ((0, 2, 3), 7.0 + PEER_GRACE_S)


@pytest.mark.parametrize(
    "view", [run_of(launcher="per_host"), run_of(keep_going=True)], ids=["per_host", "keep_going"]
)
def test_ranks_that_do_not_wait_for_each_other_are_left_alone(view: RunView) -> None:
    assert peers_to_end(after(view, exited(1, Exit(code=1)))) is None


@pytest.mark.parametrize(
    ("ending", "state", "reason"),
    [
        (Exit(signal=15, ended_by="cancelled"), "cancelled", "cancelled"),
        (Exit(signal=15, ended_by="released"), "cancelled", "the mesh was released"),
        (Exit(signal=15, ended_by="timeout"), "failed", "timed out"),
        (Exit(signal=15, ended_by="lease_ended"), "cancelled", "the lease ended"),
        (Exit(error="no such file"), "failed", "ranks 0-3 failed"),
    ],
)
def test_the_outcome_says_who_ended_it(ending: Exit, state: str, reason: str) -> None:
    view = after(run_of(), *(exited(rank, ending) for rank in range(4)))
    assert (view.state, view.reason) == (state, reason)


def test_a_cancel_stays_a_cancel_when_a_peer_crashes_on_the_way() -> None:
    ends = [exited(rank, Exit(signal=15, ended_by="cancelled")) for rank in range(3)]
    assert after(run_of(), *ends, exited(3, Exit(code=1))).state == "cancelled"


def test_what_ran_on_a_lost_host_is_lost() -> None:
    view = lose_host(after(run_of(), exited(0, Exit(code=0)), exited(1, Exit(code=0))), host=1, at=9.0)
    assert (view.state, view.reason) == ("lost", "host 1 was lost")
    assert [rank.state for rank in view.ranks] == ["succeeded", "succeeded", "lost", "lost"]


def test_the_end_of_a_launcher_settles_the_ranks_it_never_told_of() -> None:
    view = after(run_of(launcher="torchrun"), exited(0, Exit(code=3)))
    view = after(view, exited(-1, Exit(code=1)), exited(-2, Exit(signal=15, ended_by="peer_failed")))
    assert [rank.state for rank in view.ranks] == ["failed", "failed", "ended", "ended"]
    assert view.ranks[0].exit == Exit(code=3)


events = st.builds(
    HostEvent,
    seq=st.integers(1, 9),
    at=st.floats(1, 9),
    kind=st.sampled_from(
        ["rank_started", "rank_exited", "rank_failed_to_start", "run_ended", "output_capped"]
    ),
    run=st.sampled_from(["run-a", "run-b"]),
    rank=st.one_of(st.none(), st.integers(-2, 5)),
    pid=st.integers(2, 9),
    exit=st.one_of(st.none(), st.builds(Exit, code=st.integers(0, 2))),
)


@given(st.lists(events, max_size=30))
def test_a_finished_rank_never_changes_and_folding_twice_is_folding_once(history: list[HostEvent]) -> None:
    view = run_of()
    for event in history:
        following = fold(view, event)
        for old, new in zip(view.ranks, following.ranks, strict=True):
            assert old.state not in ("succeeded", "failed", "ended", "lost") or old == new
        assert not is_over(view) or following.state == view.state
        assert fold(following, event) == following
        view = following


def test_a_rank_keeps_how_it_was_started() -> None:
    started = HostEvent(1, 5.0, "rank_started", "run-a", 0, 77, detail="cold: not ready")
    view = after(run_of(), started, exited(0, Exit(code=0)))
    assert (view.ranks[0].start, view.ranks[0].pid, view.ranks[1].start) == ("cold: not ready", 77, "")


def still(at: float) -> HostEvent:
    return HostEvent(1, at + 30, "run_still", "run-a", detail=f"{at:.3f}")


MOVES = HostEvent(1, 90.0, "run_moves", "run-a")


def running(launcher: Launcher = "spmd") -> RunView:
    started = (HostEvent(1, 2.0, "rank_started", "run-a", rank, pid=7) for rank in range(4))
    return after(run_of(launcher=launcher), *started)


def test_a_run_stands_still_when_all_of_its_hosts_do_since_the_last_one_does() -> None:
    view = fold(running(), still(10.0), 0)
    assert view.still_since is None
    view = fold(view, still(20.0), 1)
    assert view.still_since == 20.0
    assert fold(view, still(20.0), 1) == view
    assert fold(view, MOVES, 0).still_since is None


def test_what_lives_counts_alone() -> None:
    view = after(running(), exited(2, Exit(code=0)), exited(3, Exit(code=0)))
    assert fold(view, still(10.0), 0).still_since == 10.0


def test_a_rank_that_ends_by_itself_was_not_standing_still() -> None:
    view = fold(fold(running(), still(10.0), 0), still(20.0), 1)
    view = fold(view, exited(3, Exit(code=1)), 1)
    assert view.ranks[3].still_since is None
    assert view.still_since == 20.0


SLOW = Slowness(10.0, 0.5, 2.0)
SLOWER = Slowness(12.0, 0.5, 5.0)


def test_a_run_is_as_slow_as_its_slowest_host_until_none_is() -> None:
    view = fold(running(), HostEvent(5, 40.0, "run_slow", "run-a", slow=SLOW), 0)
    assert view.slow == SLOW
    view = fold(view, HostEvent(5, 41.0, "run_slow", "run-a", slow=SLOWER), 1)
    assert view.slow == SLOWER
    view = fold(view, HostEvent(6, 42.0, "run_at_pace", "run-a"), 1)
    assert view.slow == SLOW
    assert fold(view, HostEvent(6, 43.0, "run_at_pace", "run-a"), 0).slow is None


def test_a_run_that_is_ended_while_it_stands_still_is_remembered_so() -> None:
    view = fold(fold(running(), still(10.0), 0), still(20.0), 1)
    for rank in range(4):
        view = fold(view, exited(rank, Exit(signal=15, ended_by="timeout")), rank // 2)
    assert (view.state, view.still_since) == ("failed", 20.0)


def test_a_launcher_that_waits_for_its_ranks_stands_still() -> None:
    view = fold(run_of(launcher="torchrun"), still(10.0), 0)
    assert view.still_since == 10.0
    assert fold(view, HostEvent(1, 2.0, "rank_started", "run-a", 0, pid=7), 0).still_since is None


def test_a_rank_that_has_not_started_is_not_waited_for() -> None:
    started = (HostEvent(1, 2.0, "rank_started", "run-a", rank, pid=7) for rank in (0, 1))
    assert fold(after(run_of(), *started), still(10.0), 0).still_since == 10.0


def test_the_loss_of_a_host_leaves_the_others_word() -> None:
    view = fold(running(), still(10.0), 0)
    assert lose_host(view, 1, 30.0).still_since == 10.0
