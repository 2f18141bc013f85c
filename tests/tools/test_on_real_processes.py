"""What an agent is told of faults that only a real process has, and of calls that meet."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import Conflict, MilkweedError
from tests.real_meshes import open_places, open_real_meshes
from tests.runtime.processes import checkers, eventually, of_mesh
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio

CGROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20


@pytest.fixture
async def meshes() -> AsyncIterator[Meshes]:
    with open_places() as places:
        async with open_real_meshes(places) as opened:
            yield opened


@pytest.fixture
async def mesh(ask: Ask, tmp_path: Path) -> str:
    """One host with one rank, whose workspace is `tmp_path`."""
    return str((await ask("allocate_mesh", name="t", workspace=str(tmp_path))).mesh)


async def test_a_syntax_error_is_told_as_such(ask: Ask, mesh: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nfor step in range(9)\n    print(step)\n")
    python = await ask("run_on_mesh", mesh=mesh, command="python train.py")
    assert (python.state, python.first_failure.exit) == ("failed", "exit 1")
    assert python.first_failure.exception == "SyntaxError: expected ':'"
    assert "train.py, line 2" in python.output_tail.replace('"', "")
    bash = await ask("run_on_mesh", mesh=mesh, script="echo before\nif true; then\n  echo inside\n")
    assert (bash.state, bash.first_failure.exit) == ("failed", "exit 2")
    assert "syntax error: unexpected end of file" in bash.output_tail


async def test_a_pattern_is_found_wherever_it_stands_in_the_output(ask: Ask, mesh: str) -> None:
    ended = await ask("run_on_mesh", mesh=mesh, script="echo needle 7; seq 20000")
    assert ended.state == "succeeded"
    found = await ask("wait_for_run", run=ended.run, pattern="needle [0-9]")
    assert (found.matched, found.match) == (True, "needle 7")
    missed = await ask("wait_for_run", run=ended.run, pattern="thread")
    assert (missed.matched, missed.match) == (False, "")


async def test_a_signal_at_death_tells_where_python_was(ask: Ask, mesh: str, tmp_path: Path) -> None:
    (tmp_path / "die.py").write_text("import ctypes\n\n\ndef poke():\n    ctypes.string_at(0)\n\n\npoke()\n")
    result = await ask("run_on_mesh", mesh=mesh, command="python die.py")
    assert result.first_failure.exit == "SIGSEGV"
    assert "die.py" in result.first_failure.traceback
    assert "poke" in result.first_failure.traceback


async def test_python_code_that_computes_is_not_said_to_hold_the_gil(
    ask: Ask, mesh: str, tmp_path: Path
) -> None:
    (tmp_path / "loop.py").write_text("print('ready', flush=True)\nwhile True: pass\n")
    (tmp_path / "match.py").write_text(
        "import re\nprint('ready', flush=True)\nre.match('(a+)+$', 'a' * 60 + 'b')\n"
    )
    for script, cause in (("loop.py", ""), ("match.py", "gil_held")):
        started = await ask("run_on_mesh", mesh=mesh, command=f"python {script}", wait_s=0)
        assert (await ask("wait_for_run", run=started.run, pattern="ready")).matched
        told = await ask("diagnose_run", run=started.run)
        assert told.cause == cause, told
        await ask("cancel_run", run=started.run)
    assert "in sre_" in told.evidence[-1]
    over = await ask("diagnose_run", run=started.run)
    assert over.finding == "It was cancelled, and nothing is found to be wrong."


async def test_a_run_that_removes_its_own_directory_harms_no_other(
    ask: Ask, mesh: str, tmp_path: Path
) -> None:
    (tmp_path / "tidy.py").write_text(
        "import os, shutil\nshutil.rmtree(os.environ['MILKWEED_RUN_DIR'])\nraise KeyError('label')\n"
    )
    run = await ask("run_on_mesh", mesh=mesh, command="python tidy.py")
    assert (run.state, run.first_failure.exit) == ("failed", "exit 1")
    assert any("output file was removed" in one for one in run.warnings)
    assert "0: exit 1" in (await ask("diagnose_run", run=run.run)).finding
    assert (await ask("run_on_mesh", mesh=mesh, command="true")).state == "succeeded"


async def test_an_exception_that_is_not_printed_is_told(ask: Ask, mesh: str, tmp_path: Path) -> None:
    (tmp_path / "quiet.py").write_text(
        "import sys\nsys.excepthook = lambda *_: None\nraise KeyError('label')\n"
    )
    run = await ask("run_on_mesh", mesh=mesh, command="python quiet.py")
    told = await ask("diagnose_run", run=run.run)
    assert (told.cause, told.ranks) == ("exception", "0")
    assert "KeyError: 'label' at quiet.py:3" in told.finding
    assert told.evidence[-1].startswith("not in its output")


async def test_a_rank_that_says_nothing_is_told_with_its_exit(ask: Ask, mesh: str, tmp_path: Path) -> None:
    run = await ask("run_on_mesh", mesh=mesh, command="python -c 'import os; os._exit(3)'")
    told = await ask("diagnose_run", run=run.run)
    assert told.cause == ""
    assert "0: exit 3" in told.finding
    assert told.evidence == ["rank 0 wrote nothing"]


async def test_two_runs_that_start_at_once_do_not_meet(ask: Ask, mesh: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "between")
    answers: list[Any] = []

    async def run(script: str) -> None:
        answers.append(await ask("run_on_mesh", mesh=mesh, script=script))

    async with anyio.create_task_group() as group:
        group.start_soon(run, "echo $MASTER_PORT >between")
        group.start_soon(run, "read other <between; test $other != $MASTER_PORT")
    assert [answer.state for answer in answers] == ["succeeded", "succeeded"]
    assert answers[0].run != answers[1].run


async def test_a_run_and_a_release_at_once_leave_nothing(ask: Ask, mesh: str) -> None:
    refused: list[str] = []

    async def run() -> None:
        try:
            answer = await ask("run_on_mesh", mesh=mesh, command="sleep 1000")
            assert (answer.state, answer.reason) == ("cancelled", "the mesh was released")
        except MilkweedError as error:
            refused.append(error.code)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(partial(ask, "release_mesh", mesh=mesh))
    assert refused in ([], ["mesh_released"])
    assert [run.state for run in (await ask("list_runs", mesh=mesh)).runs] == ["cancelled"] * (not refused)
    assert of_mesh(mesh) == []


async def test_a_run_is_refused_while_its_mesh_is_being_released(ask: Ask, mesh: str, tmp_path: Path) -> None:
    up, told = tmp_path / "up", tmp_path / "told"
    for fifo in (up, told):
        os.mkfifo(fifo)
    # Told to end, it goes on: the release now waits for it.
    stubborn = "trap 'echo >told' TERM; echo >up; while true; do sleep 1000 & wait || true; done"
    await ask("run_on_mesh", mesh=mesh, script=stubborn, wait_s=0)
    await anyio.to_thread.run_sync(up.read_text)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(ask, "release_mesh", mesh=mesh))
        await anyio.to_thread.run_sync(told.read_text)
        with pytest.raises(Conflict, match="mesh_released"):
            await ask("run_on_mesh", mesh=mesh, command="sleep 1000")
    assert [run.state for run in (await ask("list_runs", mesh=mesh)).runs] == ["cancelled"]
    assert of_mesh(mesh) == []


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A memory cgroup with room for 64 MiB, of version 1 or 2."""
    first = (CGROUPS / "memory").is_dir()
    group = CGROUPS / ("memory" if first else "") / f"milkweed-test-{secrets.token_hex(4)}"
    try:
        group.mkdir()
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(64 * MIB))
        (group / ("memory.swappiness" if first else "memory.swap.max")).write_text("0")
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"needs a memory cgroup: {error}")
    yield group
    group.rmdir()


