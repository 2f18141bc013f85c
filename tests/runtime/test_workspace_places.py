"""Where hosts have the workspace, and what that makes of a plan."""

from __future__ import annotations

from pathlib import Path

from milkweed.runtime.paths import MeshPaths
from milkweed.runtime.records import HostPlan, MeshSpec, ProcessPlan
from milkweed.runtime.workspace_places import moved, parents_of, place_on

PATHS = MeshPaths(Path("/state/mesh"), Path("/run/mesh"))


def spec(mode: str, **options: str) -> MeshSpec:
    return MeshSpec("t", 2, 1, workspace="/home/me/p", workspace_mode=mode, options=options)


def test_a_host_has_it_at_the_clients_own_path_wherever_that_hides_nothing() -> None:
    assert place_on(spec("shared"), PATHS, 1) == "/home/me/p"
    assert place_on(spec("mount", isolation="namespaces"), PATHS, 1) == "/home/me/p"
    assert place_on(spec("mount"), PATHS, 1) == "/state/mesh/hosts/1/workspace"
    assert place_on(spec("copy"), PATHS, 0) != place_on(spec("copy"), PATHS, 1)


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
