"""Our source and our mounts, each in a process of its own, as a keeper and its hosts have them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from milkweed.runtime.mounts import HostConfig
from milkweed.runtime.mounts.mountpoints import clear

__all__ = ["Lab", "Process"]

HERE = Path(__file__).resolve().parents[2]


class Process:
    """A child that is spoken to in lines of JSON; it is ready when it has said its first."""

    def __init__(self, *words: str) -> None:
        self._started = time.perf_counter()
        self.child = subprocess.Popen(
            [sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
        )

    def ready(self) -> float:
        """Seconds from its start to its first line, which is waited for."""
        self.heard()
        return time.perf_counter() - self._started

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

    def end(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.close()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.send_signal(signal.SIGKILL)
            self.child.wait()


class Lab:
    """A source without a tree so far; `mount` shows what it was given, `unmount` forgets all that a host had.

    `root` is short: sockets are in it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = Process("-m", "benchmarks.mounts.source")
        self.source.ready()
        self.mounts: dict[int, Process] = {}

    def open(self, tree: Path) -> dict[str, Any]:
        """Scans and watches a tree, in place of the one before."""
        return self.source.ask(f"open {tree} {self.root / 's'}")

    def path(self, number: int) -> Path:
        return self.root / f"m{number}"

    def mount(self, number: int, **more: Any) -> Process:
        """It is mounted when the process is ready."""
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

    def unmount(self, number: int) -> None:
        self.mounts.pop(number).end()
        clear(self.path(number))
        shutil.rmtree(self.root / f"c{number}", ignore_errors=True)

    def close(self) -> None:
        for number in list(self.mounts):
            self.unmount(number)
        self.source.end()
