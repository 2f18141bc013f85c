"""What is shown, and how it is read; with the standard library alone, since every side runs it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "drop_caches",
    "list_and_stat",
    "make_big",
    "make_small",
    "read",
    "read_each",
    "timed",
    "write",
]

_BLOCK = 1 << 20
_PER_FOLDER = 100


def make_small(root: Path, files: int) -> None:
    """Modules of some 200 bytes, in folders of 100."""
    for number in range(files):
        folder = root / f"package_{number // _PER_FOLDER:03d}"
        if number % _PER_FOLDER == 0:
            folder.mkdir(parents=True)
        write(folder / f"module_{number % _PER_FOLDER:02d}.py", f"X = {number}\n".encode() * 20)


def make_big(path: Path, mib: int) -> None:
    block = os.urandom(_BLOCK)
    with open(path, "wb") as file:
        file.writelines(block for _ in range(mib))


def write(path: Path, data: bytes) -> None:
    """As an editor does that writes in place."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, data)
    os.close(descriptor)


def read(path: Path) -> int:
    """Reads a file in order, a MiB at a time; its size in bytes."""
    buffer, size = bytearray(_BLOCK), 0
    with open(path, "rb", buffering=0) as file:
        while got := file.readinto(buffer):
            size += got
    return size


def read_each(root: Path) -> int:
    """Reads every file below a directory that has no large ones; how many there are."""
    count = 0
    for folder, _, names in os.walk(root):
        for name in names:
            descriptor = os.open(f"{folder}/{name}", os.O_RDONLY)
            os.read(descriptor, 4096)
            os.close(descriptor)
            count += 1
    return count


def list_and_stat(path: Path) -> int:
    """Lists one directory and asks for each name's attributes; how many there are."""
    return len([os.stat(f"{path}/{name}") for name in os.listdir(path)])


def timed(work: Callable[[], object]) -> float:
    """Seconds that the work took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def drop_caches() -> bool:
    """Whether the kernel could be made to forget what it has read."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True
