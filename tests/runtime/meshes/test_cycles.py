"""Procs killed and started again, over and over: nothing grows in the program, and nothing on its host."""

from __future__ import annotations

import gc
import os
import signal
import threading
from pathlib import Path

import pytest

from milkweed.runtime import ProcMesh, Restart, this_host
from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.node import node
from tests.runtime.meshes.actors import Dying
from tests.runtime.meshes.conftest import DEADLINE_S

_MIB = 1024 * 1024


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> int:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return len(found)


class Sizes:
    """Of this program and of its host's agent."""

    def __init__(self, agent: int) -> None:
        gc.collect()
        pids = (os.getpid(), agent)
        self.descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
        self.memory = [
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for pid in pids
        ]
        self.threads = threading.active_count()
        self.processes = children_of(agent)
        self.node = node().statistics()

    def check(self, before: Sizes, cycles: int) -> None:
        for now, then in zip(self.descriptors, before.descriptors, strict=True):
            assert now <= then + 3
        for now, then in zip(self.memory, before.memory, strict=True):
            assert now - then < 8 * _MIB + cycles * 10_000
        assert self.threads <= before.threads + 1
        assert self.processes <= before.processes + 1
        assert self.node["connections"] <= before.node["connections"] + 1
        assert self.node["tasks"] <= before.node["tasks"] + 2


def kill_and_wait(procs: ProcMesh, dying: object) -> None:
    os.kill(procs.pids[0], signal.SIGKILL)
    killed = procs.pids[0]
    while True:
        try:
            if dying.pid.call_one().get(DEADLINE_S) != killed:  # type: ignore[attr-defined]
                return
        except MilkweedError as error:
            if error.code != "proc_lost":
                raise


@pytest.mark.timeout(3600)
def test_a_proc_that_comes_again_many_times_leaves_nothing_behind(full_size: bool) -> None:
    cycles = 1000 if full_size else 12
    policy = Restart(max_restarts=1 << 20, backoff_s=0.001, backoff_max_s=0.01)
    procs = this_host().spawn_procs(per_host={"gpus": 1}, restart=policy, output="keep").get(DEADLINE_S)
    dying = procs.spawn("dying", Dying).get(DEADLINE_S)
    agent = parent_of(procs.pids[0])
    for _ in range(3):
        kill_and_wait(procs, dying)
    before = Sizes(agent)
    for _ in range(cycles):
        kill_and_wait(procs, dying)
    Sizes(agent).check(before, cycles)
    procs.stop(0.0).get(DEADLINE_S)


@pytest.mark.timeout(3600)
def test_meshes_that_are_spawned_and_stopped_leave_nothing_behind(full_size: bool) -> None:
    cycles = 300 if full_size else 6

    def cycle() -> int:
        procs = this_host().spawn_procs(per_host={"gpus": 1}).get(DEADLINE_S)
        dying = procs.spawn("dying", Dying).get(DEADLINE_S)
        pid: int = dying.pid.call_one().get(DEADLINE_S)
        procs.stop(0.0).get(DEADLINE_S)
        return pid

    for _ in range(2):
        cycle()
    keeper = this_host().spawn_procs(per_host={"gpus": 1}, output="keep").get(DEADLINE_S)
    agent = parent_of(keeper.pids[0])
    before = Sizes(agent)
    for _ in range(cycles):
        cycle()
    Sizes(agent).check(before, cycles)
    keeper.stop(0.0).get(DEADLINE_S)
