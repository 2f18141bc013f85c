"""Other processes that own buffers, or use them: each calls what it is told to, and answers."""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

from milkweed.runtime import Future, RDMAAction, RDMABuffer
from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.memory.memory import Memory
from milkweed.runtime.mesh_secret import MeshSecrets
from milkweed.runtime.node import node

__all__ = ["DEADLINE_S", "Peer", "filled", "open_peer", "pattern"]

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_S = 60.0 * float(os.environ.get("MILKWEED_TEST_SLOWER", "1"))  # on an emulated machine
F_OFD_SETLK = 37
_LENGTH = struct.Struct("!Q")


class Peer:
    """A process that runs functions of importable modules, one at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.begin(function, *arguments)
        return self.answer()

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        assert self.process.stdin is not None
        _write(self.process.stdin, (function, arguments))

    def answer(self) -> Any:
        assert self.process.stdout is not None
        timer = threading.Timer(DEADLINE_S, self.process.kill)
        timer.start()
        try:
            answer = _read(self.process.stdout)
        finally:
            timer.cancel()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stop(self) -> None:
        """SIGSTOP; returns when it is stopped."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.wait(DEADLINE_S)


@contextmanager
def open_peer(*, pass_fds: Sequence[int] = (), **env: str) -> Iterator[Peer]:
    with subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, **env},
        pass_fds=pass_fds,
    ) as process:
        try:
            yield Peer(process)
        finally:
            process.kill()
            with suppress(OSError):
                process.communicate(timeout=DEADLINE_S)


def pattern(seed: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


class _Held:
    """What a peer holds."""

    buffers: ClassVar[dict[int, RDMABuffer]] = {}
    drops: ClassVar[dict[int, Future[None]]] = {}
    arrays: ClassVar[dict[int, Any]] = {}


def filled(seed: int, size: int, kind: str = "array") -> RDMABuffer:
    """A buffer with `pattern(seed, size)`, which the peer holds under its seed."""
    if kind == "file":
        buffer = RDMABuffer(size)
        buffer.memory[:] = pattern(seed, size).tobytes()
        _Held.arrays[seed] = buffer.memory
    else:
        array = pattern(seed, size)
        _Held.arrays[seed] = memoryview(array)
        buffer = RDMABuffer(array)
    _Held.buffers[seed] = buffer
    return buffer


def hold(seed: int, buffer: RDMABuffer) -> RDMABuffer:
    _Held.buffers[seed] = buffer
    return buffer


def limited(seed: int, size: int, read: bool, write: bool) -> RDMABuffer:
    buffer = _Held.buffers[seed] = RDMABuffer(pattern(seed, size), read=read, write=write)
    return buffer


def content(seed: int) -> bytes:
    return bytes(_Held.arrays[seed])


def drop(seed: int) -> None:
    _Held.arrays.pop(seed, None)
    _Held.buffers[seed].drop().get(DEADLINE_S)


def read(buffer: RDMABuffer, offset: int = 0, length: int | None = None) -> bytes:
    dst = bytearray(buffer.size() if length is None else length)
    buffer.read_into(dst, offset, length).get(DEADLINE_S)
    return bytes(dst)


def write(buffer: RDMABuffer, data: bytes, offset: int = 0) -> None:
    buffer.write_from(data, offset).get(DEADLINE_S)


def way(buffer: RDMABuffer) -> tuple[str, dict[str, str]]:
    found = buffer.transport
    return found.name, found.passed_over


def churn(seed: int, size: int, times: int, sent: int) -> None:
    """Makes a buffer of one byte again and again, tells it, drops it, and puts other bytes in its place."""
    tell = socket.socket(fileno=sent)
    memory, other = bytearray(size), b"\xff" * size
    for turn in range(times):
        memory[:] = bytes([turn % 100 + 1]) * size
        buffer = RDMABuffer(memory)
        data = pickle.dumps((turn % 100 + 1, buffer))
        tell.sendall(_LENGTH.pack(len(data)) + data)
        tell.recv(1)
        buffer.drop().get(DEADLINE_S)
        memory[-(size // 4) :] = other[: size // 4]  # where those who read from the start are not yet
        memory[:] = other
    tell.close()


def hold_in_transfer(buffer: RDMABuffer) -> None:
    """Does what a transfer does before it moves anything, and stays in it."""
    owner, slot = buffer.handle.owner, buffer.handle.slot
    _Held.arrays[-1] = file = open(f"/proc/{owner.pid}/fd/{owner.table_fd}", "rb")  # noqa: SIM115
    fields = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, (1 << 32) + (slot << 20), 1, 0)
    fcntl.fcntl(file, F_OFD_SETLK, fields)


def end_transfer() -> None:
    _Held.arrays.pop(-1).close()


def begin_drop(seed: int) -> None:
    _Held.drops[seed] = _Held.buffers[seed].drop()


def is_dropped(seed: int) -> bool:
    return _Held.drops[seed].done()


def dropped_within(seed: int, timeout: float) -> None:
    _Held.buffers[seed].drop(timeout=timeout).get(DEADLINE_S)


def held() -> int:
    """How many regions this process keeps."""
    return node().part(Memory, Memory).regions.held


def hang_up() -> int:
    """Ends all connections of others to this process, as a network may that is idle; returns how many."""
    found = list(node().part(Memory, Memory)._server._peers)
    for sock in found:
        sock.shutdown(socket.SHUT_RDWR)
    return len(found)


def limit_peers(most: int) -> None:
    """Of others that this process serves at once; before its first buffer."""
    server = node().part(Memory, Memory)._server
    server._places = threading.BoundedSemaphore(most)


def begin_read(buffer: RDMABuffer) -> None:
    _Held.drops[-1] = buffer.read_into(bytearray(buffer.size()))


def listens_at(host: str, port: int) -> None:
    """Tells others to connect there by rdma_cm."""
    ucx = node().part(Memory, Memory)._ucx
    ucx.engine()
    ucx._listener = host, port


def forked_reads(buffer: RDMABuffer) -> bytes:
    """What a forked child of this process reads of a buffer that is this process's own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(read, (buffer,))


def learn(mesh: str, file: Path) -> None:
    """As a program does that attaches to a mesh."""
    node().part(MeshSecrets, MeshSecrets.of_process).learn(mesh, file)


def without_ptrace() -> None:
    """Loses the right to look into processes that have more rights than it, or that are not dumpable."""
    _without_capability(19)


def may_pin(size: int) -> None:
    """At most so many bytes, from now on."""
    _without_capability(14)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (size, size))


def pinned() -> int:
    """How many KiB of this process devices can reach."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmPin:"))


