"""Every recorded session replays as it was, in its short form where it has one: `pytest -m transcripts`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from milkweed.server.transcripts.format import parse

ROOT = Path(__file__).parents[2] / "transcripts"
SESSIONS = sorted(ROOT.glob("*/session.jsonl"))


def test_there_are_sessions() -> None:
    assert ROOT / "buggy_trainer" / "session.jsonl" in SESSIONS


@pytest.mark.transcripts
@pytest.mark.timeout(600)
@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.parent.name)
def test_a_recorded_session_replays(session: Path) -> None:
    form = ["--form", "short"] if "short" in parse(session.read_text()).header.forms else []
    command = [sys.executable, "-m", "milkweed.server.cli", "replay", str(session), "--json", *form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    unlike = [step for step in steps if not step["as_recorded"]]
    assert (done.returncode, unlike) == (0, []), done.stdout[-3000:] + done.stderr[-3000:]
    assert steps[-1]["played"] == len(parse(session.read_text()).steps)


@pytest.mark.parametrize("session", SESSIONS, ids=lambda path: path.parent.name)
def test_a_recorded_session_has_no_path_of_the_machine_that_recorded_it(session: Path) -> None:
    """But for those of every machine; what is the session's own has a name."""
    text = session.read_text()
    assert "/tmp/" not in text
    assert "/home/" not in text
