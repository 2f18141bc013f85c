"""The MCP Inspector and the conformance suite, as `make test-inspector` installs them for what is here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "inspector"
MILKWEED = (sys.executable, "-m", "milkweed.server.cli")


def node(program: str, *arguments: str) -> list[str]:
    return [str(TOOLS / "node/bin/node"), str(TOOLS / "node_modules/.bin" / program), *arguments]


@dataclass(frozen=True)
class Served:
    """Two servers with the same directories: `stdio` is the command of one, `url` where the other listens."""

    stdio: Sequence[str]
    url: str
    env: dict[str, str]
    workspace: Path

    def target(self, transport: str) -> list[str]:
        """What names a server to the Inspector."""
        if transport == "http":
            return ["--server-url", self.url, "--transport", "http"]
        settings = [word for name in PLACES for word in ("-e", f"{name}={self.env[name]}")]
        return [*settings, "--cwd", str(self.workspace), "--", *self.stdio]


PLACES = ("MILKWEED_STATE_DIR", "MILKWEED_RUNTIME_DIR")


@contextmanager
def listening(command: Sequence[str], env: dict[str, str], cwd: Path) -> Iterator[str]:
    """The address that the first line with one tells, for as long as the server runs."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd
    ) as server:
        try:
            assert server.stdout is not None
            line = next(line for line in server.stdout if "http://" in line)
            yield next(word.strip(";,") for word in line.split() if word.startswith("http://"))
        finally:
            server.terminate()


@pytest.fixture
def served(places: dict[str, str], tmp_path: Path) -> Iterator[Served]:
    """Meshes that a test leaves are released."""
    env = {**os.environ, **places, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    (tmp_path / "w").mkdir()
    with listening([*MILKWEED, "serve", "--http", "127.0.0.1:0"], env, tmp_path / "w") as url:
        yield Served([*MILKWEED, "serve"], url, env, tmp_path / "w")
    left = subprocess.run(
        [*MILKWEED, "status"], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    meshes = [word for word in left.stdout.split() if word.startswith("mesh-")]
    if meshes:
        subprocess.run([*MILKWEED, "release", *meshes], env=env, timeout=60, check=True)
