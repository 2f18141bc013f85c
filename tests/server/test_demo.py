"""The demonstration: what it reads out of answers, that it fails where a step fails, and the whole of it."""

import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from mcp import Client

import milkweed.server.demo
from milkweed.server.app import create_server
from milkweed.server.demo import DemoFailed, leftovers, play, reading, story
from milkweed.server.demo.caller import Caller, as_call
from milkweed.server.screen import PlainScreen, RichScreen
from milkweed.tools.registry import Registry
from tests.fakes import FakeMeshes

pytestmark = pytest.mark.anyio

WORKSPACE = Path(milkweed.server.demo.__file__).resolve().parent / "workspace"
MILKWEED = Path(sys.executable).with_name("milkweed")
OUTPUT = """\
rank 0:
step   0 loss 5.571
step   6 loss 3.017
finished: mean loss 2.586
ranks 1-3: no output
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the demonstration makes its directory: with a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="mw-") as path:
        monkeypatch.setattr(tempfile, "tempdir", path)
        yield Path(path)


def test_losses_are_read_by_step() -> None:
    assert reading.step_losses(OUTPUT) == {0: 5.571, 6: 3.017}
    assert reading.final_loss(OUTPUT) == 2.586
    assert reading.final_loss("step   0 loss 5.571\n") is None


def test_the_edit_makes_all_ranks_take_as_many_steps() -> None:
    script = (WORKSPACE / story.SCRIPT).read_text()
    assert script.count(story.BROKEN) == 1
    mended = script.replace(story.BROKEN, story.MENDED)
    compile(mended, story.SCRIPT, "exec")
    shown = reading.diff(script, mended, story.SCRIPT).splitlines()
    assert [line.lstrip("+-").strip() for line in shown if line[1:].startswith(" ") and line[0] in "+-"] == [
        story.BROKEN,
        story.MENDED,
    ]


def test_a_call_is_shown_as_it_is_made() -> None:
    shown = as_call("stack_dump", {"target": "run-7fx", "native": False})
    assert shown == 'stack_dump(target="run-7fx", native=false)'


@pytest.mark.parametrize("screen_of", [PlainScreen, RichScreen])
async def test_an_answer_is_shown_and_counted_as_a_model_sees_it(
    screen_of: type[PlainScreen | RichScreen],
) -> None:
    output = io.StringIO()
    server = create_server(FakeMeshes().open, Registry.load())
    async with Client(server) as client:
        caller = Caller(client, screen_of(output))
        answer = await caller("list_meshes")
    caller.screen.table(caller.rows())
    assert answer.text == '{"meshes": [], "next": "allocate_mesh gives one."}'
    shown = output.getvalue()
    assert "list_meshes()" in shown
    assert "allocate_mesh gives one." in shown
    assert f"{len(answer.text)} characters" in shown
    assert list(caller.rows())[-1][:3] == ("all", 1, len(answer.text))


async def test_an_answer_that_is_not_as_it_should_be_fails_it(tmp_path: Path) -> None:
    server = create_server(FakeMeshes().open, Registry.load())
    failure = None
    async with Client(server) as client:
        try:
            await story._tell(Caller(client, PlainScreen(io.StringIO())), tmp_path)
        except DemoFailed as error:
            failure = error
    assert str(failure).startswith("expected a run that goes on, got: {")


@pytest.mark.parametrize("command", ["/bin/false", "/no/such/program"])
async def test_a_server_that_does_not_answer_fails_it(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(story, "_serve_command", lambda: (command,))
    output = io.StringIO()
    with pytest.raises(DemoFailed, match=r"^expected answers of milkweed serve, got: "):
        await play(PlainScreen(output))
    (kept,) = folder.iterdir()
    assert f"Logs and output are in {kept}" in output.getvalue()


async def test_processes_that_name_the_directory_are_found_and_ended(tmp_path: Path) -> None:
    env = {**os.environ, "SOME_PLACE": f"{tmp_path}/state"}
    async with await anyio.open_process(["sleep", "1000"], env=env) as process:
        assert set(await leftovers.wait_until_none(tmp_path, 0.0)) == {process.pid}
        assert await leftovers.end(tmp_path, 10.0) == {}
        assert await process.wait() == -signal.SIGKILL


def test_the_whole_demonstration(folder: Path) -> None:
    done = subprocess.run(
        [MILKWEED, "demo"],
        env={**os.environ, "TMPDIR": str(folder), "MILKWEED_STATE_DIR": str(folder / "never")},
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"cause": "left_early"' in done.stdout
    assert "Rank 3 left the loop early and is at train.py:" in done.stdout
    assert "Loss fell from " in done.stdout
    assert "No process of it is left." in done.stdout
    assert list(folder.iterdir()) == []
