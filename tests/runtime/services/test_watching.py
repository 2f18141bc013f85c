"""Real runs on one host, watched with little patience."""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.attach_records import ATTACH_VARIABLE
from milkweed.runtime.evidence.asking import ask_flight
from milkweed.runtime.evidence.records import Collective, Flight
from milkweed.runtime.records import ProcessStacks
from milkweed.runtime.services.runs import Runs
from milkweed.runtime.services.stacks import Stacks
from milkweed.runtime.services.watching import FlightRecorder, Watching
from milkweed.runtime.watching import WatchPolicy
from milkweed.runtime.watching.evidence import read_evidence
from tests.runtime.hosts import DEADLINE_S, event_of, open_host, plan_of, python, until

pytestmark = pytest.mark.anyio

# Looks come fast; what a loaded machine does to CPU shares is not told by them.
QUICK = WatchPolicy(sample_s=0.1, quiet_s=1.0, apart_s=0.5, busy_s=3.0, busy=0.5, hurry_s=0.2, longest_s=2.0)

DEADLOCK = textwrap.dedent(
    """
    import os, sys, torch, torch.distributed as dist
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
    for step in range(3):
        dist.all_reduce(torch.ones(4))
        print("step", step, flush=True)
    if rank == 0:
        dist.all_reduce(torch.ones(4))
    else:
        dist.recv(torch.ones(4), 0)
    """
)


class NoProcs:
    async def find(self, owner: str | None, procs: tuple[str, ...] | None) -> tuple[tuple[int, int], ...]:
        return ()

    def of_run(self, run: str) -> tuple[()]:
        return ()


@asynccontextmanager
async def watched(
    directory: Path, policy: WatchPolicy = QUICK, ask_flight: FlightRecorder = ask_flight
) -> AsyncIterator[tuple[HostContext, Runs, Watching]]:
    async with open_host(directory) as (context, runs):
        stacks = Stacks(context, runs, NoProcs())
        async with Watching.open(context, runs, stacks, policy, ask_flight) as watching:
            yield context, runs, watching


async def kinds(context: HostContext) -> list[str]:
    return [event.kind for event in await context.spool.after(0, 0.0)]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
async def test_two_ranks_in_a_deadlock_stand_still_and_their_stacks_are_on_disk(tmp_path: Path) -> None:
    command = (sys.executable, "-c", DEADLOCK, str(tmp_path / "store"))
    async with watched(tmp_path) as (context, runs, watching):
        await runs.start(plan_of(tmp_path, command, command))
        with anyio.fail_after(60):
            while "run_still" not in await kinds(context):
                await context.spool.after(len(await kinds(context)), 1.0)
        event = await event_of(context.spool, "run_still")
        found = await watching.evidence("run-1")
        assert found is not None
        assert found.since == pytest.approx(float(event.detail), abs=0.5)
        functions = {rank: names(found.stacks, rank) for rank in (0, 1)}
        assert "all_reduce" in functions[0]
        assert "recv" in functions[1]
        assert {sample.rank: sample.output for sample in found.samples} == {0: 21, 1: 21}
        assert found.sequences == {0: 4, 1: 3}  # of gloo a recv is not recorded
        await runs.end("run-1", None, "cancelled", 0.0)
    assert read_evidence(context.run_directory("run-1")) == found


def names(stacks: tuple[ProcessStacks, ...], rank: int) -> set[str]:
    return {f.function for one in stacks if one.rank == rank for t in one.threads for f in t.frames}


# How many steps are taken at once is read from a file: a loaded machine slows all of them alike.
PACED = """
import sys, time
step = 0
while True:
    step += int(open(sys.argv[1]).read() or 0)
    print("step", step, "loss", 0.5, flush=True)
    time.sleep(0.02)
"""


async def test_a_run_whose_steps_take_longer_is_told_to_be_slow_until_they_no_longer_do(
    tmp_path: Path,
) -> None:
    steps = tmp_path / "steps"
    steps.write_text("100")
    policy = replace(QUICK, pace_s=0.1)
    async with watched(tmp_path, policy) as (context, runs, _):
        await runs.start(plan_of(tmp_path, (sys.executable, "-c", PACED, str(steps))))
        output = context.run_directory("run-1") / "rank-0.out"
        await until(lambda: output.exists() and output.stat().st_size > 4000)  # three seconds of it
        steps.write_text("2")
        slow = (await event_of(context.spool, "run_slow")).slow
        assert slow is not None
        assert slow.step_s > 3 * slow.usual_s
        steps.write_text("100")
        await event_of(context.spool, "run_at_pace")
        await runs.end("run-1", None, "cancelled", 0.0)


