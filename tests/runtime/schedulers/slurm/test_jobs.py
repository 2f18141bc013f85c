from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.schedulers.slurm.jobs import (
    Job,
    JobFormatError,
    Place,
    jobs_from_json,
    jobs_from_plain,
    place_in_queue,
)

ANSWERS = Path(__file__).parent / "answers"

# As slurm 23.11 documents `scontrol show job --json`; not from a live one.
NEWER = {
    "jobs": [
        {
            "job_id": 12,
            "name": "mesh-t-abc",
            "job_state": ["PENDING"],
            "state_reason": "Priority",
            "nodes": "",
            "restart_cnt": 1,
            "start_time": {"set": True, "infinite": False, "number": 1796000000},
            "end_time": {"set": False, "infinite": False, "number": 0},
            "exit_code": {
                "status": ["SUCCESS"],
                "return_code": {"set": True, "infinite": False, "number": 0},
                "signal": {"id": {"set": False, "infinite": False, "number": 0}, "name": ""},
            },
            "partition": "gpu",
            "priority": {"set": True, "infinite": False, "number": 4294901759},
            "user_name": "user",
        },
        {
            "job_id": 13,
            "job_state": ["CANCELLED", "COMPLETING"],
            "nodes": "n[0-1]",
            "exit_code": {
                "status": ["SIGNALED"],
                "return_code": {"set": False, "infinite": False, "number": 0},
                "signal": {"id": {"set": True, "infinite": False, "number": 9}, "name": "Killed"},
            },
        },
    ]
}


def test_a_real_plain_answer_is_read() -> None:
    running, first, second = jobs_from_plain((ANSWERS / "jobs-22.05.txt").read_text())
    assert (running.job, running.name, running.states) == (17, "a b=c", ("RUNNING",))
    assert (running.nodes, running.reason, running.partition) == (("n0", "n1"), "", "gpu")
    assert running.start_at is not None
    assert running.end_at == running.start_at + 3600
    assert (first.state, first.reason, first.nodes) == ("PENDING", "Resources", ())
    assert (second.state, second.reason) == ("PENDING", "Priority")
    assert first.priority > second.priority


def test_a_real_json_answer_says_the_same() -> None:
    plain = jobs_from_plain((ANSWERS / "jobs-22.05.txt").read_text())
    found = jobs_from_json(json.loads((ANSWERS / "queue-22.05.json").read_text()))
    # Times depend on the zone of who asks, and the end of what waits is told as such by one of them only.
    same = [replace(job, start_at=None, end_at=None, user="") for job in (*plain, *found)]
    assert same[:3] == same[3:]


def test_newer_json_is_read() -> None:
    waiting, ended = jobs_from_json(NEWER)
    assert waiting == Job(
        12,
        "mesh-t-abc",
        ("PENDING",),
        "Priority",
        restarts=1,
        start_at=1796000000.0,
        partition="gpu",
        priority=4294901759,
        user="user",
    )
    assert (ended.states, ended.exit_signal) == (("CANCELLED", "COMPLETING"), 9)


def test_the_first_of_a_name_counts() -> None:
    text = (
        "JobId=7 JobName=x JobState=FAILED Reason=NonZeroExitCode ExitCode=7:0 Command=run JobState=RUNNING"
    )
    (job,) = jobs_from_plain(text)
    assert (job.state, job.reason, job.exit_code) == ("FAILED", "NonZeroExitCode", 7)


def test_several_lines_are_one_job() -> None:
    text = (
        "JobId=1 JobName=a\n   JobState=RUNNING Reason=None\n   NodeList=n[1-2]\n\nJobId=2 JobState=PENDING\n"
    )
    assert [(job.job, job.nodes) for job in jobs_from_plain(text)] == [(1, ("n1", "n2")), (2, ())]


@pytest.mark.parametrize(
    "text", ["slurm_load_jobs error: Invalid job id", "JobId=x JobState=RUNNING", "JobId=4"]
)
def test_another_answer_is_told_as_such(text: str) -> None:
    with pytest.raises(JobFormatError):
        jobs_from_plain(text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    )
)
def test_any_other_json_is_told_as_such(document: Any) -> None:
    for given_ in (document, {"jobs": document}, {"jobs": [document]}):
        with suppress(JobFormatError):
            assert jobs_from_json(given_) == ()


WAITING = st.builds(
    Job,
    st.integers(1, 50),
    states=st.sampled_from([("PENDING",), ("RUNNING",)]),
    partition=st.sampled_from(["gpu", "short"]),
    priority=st.integers(0, 5),
)


@given(st.lists(WAITING, unique_by=lambda job: job.job))
def test_places_of_a_queue_are_all_different(jobs: list[Job]) -> None:
    queue = tuple(jobs)
    waiting = [job for job in queue if job.state == "PENDING" and job.partition == "gpu"]
    places = [place_in_queue(job, queue) for job in waiting]
    assert sorted(place.position for place in places) == list(range(1, len(waiting) + 1))
    assert {place.waiting for place in places} <= {len(waiting)}
    ordered = sorted(waiting, key=lambda job: place_in_queue(job, queue).position)
    assert [job.priority for job in ordered] == sorted((job.priority for job in waiting), reverse=True)


def test_a_job_that_is_not_in_the_queue_has_no_place() -> None:
    assert place_in_queue(Job(1, states=("PENDING",)), ()) == Place()
