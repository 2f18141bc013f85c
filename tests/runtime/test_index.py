from __future__ import annotations

import errno
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from milkweed.runtime.errors import Conflict, NotFound, Unavailable
from milkweed.runtime.index import KEEPER, Index
from milkweed.runtime.job_records import JobRequest, JobState, JobView, ReplicaView
from milkweed.runtime.records import Exit, HostEvent, MeshSpec, RankView, RunView
from milkweed.runtime.supervision import Failure

SPEC = MeshSpec("a", 2, 2, workspace="/w")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index(tmp_path / "index.sqlite")
    yield opened
    opened.close()


def test_a_claim_of_the_same_mesh_is_the_same_mesh(index: Index, tmp_path: Path) -> None:
    first, new = index.claim(SPEC)
    other_server = Index(tmp_path / "index.sqlite")
    again, new_again = other_server.claim(SPEC)
    other_server.close()
    assert (new, new_again) == (True, False)
    assert first == again


def test_a_live_name_with_other_arguments_is_refused_and_says_the_difference(index: Index) -> None:
    index.claim(SPEC)
    with pytest.raises(Conflict, match=r"name_in_use: .* hosts=2 \(asked: 3\)"):
        index.claim(MeshSpec("a", 3, 2, workspace="/w"))


HOLDS_AND_STOPS = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_an_index_that_is_locked_for_long_says_by_whom_and_that_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milkweed.runtime.index._BUSY_S", 0.1)
    path = tmp_path / "index.sqlite"
    Index(path).close()
    holder = subprocess.Popen((sys.executable, "-c", HOLDS_AND_STOPS, str(path)))
    try:
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        index = Index(path)
        said = rf"index_busy: .* by process {holder.pid} \(.*\), which is stopped\. .*kill -CONT {holder.pid}"
        with pytest.raises(Unavailable, match=said):
            index.claim(SPEC)
        assert index.meshes() == ()
    finally:
        holder.kill()
        holder.wait()
    index.claim(SPEC)
    index.close()


def test_a_plan_is_given_once_and_not_when_it_is_old(index: Index, tmp_path: Path) -> None:
    later = time.time() + 60
    plan = index.add_plan("call", "state", later)
    old = index.add_plan("call", "state", time.time() - 1)
    other_server = Index(tmp_path / "index.sqlite")
    assert other_server.take_plan(plan.plan) == plan
    assert index.take_plan(plan.plan) is None
    assert index.take_plan(old.plan) is None
    assert index.take_plan("plan-never") is None
    other_server.close()


def test_a_released_name_is_free_and_stays_released(index: Index) -> None:
    view, _ = index.claim(SPEC)
    index.set_state(view.mesh, "released", "done")
    index.set_state(view.mesh, "ready", "late news")
    assert index.mesh(view.mesh).state == "released"
    again, new = index.claim(SPEC)
    assert new
    assert again.mesh != view.mesh
    assert index.mesh("a").mesh == again.mesh


def test_of_a_name_that_nobody_has_any_more_it_is_told_how_the_last_mesh_ended(index: Index) -> None:
    for words in ("released", "the lease ended; 3 files are kept in /data"):
        view, _ = index.claim(SPEC)
        index.set_state(view.mesh, "released", words)
        told = f"there is none; {view.mesh} was released"
        told += "" if words == "released" else f": {words}"
        with pytest.raises(NotFound, match=re.escape(f"{told}. Call allocate_mesh")):
            index.mesh("a")


def test_an_unknown_mesh_or_run_names_what_there_is(index: Index) -> None:
    with pytest.raises(NotFound, match=r"no mesh 'b'; there is none\. Call allocate_mesh"):
        index.mesh("b")
    view, _ = index.claim(SPEC)
    with pytest.raises(NotFound, match=f"meshes: {view.mesh}"):
        index.mesh("b")
    with pytest.raises(NotFound, match="nothing was run yet"):
        index.run("run-x")


def test_runs_come_newest_first_and_events_once(index: Index) -> None:
    for number in range(3):
        view = RunView(
            f"run-{number}", "mesh-a", "running", "spmd", "x", (RankView(0, 0),), created_at=number
        )
        index.put_run(view)
    assert [view.run for view in index.runs("mesh-a")] == ["run-2", "run-1", "run-0"]
    event = HostEvent(1, 1.0, "rank_started", "run-0", 0, 5)
    index.add_events("mesh-a", 0, (event,))
    index.add_events("mesh-a", 0, (event, HostEvent(2, 2.0, "run_ended", "run-0")))
    assert [found.event.seq for found in index.events("mesh-a", 10)] == [1, 2]


def test_a_file_that_is_no_index_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(Unavailable, match="cannot be opened"):
        Index(path)


