"""`milkweed transcribe` on the command line, and the replay of what it makes."""

from pathlib import Path

import pytest

from tests.server.conftest import Cli
from tests.server.transcripts.claude_logs import ClaudeLog

TRAIN = 'import os\nprint("loss", 1.0 / 0)\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    session = ClaudeLog("/home/u/proj")
    session.asked("Why does it fail?")
    asked = {"name": "t", "hosts": 1, "procs_per_host": 2, "workspace": "/home/u/proj"}
    mesh = {**asked, "mesh": "mesh-t-abc", "state": "ready", "scheduler": "local"}
    session.uses("mcp__milkweed__allocate_mesh", asked, {**mesh, "world_size": 2, "workspace_mode": "shared"})
    run = {"mesh": "mesh-t-abc", "command": "python train.py", "wait_s": 40}
    raised = {"exit": "exit 1", "exception": "ZeroDivisionError: float division by zero"}
    failed = {
        "run": "run-a",
        "mesh": "mesh-t-abc",
        "state": "failed",
        "ranks": {"failed": "0-1"},
        "first_failure": {"rank": 0, **raised},
        "failure_groups": [{"ranks": "0-1", **raised}],
    }
    session.uses("mcp__milkweed__run_on_mesh", run, failed)
    edit = {"file_path": "/home/u/proj/train.py", "old_string": "1.0 / 0", "new_string": "1.0 / 2"}
    session.uses("Edit", edit, "ok", originalFile=TRAIN)
    ended = {"run": "run-b", "mesh": "mesh-t-abc", "state": "succeeded", "ranks": {"succeeded": "0-1"}}
    session.uses("mcp__milkweed__run_on_mesh", run, ended)
    session.uses(
        "mcp__milkweed__release_mesh", {"mesh": "mesh-t-abc"}, {"mesh": "mesh-t-abc", "state": "released"}
    )
    (tmp_path / "log.jsonl").write_text(session.text)
    return tmp_path / "log.jsonl"


def test_a_log_becomes_a_transcript_that_replays(cli: Cli, log: Path, tmp_path: Path) -> None:
    made = cli("transcribe", str(log), "shared/fix")
    assert (made.returncode, made.stderr) == (0, "")
    assert "6 steps, 1 files" in made.stdout
    assert (tmp_path / "shared/fix/workspace/train.py").read_text() == TRAIN
    replayed = cli("replay", "--plain", "shared/fix/session.jsonl")
    assert replayed.returncode == 0, replayed.stdout
    assert "6 steps, all as recorded" in replayed.stdout


def test_nothing_is_overwritten_and_bad_logs_are_told(cli: Cli, log: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert "file_exists" in cli("transcribe", str(log), "there").stderr
    assert "log_unreadable" in cli("transcribe", "none.jsonl", "new").stderr
    log.write_bytes(b"\xff\xfe\n")
    bad = cli("transcribe", str(log), "new")
    assert (bad.returncode, "no UTF-8" in bad.stderr) == (2, True)
    assert not (tmp_path / "new").exists()
