"""The workspace on hosts that do not see it themselves: meshes of real processes, by the tools alone."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client.meshes import Meshes
from milkweed.runtime.errors import NotFound
from tests.tools.test_program_tools import asker

from .stage import arguments, told

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


async def test_a_run_sees_the_last_edit_on_every_host(real: Meshes, place: str, tmp_path: Path) -> None:
    ask = asker(real)
    (tmp_path / "main.py").write_text("import part; print('value', part.VALUE)\n")
    (tmp_path / "part.py").write_text("VALUE = 10\n")
    mesh = await ask("allocate_mesh", **arguments(place, tmp_path))
    assert mesh.warnings == []
    for value in range(11, 23):
        (tmp_path / "part.py").write_text(f"VALUE = {value}\n")  # of one size, some within one second
        run = await ask("run_on_mesh", mesh=mesh.mesh, command=["python", "main.py"], wait_s=40)
        assert run.state == "succeeded", told(run)
        assert run.output_tail.count(f"value {value}") == 1, run.output_tail
        assert "0-1" in run.output_tail
        assert int(run.workspace_revision) >= int(mesh.workspace_revision)
        assert not run.edited_since_start
    (tmp_path / "part.py").write_text("VALUE = 99\n")
    with anyio.fail_after(10):
        while not (await ask("wait_for_run", run=run.run, timeout_s=0)).edited_since_start:
            await anyio.sleep(0.02)


async def test_tracebacks_and_stacks_are_told_in_the_clients_paths(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    ask = asker(real)
    (tmp_path / "main.py").write_text("import sys, time\ndef f():\n    raise ValueError(1)\nf()\n")
    (tmp_path / "wait.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1000)\n")
    mesh = (await ask("allocate_mesh", **arguments(place, tmp_path))).mesh
    failed = await ask("run_on_mesh", mesh=mesh, command=["python", "main.py"], wait_s=40)
    assert failed.first_failure.traceback.splitlines()[0].strip().startswith("main.py:4 <module>"), failed
    waiting = await ask("run_on_mesh", mesh=mesh, command=["python", "wait.py"], wait_s=0)
    await ask("wait_for_run", run=waiting.run, pattern="up")
    stacks = (await ask("stack_dump", target=waiting.run)).text
    assert "wait.py:3" in stacks
    assert f"{mesh}/hosts" not in stacks


async def test_what_hosts_are_not_shown_is_said(real: Meshes, place: str, tmp_path: Path) -> None:
    ask = asker(real)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "object").write_bytes(bytes(3_000_000))
    (tmp_path / "main.py").write_text("import os; print(sorted(os.listdir()))\n")
    mesh = (await ask("allocate_mesh", **arguments(place, tmp_path))).mesh
    with anyio.fail_after(10):
        while "3.0 MB" not in (said := (await ask("extend_lease", mesh=mesh, minutes=1)).workspace_left_out):
            await anyio.sleep(0.02)
    assert said.startswith(".git")
    run = await ask("run_on_mesh", mesh=mesh, command=["python", "main.py"], wait_s=40)
    assert "['main.py']" in run.output_tail


async def test_nothing_is_mounted_after_the_release_though_somebody_sits_there(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    ask = asker(real)
    (tmp_path / "main.py").write_text("print('up', flush=True); import time; time.sleep(1000)\n")
    mesh = (await ask("allocate_mesh", **arguments(place, tmp_path))).mesh
    run = (await ask("run_on_mesh", mesh=mesh, command=["python", "main.py"], wait_s=0)).run
    await ask("wait_for_run", run=run, pattern="up")
    await ask("release_mesh", mesh=mesh)
    mounts = Path("/proc/self/mountinfo").read_text()
    assert mesh not in mounts
    assert str(tmp_path) not in mounts


async def test_no_mount_is_left_when_an_agent_is_killed(real: Meshes, place: str, tmp_path: Path) -> None:
    ask = asker(real)
    mesh = (await ask("allocate_mesh", **arguments(place, tmp_path))).mesh
    for host in (await (await real.get(mesh)).view()).hosts:
        assert host.agent_pid is not None
        os.kill(host.agent_pid, signal.SIGKILL)
    with anyio.fail_after(30):
        while mesh in Path("/proc/self/mountinfo").read_text():
            await anyio.sleep(0.02)


async def test_a_keeper_that_was_killed_goes_on_feeding(real: Meshes, place: str, tmp_path: Path) -> None:
    ask = asker(real)
    (tmp_path / "main.py").write_text("print(open('data').read())\n")
    (tmp_path / "data").write_text("before")
    mesh = (await ask("allocate_mesh", **arguments(place, tmp_path))).mesh
    os.kill(int(real._places.mesh(mesh).lock.read_text()), signal.SIGKILL)
    await (await real.get(mesh)).wait_ready(20)  # which starts another keeper
    (tmp_path / "data").write_text("after")
    run = await ask("run_on_mesh", mesh=mesh, command=["python", "main.py"], wait_s=40)
    assert run.output_tail.count("after") == 1, told(run)


async def test_a_virtual_environment_without_its_base_is_told(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    ask = asker(real)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /opt/gone/bin\nversion = 3.99.1\n")
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/opt/gone/bin/python3.99")
    (tmp_path / ".venv" / "bin" / "python3").symlink_to(sys.executable)
    mesh = (await ask("allocate_mesh", **arguments(place, tmp_path))).mesh
    with pytest.raises(NotFound, match=r"made for Python 3\.99, and /opt/gone/.* is missing on "):
        await ask("run_on_mesh", mesh=mesh, command=[".venv/bin/python", "main.py"], wait_s=40)
    with pytest.raises(NotFound, match=r"made for Python 3\.99, and .* is Python 3\.\d+ on "):
        await ask("run_on_mesh", mesh=mesh, command=[".venv/bin/python3", "main.py"], wait_s=40)
