"""Memory of CUDA and HIP devices, as torch holds it: torch calls both by the same names."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from .device import CUDA, ROCM, Copy, DeviceFailed, DeviceMemory
from .pinned import Pinned, pinned

__all__ = ["TorchMemory"]


class TorchMemory(DeviceMemory):
    """All of a contiguous tensor. Copies have a stream of their own, which waits for nothing else.

    Streams and events are those of the module for the tensor's device (`torch.cuda`; also `torch.cpu`, whose
    streams do nothing: so all of this runs without a device).
    """

    def __init__(self, torch: Any, tensor: Any) -> None:
        self._torch = torch
        self._device = tensor.device
        self._streams = torch.get_device_module(tensor.device)
        self._bytes = tensor.detach().reshape(-1).view(torch.uint8)
        self.where = str(tensor.device)
        self.kind = ROCM if torch.version.hip else CUDA
        self.address = self._bytes.data_ptr()
        self.size = self._bytes.numel()
        with _failing():
            self._queued = self._streams.Event()
            self._queued.record(self._streams.current_stream(self._device))
            self._stream = self._streams.Stream(self._device)

    def is_ready(self) -> bool:
        with _failing():
            return bool(self._queued.query())

    def area(self, size: int) -> Pinned:
        torch = self._torch
        with _failing():
            # Torch keeps what was let go of for the next time: to pin memory takes long.
            memory = torch.empty(size, dtype=torch.uint8, pin_memory=self._device.type != "cpu")
        return pinned(memoryview(memory.numpy()))

    def read(self, offset: int, into: Pinned) -> Copy:
        return self._copied(self._host(into), self._own(offset, into.size))

    def write(self, offset: int, source: Pinned) -> Copy:
        return self._copied(self._own(offset, source.size), self._host(source))

    def _copied(self, to: Any, source: Any) -> Copy:
        with _failing(), self._streams.stream(self._stream):
            to.copy_(source, non_blocking=True)
            done = self._streams.Event()
            done.record(self._stream)
        return _Copy(done)

    def _own(self, offset: int, length: int) -> Any:
        end = self._bytes.storage_offset() + self._bytes.numel()
        if self._bytes.data_ptr() != self.address or self._bytes.untyped_storage().nbytes() < end:
            raise DeviceFailed("the tensor was resized")
        return self._bytes.narrow(0, offset, length)

    def _host(self, memory: Pinned) -> Any:
        """By its address: torch warns of views that cannot be written to."""
        if not memory.size:
            return self._torch.empty(0, dtype=self._torch.uint8)
        area = (ctypes.c_ubyte * memory.size).from_address(memory.address)
        return self._torch.frombuffer(area, dtype=self._torch.uint8)

    def part(self, offset: int, length: int) -> DeviceMemory:
        made = copy(self)  # what was queued for the whole is so for its parts
        made._bytes = self._own(offset, length)  # noqa: SLF001 (its own)
        made.address, made.size = self.address + offset, length
        return made

    def release(self) -> None:
        self._bytes = self._bytes.new_empty(0)


class _Copy:
    def __init__(self, done: Any) -> None:
        self._done = done

    def wait(self) -> None:
        with _failing():
            self._done.synchronize()


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # the first line: the rest is advice on environment variables
        raise DeviceFailed(str(error).partition("\n")[0]) from None
