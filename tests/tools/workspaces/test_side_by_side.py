"""Meshes side by side: what hangs of one is nothing to the others."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.paths import Places

from .stage import READS_WHEN_TOLD, processes_with, shown, until, waits_for_a_mount

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@contextmanager
def stopped(*processes: int, index: Path | None = None) -> Iterator[None]:
    """None of them in the middle of a change of the index, which it would keep from all others."""
    with exclusively(index) if index is not None else nullcontext():
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        for process in processes:
            while state_of(process) not in "TZ":
                os.sched_yield()
    try:
        yield
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


@contextmanager
def exclusively(index: Path) -> Iterator[None]:
    with closing(sqlite3.connect(index, timeout=30, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        yield


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("place", "whose"), [("mount", "mount processes"), ("isolated", "keeper")], indirect=["place"]
)
async def test_a_mesh_goes_on_while_those_of_another_are_stopped(
    real: Meshes, places: Places, place: str, whose: str, tmp_path: Path
) -> None:
    for name in ("stopped", "going"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data").write_text("old")
    script = "print(open('data').read())"
    async with shown(real, place, tmp_path / "stopped", "stopped") as hangs:
        assert await hangs.python(script) == "old"
        processes = hangs.mount_processes() if whose == "mount processes" else [hangs.keeper()]
        assert processes
        with stopped(*processes, index=places.index):
            async with shown(real, place, tmp_path / "going", "going") as goes:
                for word in ("first", "second"):
                    (tmp_path / "going" / "data").write_text(word)
                    assert await goes.python(script) == word
                status = await goes.ask("mesh_status", mesh=goes.mesh)
                assert status.state == "ready"
            listed = (await hangs.ask("list_meshes")).meshes
            assert [one.mesh for one in listed] == [hangs.mesh]
            if whose == "mount processes":
                assert listed[0].state == "ready"
                await hangs.ask("release_mesh", mesh=hangs.mesh)
                assert hangs.mesh not in Path("/proc/self/mountinfo").read_text()
                await until(lambda: not set(processes) & set(hangs.mount_processes()))


@pytest.mark.parametrize("place", ["mount", "isolated"], indirect=True)
async def test_a_release_ends_what_waits_for_a_mount_process_that_is_stopped(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    directory = tmp_path / "ws"
    directory.mkdir()
    (directory / "unfetched").write_text("x")
    async with shown(real, place, directory) as mesh:
        arguments = ("python", "-c", READS_WHEN_TOLD, str(tmp_path / "go"), "unfetched")
        run = (await mesh.run(*arguments, wait_s=0)).run
        await mesh.all_say(run, "up")
        processes = mesh.mount_processes()
        with stopped(*processes):
            (tmp_path / "go").touch()
            ranks = processes_with("READS_WHEN_TOLD", str(tmp_path / "go"))
            await until(lambda: all(waits_for_a_mount(rank) for rank in ranks))
            await mesh.ask("release_mesh", mesh=mesh.mesh)
        assert mesh.mesh not in Path("/proc/self/mountinfo").read_text()
        await until(lambda: not mesh.mount_processes())
        await until(lambda: not processes_with("READS_WHEN_TOLD", str(tmp_path / "go")))
