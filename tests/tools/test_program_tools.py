"""The toolset program: on meshes in memory, and with real programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import Conflict, InvalidArgument, NotFound
from milkweed.tools.registry import Call, Registry
from tests.fakes import FakeMesh, FakeMeshes
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio


def asker(meshes: Any) -> Ask:
    registry = Registry.load("mesh,run,files,debug,program")

    async def report(done: float, total: float | None, message: str) -> None: ...

    async def ask(tool: str, /, **arguments: Any) -> Any:
        return await registry.find(tool)(Call(meshes, report, "tester"), arguments)

    return ask


@pytest.fixture
def ask(meshes: FakeMeshes) -> Ask:
    return asker(meshes)


def test_it_is_served_only_where_it_is_asked_for() -> None:
    assert "run_controller" not in {tool.name for tool in Registry.load().tools}
    assert [tool.name for tool in Registry.load("program").tools] == ["run_controller"]


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("controller.py --steps 5", ("python", "controller.py", "--steps", "5")),
        ("sub/dir/controller.py", ("python", "sub/dir/controller.py")),
        ("python -m package.controller", ("python", "-m", "package.controller")),
        (["/opt/bin/python3.12", "tool", "a b"], ("/opt/bin/python3.12", "tool", "a b")),
    ],
)
async def test_a_python_program_becomes_a_run_of_one_process_that_is_attached(
    ask: Ask, mesh: FakeMesh, command: Any, argv: tuple[str, ...]
) -> None:
    result = await ask("run_controller", mesh="demo", command=command, cwd="sub", env={"A": "b"}, timeout_s=5)
    request = mesh.held[result.run].request
    assert request is not None
    assert (request.argv, request.launcher, request.attach) == (argv, "single", True)
    assert (request.cwd, request.env, request.timeout_s) == ("/ws/sub", {"A": "b"}, 5.0)
    assert request.warm
    assert result.state == "succeeded"


async def test_a_program_starts_cold_where_that_is_asked_for(ask: Ask, mesh: FakeMesh) -> None:
    result = await ask("run_controller", mesh="demo", script="print(1)", options={"warm": False})
    request = mesh.held[result.run].request
    assert request is not None
    assert not request.warm


async def test_the_text_of_a_program_is_taken_as_it_is(ask: Ask, mesh: FakeMesh) -> None:
    script = "#!/usr/bin/env python3\nprint(1)\n"
    request = mesh.held[(await ask("run_controller", mesh="demo", script=script)).run].request
    assert request is not None
    assert (request.argv, request.script, request.attach) == ((), script, True)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "needs a command or a script"),
        ({"command": "a.py", "script": "b"}, "not both"),
        ({"command": "train.sh"}, "'train.sh' is no Python program"),
        ({"command": "bash -c 'python a.py'"}, "'bash' is no Python program"),
        ({"command": "python"}, "is no Python program"),
        ({"command": "a.py | tee log"}, "a pipe"),
        ({"command": ""}, "the command is empty"),
        ({"script": " \n"}, "the script is empty"),
        ({"script": "controller.py"}, "is the name of a file"),
        ({"script": "#!/bin/bash\necho"}, "the script is for /bin/bash"),
        ({"command": "a.py", "env": {"MILKWEED_ATTACH": "{}"}}, "is Milkweed's own"),
        ({"command": "a.py", "wait_s": 46}, "wait_s must be"),
        ({"command": "a.py", "ranks": "0"}, "unknown argument 'ranks'"),
    ],
)
async def test_what_is_no_program_starts_nothing(
    ask: Ask, mesh: FakeMesh, wrong: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgument, match=told):
        await ask("run_controller", mesh="demo", **wrong)
    assert not mesh.held


async def test_an_unknown_mesh_or_one_that_is_released_is_told(ask: Ask, mesh: FakeMesh) -> None:
    with pytest.raises(NotFound, match="mesh_not_found"):
        await ask("run_controller", mesh="nope", command="a.py")
    await ask("release_mesh", mesh="demo")
    with pytest.raises(Conflict, match="mesh_released"):
        await ask("run_controller", mesh=mesh.id, command="a.py")


RAISES = """
from mine import WORD
from milkweed.runtime import attach

procs = attach().spawn_procs(per_host={"gpus": 2}).get()
raise RuntimeError(f"{WORD} on {len(procs)}")
"""


async def test_real_programs_are_told_as_runs_are(real: Meshes, tmp_path: Path) -> None:
    ask = asker(real)
    mesh = (await ask("allocate_mesh", name="t", workspace=str(tmp_path))).mesh
    (tmp_path / "mine.py").write_text("WORD = 'stuck'\n")
    (tmp_path / "wrong.py").write_text("echo $HOME\n")
    (tmp_path / "quiet.py").write_text("")

    raised = await ask("run_controller", mesh=mesh, script=RAISES)
    assert (raised.state, raised.first_failure.exit) == ("failed", "exit 1")
    assert raised.first_failure.exception == "RuntimeError: stuck on 2"

    wrong = await ask("run_controller", mesh=mesh, command="wrong.py")
    assert (wrong.state, wrong.first_failure.exception) == ("failed", "SyntaxError: invalid syntax")

    quiet = await ask("run_controller", mesh=mesh, command="quiet.py")
    assert (quiet.state, quiet.output_tail, quiet.warnings) == ("succeeded", "", [])

    with pytest.raises(NotFound, match=r"no program quiett\.py on t-0; in '?.*'?: quiet\.py"):
        await ask("run_controller", mesh=mesh, command="quiett.py")


LOSES = """
import os, signal, time
from milkweed.runtime import Actor, attach, endpoint

