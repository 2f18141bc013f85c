"""Mount processes and keepers that are killed or stopped, of hosts that are in use."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import MilkweedError, Unavailable

from .stage import READS_WHEN_TOLD, Shown, processes_with, shown, told, until, waits_for_a_mount

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

mounted = pytest.mark.parametrize("place", ["mount", "isolated"], indirect=True)


@pytest.mark.parametrize("place", ["mount"], indirect=True)
async def test_a_run_leaves_the_mount_process_alone(real: Meshes, place: str, tmp_path: Path) -> None:
    """What a run leaves behind is ended with it: what shows it the workspace is not that."""
    async with shown(real, place, tmp_path) as mesh:
        before = sorted(mesh.mount_processes())
        assert len(before) == 2
        for _ in range(3):
            await mesh.python("import subprocess; subprocess.Popen(['setsid', 'env', '-i', 'sleep', '600'])")
        assert sorted(mesh.mount_processes()) == before


@mounted
async def test_a_mount_process_that_is_killed_is_back_for_the_next_run(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text("print(open('data').read())\n")
    async with shown(real, place, tmp_path) as mesh:
        for word in ("first", "second", "third"):
            for process in mesh.mount_processes():
                os.kill(process, signal.SIGKILL)
            (tmp_path / "data").write_text(word)
            assert await mesh.succeed("python", "main.py") == word


FOLLOWS = """
import os, pathlib
here = os.getcwd()
def look():
    try:
        return pathlib.Path(here, "data").read_text()
    except OSError as error:
        return os.strerror(error.errno)
seen = []
while "after" not in seen:
    if (found := look()) not in seen:
        seen.append(found)
        print("saw", found, flush=True)
