from __future__ import annotations

import json
from dataclasses import replace

import pytest

from milkweed.runtime.job_records import JobRequest, JobState, JobStatus, JobView, ReplicaView
from milkweed.runtime.records import Exit, RankView, RunView
from milkweed.runtime.supervision import Failure
from milkweed.tools.job_outcome import describe_job, failure_in_words
from milkweed.tools.results import JobResult

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/w/train.py", line 3, in <module>',
    '    raise ValueError("bad layer")',
    "ValueError: bad layer",
)


def failed(rank: int = 0, tail: tuple[str, ...] = TRACEBACK, ending: Exit | None = None) -> Failure:
    return Failure("rank", f"{rank} of run-a.1", "m", (rank,), exit=ending or Exit(code=1), tail=tail)


def job_of(
    *replicas: ReplicaView, state: JobState = "running", reason: str = "", procs: int = 2
) -> JobStatus:
    request = JobRequest(("python", "train.py"), len(replicas), procs)
    view = JobView("job-a", "mesh-a", state, "python train.py", request, replicas, 100.0, reason=reason)
    runs = {}
    for one in replicas:
        ranks = tuple(
            RankView(rank, one.host, "running", 1000 + one.replica * 10 + rank) for rank in range(procs)
        )
        if one.run:
            runs[one.replica] = RunView(one.run, "mesh-a", "running", "spmd", "x", ranks, 100.0, job="job-a")
    return JobStatus(view, runs)


def replica(number: int, **more: object) -> ReplicaView:
    base = f"run-{number}"
    one = ReplicaView(number, number // 2, number % 2, base, "running", 1, run=f"{base}.1")
    return replace(one, **more)  # type: ignore[arg-type]


def described(status: JobStatus) -> JobResult:
    return describe_job(status, now=112.0, lease_left_s=60.0, workspace="/w")


def size(result: JobResult) -> int:
    return len(json.dumps(result.content(), ensure_ascii=False).encode())


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (failed(1), "rank 1, exit 1: ValueError: bad layer (/w/train.py:3)"),
        (failed(0, ("some", "last words", "")), "rank 0, exit 1: last words"),
        (failed(0, (), Exit(signal=9)), "rank 0, SIGKILL"),
        (
            replace(failed(1), exit=Exit(signal=15, ended_by="peer_failed")),
            "rank 1: ValueError: bad layer (/w/train.py:3)",
        ),
        (failed(0, ("\x1b[31mred\x1b[0m",)), "rank 0, exit 1: red"),
        (
            replace(failed(0, (), Exit(error="command_not_found: no x")), ranks=()),
            "never started: command_not_found: no x",
        ),
        (Failure("host", "1", reason="its agent was killed"), "host 1: its agent was killed"),
    ],
)
def test_a_failure_is_one_line_with_its_exit_and_what_it_said(failure: Failure, words: str) -> None:
    assert failure_in_words(failure) == words


def test_replicas_that_are_alike_share_an_entry_and_the_troubled_come_first() -> None:
    again = replica(3, attempt=2, restarts=1, run="run-3.2", failure=failed())
    gone = replica(1, state="given_up", reason="so it is", failure=failed(), attempt=4, restarts=3)
    result = described(job_of(replica(0), gone, replica(2), again, state="degraded", reason="r"))
    assert [(item.replicas, item.state, item.attempt) for item in result.replica_list] == [
        ("1", "given_up", 4),
        ("3", "running", 2),
        ("0,2", "running", 1),
    ]
    assert result.replicas == {"given_up": "1", "running": "0,2-3"}
    assert (result.restarts, result.duration_s) == (4, 12.0)
    both = result.replica_list[2]
    assert both.runs == {"0": "run-0.1", "2": "run-2.1"}
    assert both.pids == {"0": [1000, 1001], "2": [1020, 1021]}
    assert result.next == (
        "read_run_output(run='run-1.1') has why; then restart_replica(job='job-a', replica=1)."
    )


def test_failures_that_differ_in_numbers_alone_are_alike() -> None:
    one = replica(0, attempt=2, failure=failed(0, ("lost step 17",)))
    other = replica(1, attempt=2, failure=failed(1, ("lost step 9",)))
    assert [item.replicas for item in described(job_of(one, other)).replica_list] == ["0-1"]


@pytest.mark.parametrize("procs", [1, 8])
def test_64_replicas_fit_an_answer_even_if_no_two_are_alike(procs: int) -> None:
    alike = described(job_of(*(replica(number) for number in range(64)), procs=procs))
    assert size(alike) < 8000
    assert [item.replicas for item in alike.replica_list] == ["0-63"]
    assert len(alike.replica_list[0].runs) == 64
    apart = described(
        job_of(
            *(
                replica(number, attempt=number, restarts=number, failure=failed(tail=("wörds " * 99,)))
                for number in range(64)
            ),
            procs=procs,
        )
    )
    assert size(apart) < 8000
    assert apart.more == 64 - len(apart.replica_list)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (job_of(replica(0)), "replica_status(job='job-a', wait_s=40)"),
        (job_of(replica(0, state="restarting", failure=failed())), "read_run_output(run='run-0.1')"),
        (job_of(replica(0, state="succeeded"), state="succeeded"), "read_run_output(run='run-0.1')"),
        (job_of(replica(0, state="given_up"), state="failed"), "then start_replicas again"),
        (job_of(replica(0, state="given_up"), state="stopped"), "then start_replicas again"),
        (job_of(replica(0, state="lost"), replica(1), state="degraded"), "mesh_status(mesh='mesh-a')"),
    ],
)
def test_the_next_call_that_helps_is_said(status: JobStatus, words: str) -> None:
    assert words in described(status).next


def test_the_summary_is_three_short_lines() -> None:
    hurt = replica(1, attempt=2, restarts=1, state="restarting", failure=failed(), failed_attempt=2)
    lines = described(job_of(replica(0), hurt)).summary().splitlines()
    assert lines[:2] == [
        "job-a: running after 12 s; replicas restarting 1, running 0",
        "replica 1, attempt 2: rank 0, exit 1: ValueError: bad layer (train.py:3)",
    ]
    assert len(lines) == 3


def test_a_failure_is_told_of_its_own_attempt_whatever_goes_on_since() -> None:
    often = replica(2, attempt=4, restarts=2, failure=failed(1), failed_attempt=3, run="run-2.4")
    once = replica(1, attempt=2, restarts=1, failure=failed(), failed_attempt=1, run="run-1.2")
    result = described(job_of(replica(0), once, often))
    _, told, step = result.summary().splitlines()
    assert told == (
        "replica 2, attempt 3 (attempt 4 is running): rank 1, exit 1: ValueError: bad layer (train.py:3)"
    )
    assert "stack_dump(target='run-2.4') if replica 2 does not go on" in step


def test_a_replica_that_was_started_again_by_hand_is_the_one_to_look_at() -> None:
    often = replica(2, attempt=4, restarts=2, failure=failed(1), failed_attempt=3, run="run-2.4")
    by_hand = replica(0, attempt=2, run="run-0.2")
    status = job_of(by_hand, often)
    step = describe_job(status, now=112.0, lease_left_s=60.0, restarted=0).next
    assert "stack_dump(target='run-0.2') if replica 0 does not go on" in step
