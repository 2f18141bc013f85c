"""Ends of a connection over verbs alone (verbs_control.c), and the wire between the guest's two devices."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["DEVICES", "SIZE", "End", "crossed", "cut_wire", "open_end", "packets", "port"]

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "verbs_control"
DEVICES = {"rxe0": "10.9.0.1", "rxe1": "10.9.0.2"}
SIZE = 3 * 2**20 + 123  # of the memory that an end of the fixture has


class End:
    """A process with registered memory. What it has there is in a file, so that it need not be asked."""

    def __init__(self, process: subprocess.Popen[str], file: Path) -> None:
        self.process = process
        self._file = file
        self.pair, self.psn, self.key, self.address, self.gid = self._answer().split()

    @property
    def content(self) -> bytes:
        return self._file.read_bytes()

    def connect(self, other: End) -> None:
        """Both to each other."""
        for one, another in ((self, other), (other, self)):
            assert one.ask("connect", another.pair, another.psn, another.gid) == "done"

    def read(self, there: End, at: int, length: int, key: str | None = None) -> str:
        """ "done", or the word of the device, or of the other one's."""
        return self._move("read", there, at, length, key)

    def write(self, there: End, at: int, length: int) -> str:
        return self._move("write", there, at, length, None)

    def ask(self, *words: str) -> str:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)
        return self._answer()

    def stop(self) -> None:
        """SIGSTOP; returns when it is stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.wait()

    def _move(self, verb: str, there: End, at: int, length: int, key: str | None) -> str:
        address = int(there.address, 16) + at
        return self.ask(verb, f"{address:x}", key or there.key, f"{at:x}", f"{length:x}")

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")


@contextmanager
def open_end(device: str, content: bytes) -> Iterator[End]:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(content)
        file.flush()
        with subprocess.Popen(
            [PROGRAM, device, file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield End(process, Path(file.name))
            finally:
                process.kill()


@contextmanager
def cut_wire() -> Iterator[None]:
    """Nothing arrives at the other device, in neither direction; nobody is told."""
    ends = ("wire0", "wire1")
    for end in ends:
        _tc("add", "dev", end, "root", "netem", "loss", "100%")
    try:
        yield
    finally:
        for end in ends:
            _tc("del", "dev", end, "root")


def port(device: str, name: str) -> str:
    return Path(f"/sys/class/infiniband/{device}/ports/1/{name}").read_text().strip()


def packets(device: str) -> tuple[int, int]:
    """How many the device has sent, and received."""
    return int(port(device, "hw_counters/sent_pkts")), int(port(device, "hw_counters/rcvd_pkts"))


def crossed(end: str) -> int:
    """How many bytes have come in at this end of the wire: of RDMA, and of all else."""
    return int(Path(f"/sys/class/net/{end}/statistics/rx_bytes").read_text())


def _tc(verb: str, *words: str) -> None:
    subprocess.run(["tc", "qdisc", verb, *words], check=True)
