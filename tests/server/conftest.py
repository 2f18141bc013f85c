"""The command line as a process of its own, with directories of its own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

MILKWEED = (sys.executable, "-m", "milkweed.server.cli")

# Need programs of others: run by `make test-inspector`, which names the folders.
collect_ignore = ["inspector", "conformance"]


@pytest.fixture
def places() -> Iterator[dict[str, str]]:
    """Environment variables that name directories of this test alone; short, since sockets live there."""
    root = Path(tempfile.mkdtemp(prefix="mw-", dir="/tmp"))
    (root / "r").mkdir(mode=0o700)
    yield {"MILKWEED_STATE_DIR": str(root / "s"), "MILKWEED_RUNTIME_DIR": str(root / "r")}
    shutil.rmtree(root, ignore_errors=True)


@contextmanager
def serving(command: Sequence[str], places: Mapping[str, str], cwd: Path) -> Iterator[str]:
    """The URL at which `command` serves HTTP, once it does."""
    env = {**os.environ, **places}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env, cwd=cwd) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            assert "MCP over HTTP at http://127.0.0.1:" in line, line + process.stderr.read()
            yield line.split()[4].rstrip(";")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM, 143)


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
