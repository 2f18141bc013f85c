"""Procs of controllers in a line for each of their meshes."""

from __future__ import annotations

from milkweed.runtime.proc_records import ProcHealth, ProcOfRun, ProcState
from milkweed.tools.proc_outcome import describe_procs

NOW = 1000.0


def proc(
    name: str, state: ProcState = "ok", since: float = 0.0, where: str = "", run: str = "run-a"
) -> ProcOfRun:
    return ProcOfRun(run, ProcHealth(name, 1, state, since, where))


def test_those_that_are_well_are_counted_and_the_others_named() -> None:
    procs = [proc(f"workers-1f-{rank}") for rank in range(6)]
    procs += [proc("workers-1f-10", "holds_gil", NOW - 40, "f (a:3)")]
    procs += [proc(f"workers-1f-{rank}", "busy", NOW - rank, "Worker.step") for rank in (7, 8)]
    assert describe_procs(procs, NOW) == [
        "run-a workers-1f 0-5,7-8,10: 6 ok; 7-8 busy for 8 s at Worker.step; 10 holds_gil for 40 s at f (a:3)"
    ]


def test_one_that_is_busy_for_a_moment_is_well() -> None:
    assert describe_procs([proc("workers-1f-0", "busy", NOW - 1, "Worker.step")], NOW) == [
        "run-a workers-1f 0: 1 ok"
    ]


def test_meshes_of_procs_and_runs_have_lines_of_their_own() -> None:
    procs = [proc("b-1f-0"), proc("a-1f-0"), proc("a-2e-0", run="")]
    assert describe_procs(procs, NOW) == ["a-2e 0: 1 ok", "run-a a-1f 0: 1 ok", "run-a b-1f 0: 1 ok"]
    assert describe_procs([], NOW) == []
