"""A workspace of everything that programs and file systems stumble over, and hosts without room for it."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes
from tests.runtime.mounts.stage import names_of_every_kind, write

from .stage import shown, working_directory

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(170)]

GIB = 1024**3

LOOKS = r"""
import errno, hashlib, os, sys
size, many = map(int, sys.argv[1:])
def why(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
def read(path):
    with open(path, "rb") as file:
        return file.read()
names = sorted(os.listdir(b"names"))
right = {read(os.path.join(b"names", name)) == name for name in names}
print("names", hashlib.sha256(b"\0".join(names)).hexdigest(), right)
print("empty", os.path.getsize("empty"), read("empty"))
print("large", os.path.getsize("large"))
with open("large", "rb") as large:
    for at in (0, size // 2, size - 3):
        large.seek(at)
        print("at", at, large.read(3))
listed = list(os.scandir("many"))
there = [os.path.exists(f"many/{number}") for number in (0, many - 1, many)]
print("many", len(listed), len({entry.inode() for entry in listed}), there)
print("loop", os.readlink("loop"), why(open, "loop"))
print("round", sorted(os.listdir("down/up/down")) == sorted(os.listdir("down")))
print("left out", [os.path.lexists(name) for name in ("fifo", "socket")])
print("closed", oct(os.stat("closed").st_mode & 0o7777), os.path.getsize("closed"))
print("deep", read("/".join(["d" * 200] * 15 + ["f"])))
"""


@pytest.mark.parametrize("place", ["mount", "copy"], indirect=True)
async def test_everything_awkward_is_there_on_every_host(
    real: Meshes, place: str, tmp_path: Path, full_size: bool
) -> None:
    size = 5 * GIB if place != "copy" else GIB // 100
    many = 100_000 if full_size else 3_000
    make_everything(tmp_path, size, many)
    names = sorted(names_of_every_kind())
    listed = hashlib.sha256(b"\0".join(names)).hexdigest()
    async with shown(real, place, tmp_path) as mesh:
        said = (await mesh.python(LOOKS, str(size), str(many))).splitlines()
        assert said == [
            f"names {listed} {{True}}",
            "empty 0 b''",
            f"large {size}",
            "at 0 b'\\x00\\x00\\x00'",
            f"at {size // 2} b'mid'",
            f"at {size - 3} b'end'",
            f"many {many} {many} [True, True, False]",
            "loop loop ELOOP",
            "round True",
            "left out [False, False]",
            "closed 0o0 6",
            "deep b'deep'",
        ]


def make_everything(at: Path, size: int, many: int) -> None:
    for name in ("names", "many", "down"):
        (at / name).mkdir()
    for name in names_of_every_kind():
        write(os.path.join(os.fsencode(at / "names"), name), name)
    (at / "empty").touch()
    with (at / "large").open("wb") as large:
        large.truncate(size)
        for offset, word in ((size // 2, b"mid"), (size - 3, b"end")):
            large.seek(offset)
            large.write(word)
    for number in range(many):
        (at / "many" / str(number)).touch()
    (at / "loop").symlink_to("loop")
    (at / "down" / "up").symlink_to("..")
    os.mkfifo(at / "fifo")
    (at / "closed").write_text("closed")
    (at / "closed").chmod(0)
    with working_directory(at), socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    with working_directory(at):
        for _ in range(15):  # a path of 3,000 bytes
            os.mkdir("d" * 200)
            os.chdir("d" * 200)
        Path("f").write_text("deep")


READS_ALL = """
import hashlib, os
for _ in range(2):
    for name in sorted(os.listdir()):
        print(name, hashlib.sha256(open(name, "rb").read()).hexdigest()[:8])
"""


@pytest.mark.parametrize("place", ["mount"], indirect=True)
async def test_hosts_without_room_for_a_cache_read_all_the_same(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(os.urandom(5_000_000))
    for number in range(20):
        (tmp_path / f"small{number}").write_bytes(os.urandom(90_000))
    async with shown(real, place, tmp_path) as mesh:
        before = await mesh.python(READS_ALL)
        places = [mesh.host_directory(host) / "mounts" for host in range(2)]
        with small_disks(places):
            for process in mesh.mount_processes():
                os.kill(process, 9)
            for name in ("small1", "large"):
                data = os.urandom(90_000 if name == "small1" else 5_000_000)
                (tmp_path / name).write_bytes(data)
            after = await mesh.python(READS_ALL)
            for place_ in places:
                left = os.statvfs(place_)
                assert left.f_bavail * left.f_frsize < 500_000
        assert len(after.splitlines()) == 42
        assert len(set(after.splitlines())) == 21  # the second time as the first
        assert len(set(after.splitlines()) & set(before.splitlines())) == 19


@contextmanager
def small_disks(places: list[Path]) -> Iterator[None]:
    """Of 1 MB, mounted over these directories."""
    mounted: list[Path] = []
    try:
        for place in places:
            command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
            if subprocess.run(command, check=False, capture_output=True).returncode:
                pytest.skip("a small file system cannot be mounted here")
            mounted.append(place)
        yield
    finally:
        for place in mounted:
            subprocess.run(["umount", "-l", str(place)], check=True)