"""


@pytest.mark.parametrize("place", ["isolated"], indirect=True)
async def test_a_run_during_which_its_mount_process_is_killed_has_the_tree_back(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("before")
    async with shown(real, place, tmp_path) as mesh:
        run = (await mesh.run("python", "-c", FOLLOWS, wait_s=0)).run
        await mesh.all_say(run, "saw before")
        killed = mesh.mount_processes()
        for process in killed:
            os.kill(process, signal.SIGKILL)
        await until(lambda: len(mesh.mount_processes()) == 2 and not {*killed} & {*mesh.mount_processes()})
        (tmp_path / "data").write_text("after")
        ended = await mesh.ask("wait_for_run", run=run)
        assert ended.state == "succeeded", told(ended)
        what = f"the process that shows {tmp_path} ended (SIGKILL): "
        assert sorted(warning.partition(what)[0] for warning in ended.warnings) == ["host 0: ", "host 1: "]


@mounted
async def test_a_read_that_waits_for_a_keeper_that_is_killed_goes_on_with_the_next(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "unfetched").write_text("fetched at last")
    async with shown(real, place, tmp_path / "ws") as mesh:
        arguments = ("python", "-c", READS_WHEN_TOLD, str(tmp_path / "go"), "unfetched")
        run = (await mesh.run(*arguments, wait_s=0)).run
        await mesh.all_say(run, "up")
        keeper = mesh.keeper()
        os.kill(keeper, signal.SIGSTOP)
        (tmp_path / "go").touch()
        ranks = processes_with("READS_WHEN_TOLD", str(tmp_path / "go"))
        assert len(ranks) == 2
        await until(lambda: all(waits_for_a_mount(rank) for rank in ranks))
        os.kill(keeper, signal.SIGKILL)
        ended = await mesh.ask("wait_for_run", run=run)
        assert ended.state == "succeeded", told(ended)
        assert ended.output_tail == "ranks 0-1:\nup\nfetched at last"
        assert mesh.keeper() != keeper


@pytest.mark.parametrize("place", ["isolated", "copy"], indirect=True)
async def test_the_keeper_and_all_mount_processes_may_be_killed_at_once(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text("print(open('data').read(), open('old').read())\n")
    (tmp_path / "old").write_text("old")
    async with shown(real, place, tmp_path) as mesh:
        for word in ("first", "second"):
            for process in (mesh.keeper(), *mesh.mount_processes()):
                os.kill(process, signal.SIGKILL)
            (tmp_path / "data").write_text(word)
            assert await said(mesh) == f"{word} old"


async def said(mesh: Shown) -> str:
    await (await mesh.real.get(mesh.mesh)).wait_ready(20)  # a call that meets the death is told of it
    return await mesh.succeed("python", "main.py")


@pytest.mark.parametrize("place", ["mount"], indirect=True)
async def test_no_mount_is_left_when_nobody_of_its_host_is_left_to_unmount_it(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    async with shown(real, place, tmp_path) as mesh:
        agent = (await (await real.get(mesh.mesh)).view()).hosts[1].agent_pid
        assert agent is not None
        guard = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
        for process in (guard, agent, *mesh.mount_processes(1)):
            os.kill(process, signal.SIGKILL)
        await until(lambda: str(mesh.tree(1)) not in Path("/proc/self/mountinfo").read_text())


@pytest.mark.parametrize("place", ["mount"], indirect=True)
async def test_a_run_is_refused_while_a_host_does_not_follow_and_says_which(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    """Rather than that it runs with old files."""
    (tmp_path / "data").write_text("old")
    async with shown(real, place, tmp_path) as mesh:
        (process,) = mesh.mount_processes(1)
        os.kill(process, signal.SIGSTOP)
        (tmp_path / "data").write_text("new")
        with pytest.raises(Unavailable, match="workspace_behind: host 1 is not showing"):
            await mesh.run("python", "-c", "print(open('data').read())")
        os.kill(process, signal.SIGCONT)
        assert await mesh.python("print(open('data').read())") == "new"


@pytest.mark.parametrize("place", ["mount"], indirect=True)
async def test_an_agent_that_waits_in_a_mount_that_hangs_is_freed(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    """To start a program it has to wait for the mount; to end the mount process that hangs it must not."""
    (tmp_path / "program").write_text("#!/bin/sh\necho started\n")
    (tmp_path / "program").chmod(0o755)
    async with shown(real, place, tmp_path) as mesh:
        (hangs,) = mesh.mount_processes(1)
        os.kill(hangs, signal.SIGSTOP)
        with suppress(MilkweedError):  # whatever is said of it
            await mesh.run("./program")
        await until(lambda: mesh.mount_processes(1) not in ([], [hangs]), within_s=40)
        assert await mesh.succeed("./program") == "started"
    assert mesh.mesh not in Path("/proc/self/mountinfo").read_text()


@mounted
async def test_a_mount_that_was_given_up_is_tried_again_by_the_next_run(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    (tmp_path / "main.py").write_text("print(open('data').read())\n")
    (tmp_path / "data").write_text("first")
    async with shown(real, place, tmp_path) as mesh:
        while processes := mesh.mount_processes():  # until no other is started
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            with anyio.move_on_after(3.0):
                await until(lambda: len(mesh.mount_processes()) > 0)
        with suppress(Unavailable):
            await mesh.run("python", "main.py")
        await until(lambda: len(mesh.mount_processes()) == 2)
        (tmp_path / "data").write_text("second")
        assert await mesh.succeed("python", "main.py") == "second"


@pytest.mark.parametrize("place", ["isolated", "copy"], indirect=True)
async def test_a_workspace_that_was_not_there_for_a_new_keeper_is_fed_when_it_is_back(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    work, away = tmp_path / "ws", tmp_path / "away"
    work.mkdir()
    (work / "main.py").write_text("print('here')\n")
    async with shown(real, place, work) as mesh:
        assert await mesh.succeed("python", "main.py") == "here"
        work.rename(away)
        os.kill(mesh.keeper(), signal.SIGKILL)
        await (await real.get(mesh.mesh)).wait_ready(20)
        with pytest.raises(Unavailable, match="workspace_behind"):
            await mesh.run("python", "main.py")
        away.rename(work)
        assert await mesh.succeed("python", "main.py") == "here"


@pytest.mark.parametrize("place", ["copy"], indirect=True)
async def test_that_the_workspace_was_edited_is_known_over_the_death_of_a_keeper(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    async with shown(real, place, tmp_path) as mesh:
        for word in ("first", "second"):
            (tmp_path / "data").write_text(word)
            run = (await mesh.run("python", "-c", "")).run
        for edited in (False, True):
            os.kill(mesh.keeper(), signal.SIGKILL)
            if edited:
                (tmp_path / "data").write_text("third")
            await (await real.get(mesh.mesh)).wait_ready(20)
            assert (await mesh.ask("wait_for_run", run=run, timeout_s=0)).edited_since_start == edited
