"""The command line as a process of its own, with directories of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MILKWEED = (sys.executable, "-m", "milkweed.server.cli")


Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cli(places: dict[str, str], tmp_path: Path) -> Iterator[Cli]:
    """`cli("call", "list_meshes")`: one command in `tmp_path`; what it leaves is released."""

    def cli(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, **places, **more}
        return subprocess.run(
            [*MILKWEED, *arguments],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env=env,
            cwd=tmp_path,
        )

    yield cli
    left = cli("status").stdout.split()
    meshes = [word for word in left if word.startswith("mesh-")]
    if meshes:
        cli("release", *meshes)
