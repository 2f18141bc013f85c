"""Counts of out-of-memory kills around a death."""

from __future__ import annotations

import os
from pathlib import Path

from milkweed.runtime.agent.oom import Counts, OomHistory, cgroup_counter, parse_cgroups, parse_oom_kill, rise


def test_the_counter_in_all_its_files() -> None:
    assert parse_oom_kill("pgfault 9\noom_kill 3\n") == 3
    assert parse_oom_kill("low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n") == 1
    assert parse_oom_kill("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n") == 4
    assert parse_oom_kill("oom_kill_disable 0\n") is None


def test_where_the_counter_may_be() -> None:
    assert parse_cgroups("0::/user.slice/a\n") == ("user.slice/a/memory.events",)
    assert parse_cgroups("4:memory:/job/1\n0::/\n") == ("memory/job/1/memory.oom_control", "memory.events")
    assert parse_cgroups("1:cpu,cpuacct:/\n") == ()
    assert parse_cgroups("") == ()


def test_the_larger_rise_counts() -> None:
    assert rise(Counts(5, 2), Counts(5, 3)) == 1
    assert rise(Counts(5, None), Counts(7, 3)) == 2
    assert rise(Counts(5, 9), Counts(5, 1)) == 0


def test_a_kill_of_long_ago_explains_nothing() -> None:
    now, count = [0.0], [0]
    history = OomHistory(10.0, lambda: now[0], lambda _: Counts(count[0]))
    start = history.counts(None)
    for second in range(100):
        now[0] = second
        count[0] = 1 if second >= 20 else 0
        history.sample()
    assert history.rise_since(start, None) == 0
    count[0] = 2
    assert history.rise_since(start, None) == 1


def test_the_counter_of_this_process_is_readable_if_it_exists() -> None:
    path = cgroup_counter(os.getpid())
    assert path is None or parse_oom_kill(path.read_text()) is not None
    assert cgroup_counter(2**22) is None or Path("/proc/4194304").exists()
