"""Files of hosts at the end of a mesh: what is kept, what is asked about, what is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.paths import Places
from tests.tools.conftest import Ask
from tests.tools.test_program_tools import asker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

WRITES = "import os, pathlib; p = pathlib.Path(os.environ['TMPDIR']) / 'out'; p.mkdir(exist_ok=True);"


@pytest.fixture
def ask(real: Meshes) -> Ask:
    return asker(real)


async def test_what_a_run_asked_to_keep_is_in_the_data_directory_after_the_release(
    ask: Ask, places: Places, tmp_path: Path
) -> None:
    mesh = (await ask("allocate_mesh", name="a", hosts=2, workspace=str(tmp_path))).mesh
    script = (
        WRITES + "(p / f\"rank-{os.environ['RANK']}.txt\").write_text('kept'); (p / 'b').write_text('not')"
    )
    keep = [f"{places.state}/meshes/*/hosts/*/tmp/out/*.txt"]
    run = await ask("run_on_mesh", mesh=mesh, command=["python", "-c", script], options={"keep": keep})
    assert run.state == "succeeded"
    status = await ask("mesh_status", mesh=mesh)
    assert [line.partition(";")[0] for line in status.written] == [
        f"host {host}: 1 file, 3 B in TMPDIR" for host in (0, 1)
    ]
    released = await ask("release_mesh", mesh=mesh)
    assert released.state == "released"
    assert released.kept.startswith(f"2 files, 8 B, in {places.state}/data/{mesh}")
    kept = sorted(path.name for path in (places.state / "data" / mesh).glob("[0-9]*/**/*") if path.is_file())
    assert kept == ["rank-0.txt", "rank-1.txt"]
    assert "b: 3 B" in released.lost


async def test_what_is_in_the_way_of_keeping_is_said(ask: Ask, places: Places, tmp_path: Path) -> None:
    mesh = (await ask("allocate_mesh", name="a", workspace=str(tmp_path))).mesh
    keep = [f"{places.state}/**/out/*"]
    command = ["python", "-c", WRITES + "(p / 'a').write_text('x')"]
    await ask("run_on_mesh", mesh=mesh, command=command, options={"keep": keep})
    (places.state / "data").write_text("a file where the directory would be")
    released = await ask("release_mesh", mesh=mesh)
    assert released.state == "released"
    assert released.kept == ""
    (why,) = released.not_kept
    assert why.startswith("host 0: ")
    assert f"{places.state}/data is not a directory" in why
    where = Path(why.rpartition("it is in ")[2])
    assert (where.name, where.read_text()) == ("a", "x")


async def test_two_releases_at_once_are_one(ask: Ask, tmp_path: Path) -> None:
    mesh = (await ask("allocate_mesh", name="a", workspace=str(tmp_path))).mesh
    answers: list[Any] = []

    async def release() -> None:
        answers.append(await ask("release_mesh", mesh=mesh))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(release)
        tasks.start_soon(release)
    assert [answer.state for answer in answers] == ["released", "released"]
    assert sum(bool(answer.output_directory) for answer in answers) == 1


async def test_a_mesh_that_is_released_while_it_starts_did_not_fail(
    ask: Ask, places: Places, tmp_path: Path
) -> None:
    whys: list[str] = []

    async def allocate() -> None:
        try:
            await ask("allocate_mesh", name="a", hosts=2, workspace=str(tmp_path))
        except MilkweedError as error:
            whys.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(allocate)
        with anyio.fail_after(30):
            while not any("agent.log" in names for _, _, names in os.walk(places.state)):
                await anyio.sleep(0.01)
        await ask("release_mesh", mesh="a")
    assert not any("was killed" in why or "was told to end" in why for why in whys), whys


async def test_of_many_files_that_cannot_be_kept_a_few_are_named_and_the_rest_counted(
    ask: Ask, places: Places, tmp_path: Path
) -> None:
    mesh = (await ask("allocate_mesh", name="a", workspace=str(tmp_path))).mesh
    command = ["python", "-c", WRITES + "[(p / str(n)).write_text('x') for n in range(150)]"]
    await ask("run_on_mesh", mesh=mesh, command=command, options={"keep": [f"{places.state}/**/out/*"]})
    (places.state / "data").write_text("a file where the directory would be")
    told = (await ask("release_mesh", mesh=mesh)).not_kept
    assert len(told) == 6
    assert told[-1] == "and 145 more files"


async def test_what_hosts_have_that_are_lost_or_stopped_is_asked_about_too(
    ask: Ask, real: Meshes, tmp_path: Path
) -> None:
    mesh = (await ask("allocate_mesh", name="a", hosts=2, workspace=str(tmp_path))).mesh
    command = ["python", "-c", WRITES + "(p / 'a').touch(); os.truncate(p / 'a', 600 << 20)"]
    await ask("run_on_mesh", mesh=mesh, command=command)
    killed, stopped = (host.agent_pid for host in (await (await real.get(mesh)).view()).hosts)
    assert killed is not None
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    with anyio.fail_after(30):
        while (await ask("mesh_status", mesh=mesh)).hosts_by_state.get("lost") is None:
            await anyio.sleep(0.1)
    answer = await ask("release_mesh", mesh=mesh)
    assert answer.state == "not_released"
    assert answer.reason == "1.2 GB that only its hosts have would be lost"
    assert (await ask("release_mesh", mesh=mesh, confirm=answer.confirm)).state == "released"


@pytest.mark.parametrize("glob", ["", "  ", "..", "a/../../b", "/**", "**/../x"])
async def test_a_glob_that_names_nothing_below_a_directory_is_refused(
    ask: Ask, tmp_path: Path, glob: str
) -> None:
    mesh = (await ask("allocate_mesh", name="a", workspace=str(tmp_path))).mesh
    with pytest.raises(Exception, match="invalid_argument: keep="):
        await ask("run_on_mesh", mesh=mesh, command="true", options={"keep": [glob]})
    assert (await ask("list_runs", mesh=mesh)).runs == []