class Probe(Actor):
    @endpoint
    async def pid(self):
        return os.getpid()

probe = attach().spawn_procs(name="p").get().spawn("probe", Probe).get()
os.kill(probe.pid.call().get()[0], signal.SIGKILL)
time.sleep(1000)
"""


async def test_the_program_that_the_description_shows_runs(real: Meshes, tmp_path: Path) -> None:
    ask = asker(real)
    await ask("allocate_mesh", name="t", workspace=str(tmp_path))
    (tool,) = Registry.load("program").tools
    shown = [line[4:] for line in tool.description.splitlines() if line.startswith("    ")]
    with anyio.fail_after(90):
        result = await ask("run_controller", mesh="t", script="\n".join(shown), wait_s=45)
    assert (result.state, result.output_tail) == ("succeeded", "[0, 2]")


async def test_a_mesh_that_is_degraded_by_a_controller_says_what_helps(real: Meshes, tmp_path: Path) -> None:
    ask = asker(real)
    mesh = (await ask("allocate_mesh", name="t", workspace=str(tmp_path))).mesh
    run = (await ask("run_controller", mesh=mesh, script=LOSES, wait_s=0)).run
    waited = await ask("wait_for_run", run=run, pattern="nobody handled")
    assert (waited.state, waited.matched) == ("running", True)
    status = await ask("mesh_status", mesh=mesh)
    assert (status.state, status.hosts_by_state) == ("degraded", {"ready": "0"})
    assert status.reason.startswith(f"{run} did not handle a failure: proc p-")
    assert status.next.startswith("Its hosts are well")
    assert any(f"keeper failure_unhandled {run} proc p-" in event for event in status.events)
    cancelled = await ask("cancel_run", run=run)
    assert cancelled.warnings[0].startswith("nobody handled: proc p-")


# Neither asks before both are in their endpoint: who asked earlier would be answered.
DEADLOCKS = """
import time
from pathlib import Path
from milkweed.runtime import Actor, attach, current_rank, endpoint

class Stage(Actor):
    @endpoint
    def connect(self, peer, here):
        self.peer, self.here = peer, here

    @endpoint
    def exchange(self):
        (self.here / f"in-{current_rank().rank}").touch()
        while not all((self.here / f"in-{rank}").exists() for rank in (0, 1)):
            time.sleep(0.01)
        return self.peer.state.call_one().get()

    @endpoint
    def state(self):
        return 1

hosts = attach()
idle = hosts.slice(hosts=0).spawn_procs({"gpus": 2}, name="idle").get()
stages = hosts.spawn_procs(name="stages").get().spawn("stages", Stage).get()
left, right = stages.slice(hosts=0), stages.slice(hosts=1)
left.connect.call_one(right, Path.cwd()).get()
right.connect.call_one(left, Path.cwd()).get()
print("connected", flush=True)
stages.exchange.call().get()
"""


async def test_actors_that_wait_for_each_other_are_told_by_one_stack_dump(
    real: Meshes, tmp_path: Path
) -> None:
    ask = asker(real)
    mesh = (await ask("allocate_mesh", name="t", hosts=2, workspace=str(tmp_path))).mesh
    run = (await ask("run_controller", mesh=mesh, script=DEADLOCKS, wait_s=0)).run
    await ask("wait_for_run", run=run, pattern="connected")
    with anyio.fail_after(30):
        while "deadlock" not in (text := (await ask("stack_dump", target=run)).text):
            await anyio.sleep(0.05)
    assert (
        "deadlock: stages 0 in Stage.exchange waits for Stage.state on stages 1,"
        " stages 1 in Stage.exchange waits for Stage.state on stages 0"
    ) in text
    assert "rank 0 is in a call of stages.exchange on stages 0-1" in text.splitlines()[0]
    assert "milkweed/runtime" not in text
    assert len(text.encode()) < 1400
    only = (await ask("stack_dump", target=run, ranks="0")).text
    assert "stages 0 in Stage.exchange" not in only
    status = await ask("mesh_status", mesh=mesh)
    assert len(status.procs) == 2
    assert " 0-1: 2 ok" in status.procs[0]
    await ask("cancel_run", run=run)
    assert (await ask("mesh_status", mesh=mesh)).procs == []


AWAITS = """
import asyncio
from milkweed.runtime import Actor, attach, current_rank, endpoint

class Worker(Actor):
    @endpoint
    async def step(self):
        if current_rank().rank == 1:
            await asyncio.sleep(1000)

async def main():
    workers = await (await attach().spawn_procs({"gpus": 2}, name="workers")).spawn("workers", Worker)
    print("up", flush=True)
    await workers.step.call()

asyncio.run(main())
"""


async def test_async_programs_and_endpoints_are_told_where_they_await(real: Meshes, tmp_path: Path) -> None:
    ask = asker(real)
    mesh = (await ask("allocate_mesh", name="t", workspace=str(tmp_path))).mesh
    run = (await ask("run_controller", mesh=mesh, script=AWAITS, wait_s=0)).run
    await ask("wait_for_run", run=run, pattern="up")
    with anyio.fail_after(30):
        while "workers 0 is idle" not in (text := (await ask("stack_dump", target=run)).text):
            await anyio.sleep(0.05)
    assert text.splitlines()[0] == (
        f"{run}: rank 0 is in a call of workers.step on workers 1 (script:14 main);"
        " workers 1 is in asyncio.sleep (script:9 Worker.step); workers 0 is idle"
    )
