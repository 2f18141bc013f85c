"""What the documents show of the runtime library runs as it stands there."""

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

ROOT = Path(__file__).parents[2]


def programs(document: str) -> dict[str, str]:
    """Its Python programs, by the headline above them."""
    found: dict[str, str] = {}
    for part in re.split(r"^## ", (ROOT / document).read_text(), flags=re.MULTILINE)[1:]:
        for number, text in enumerate(re.findall(r"^```python\n(.*?)^```", part, re.DOTALL | re.MULTILINE)):
            found[part.partition("\n")[0] + (f" {number}" if number else "")] = text
    return found


LIBRARY = programs("docs/runtime.md") | programs("docs/memory.md")
PRINTS = {
    "Ten lines": re.escape("[0.0, 1.0, 2.0, 3.0]\n3.0\n"),
    "One buffer to many": re.escape("[None, None, None]\n[1000000.0, 1000000.0, 1000000.0]\n"),
    "A checkpoint": "1\n",
    "Failures": r"\[managers 0\] proc procs-\w+-\d \(gpus=\d\): SIGKILL[^\n]* \(restarted 2 times\)\n",
}


@pytest.fixture
def places() -> Iterator[Places]:
    with open_places() as opened:
        yield opened


@pytest.mark.parametrize("headline", LIBRARY)
def test_a_program_of_the_library_documents_runs_as_it_stands(headline: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LIBRARY[headline])
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={**os.environ, "MILKWEED_WARM_MODULES": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert re.fullmatch(PRINTS.get(headline, ".*"), done.stdout, re.DOTALL), done.stdout


@pytest.mark.anyio
async def test_the_controller_that_the_readme_shows_runs_as_it_stands(places: Places, tmp_path: Path) -> None:
    (program,) = programs("README.md").values()
    (tmp_path / "controller.py").write_text(program)
    async with open_real_meshes(places) as meshes:
        mesh = await meshes.allocate(MeshSpec("t", 2, 1, workspace=str(tmp_path)))
        run = await mesh.start_run(RunRequest(("python", "controller.py"), "single", attach=True))
        view = await mesh.wait_run(run.run, timeout_s=120)
        text = "".join(piece.data.decode() for piece in await mesh.read_output(run.run))
        assert (view.state, text) == ("succeeded", "[3.0, 1.5, 1.0, 0.75]\n"), text
