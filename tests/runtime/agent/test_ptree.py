"""Which processes belong to what: pure walks."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace

from milkweed.runtime.agent.ptree import (
    Process,
    Tree,
    descendants,
    family,
    members,
    read_environ,
    read_process,
    send_signal,
    snapshot,
)

AGENT = 10
MARKS = {"MILKWEED_HOST_ID": "mesh-a.0", "MILKWEED_RUN": "run-1"}


def table_of(*rows: tuple[int, int, int] | tuple[int, int, int, str]) -> dict[int, Process]:
    """Rows of (pid, parent, session[, state]); the start time of a process is its pid."""
    processes = [Process(row[0], row[1], row[2], row[0], *row[3:]) for row in rows]
    return {process.pid: process for process in processes}


def found(
    table: dict[int, Process], tree: Tree, environs: dict[int, dict[str, str]] | None = None
) -> set[int]:
    return set(members(table, AGENT, [tree], lambda pid: (environs or {}).get(pid, {})))


def test_descendants_at_any_depth() -> None:
    table = table_of((1, 0, 1), (10, 1, 10), (11, 10, 11), (12, 11, 11), (13, 12, 13), (20, 1, 20))
    assert descendants(table, [10]) == {11, 12, 13}
    assert descendants(table, [12, 20]) == {13}
    assert descendants(table, [99]) == set()


def test_a_tree_is_descendants_session_and_marks() -> None:
    table = table_of(
        (10, 1, 10),
        (11, 10, 11),  # the rank
        (12, 11, 12),  # its child in another session
        (13, 10, 11),  # reparented to the agent, still in the session
        (14, 10, 14),  # reparented, own session, marked
        (15, 10, 15),  # another rank
        (16, 11, 11, "Z"),
        (30, 1, 11),  # not below the agent
    )
    environs = {14: MARKS, 15: {**MARKS, "MILKWEED_RUN": "run-2"}, 30: MARKS}
    assert found(table, Tree(11, 11, MARKS), environs) == {11, 12, 13, 14}


def test_a_reused_pid_is_nobody() -> None:
    table = table_of((10, 1, 10), (11, 10, 11), (12, 11, 11))
    environs = {pid: {**MARKS, "MILKWEED_RUN": "run-2"} for pid in (11, 12)}
    assert found(table, Tree(11, 5, MARKS), environs) == set()
    assert found(table, Tree(11, 5, MARKS)) == set()
    assert found(table, Tree(11, 11, MARKS), environs) == {11, 12}


def test_a_zombie_with_living_threads_is_alive() -> None:
    assert not Process(1, 0, 1, 1, "Z").alive
    assert Process(1, 0, 1, 1, "Z", threads=2).alive


def test_reading_real_processes() -> None:
    child = subprocess.Popen(["sleep", "1000"], env={"COLOUR": "blue"}, start_new_session=True)
    try:
        process = read_process(child.pid)
        assert process is not None
        assert (process.parent, process.session) == (os.getpid(), child.pid)
        while not (environ := read_environ(child.pid)):  # it is in the midst of its exec
            assert child.poll() is None
        assert environ == {"COLOUR": "blue"}
        wrong = Process(child.pid, process.parent, process.session, process.start_time - 1)
        assert not send_signal(wrong, signal.SIGKILL)
        assert send_signal(process, signal.SIGKILL)
    finally:
        child.kill()
        assert child.wait() == -signal.SIGKILL
    assert read_process(child.pid) is None
    assert read_environ(child.pid) == {}
    assert not send_signal(process, signal.SIGKILL)


def test_a_command_name_cannot_forge_a_line(tmp_path: os.PathLike[str]) -> None:
    name = os.path.join(tmp_path, "a) Z 1 1")
    os.symlink("/bin/sleep", name)
    child = subprocess.Popen([name, "1000"])
    try:
        process = read_process(child.pid)
        assert process is not None
        assert process.parent == os.getpid()
        assert process.alive
    finally:
        child.kill()
        child.wait()


def test_a_family_is_what_a_snapshot_has_below_a_process() -> None:
    command = "sleep 99 & (sleep 99 & sleep 99 & echo up; wait)"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=True) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        try:
            table = snapshot()
            below = {shell.pid, *descendants(table, [shell.pid])}
            assert len(below) == 5
            # Whether one just runs or sleeps is another's moment.
            found = {pid: replace(process, state="S") for pid, process in family(shell.pid).items()}
            assert found == {pid: replace(table[pid], state="S") for pid in below}
        finally:
            os.killpg(shell.pid, 9)
    assert family(shell.pid) == {}
