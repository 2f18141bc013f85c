"""Memory of devices, for tests: of one whose memory no processor may touch, and of torch's own."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from milkweed.runtime import RDMABuffer
from milkweed.runtime import _native_memory as native
from milkweed.runtime.memory.device import CUDA, Copy, DeviceFailed, DeviceMemory
from milkweed.runtime.memory.pinned import Pinned, pinned
from milkweed.runtime.memory.torch_device import TorchMemory
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S, pattern

__all__ = ["REACHED", "Guarded", "copies", "filled_on", "made"]

REACHED = 0
"""A kind that network cards do reach."""


class Guarded(DeviceMemory):
    """A touch of its address ends the process; its driver has another mapping.

    A copy is made as late as it may be, when it is waited for: what is used before that has other bytes.
    """

    count: ClassVar[int] = 0

    def __init__(self, data: bytes, kind: int = CUDA) -> None:
        file = os.memfd_create("guarded")
        os.ftruncate(file, max(1, len(data)))
        self._driver = mmap.mmap(file, max(1, len(data)))
        rights = mmap.PROT_READ | mmap.PROT_WRITE if kind == REACHED else 0
        self._guarded = mmap.mmap(file, max(1, len(data)), prot=rights)
        os.close(file)
        self._driver[: len(data)] = data
        self._from = 0
        self.where = "guarded:0"
        self.kind = kind
        self.address = native.address_of(memoryview(self._guarded))
        self.size = len(data)
        self.idle = threading.Event()
        self.idle.set()
        self.fault = ""

    @property
    def content(self) -> bytes:
        return self._driver[self._from : self._from + self.size]

    def is_ready(self) -> bool:
        return self.idle.is_set()

    def area(self, size: int) -> Pinned:
        return pinned(memoryview(bytearray(b"\xee" * size)))

    def read(self, offset: int, into: Pinned) -> Copy:
        def copy() -> None:
            into.view[:] = self._driver[self._from + offset : self._from + offset + into.size]

        return self._begun(copy)

    def write(self, offset: int, source: Pinned) -> Copy:
        def copy() -> None:
            self._driver[self._from + offset : self._from + offset + source.size] = source.view

        return self._begun(copy)

    def _begun(self, copy: Callable[[], None]) -> Copy:
        assert self.idle.is_set(), "a copy before the device is ready"
        if self.fault:
            raise DeviceFailed(self.fault)
        Guarded.count += 1
        return _Late(copy)

    def part(self, offset: int, length: int) -> DeviceMemory:
        made = Guarded.__new__(Guarded)
        made.__dict__.update(self.__dict__, size=length, address=self.address + offset)
        made._from = self._from + offset
        return made

    def release(self) -> None: ...


class _Late:
    def __init__(self, copy: Callable[[], None]) -> None:
        self._copy: Callable[[], None] | None = copy

    def wait(self) -> None:
        if self._copy is not None:
            self._copy()
        self._copy = None


class OnTorch:
    """A tensor on `device`, as program and buffer have it; of the CPU, it is held as one of a device is."""

    def __init__(self, data: bytes, device: str) -> None:
        import torch  # which takes long: not for those who need no tensor

        self.tensor = torch.empty(len(data), dtype=torch.uint8, device=device)
        self.tensor.copy_(torch.from_numpy(np.frombuffer(data, np.uint8).copy()))
        self.memory = TorchMemory(torch, self.tensor) if device == "cpu" else self.tensor

    @property
    def content(self) -> bytes:
        return self.tensor.cpu().numpy().tobytes()


def made(kind: str, data: bytes) -> tuple[Any, Callable[[], bytes]]:
    """What a buffer is made of, or a near end is; and what its bytes are now."""
    if kind in ("cpu", "cuda"):
        on_torch = OnTorch(data, kind)
        return on_torch.memory, lambda: on_torch.content
    guarded = Guarded(data, REACHED if kind == "reached" else CUDA)
    return guarded, lambda: guarded.content


class _Made:
    buffers: ClassVar[dict[int, RDMABuffer]] = {}
    memories: ClassVar[dict[int, Any]] = {}
    contents: ClassVar[dict[int, Callable[[], bytes]]] = {}


def filled_on(kind: str, seed: int, size: int) -> RDMABuffer:
    """A buffer on a device, with `pattern(seed, size)`, which the process holds under its seed."""
    memory, _Made.contents[seed] = made(kind, pattern(seed, size).tobytes())
    _Made.memories[seed] = memory
    buffer = _Made.buffers[seed] = RDMABuffer(memory)
    return buffer


def content_of(seed: int) -> bytes:
    return _Made.contents[seed]()


def keep_busy(seed: int) -> None:
    _Made.memories[seed].idle.clear()


def let_go_on(seed: int) -> None:
    _Made.memories[seed].idle.set()


def break_down(seed: int, fault: str) -> None:
    _Made.memories[seed].fault = fault


def copies() -> int:
    """How many guarded memories of this process were asked for."""
    return Guarded.count


def read_to(kind: str, buffer: RDMABuffer, offset: int, length: int) -> bytes:
    """What comes of reading it into a device."""
    memory, content = made(kind, bytes(length))
    buffer.read_into(memory, offset, length).get(DEADLINE_S)
    return content()


def write_from(kind: str, buffer: RDMABuffer, seed: int, offset: int, length: int) -> None:
    memory, _ = made(kind, pattern(seed, length).tobytes())
    buffer.write_from(memory, offset).get(DEADLINE_S)


def touch(seed: int) -> None:
    """Ends this process, where the memory is as guarded as it should be."""
    ctypes.string_at(_Made.memories[seed].address, 1)


def staged(buffer: RDMABuffer) -> list[str]:
    return list(buffer.transport.staged)


def read_within(buffer: RDMABuffer, timeout: float) -> bytes:
    dst = bytearray(buffer.size())
    buffer.read_into(dst, timeout=timeout).get(DEADLINE_S)
    return bytes(dst)


def drop_on(seed: int) -> None:
    _Made.buffers[seed].drop().get(DEADLINE_S)


def until_held(count: int) -> None:
    """Waits until this process keeps so many regions."""
    until = time.monotonic() + DEADLINE_S
    while peers.held() != count:
        assert time.monotonic() < until, peers.held()
        time.sleep(0.01)
