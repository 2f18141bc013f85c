from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.job_records import JobRequest, JobView, ReplicaView
from milkweed.runtime.keeper.job_lifecycle import began, end_all, fold, is_over, lose_host
from milkweed.runtime.records import Exit, HostEvent, ReplicaNote


def job_of(replicas: int = 3) -> JobView:
    """Replica n is on host n."""
    views = tuple(ReplicaView(number, number, 0, f"run-{number}") for number in range(replicas))
    return began(JobView("job-a", "mesh-a", "starting", "x", JobRequest(("x",), replicas), views, 1.0))


def event(kind: str, replica: int, attempt: int = 1, seq: int = 1, **more: object) -> HostEvent:
    note = ReplicaNote("job-a", replica, attempt, attempt - 1, ("bang",) if kind == "replica_failed" else ())
    run = f"run-{replica}.{attempt}"
    return HostEvent(seq, float(seq), kind, run, note=note, **more)  # type: ignore[arg-type]


def after(view: JobView, *events: HostEvent) -> JobView:
    for one in events:
        assert one.note is not None
        view = fold(view, one.note.replica, one)
    return view


def test_a_replica_fails_and_comes_back_with_its_next_attempt() -> None:
    failed = event("replica_failed", 1, seq=2, rank=4, exit=Exit(signal=9))
    view = after(job_of(), event("replica_started", 1), failed)
    hurt = view.replicas[1]
    assert (hurt.state, hurt.attempt, view.state) == ("restarting", 1, "running")
    assert hurt.failure is not None
    assert (hurt.failure.ranks, hurt.failure.tail) == ((4,), ("bang",))
    back = after(view, event("replica_started", 1, attempt=2, seq=3)).replicas[1]
    assert (back.state, back.attempt, back.restarts, back.run) == ("running", 2, 1, "run-1.2")
    assert (back.failure, back.failed_attempt) == (hurt.failure, 1)


def test_a_replica_that_was_given_up_degrades_the_job_and_its_return_mends_it() -> None:
    view = after(job_of(), event("replica_gave_up", 2, seq=5, detail="more than 3 restarts in 60 s"))
    assert (view.state, view.reason) == ("degraded", "replica 2 was given up: more than 3 restarts in 60 s")
    assert after(view, event("replica_started", 2, attempt=5, seq=6)).state == "running"


def test_a_job_has_succeeded_when_all_replicas_have_and_failed_when_one_was_given_up() -> None:
    well = [event("replica_succeeded", number, seq=number + 2) for number in range(3)]
    view = after(job_of(), *well)
    assert (view.state, view.ended_at, view.reason) == ("succeeded", 4.0, "")
    view = after(job_of(), *well[:2], event("replica_gave_up", 2, seq=9, detail="so it is"))
    assert (view.state, view.ended_at, view.reason) == ("failed", 9.0, "replica 2 was given up: so it is")


def test_what_was_on_a_lost_host_is_lost_and_stays_so() -> None:
    view = lose_host(job_of(), 1, "its agent was killed", 7.0)
    assert (view.state, view.replicas[1].state) == ("degraded", "lost")
    assert view.replicas[1].failure is not None
    assert view.replicas[1].failure.summary() == "host 1: its agent was killed"
    assert after(view, event("replica_started", 1, attempt=2, seq=9)) == view


def test_a_stop_is_a_stop_though_some_had_succeeded() -> None:
    view = after(job_of(), event("replica_succeeded", 0))
    view = end_all(view, "lease_ended", 8.0)
    assert (view.state, view.reason, view.ended_at) == ("stopped", "the lease ended", 8.0)
    assert [one.state for one in view.replicas] == ["succeeded", "stopped", "stopped"]


def test_the_first_reason_of_a_stop_is_told() -> None:
    view = end_all(end_all(job_of(), "cancelled", 5.0), "released", 8.0)
    assert (view.reason, view.ended_at) == ("stopped", 5.0)


def test_a_job_that_has_not_begun_everywhere_is_starting_whatever_its_replicas_do() -> None:
    view = job_of()
    starting = JobView("job-a", "mesh-a", "starting", "x", view.request, view.replicas, 1.0)
    assert after(starting, event("replica_started", 0)).state == "starting"


def test_events_of_other_jobs_hosts_and_replicas_change_nothing() -> None:
    view = job_of()
    other = HostEvent(1, 1.0, "replica_gave_up", "r", note=ReplicaNote("job-b", 0, 1))
    assert fold(view, 0, other) == view
    assert fold(view, 2, event("replica_gave_up", 0)) == view
    assert fold(view, 9, event("replica_gave_up", 9)) == view
    assert fold(view, 0, HostEvent(1, 1.0, "rank_started", "run-0.1", 0, 77)) == view


KINDS = ["replica_started", "replica_failed", "replica_gave_up", "replica_succeeded", "replica_stopped"]
histories = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(1, 4)), max_size=25)


@given(histories, st.integers(0, 25))
def test_a_history_that_is_told_again_from_its_beginning_changes_nothing(
    history: list[tuple[str, int, int]], told: int
) -> None:
    """As a keeper does that starts again: it has a view from somewhere, and reads the spools from their
    start.
    """
    events = [event(kind, replica, attempt, seq) for seq, (kind, replica, attempt) in enumerate(history, 1)]
    whole = after(job_of(), *events)
    assert after(after(job_of(), *events[:told]), *events) == whole
    assert is_over(whole) == (whole.ended_at is not None)
