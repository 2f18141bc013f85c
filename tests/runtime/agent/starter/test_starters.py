"""Starters come, go, are killed and grow old; runs go on meanwhile, cold if need be."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent import ptree
from milkweed.runtime.agent.hook_protocol import DUMP_SIGNAL, can_dump, stack_file
from milkweed.runtime.services.runs import Runs
from tests.runtime.hosts import marked, until

from .warm_host import WarmHost, open_warm

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

MODULE = "import numbers\nVALUE = 1\n"
SEEN = "import sys; print('imported' in sys.modules)"


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[WarmHost]:
    """A host whose starters import a module of the test, which is quick."""
    async with open_warm(tmp_path, "imported", {"lib/imported.py": MODULE, "work/main.py": SEEN}) as host:
        yield host


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(tmp_path / "lib")}


async def outcome(host: WarmHost, env: dict[str, str], *command: str) -> tuple[str, str]:
    (one,) = await host.run(host.plan(command or ("-c", SEEN), env=env))
    assert one.exit.ok, one
    return one.how, one.output


async def test_the_first_run_is_cold_and_the_next_warm(host: WarmHost, env: dict[str, str]) -> None:
    assert await outcome(host, env) == ("cold: the starter of such runs is not ready yet", "False\n")
    await host.ready(env=env)
    assert await outcome(host, env) == ("warm", "True\n")


async def test_a_run_that_asks_for_it_is_cold(host: WarmHost, env: dict[str, str]) -> None:
    await host.ready(env=env)
    (cold,) = await host.run(host.plan(("-c", SEEN), env=env, warm=False))
    assert (cold.how, cold.output) == ("cold", "False\n")


async def test_a_killed_starter_comes_again_and_runs_meanwhile_are_cold(
    host: WarmHost, env: dict[str, str]
) -> None:
    await host.ready(env=env)
    (starter,) = host.starters()
    os.kill(starter, signal.SIGKILL)
    await until(lambda: starter not in host.starters())
    how, output = await outcome(host, env)
    assert how.startswith("cold: ")
    assert output == "False\n"
    await host.ready(env=env)
    assert host.starters() != [starter]


async def test_a_starter_that_is_killed_again_and_again_is_given_up(
    host: WarmHost, env: dict[str, str]
) -> None:
    for _ in range(3):
        await host.ready(env=env)
        (starter,) = host.starters()
        os.kill(starter, signal.SIGKILL)
        await until(lambda starter=starter: starter not in host.starters())
    how, _ = await outcome(host, env)
    assert how == "cold: its starter ended again and again"


@pytest.mark.parametrize("process", ["agent", "guard"])
async def test_a_starter_and_its_ranks_end_with_the_agent(
    host: WarmHost, env: dict[str, str], process: str
) -> None:
    await host.ready(env=env)
    plan = host.plan(("-c", "import time; time.sleep(99)"), env=env)
    await host.start(plan)
    assert [event.detail for event in host.events(plan.run, "rank_started")] == ["warm"]
    os.kill(host.host.agent if process == "agent" else host.host.guard.pid, signal.SIGKILL)
    await until(lambda: not marked(host.host.mesh))


async def test_a_changed_module_makes_the_next_run_cold(host: WarmHost, env: dict[str, str]) -> None:
    await host.ready(env=env)
    host.write({"lib/imported.py": MODULE + "# edited\n"})
    how, _ = await outcome(host, env)
    assert how == f"cold: {host.directory}/lib/imported.py has changed since it was imported"
    await host.ready(env=env)


async def test_a_module_that_is_installed_makes_the_next_run_cold(
    host: WarmHost, env: dict[str, str]
) -> None:
    await host.ready(env=env)
    host.write({"lib/numbers/__init__.py": "NEW = 1\n"})
    how, output = await outcome(host, env, "-c", "import numbers; print(numbers.NEW)")
    assert how.startswith("cold: ")
    assert output == "1\n"
    host.write({"lib/notes.txt": "no module"})
    await host.ready(env=env)
    host.write({"lib/more.txt": "no module either"})
    assert (await outcome(host, env))[0] == "warm"


async def test_a_module_beside_the_script_that_shadows_an_imported_one_makes_it_cold(
    host: WarmHost, env: dict[str, str]
) -> None:
    await host.ready(env=env)
    assert (await outcome(host, env, "work/main.py"))[0] == "warm"
    host.write({"work/imported.py": "OTHER = 1\n"})
    how, _ = await outcome(host, env, "work/main.py")
    assert how == "cold: imported.py beside the script has the name of a module that is imported already"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"lib/imported.py": "1/0"}, "ZeroDivisionError: division by zero"),
        ({"lib/imported.py": "print('hello')"}, "its imports print something"),
        ({"lib/imported.py": "import os; os._exit(3)"}, "the starter ended while it imported"),
        (
            {"lib/imported.py": "import threading as t, time; t.Timer(9, time.time).start()"},
            "its imports leave threads behind",
        ),
        ({"lib/sitecustomize.py": "A = 1"}, "this environment has a sitecustomize of its own"),
        ({"lib/imported.py": ""}, ""),
    ],
    ids=["raises", "prints", "exits", "threads", "sitecustomize", "fine"],
)
async def test_imports_that_do_not_fit_a_fork_make_runs_cold_for_good(
    host: WarmHost, env: dict[str, str], files: dict[str, str], why: str
) -> None:
    host.write(files)
    hows = [""]

    async def settled() -> bool:
        hows[0] = (await outcome(host, env))[0]
        return "not ready yet" not in hows[0]

    with anyio.fail_after(60):
        while not await settled():
            await anyio.sleep(0.1)
    assert why in hows[0]
    assert hows[0] == "warm" or why
    assert len(host.starters()) == (hows[0] == "warm")


async def test_a_thread_that_begins_in_a_starter_makes_the_next_run_cold_and_another_starter(
    host: WarmHost, env: dict[str, str]
) -> None:
    begins = "lambda *_: t.Thread(target=time.sleep, args=(99,), daemon=True).start()"
    host.write({"lib/imported.py": f"import signal, threading as t, time\nsignal.signal(10, {begins})\n"})
    await host.ready(env=env)
    (starter,) = host.starters()
    os.kill(starter, 10)
    await until(lambda: len(os.listdir(f"/proc/{starter}/task")) == 2)
    how, _ = await outcome(host, env)
    assert how.startswith("cold: ")
    await host.ready(env=env)
    assert host.starters() != [starter]


FAKE_TORCH = """
class cuda:
    def is_initialized():
        return True
