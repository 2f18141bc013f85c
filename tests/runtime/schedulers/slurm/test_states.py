from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.schedulers.events import (
    AllocationEvent,
    Ended,
    Lost,
    Preempted,
    Queued,
    Running,
    Starting,
)
from milkweed.runtime.schedulers.slurm.jobs import Job, Place
from milkweed.runtime.schedulers.slurm.states import (
    Look,
    Told,
    fold,
    look_again_s,
    nodes_of_hosts,
    why_in_log,
    why_waiting,
)

NODES = ("n0", "n1", "n2")
BOTH = dict(enumerate(NODES))
ALL = frozenset(BOTH)
TWO = {0: "n0", 1: "n1"}
WAITS = Job(12, states=("PENDING",), reason="Resources", partition="gpu", start_at=5000.0)
RUNS = Job(12, states=("RUNNING",), nodes=NODES, partition="gpu")
PREEMPTION = "slurmstepd-n0: error: *** JOB 12 ON n0 CANCELLED AT 2026-12-01T01:17:40 DUE TO PREEMPTION ***\n"
CANCEL = "slurmstepd-n0: error: *** JOB 12 ON n0 CANCELLED AT 2026-12-01T01:17:40 ***\n"


def tell(*looks: Look) -> list[AllocationEvent]:
    """All that is told of these looks."""
    told, found = Told(), list[AllocationEvent]()
    for look in looks:
        told, events = fold(told, look, len(NODES))
        found += events
    return found


def ended(state: str, **more: object) -> Job:
    return replace(RUNS, states=(state,), **more)  # type: ignore[arg-type]


def test_a_job_waits_starts_and_runs() -> None:
    new = replace(WAITS, reason="None")
    waits, waits_on, starts, runs = tell(
        Look(new), Look(new), Look(WAITS, Place(2, 3)), Look(RUNS), Look(RUNS, up=BOTH), Look(RUNS, up=BOTH)
    )
    assert isinstance(waits, Queued)
    assert (waits.looked_at, waits.expected_start_at) == (False, None)
    assert waits_on == Queued(
        "job 12 waits in partition gpu: no such nodes are free (Resources); number 2 of 3 that wait there",
        2,
        3,
        5000.0,
    )
    assert (starts, runs) == (Starting(), Running())


def test_a_host_whose_guard_has_ended_is_lost_by_its_own_words() -> None:
    assert tell(Look(RUNS, up=BOTH), Look(RUNS, up=BOTH, gone=frozenset({1})))[-1] == Lost((1,))


def test_a_node_that_slurm_took_off_the_job_is_lost() -> None:
    without = replace(RUNS, nodes=("n0", "n2"))
    assert tell(Look(RUNS, up=BOTH), Look(without, up=BOTH))[-1] == Lost(
        (1,), "Slurm has given its node n1 up"
    )


def test_a_host_that_never_starts_is_lost_with_the_jobs_log() -> None:
    *_, lost = tell(Look(RUNS, up=TWO), Look(RUNS, up=TWO, late=True, log="a\nno python\n"))
    assert lost == Lost((2,), "its command was not started; its log ends: a | no python")


def test_hosts_that_end_while_slurm_ends_the_job_are_lost_for_that_reason() -> None:
    ending = replace(RUNS, states=("CANCELLED", "COMPLETING"))
    *_, lost = tell(Look(RUNS, up=BOTH), Look(ending, up=BOTH, gone=ALL, log=CANCEL))
    assert lost == Lost((0, 1, 2), "Slurm ends job 12: it was cancelled from outside")


@pytest.mark.parametrize(
    ("job", "log", "end"),
    [
        (
            ended("CANCELLED"),
            CANCEL,
            Ended("cancelled", "job 12 was cancelled from outside (scancel, or an administrator)"),
        ),
        (ended("TIMEOUT"), "", Ended("time_limit", "job 12 reached its time limit")),
        (
            ended("FAILED", exit_code=7),
            "no module cuda\n",
            Ended("failed", "job 12 failed (FAILED, exit 7); its log ends: no module cuda"),
        ),
        (ended("NODE_FAIL"), "", Ended("node_failed", "job 12 lost a node that it cannot go on without")),
        (None, "", Ended("forgotten", "Slurm does not know its job any more; its log is empty")),
    ],
)  # fmt: skip
def test_how_a_job_ended_is_told(job: Job | None, log: str, end: Ended) -> None:
    assert tell(Look(WAITS), Look(job, log=log))[-1] == end


def test_a_preempted_job_that_may_not_wait_is_over() -> None:
    assert tell(Look(RUNS, up=BOTH), Look(ended("PREEMPTED")))[-2:] == [
        Preempted("job 12 was preempted"),
        Ended("preempted", "job 12 was preempted"),
    ]


@pytest.mark.parametrize(
    ("log", "event"),
    [
        (PREEMPTION, Preempted("job 12 is queued again: it was preempted")),
        ("", Lost((0, 1, 2), "job 12 is queued again: its nodes were taken")),
    ],
)
def test_a_job_that_is_queued_again_has_lost_its_hosts_and_gets_others(
    log: str, event: AllocationEvent
) -> None:
    again = replace(WAITS, reason="BeginTime", restarts=1)
    other = replace(RUNS, restarts=1, nodes=("n1", "n2", "n3"))
    events = tell(
        Look(RUNS, up=BOTH), Look(again, log=log), Look(other, log=log), Look(other, up=BOTH, log=log)
    )
    assert events[2] == event
    assert isinstance(events[3], Queued)
    assert events[4:] == [Starting(), Running()]


