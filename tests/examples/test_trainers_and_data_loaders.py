"""The example of the talk: alone on this machine, and as a controller of a mesh of two hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, RunRequest
from tests.real_meshes import open_places, open_real_meshes

EXAMPLE = Path(__file__).parents[2] / "examples" / "trainers_and_data_loaders.py"
STEPS = 30


@pytest.fixture
def places() -> Iterator[Places]:
    with open_places() as opened:
        yield opened


def check(text: str, first_line: str) -> None:
    lines = text.splitlines()
    assert lines[0] == first_line, text
    losses = [float(found[1]) for line in lines if (found := re.fullmatch(r"step +\d+ loss (.*)", line))]
    assert losses[-1] < losses[0] / 4, text
    assert lines[-1] == "all models are alike", text


def test_it_learns_alone_on_this_machine(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "MILKWEED_WARM_MODULES"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--steps", str(STEPS)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    check(done.stdout, "hosts 1, data loaders 1, trainers 2")


@pytest.mark.anyio
async def test_it_learns_as_a_controller_of_two_hosts(places: Places, tmp_path: Path) -> None:
    async with open_real_meshes(places) as meshes:
        mesh = await meshes.allocate(MeshSpec("t", 2, 2, workspace=str(tmp_path)))
        argv = ("python", str(EXAMPLE), "--steps", str(STEPS))
        run = await mesh.start_run(RunRequest(argv, "single", attach=True))
        view = await mesh.wait_run(run.run, timeout_s=120)
        text = "".join(piece.data.decode() for piece in await mesh.read_output(run.run))
        assert view.state == "succeeded", text
        check(text, "hosts 2, data loaders 2, trainers 4")
        assert (await mesh.view()).state == "ready"