def fate(buffer: RDMABuffer, write: bool = False) -> tuple[str, float]:
    """The code of the error that moving all of it ends with (empty: none), and after how many seconds."""
    local = bytearray(buffer.size())
    began = time.monotonic()
    try:
        moving = buffer.write_from(local) if write else buffer.read_into(local)
        moving.get(DEADLINE_S)
    except MilkweedError as error:
        return error.code, time.monotonic() - began
    return "", time.monotonic() - began


def put(buffer: RDMABuffer, seed: int, offset: int, length: int) -> None:
    """Writes the start of `pattern(seed, ...)` there."""
    buffer.write_from(pattern(seed, length), offset).get(DEADLINE_S)


def read_at_once(buffer: RDMABuffer, places: Sequence[tuple[int, int]]) -> list[bytes]:
    found = [bytearray(length) for _, length in places]
    action = RDMAAction()
    for part, (offset, length) in zip(found, places, strict=True):
        action.read_remote(part, buffer, offset, length)
    action.submit(timeout=DEADLINE_S).get(DEADLINE_S)
    return [bytes(part) for part in found]


def _without_capability(number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", 0x20080522, 0)
    data = bytearray(24)
    assert libc.capget(header, (ctypes.c_char * 24).from_buffer(data)) == 0
    words = list(struct.unpack("6I", data))
    for at in (0, 1, 2):  # effective, permitted, inheritable
        words[at] &= ~(1 << number)
    assert libc.capset(header, struct.pack("6I", *words)) == 0


def hide() -> None:
    """As a program does that is not to be looked into: it is no longer dumpable."""
    assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0


def without_process_vm() -> None:
    """As in a container whose profile forbids it: process_vm_readv and process_vm_writev are EPERM."""
    first = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
    steps = [
        (0x20, 0, 0, 0),  # the number of the call
        (0x35, 0, 2, first),
        (0x25, 1, 0, first + 1),
        (0x06, 0, 0, 0x00050001),  # EPERM
        (0x06, 0, 0, 0x7FFF0000),  # allow
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())


def become(program: str) -> None:
    """What it prints comes where answers do."""
    os.dup2(_Held.arrays[-2].fileno(), 1)
    os.execv(sys.executable, [sys.executable, "-c", program])


def _write(file: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value)
    file.write(_LENGTH.pack(len(data)) + data)
    file.flush()


def _read(file: BinaryIO) -> Any:
    head = file.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError("the peer has ended")
    return pickle.loads(file.read(_LENGTH.unpack(head)[0]))


def main() -> None:
    inward, outward = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _Held.arrays[-2] = outward
    while True:
        try:
            function, arguments = _read(inward)
        except EOFError:
            return
        try:
            answer = function(*arguments)
        except Exception as error:
            answer = error
        _write(outward, answer)
        answer = None  # an error holds all that it went through


if __name__ == "__main__":
    # What is called is of the importable module, not of this one.
    from tests.runtime.memory import peers

    peers.main()
