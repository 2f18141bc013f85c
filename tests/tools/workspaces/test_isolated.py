"""What arrives on hosts with mounts of their own: by the mount alone, though they are on this machine."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes

from .stage import READS_WHEN_TOLD, processes_with, shown, until, waits_for_a_mount

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("place", ["isolated"], indirect=True),
]

LOOKS = """
import os, sys
directory, outside = sys.argv[1:3]
for path in (directory, f"{directory}/shown", f"{directory}/later", f"{directory}/secret", outside):
    try:
        found = os.stat(path)
        words = "as the client" if f"{found.st_dev}" == sys.argv[3] else "by a mount"
        print(os.path.basename(path), words, open(path).read() if os.path.isfile(path) else os.listdir(path))
    except FileNotFoundError:
        print(os.path.basename(path), "is not there")
print(os.getcwd() == directory)
"""


async def test_the_clients_directory_is_hidden_below_the_mount(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    """`outside` shows that the rest of this machine's files is theirs too: what hides is the mount."""
    directory = tmp_path / "ws"
    directory.mkdir()
    (directory / ".milkweedignore").write_text("secret\n")
    (directory / "shown").write_text("shown")
    (directory / "secret").write_text("secret")
    (tmp_path / "outside").write_text("outside")
    (tmp_path / "outside").chmod(0o644)
    own = str(directory.stat().st_dev)
    async with shown(real, place, directory) as mesh:
        (directory / "later").write_text("later")
        said = await mesh.python(LOOKS, str(directory), str(tmp_path / "outside"), own)
        names, *lines = said.splitlines()
        assert names.startswith("ws by a mount")
        assert sorted(eval(names.removeprefix("ws by a mount "))) == [".milkweedignore", "later", "shown"]
        assert lines == [
            "shown by a mount shown",
            "later by a mount later",
            "secret is not there",
            "outside as the client outside",
            "True",
        ]


async def test_nothing_can_be_read_while_its_mount_process_is_stopped(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    directory = tmp_path / "ws"
    directory.mkdir()
    (directory / "unfetched").write_text("fetched at last")
    async with shown(real, place, directory) as mesh:
        arguments = ("python", "-c", READS_WHEN_TOLD, str(tmp_path / "go"), str(directory / "unfetched"))
        run = (await mesh.run(*arguments, wait_s=0)).run
        await mesh.all_say(run, "up")
        processes = mesh.mount_processes()
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        try:
            (tmp_path / "go").touch()
            ranks = processes_with("READS_WHEN_TOLD", str(tmp_path / "go"))
            assert len(ranks) == 2
            await until(lambda: all(waits_for_a_mount(rank) for rank in ranks))
        finally:
            for process in processes:
                os.kill(process, signal.SIGCONT)
        ended = await mesh.ask("wait_for_run", run=run)
        assert ended.output_tail == "ranks 0-1:\nup\nfetched at last"


async def test_each_host_has_its_mount_in_a_namespace_of_its_own(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    async with shown(real, place, tmp_path) as mesh:
        for process in mesh.mount_processes():
            mounts = Path(f"/proc/{process}/mountinfo").read_text()
            assert [line for line in mounts.splitlines() if f" {tmp_path} " in line and "milkweed" in line]
        assert f" {tmp_path} " not in Path("/proc/self/mountinfo").read_text()
