"""Where hosts have the client's directories, and what that makes of a plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.paths import MeshPaths
from milkweed.runtime.records import HostPlan, MeshSpec, MountSpec, ProcessPlan
from milkweed.runtime.tree_places import (
    agent_workspace,
    check_place,
    moved,
    parents_of,
    place_on,
    workspace_of,
)

DATA = MountSpec("mount-abc", "/data", "/there")
PATHS = MeshPaths(Path("/state/mesh"), Path("/run/mesh"), Path("/data/mesh"))


def spec(mode: str, **options: str) -> MeshSpec:
    return MeshSpec("t", 2, 1, workspace="/home/me/p", workspace_mode=mode, options=options)


def test_a_host_has_it_at_the_clients_own_path_wherever_that_hides_nothing() -> None:
    assert agent_workspace(spec("shared"), PATHS, 1) == "/home/me/p"
    assert agent_workspace(spec("auto"), PATHS, 1) == "/home/me/p"
    assert agent_workspace(spec("mount", isolation="namespaces"), PATHS, 1) == "/home/me/p"
    assert agent_workspace(spec("mount"), PATHS, 1) == "/state/mesh/hosts/1/workspace"
    assert agent_workspace(spec("copy"), PATHS, 0) != agent_workspace(spec("copy"), PATHS, 1)


def test_a_mount_is_where_it_was_asked_for_or_in_a_place_of_its_own_on_each_host() -> None:
    isolated, plain = spec("mount", isolation="namespaces"), spec("mount")
    assert place_on(isolated, DATA, "mount", PATHS, 1) == "/there"
    places = {
        place_on(plain, mount, "mount", PATHS, host)
        for mount in (DATA, replace(DATA, mount="mount-xyz"), workspace_of(plain))
        for host in range(3)
    }
    assert len(places) == 9


@pytest.mark.parametrize("path", ["/", "/usr", "/state", "/state/mesh", "/proc"])
def test_nothing_is_mounted_over_what_hosts_need(path: str) -> None:
    with pytest.raises(InvalidArgument, match="would hide"):
        check_place(path, ["/state/mesh", ""])


def test_what_only_looks_like_it_is_no_parent() -> None:
    check_place("/state/me", ["/state/mesh"])
    check_place("/usr/share/data", ["/state/mesh"])


def test_a_tree_of_hosts_feeds_itself_from_two() -> None:
    parents = {host: parents_of(host) for host in range(64)}
    assert [host for host, above in parents.items() if not above] == [0, 1]
    served = [above[0] for above in parents.values() if above]
    assert max(served.count(host) for host in served) == 2
    assert all(above[0] < host for host, above in parents.items() if above)


def test_a_plan_moves_with_the_workspace_and_with_nothing_that_only_looks_like_it() -> None:
    process = ProcessPlan(
        0,
        "0",
        ("/home/me/p/.venv/bin/python", "/home/me/p/train.py"),
        {
            "PATH": "/home/me/p/.venv/bin:/usr/bin",
            "PYTHONPATH": "/home/me/pp:/home/me/p",
            "DATA": "/home/me/p",
        },
        "/home/me/p/sub",
    )
    plan = HostPlan("run-1", 1, (process,), interpreter="/home/me/p/.venv/bin/python")
    there = moved(plan, "/home/me/p", "/there")
    (one,) = there.processes
    assert one.argv == ("/there/.venv/bin/python", "/home/me/p/train.py")
    assert one.env == {
        "PATH": "/there/.venv/bin:/usr/bin",
        "PYTHONPATH": "/home/me/pp:/there",
        "DATA": "/home/me/p",
    }
    assert (one.cwd, there.interpreter) == ("/there/sub", "/there/.venv/bin/python")
    assert moved(plan, "/home/me/p", "/home/me/p") is plan