def test_a_restart_between_two_looks_is_told_too() -> None:
    other = replace(RUNS, restarts=1)
    _, _, lost, starts = tell(Look(RUNS, up=BOTH), Look(other))
    assert isinstance(lost, Lost)
    assert starts == Starting()


def test_a_keeper_that_comes_later_hears_of_what_is_and_of_what_was_lost() -> None:
    assert tell(Look(RUNS, up=BOTH, gone=frozenset({2}))) == [Starting(), Lost((2,))]


def test_a_keeper_that_comes_after_a_node_was_taken_off_the_job_knows_which_host_it_was() -> None:
    without = replace(RUNS, nodes=("n0", "n2"))
    assert tell(Look(without, up=BOTH)) == [Starting(), Lost((1,), "Slurm has given its node n1 up")]
    assert tell(Look(without, up={0: "n0", 1: "n2"})) == [
        Starting(),
        Lost((2,), "Slurm has given its node up"),
    ]


@given(
    st.lists(st.sampled_from(NODES), unique=True), st.dictionaries(st.integers(0, 2), st.sampled_from(NODES))
)
def test_hosts_have_the_nodes_that_they_told_of_and_no_two_are_given_one(
    nodes: list[str], up: dict[int, str]
) -> None:
    found = nodes_of_hosts(3, nodes, up)
    assert {host: found[host] for host in up} == up
    given_ = [name for host, name in enumerate(found) if host not in up and name]
    assert len(given_) == len(set(given_))
    assert set(given_) == set(given_) - set(up.values())


def test_the_last_word_of_the_log_counts() -> None:
    assert why_in_log(PREEMPTION + CANCEL) == "it was cancelled from outside"
    assert why_in_log(CANCEL + PREEMPTION) == "it was preempted"
    assert why_in_log("all is well") == ""


def test_an_unknown_reason_is_told_in_slurms_word() -> None:
    assert why_waiting(replace(WAITS, reason="MaxBlue"), Place()) == "job 12 waits in partition gpu: MaxBlue"


LOOKS = st.lists(
    st.builds(
        Look,
        st.none()
        | st.builds(
            Job,
            st.just(12),
            states=st.sampled_from(
                [
                    ("PENDING",),
                    ("PENDING", "COMPLETING"),
                    ("CONFIGURING",),
                    ("RUNNING",),
                    ("RUNNING", "COMPLETING"),
                    ("COMPLETING",),
                    ("CANCELLED", "COMPLETING"),
                    ("CANCELLED",),
                    ("FAILED",),
                    ("PREEMPTED",),
                    ("NODE_FAIL",),
                    ("TIMEOUT",),
                    ("COMPLETED",),
                    ("UNHEARD_OF",),
                    (),
                ]
            ),
            reason=st.sampled_from(["", "Resources", "BeginTime"]),
            nodes=st.sampled_from([(), NODES, NODES[:2], ("n1", "n2", "n3")]),
            restarts=st.integers(0, 2),
        ),
        up=st.dictionaries(st.integers(0, 2), st.sampled_from(NODES)),
        gone=st.frozensets(st.integers(0, 2)),
        late=st.booleans(),
        log=st.sampled_from(["", PREEMPTION, CANCEL]),
    ),
    max_size=12,
)


@given(LOOKS)
def test_whatever_slurm_says_the_story_holds(looks: list[Look]) -> None:
    """Hosts are lost once a life and only where there are any; the end is told once, and is the end."""
    events = tell(*looks)
    ends = [at for at, event in enumerate(events) if isinstance(event, Ended)]
    assert ends in ([], [len(events) - 1])
    has_hosts, lost = False, set[int]()
    for before, event in zip([None, *events], events, strict=False):
        match event:
            case Queued():
                assert not has_hosts
                assert event != before
            case Starting():
                assert not has_hosts
                has_hosts, lost = True, set()
            case Running():
                assert has_hosts
                assert not lost
            case Lost(hosts):
                assert has_hosts
                all_at_once = set(hosts) == {0, 1, 2}
                assert all_at_once or not lost & set(hosts)
                lost |= set(hosts)
            case Preempted():
                assert has_hosts
        if isinstance(event, Preempted) or (isinstance(event, Lost) and "queued again" in event.why):
            has_hosts = False


@given(LOOKS)
def test_the_same_look_tells_nothing_new(looks: list[Look]) -> None:
    told = Told()
    for look in looks:
        told, _ = fold(told, look, len(NODES))
        if look.job is None or look.job.restarts >= told.life:
            assert fold(told, look, len(NODES)) == (told, ())


@given(st.sampled_from(["new", "queued", "starting", "running", "over"]), st.floats(0, 1e6))
def test_slurm_is_not_asked_too_often(phase: str, age_s: float) -> None:
    assert 0.5 <= look_again_s(Told(phase), age_s) <= 15