def test_on_a_network_file_system_one_machine_at_a_time_has_live_meshes(tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    first = Index(path, file_system="nfs4", machine="a")
    view, _ = first.claim(SPEC)
    Index(path, file_system="nfs4", machine="a").close()
    with pytest.raises(Unavailable, match=r"index_elsewhere: .* has live meshes"):
        Index(path, file_system="nfs4", machine="b")
    first.set_state(view.mesh, "released", "done")
    first.close()
    Index(path, file_system="nfs4", machine="b").close()


def test_what_any_run_ever_asked_to_keep_is_known_however_many_came_after(index: Index) -> None:
    mesh = index.claim(SPEC)[0].mesh
    for number in range(150):
        keep = ("/w/first/**",) if number == 0 else ()
        index.put_run(RunView(f"run-{number}", mesh, "running", "spmd", "true", (), float(number), keep=keep))
    assert index.globs_to_keep(mesh) == ("/w/first/**",)


def test_events_of_the_keeper_are_numbered_by_themselves(index: Index) -> None:
    index.add_keeper_event("mesh-a", "host_lost", detail="host 1")
    index.add_keeper_event("mesh-a", "mesh_degraded")
    assert [(found.host, found.event.seq, found.event.kind) for found in index.events("mesh-a", 9)] == [
        (KEEPER, 1, "host_lost"),
        (KEEPER, 2, "mesh_degraded"),
    ]


def test_an_index_that_another_file_was_put_in_place_of_is_not_there(index: Index, tmp_path: Path) -> None:
    path = tmp_path / "index.sqlite"
    index.claim(SPEC)
    assert index.is_there()
    path.rename(tmp_path / "before")
    assert not index.is_there()
    path.touch()
    assert not index.is_there()
    (tmp_path / "before").rename(path)
    assert index.is_there()


def test_an_index_of_another_version_is_said_so(index: Index, tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "index.sqlite")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(Unavailable, match="it has version 99, this Milkweed reads version"):
        Index(tmp_path / "index.sqlite")


def test_an_index_from_before_there_were_jobs_is_taken_up(index: Index, tmp_path: Path) -> None:
    view, _ = index.claim(SPEC)
    database = sqlite3.connect(tmp_path / "index.sqlite")
    database.executescript("DROP TABLE jobs; DROP TABLE job_ids; PRAGMA user_version = 2;")
    database.close()
    later = Index(tmp_path / "index.sqlite")
    assert later.mesh(view.mesh) == view
    assert later.new_job_id().startswith("job-")
    later.close()


def test_a_job_is_found_and_one_that_is_over_is_not_unfinished(index: Index) -> None:
    def job(state: JobState, at: float) -> JobView:
        failure = Failure("rank", "0 of run-a.1", exit=Exit(signal=9), tail=("bang",))
        replicas = (ReplicaView(0, 1, 0, "run-a", "restarting", 1, run="run-a.1", failure=failure),)
        return JobView(f"job-{state}", "mesh-a", state, "x", JobRequest(("x",), 1), replicas, at)

    views = [job("running", 1.0), job("degraded", 2.0), job("failed", 3.0)]
    for view in views:
        index.put_job(view)
    assert index.job("job-running") == views[0]
    assert index.jobs("mesh-a") == tuple(reversed(views))
    assert index.jobs("mesh-a", unfinished=True) == (views[1], views[0])
    with pytest.raises(NotFound, match=r"job_not_found: no job 'job-x'; latest jobs: job-failed, "):
        index.job("job-x")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("job-a", r"job-a is a job; .*\. replica_status\(job='job-a'\) names them\."),
        ("run-a", r"no run 'run-a'; its attempts, latest first: run-a\.2, run-a\.1\. Name one of them\."),
        ("run-ab", r"no run 'run-ab'; latest runs: "),
    ],
)
def test_of_a_job_its_attempts_are_named_where_a_run_is_asked_for(
    index: Index, asked: str, told: str
) -> None:
    index.put_job(JobView("job-a", "mesh-a", "running", "x", JobRequest(("x",), 1), (), 1.0))
    for number in (1, 2):
        view = RunView(f"run-a.{number}", "mesh-a", "running", "spmd", "x", (RankView(0, 0),), float(number))
        index.put_run(view)
    with pytest.raises(NotFound, match=told):
        index.run(asked)


def test_a_directory_that_cannot_be_written_is_told_from_a_broken_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable, match="directory_unusable: the directory /proc is not writable"):
        Index(Path("/proc/index.db"))

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(Unavailable, match=r"disk_full: .* No space left on device. Make room"):
        Index(Path("/proc/index.db"))
    (tmp_path / "index.db").write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(Unavailable, match="index_unreadable"):
        Index(tmp_path / "index.db")