async def test_a_rank_that_runs_out_of_memory_is_told_as_such(
    ask: Ask, mesh: str, small_cgroup: Path
) -> None:
    script = f"""
        echo $$ >{small_cgroup}/cgroup.procs
        exec python -c "b'x' * {1024 * MIB}"
    """
    answer = await ask("run_on_mesh", mesh=mesh, script=script)
    await eventually(lambda: not (small_cgroup / "cgroup.procs").read_text())
    assert answer.state == "failed"
    assert answer.first_failure.exit == "SIGKILL, likely out of memory: the kernel's oom_kill counter rose"


async def test_a_check_of_real_hosts_is_told_in_few_words(ask: Ask, mesh: str) -> None:
    answer = await ask("check_mesh", mesh=mesh)
    assert answer.verdict == "ok", answer
    assert [(item.hosts, item.verdict) for item in answer.host_list] == [("0", "ok")]
    assert [(item.links, item.transport, item.not_used) for item in answer.links] == [
        ("within 0", "process_vm", "")
    ]


async def test_a_host_that_is_killed_during_its_check_is_told_as_lost(
    ask: Ask, meshes: Meshes, tmp_path: Path
) -> None:
    mesh = (await ask("allocate_mesh", name="t", hosts=2, workspace=str(tmp_path))).mesh
    agent = (await (await meshes.get(mesh)).view()).hosts[1].agent_pid
    assert agent is not None
    answers: list[Any] = []

    async def check() -> None:
        answers.append(await ask("check_mesh", mesh=mesh))

    os.kill(agent, signal.SIGSTOP)  # the other one waits for its procs
    async with anyio.create_task_group() as group:
        group.start_soon(check)
        await eventually(lambda: checkers(mesh, 0), 60)
        os.kill(agent, signal.SIGKILL)
    with anyio.fail_after(60):
        while (await (await meshes.get(mesh)).view()).hosts[1].state != "lost":
            await anyio.sleep(0.02)
    answers.append(await ask("check_mesh", mesh=mesh))
    for answer in answers:
        assert answer.verdict == "something is wrong with host 1 of 2"
        assert [item.hosts for item in answer.host_list] == ["1", "0"]
        assert answer.host_list[1].verdict == "ok"
    assert answers[1].host_list[0].verdict == "lost: its agent was killed (SIGKILL)"
    assert "release_mesh" in answers[1].next
