"""What the Files service refuses: missing, closed, or no file at all."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.errors import InvalidArgument, MilkweedError, NotFound
from milkweed.runtime.services.files import Files

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


async def refused(call: object, kind: type[MilkweedError]) -> MilkweedError:
    with pytest.raises(kind) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_a_missing_file_is_said_with_the_nearest_names(files: Files, work: Path) -> None:
    (work / "train.py").touch()
    (work / "data.csv").touch()
    error = await refused(files.read("trian.py"), NotFound)
    assert error.code == "file_not_found"
    assert f"no {work}/trian.py; in {work} nearest: train.py" in error.cause
    deeper = await refused(files.read("no/such/trian.py"), NotFound)
    assert f"in {work} nearest: data.csv, train.py" in deeper.cause
    through = await refused(files.list("train.py/x"), NotFound)
    assert "train.py is not a directory" in through.cause
    (work / "dangling").symlink_to("/nowhere/at/all")
    link = await refused(files.read("dangling"), NotFound)
    assert "is a link to /nowhere/at/all" in link.cause


async def test_what_is_no_regular_file_is_refused_without_waiting(
    files: Files, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(work)  # the address must be short
        server.bind("sock")
        with anyio.fail_after(5):
            for path, kind in (
                (".", "directory"),
                ("pipe", "fifo"),
                ("sock", "socket"),
                ("/dev/zero", "character device"),
            ):
                for call in (files.read(path), files.digest(path), files.chunk(path, 0, 10)):
                    error = await refused(call, InvalidArgument)
                    assert error.code == "invalid_path"
                    assert f"is a {kind}" in error.cause
                    assert error.next_step


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "loop", "x" * 300])
async def test_a_path_that_cannot_be_is_refused(files: Files, work: Path, path: str) -> None:
    (work / "loop").symlink_to("loop")
    for call in (files.read(path), files.list(path), files.stat("a\0b"), files.digest(path)):
        error = await refused(call, MilkweedError)
        assert error.code in ("invalid_path", "file_not_found")


@pytest.mark.parametrize(
    "arguments",
    [{"offset": -1}, {"limit": -1}, {"tail": 0}, {"max_bytes": 0}, {"grep": "["}, {"grep": r"(a)\1"}],
)
async def test_wrong_arguments_are_refused(files: Files, work: Path, arguments: dict[str, object]) -> None:
    (work / "a").write_text("a")
    error = await refused(files.read("a", **arguments), InvalidArgument)  # type: ignore[arg-type]
    assert error.code == "invalid_argument"
    await refused(files.list(".", limit=0), InvalidArgument)
    await refused(files.list(".", "../*"), InvalidArgument)
    await refused(files.chunk("a", 0, 2 * MIB), InvalidArgument)
    await refused(files.chunk("a", -1, 1), InvalidArgument)


def test_permission_denied_is_said_with_owner_and_mode(tmp_path: Path) -> None:
    """As another user, because root may read everything."""
    code = (
        "import sys, time; from milkweed.runtime.services.reading import Bounds, read_text\n"
        "from milkweed.runtime.errors import MilkweedError\n"
        "import os\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setresuid(65534, 65534, 65534)\n"
        "try: read_text(sys.argv[1], Bounds(time.monotonic() + 5))\n"
        "except MilkweedError as error: print(error)\n"
    )
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o000)
    done = subprocess.run(
        [sys.executable, "-c", code, str(secret)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("invalid_path: permission denied: ")
    assert f"owned by uid {os.geteuid()}" in done.stdout
