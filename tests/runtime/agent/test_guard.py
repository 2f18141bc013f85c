"""The guard and the agent under it: whatever dies, nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from milkweed.runtime.agent.ptree import read_process
from milkweed.runtime.records import Exit
from milkweed.runtime.services.runs import Runs
from tests.runtime.hosts import GUARD, GuardedHost, marked, open_guarded, plan_of, popen, python, until

pytestmark = pytest.mark.anyio

# A rank that leaves a daemon of its own session, started by a parent that is gone, and ignores SIGTERM.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    print("daemon", os.getpid(), flush=True)
    time.sleep(1000)
os.wait()
print("rank", os.getpid(), flush=True)
time.sleep(1000)
"""


async def start_stubborn(host: GuardedHost) -> None:
    await host.runs.call_one(Runs.start, plan_of(host.directory, python(STUBBORN), ("sleep", "1000")))
    for word in ("daemon", "rank"):
        assert await host.runs.call_one(Runs.wait_output, "run-1", (0,), {}, word, 10.0)
    assert len(marked(host.mesh)) == 3


async def ended(guard: subprocess.Popen[bytes]) -> int:
    with anyio.fail_after(20):
        return await anyio.to_thread.run_sync(guard.wait)


async def test_a_killed_agent_leaves_nothing(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as host:
        await start_stubborn(host)
        os.kill(host.agent, signal.SIGKILL)
        assert await ended(host.guard) == 128 + signal.SIGKILL
        assert marked(host.mesh) == {}
    # Those three, and a child that the agent's starter had just forked to settle, or none.
    assert re.search("ended [34] processes that the agent left", (tmp_path / "guard.log").read_text())


async def test_a_killed_guard_makes_the_agent_end_everything(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as host:
        await start_stubborn(host)
        host.guard.kill()
        await until(lambda: not marked(host.mesh))
        await until(lambda: read_process(host.agent) is None or not read_process(host.agent).alive)  # type: ignore[union-attr]
        assert [event.kind for event in host.events()][-1] == "run_ended"


async def test_sigterm_to_the_guard_ends_the_agent_in_order(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as host:
        await start_stubborn(host)
        host.guard.terminate()
        assert await ended(host.guard) == 0
        assert marked(host.mesh) == {}
        exits = {event.rank: event.exit for event in host.events() if event.kind == "rank_exited"}
        assert exits == {
            0: Exit(signal=9, ended_by="released"),
            1: Exit(signal=15, ended_by="released"),
        }


async def test_an_agent_that_does_not_end_is_killed_after_the_grace(tmp_path: Path) -> None:
    code = "trap '' TERM; touch up; while :; do sleep 1000; done"
    command = [sys.executable, "-I", "-S", str(GUARD), "--grace", "0.2", "--", "sh", "-c", code]
    guard = popen(command, cwd=tmp_path)
    await until((tmp_path / "up").exists)
    guard.terminate()
    assert await ended(guard) == 128 + signal.SIGKILL


async def test_ending_a_run_takes_a_daemon_of_it_too(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as host:
        await start_stubborn(host)
        assert await host.runs.call_one(Runs.end, "run-1", None, "cancelled", 0.2) == 3
        assert marked(host.mesh) == {}
        assert (await host.event("rank_exited", 0)).exit == Exit(signal=9, ended_by="cancelled")


async def test_what_a_rank_leaves_running_ends_with_the_run_and_is_counted(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as host:
        leave = ("sh", "-c", "sleep 1000 & setsid sleep 1000 & (setsid sleep 1000 &); exit 0")
        await host.runs.call_one(Runs.start, plan_of(tmp_path, leave))
        assert (await host.event("rank_exited", 0)).exit == Exit(code=0)
        assert (await host.event("run_ended")).detail.startswith("3 background processes of ")
        assert marked(host.mesh) == {}


async def test_orphans_leave_no_zombies(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as host:
        orphans = "for i in 1 2 3 4 5 6 7 8 9; do (setsid sh -c 'exit 3' &); done; sleep 1000"
        await host.runs.call_one(Runs.start, plan_of(tmp_path, ("sh", "-c", orphans)))
        rank = (await host.event("rank_started", 0)).pid
        own = {rank, host.starter}
        await until(lambda: children_of(host.agent) == own and len(children_of(rank or 0)) == 1)


def children_of(pid: int) -> set[int]:
    text = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return {int(word) for word in text.stdout.split()}


async def test_epilogues_run_when_all_is_gone_each_with_a_deadline(tmp_path: Path) -> None:
    sleeper = "sleep 999 & echo $! > left; exit 5"
    told = ["sh", "-c", "kill -0 $(cat left) 2>/dev/null && echo alive >> told || echo gone >> told"]
    epilogues = [
        part for argv in (told, ["no-such-program"], told) for part in ("--epilogue", json.dumps(argv))
    ]
    command = [sys.executable, "-I", "-S", str(GUARD), "--log", "log", *epilogues, "--", "sh", "-c", sleeper]
    guard = popen(command, cwd=tmp_path)
    assert await ended(guard) == 5
    assert (tmp_path / "told").read_text() == "gone\ngone\n"
    assert "cannot start no-such-program" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--", "no-such-program"], 127), (["--"], 2), (["--wrong", "x", "--", "true"], 2), ([], 2)],
)
def test_a_guard_that_cannot_start_says_so(arguments: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(GUARD), *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr


async def test_the_guard_is_small(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(GUARD), "--", "sh", "-c", "touch up; sleep 1000"]
    guard = popen(command, cwd=tmp_path)
    await until((tmp_path / "up").exists)
    status = Path(f"/proc/{guard.pid}/status").read_text()
    guard.terminate()
    await ended(guard)
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident < 12 * 1024
