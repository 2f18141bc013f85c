"""Sources and mounts for measurements, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from milkweed.runtime.mounts import HostConfig
from milkweed.runtime.mounts.mountpoints import clear

HERE = Path(__file__).resolve().parents[2]


class Process:
    """A child that is spoken to in lines of JSON."""

    def __init__(self, *words: str) -> None:
        self.started = time.perf_counter()
        self.child = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
        )
        self.first = self.heard()
        self.ready_s = time.perf_counter() - self.started

    def heard(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.child.args!r} ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def ask(self, line: str) -> dict[str, Any]:
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return self.heard()

    def resident(self) -> int:
        """Bytes."""
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def end(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait()


class Lab:
    """One directory with its source; `mount` shows it, `unmount` forgets all that the host had."""

    def __init__(self, root: Path, shown: Path) -> None:
        self.root = root
        self.shown = shown
        self.source = Process("-m", "benchmarks.mounts.source", str(shown), str(root / "s"))
        self.mounts: dict[int, Process] = {}

    def path(self, number: int = 0) -> Path:
        return self.root / f"m{number}"

    def mount(self, number: int = 0, **more: Any) -> Process:
        self.path(number).mkdir(exist_ok=True)
        config = HostConfig(
            mountpoint=str(self.path(number)),
            source=str(self.root / "s"),
            follower=f"h{number}",
            cache=str(self.root / f"c{number}"),
            **more,
        )
        self.mounts[number] = made = Process("-m", "milkweed.runtime.mounts.host", config.to_json())
        return made

    def unmount(self, number: int = 0, *, forget: bool = True) -> None:
        self.mounts.pop(number).end()
        clear(self.path(number))
        if forget:
            shutil.rmtree(self.root / f"c{number}", ignore_errors=True)

    def close(self) -> None:
        for number in list(self.mounts):
            self.unmount(number)
        self.source.end()


@contextmanager
def open_lab(shown: Path) -> Iterator[Lab]:
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="mwb-", dir="/tmp"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        lab = Lab(root, shown)
        stack.callback(lab.close)
        yield lab


def make_tree(root: Path, files: int, in_one: int) -> None:
    """`files` small files in folders of 100, one folder with `in_one`, and 200 MB in one file."""
    for folder in range(files // 100):
        path = root / f"package_{folder:03d}"
        path.mkdir(parents=True)
        for number in range(100):
            write(path / f"module_{number:02d}.py", f"X = {folder * 100 + number}\n".encode() * 20)
    (root / "many").mkdir()
    for number in range(in_one):
        write(root / "many" / f"file_{number:04d}", b"x" * 64)
    block = os.urandom(1 << 20)
    with open(root / "big", "wb") as file:
        file.writelines(block for _ in range(200))


def write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, data)
    os.close(descriptor)


def drop_caches() -> bool:
    """Whether the kernel could be made to forget what it has read."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
    except OSError:
        return False
    return True