"""


async def test_a_gpu_context_that_an_import_makes_is_not_forked(tmp_path: Path) -> None:
    async with open_warm(tmp_path, "torch", {"lib/torch.py": FAKE_TORCH}) as host:
        with pytest.raises(AssertionError, match="importing torch has made a GPU context"):
            await host.ready(env={"PYTHONPATH": str(tmp_path / "lib")})


async def test_without_the_module_runs_are_cold(host: WarmHost) -> None:
    with pytest.raises(AssertionError, match="this interpreter has no imported") as refused:
        await host.ready()
    assert "RuntimeError" not in str(refused.value)


async def test_at_most_two_starters_stay(host: WarmHost, env: dict[str, str]) -> None:
    for number in "123":
        await host.ready(env={**env, "OMP_NUM_THREADS": number})
    await until(lambda: len(host.starters()) == 2)
    assert (await outcome(host, {**env, "OMP_NUM_THREADS": "3"}))[0] == "warm"


async def test_a_starter_killed_while_it_forks_makes_the_run_cold_once(
    host: WarmHost, env: dict[str, str]
) -> None:
    await host.ready(env=env)
    (starter,) = host.starters()
    os.kill(starter, signal.SIGSTOP)
    plan = host.plan(*[("-c", "import os; print(os.getpid())")] * 4, env=env)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.start, plan)
        await until((host.directory / "runs" / plan.run / "rank-3.out").exists)
        os.kill(starter, signal.SIGKILL)
    outcomes = await host.finish(plan)
    assert all(one.exit.ok and one.how.startswith("cold: ") for one in outcomes), outcomes
    assert all(len(one.output.split()) == 1 for one in outcomes)


async def test_a_run_that_is_ended_while_it_is_forked_never_runs(host: WarmHost, env: dict[str, str]) -> None:
    await host.ready(env=env)
    (starter,) = host.starters()
    os.kill(starter, signal.SIGSTOP)
    plan = host.plan(*[("-c", "print('ran')")] * 2, env=env)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(host.start, plan)
        await until((host.directory / "runs" / plan.run / "rank-1.out").exists)
        tasks.start_soon(host.host.runs.call_one, Runs.end, plan.run, None, "cancelled", 0.0)
        for _ in range(2):  # calls of one connection begin in order: behind the second, the end has begun
            await host.host.runs.call_one(Runs.processes, plan.run, None)
        os.kill(starter, signal.SIGCONT)
    outcomes = await host.finish(plan)
    assert [(one.exit.ended_by, one.output) for one in outcomes] == [("cancelled", "")] * 2
    assert (await outcome(host, env))[0] == "warm"


async def test_many_runs_leave_nothing_in_starter_and_agent(
    host: WarmHost, env: dict[str, str], full_size: bool
) -> None:
    await host.ready(env=env)
    (starter,) = host.starters()

    def sizes() -> list[int]:
        return [
            number
            for pid in (starter, host.host.agent)
            for number in (len(os.listdir(f"/proc/{pid}/fd")), rss_kb(pid) // 1024)
        ]

    ranks = 10
    for _ in range(3):
        await host.run(host.plan(*[("-c", "pass")] * ranks, env=env))
    before = sizes()
    for _ in range(50 if full_size else 10):
        outcomes = await host.run(host.plan(*[("-c", "pass")] * ranks, env=env))
        assert {one.how for one in outcomes} == {"warm"}
    after = sizes()
    assert after[0] == before[0]
    assert after[2] == before[2]
    assert after[1] <= before[1] + 2
    assert after[3] <= before[3] + 6
    table = ptree.snapshot()
    below = ptree.descendants(table, [host.host.agent])
    assert below == {starter, host.host.starter}


async def test_the_end_of_a_run_looks_at_nothing_that_was_imported_before(
    host: WarmHost, env: dict[str, str]
) -> None:
    """It would be copied: that is the longest that a run without use for it does."""
    await host.ready(env=env)
    code = (
        "import gc\nclass Last:\n  def __del__(self, frozen=gc.get_freeze_count): print(frozen() > 1000)\n"
        "last = Last()\n"
    )
    (outcome,) = await host.run(host.plan(("-c", code), env=env))
    assert (outcome.how, outcome.output) == ("warm", "True\n")


async def test_the_marks_of_a_warm_rank_are_those_of_a_cold_one(host: WarmHost, env: dict[str, str]) -> None:
    """A daemon of it that left its session is found by them."""
    await host.ready(env=env)
    code = "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(99)\n"
    plan = host.plan(("-c", code), env=env)
    await host.start(plan)
    await until(lambda: host.events(plan.run, "run_ended"))
    (ended,) = host.events(plan.run, "run_ended")
    assert "background process" in ended.detail
    assert [event.detail for event in host.events(plan.run, "rank_started")] == ["warm"]


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
async def test_ps_shows_the_users_command(host: WarmHost, env: dict[str, str]) -> None:
    await host.ready(env=env)
    plan = host.plan(("-c", "import time; time.sleep(99)", "--word"), env=env)
    await host.start(plan)
    (started,) = host.events(plan.run, "rank_started")
    shown = await anyio.run_process(["ps", "-ww", "-o", "comm=,args=", "-p", str(started.pid)])
    name, _, words = shown.stdout.decode().strip().partition(" ")
    assert name.startswith("python")
    assert words.strip().endswith("python -c import time; time.sleep(99) --word")
    assert "MILKWEED_STARTER" not in ptree.read_environ(started.pid or 0)
    await host.host.runs.call_one(Runs.end, plan.run, None, "cancelled", 0.0)


async def test_stacks_of_a_warm_rank_are_its_own_from_outside_and_inside(
    host: WarmHost, env: dict[str, str]
) -> None:
    host.write(
        {"waits.py": "import time\ndef train():\n    print('up', flush=True)\n    time.sleep(99)\ntrain()\n"}
    )
    await host.ready(env=env)
    plan = host.plan(("waits.py", "--word"), env=env)
    await host.start(plan)
    (started,) = host.events(plan.run, "rank_started")
    assert started.detail == "warm"
    pid = started.pid or 0
    directory = host.directory / "runs" / plan.run
    await until(lambda: (directory / "rank-0.out").read_text() == "up\n")
    shown = await anyio.run_process([Path(sys.executable).with_name("py-spy"), "dump", "--pid", str(pid)])
    lines = [line.split() for line in shown.stdout.decode().splitlines()]
    assert lines[0][-2:] == ["waits.py", "--word"]
    assert [words[0] for words in lines[-2:]] == ["train", "<module>"]
    assert can_dump(pid)
    os.kill(pid, DUMP_SIGNAL)
    await until(lambda: b"in train" in stack_file(directory, "rank-0", pid).read_bytes())
    dumped = stack_file(directory, "rank-0", pid).read_text().splitlines()
    assert [line.split()[-1] for line in dumped if "File" in line] == ["train", "<module>"]
    await host.host.runs.call_one(Runs.end, plan.run, None, "cancelled", 0.0)


def rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0
