"""A session over stdio that is recorded, and replayed against a server of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from mcp import Client, StdioServerParameters

from milkweed.server.demo import leftovers
from milkweed.server.transcripts.format import (
    EditStep,
    ExpectStep,
    Header,
    ShellStep,
    ToolStep,
    dump_line,
    parse,
)
from tests.runtime.hosts import until

pytestmark = pytest.mark.anyio

MILKWEED = (sys.executable, "-m", "milkweed.server.cli")
TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"
BROKEN = "import os\nprint('token', os.environ.get('X'), flush=True)\nprint(1 / (2 - 2))\n"
MENDED = BROKEN.replace("2 - 2", "2 - 1")

Places = dict[str, str]
Replayed = subprocess.CompletedProcess[str]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "train.py").write_text(BROKEN)
    return tmp_path / "ws"


async def record(file: Path, workspace: Path, places: Places) -> None:
    """A run that fails, its mend by an edit, and a run that ends well."""
    server = StdioServerParameters(
        command=MILKWEED[0],
        args=[*MILKWEED[1:], "serve", "--record", str(file)],
        env={**os.environ, **places, "MY_TOKEN": "a-very-secret-word"},
        cwd=workspace,
    )
    with anyio.fail_after(90):
        async with Client(server) as client:

            async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
                return dict((await client.call_tool(tool, arguments)).structured_content or {})

            mesh = (await ask("allocate_mesh", name="t", hosts=1, procs_per_host=2, workspace=str(workspace)))["mesh"]
            env = {"X": TOKEN, "Y": "a-very-secret-word"}
            failed = await ask("run_on_mesh", mesh=mesh, command="python train.py", env=env, wait_s=40)
            assert failed["state"] == "failed"
            (workspace / "train.py").write_text(MENDED)
            (workspace / "notes.md").write_text("mended\n")
            ended = await ask("run_on_mesh", mesh=mesh, command="python train.py", wait_s=40)
            assert ended["state"] == "succeeded"
            await ask("mesh_status", mesh="none")
            await ask("release_mesh", mesh=mesh)


@pytest.fixture
async def recorded(tmp_path: Path, workspace: Path, places: Places) -> Path:
    file = tmp_path / "session.jsonl"
    await record(file, workspace, places)
    return file


@pytest.fixture
def replay(tmp_path: Path) -> Callable[..., Replayed]:
    def replay(file: Path, *options: str) -> Replayed:
        return subprocess.run(
            [*MILKWEED, "replay", str(file), *options],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
        )

    return replay


def lines(done: Replayed) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_a_recorded_session_replays_and_an_answer_that_differs_is_told(
    recorded: Path, replay: Callable[..., Replayed]
) -> None:
    text = recorded.read_text()
    transcript = parse(text)
    kinds = [(step.kind, getattr(step, "name", getattr(step, "file", ""))) for step in transcript.steps]
    assert kinds == [
        ("tool", "allocate_mesh"),
        ("tool", "run_on_mesh"),
        ("edit", "notes.md"),
        ("edit", "train.py"),
        ("tool", "run_on_mesh"),
        ("tool", "mesh_status"),
        ("tool", "release_mesh"),
    ]
    assert TOKEN not in text
    assert "a-very-secret-word" not in text
    assert str(recorded.parent / "ws") not in text
    assert "${mesh1}" in text
    assert "${run2}" in text
    assert (recorded.with_suffix(".workspace") / "train.py").read_text() == BROKEN

    done = replay(recorded, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines(done)[-1] == {"steps": 7, "played": 7, "as_recorded": True}

    for options in (["--http"], ["--http", "--protocol", "2025-11-25"], ["--protocol", "2025-11-25"]):
        done = replay(recorded, "--json", *options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert lines(done)[-1]["as_recorded"] is True

    changed = [
        step.model_copy(update={"diff": step.diff.replace("2 - 1", "2 - 2")})
        if isinstance(step, EditStep) and step.diff
        else step
        for step in transcript.steps
    ]
    other = recorded.with_name("changed.jsonl")
    other.write_text(dump_line(transcript.header) + "".join(map(dump_line, changed)))
    done = replay(other, "--plain")
    assert done.returncode == 1
    assert "+ state: failed" in done.stdout
    assert "not as recorded: step" in done.stdout


def session(tmp_path: Path, *steps: Any, **header: Any) -> Path:
    file = tmp_path / "s.jsonl"
    file.write_text(dump_line(Header(**header)) + "".join(map(dump_line, steps)))
    return file


def test_what_cannot_be_played_names_its_step(tmp_path: Path, replay: Callable[..., Replayed]) -> None:
    asks_early = session(tmp_path, ToolStep(name="mesh_status", arguments={"mesh": "${mesh1}"}))
    done = replay(asks_early, "--plain")
    assert done.returncode == 1
    assert "step 1: it asks with ${mesh1}, which no earlier answer told" in done.stdout

    no_such_tool = ToolStep(name="fly", result={"state": "flying"})
    done = replay(session(tmp_path, no_such_tool), "--plain")
    assert done.returncode == 1
    assert "fly" in done.stdout
    assert "list" in done.stdout or "tool" in done.stdout

    no_such_line = EditStep(file="train.py", diff="@@ -1,1 +1,1 @@\n-a\n+b\n")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "train.py").write_text("x\n")
    done = replay(session(tmp_path, no_such_line, workspace="ws"), "--plain")
    assert done.returncode == 1
    assert "step 1: train.py cannot be edited: line 1 is not 'a'" in done.stdout

    unmet = ExpectStep(contains="gold")
    done = replay(session(tmp_path, ShellStep(command="echo lead"), unmet), "--plain")
    assert done.returncode == 1
    assert "step 2: the answer has no 'gold': lead" in done.stdout

    done = replay(session(tmp_path, unmet, workspace="none"))
    assert done.returncode == 2
    assert "workspace_missing" in done.stderr

    done = replay(tmp_path / "nowhere.jsonl")
    assert done.returncode == 2
    assert "transcript_unreadable" in done.stderr


def test_a_form_is_played_with_its_own_values(tmp_path: Path, replay: Callable[..., Replayed]) -> None:
    steps = ShellStep(command="echo step ${steps}"), ExpectStep(number="step ([0-9]+)", at_most="${most}")
    header = {"values": {"steps": "900", "most": "1000"}, "forms": {"short": {"steps": "90", "most": "100"}}}
    file = session(tmp_path, *steps, **header)
    done = replay(file, "--plain")
    assert (done.returncode, "step 900" in done.stdout) == (0, True), done.stdout
    done = replay(file, "--plain", "--form", "short")
    assert (done.returncode, "step 90\n" in done.stdout) == (0, True), done.stdout
    assert "at_most 100.0" in done.stdout
    done = replay(file, "--form", "long")
    assert done.returncode == 2
    assert "has no form 'long'" in done.stderr


async def test_a_replay_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    mark = tmp_path / "begun"
    file = session(
        tmp_path,
        ToolStep(
            name="allocate_mesh",
            arguments={"name": "t", "hosts": 1, "procs_per_host": 1, "workspace": "${workspace}"},
            result={"mesh": "${mesh1}", "state": "ready"},
        ),
        ToolStep(
            name="run_on_mesh",
            arguments={"mesh": "${mesh1}", "command": f"sh -c 'touch {mark}; sleep 300'", "wait_s": 40},
        ),
        workspace="ws",
    )
    short = Path(tempfile.mkdtemp(prefix="mw-", dir="/tmp"))
    env = {**os.environ, "TMPDIR": str(short)}
    with subprocess.Popen([*MILKWEED, "replay", str(file), "--plain"], env=env, stdout=subprocess.PIPE) as process:
        await until(mark.exists, 60)
        process.send_signal(signal.SIGINT)
        assert await anyio.to_thread.run_sync(process.wait, 60) in (130, 1)
    await until(lambda: not leftovers.find(short), 30)
    assert list(short.iterdir()) == []
    short.rmdir()
