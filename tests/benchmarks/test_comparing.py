"""The sides of a benchmark: their turns, their failures, and that nothing of them is left."""

import asyncio
import importlib
import os
import signal
from pathlib import Path

import psutil
import pytest

from benchmarks.runtime import comparing
from benchmarks.runtime.contestant import MARK, Unusable, open_contestant
from benchmarks.runtime.plan import LINES, MEMORY_LINES, MOUNT_LINES, Plan, Row, module_of

ROWS = (Row("async_p50", "p50", "us"),)


def test_every_line_has_plans_whose_metrics_are_told_apart():
    for line in (*LINES, *MEMORY_LINES, *MOUNT_LINES):
        for quick in (True, False):
            for plan in importlib.import_module(module_of(line)).plans(quick=quick):
                metrics = [row.metric for row in plan.rows]
                assert len(set(metrics)) == len(metrics)
                assert plan.rounds > 0


@pytest.mark.anyio
async def test_a_side_that_cannot_be_measured_costs_no_other_its_figures(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCH_MONARCH_PYTHON", str(tmp_path / "nowhere"))
    plan = Plan(ROWS, 2, {"calls": 3}, ("monarch", "bare"))
    (figure,) = await comparing.compare("call", plan, ("monarch", "bare"))
    assert len(figure.samples["bare"]) == 2
    assert "torchmonarch is not installed" in figure.failed["monarch"]


@pytest.mark.anyio
async def test_the_reason_of_a_failed_set_up_is_told():
    with pytest.raises(Unusable, match="unexpected keyword argument 'nonsense'"):
        async with open_contestant("bare", "call", Plan(ROWS, 1, {"nonsense": 1})):
            pytest.fail("it was set up")


@pytest.mark.anyio
async def test_a_side_that_leaves_processes_is_told_and_they_are_ended(monkeypatch):
    async with open_contestant("bare", "call", Plan(ROWS, 1, {"calls": 1})) as side:
        environ = Path(f"/proc/{side.process.pid}/environ").read_bytes().split(b"\0")
        mark = next(entry for entry in environ if entry.startswith(MARK.encode()))
        name, _, value = mark.decode().partition("=")
        left = await asyncio.create_subprocess_exec(
            "sleep", "3600", env={**os.environ, name: value}, start_new_session=True
        )
    assert side.left == 1
    assert await left.wait() == -signal.SIGKILL


@pytest.mark.anyio
async def test_nothing_is_left_of_a_side_that_is_killed():
    procs = []

    async def kill_and_ask() -> None:
        async with open_contestant("bare", "call", Plan(ROWS, 1, {"calls": 1})) as side:
            procs.extend(psutil.Process(side.process.pid).children(recursive=True))
            side.process.kill()
            await side.ask("sample", 30)

    with pytest.raises(Unusable, match="sample: "):
        await kill_and_ask()
    assert len(procs) == 8
    assert not psutil.wait_procs(procs, timeout=10)[1]


def test_the_sides_take_turns_in_another_order_each_round():
    assert [comparing.turn(("ours", "monarch", "bare"), n)[0] for n in range(4)] == [
        "ours",
        "monarch",
        "bare",
        "ours",
    ]