MOVING = {
    "prints": "while True:\n    print('x', flush=True)\n    turn()",
    "reports": "import milkweed\nwhile True:\n    milkweed.report(loss=1.0)\n    turn()",
    "is elsewhere at each look": "n = 0\nwhile True:\n    n += 1\n    places[n % 40](0.6)\n    turn(0)",
}
_TURNS = """
import time
def turn(s=0.3, log=open({log!r}, "a", buffering=1)):
    time.sleep(s)
    log.write("x")
    log.flush()
places = [eval("lambda s: (" + n * "\\n" + "time.sleep(s))") for n in range(40)]
"""


@pytest.mark.parametrize("code", MOVING.values(), ids=MOVING)
async def test_a_run_that_moves_is_not_told_to_be_still(tmp_path: Path, code: str) -> None:
    log = tmp_path / "turns"
    moving = _TURNS.format(log=str(log)) + code
    async with watched(tmp_path) as (context, runs, watching):
        await runs.start(plan_of(tmp_path, python(moving), python("import time; time.sleep(1000)")))
        await until(lambda: log.exists() and log.stat().st_size > 12)
        assert set(await kinds(context)) == {"rank_started"}
        assert await watching.moved_at("run-1") is not None
        await runs.end("run-1", None, "cancelled", 0.0)


async def test_what_goes_on_after_all_is_told(tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = f"import os, time\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.05)\n"
    code += "print('on')\ntime.sleep(1000)"
    async with watched(tmp_path) as (context, runs, _):
        await runs.start(plan_of(tmp_path, python(code)))
        await event_of(context.spool, "run_still")
        go.touch()
        await event_of(context.spool, "run_moves")
        await runs.end("run-1", None, "cancelled", 0.0)


async def test_what_is_no_python_needs_longer(tmp_path: Path) -> None:
    async with watched(tmp_path) as (context, runs, _):
        await runs.start(plan_of(tmp_path, ("sleep", "1000")))
        started = await event_of(context.spool, "rank_started")
        still = await event_of(context.spool, "run_still")
        assert still.at - started.at >= QUICK.busy_s
        await runs.end("run-1", None, "cancelled", 0.0)


async def test_a_launchers_ranks_are_watched_and_the_launcher_where_there_are_none(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, python("import time; time.sleep(1000)"))
    (process,) = plan.processes
    launcher = replace(process, rank=-1, label="torchrun-0", env={})
    async with watched(tmp_path) as (context, runs, _):
        await runs.start(replace(plan, processes=(launcher,), child_ranks=(0, 1)))
        await event_of(context.spool, "run_still")
        await runs.end("run-1", None, "cancelled", 0.0)


async def test_collectives_that_go_on_are_a_movement(tmp_path: Path) -> None:
    asked = 0

    async def ask(run_directory: Path, pid: int, timeout_s: float) -> Flight:
        nonlocal asked
        asked += 1
        return Flight((Collective(asked, "all_reduce"), Collective(3, "send", p2p=True)))

    async with watched(tmp_path, ask_flight=ask) as (context, runs, _):
        await runs.start(plan_of(tmp_path, python("import time; time.sleep(1000)")))
        await until(lambda: asked > 3)
        assert "run_still" not in await kinds(context)
        await runs.end("run-1", None, "cancelled", 0.0)


async def test_a_controller_is_not_watched_and_nothing_is_where_that_is_off(tmp_path: Path) -> None:
    async with watched(tmp_path) as (_, runs, watching):
        await runs.start(plan_of(tmp_path, ("sleep", "1000"), env={ATTACH_VARIABLE: json.dumps({})}))
        assert await watching.moved_at("run-1") is None
        await runs.end("run-1", None, "cancelled", 0.0)
    async with watched(tmp_path, WatchPolicy(on=False)) as (_, runs, watching):
        await runs.start(plan_of(tmp_path, ("sleep", "1000"), run="run-2"))
        assert await watching.moved_at("run-2") is None
        await runs.end("run-2", None, "cancelled", 0.0)


async def test_a_disk_that_takes_no_evidence_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milkweed.runtime.services.watching.write_evidence", lambda *_: False)
    async with watched(tmp_path) as (context, runs, _):
        await runs.start(plan_of(tmp_path, python("import time; time.sleep(1000)")))
        with anyio.fail_after(DEADLINE_S):
            await event_of(context.spool, "run_still")
        await runs.end("run-1", None, "cancelled", 0.0)
