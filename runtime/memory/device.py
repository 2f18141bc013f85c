"""Memory of a device, which no processor of the host reads: what a transfer needs of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

from .pinned import Pinned

__all__ = ["CUDA", "ROCM", "Copy", "DeviceFailed", "DeviceMemory"]

CUDA, ROCM = 1, 3
"""As UCX numbers kinds of memory (`ucs_memory_type_t`)."""


class DeviceFailed(Exception):
    """The device's own word for why it copies nothing."""


class Copy(Protocol):
    """One that has begun."""

    def wait(self) -> None:
        """Returns when it is done, a few megabytes at most.

        Raises:
            DeviceFailed.
        """


class DeviceMemory(ABC):
    """Bytes at an address of a device. They stay while this is held; whoever made them must not resize them.

    `where` is the device's name; `kind` is CUDA, ROCM, or 0 for what network cards reach as they do memory of
    the host. Copies see what the program had queued when this was made, not what it queues later.
    """

    where: str
    kind: int
    address: int
    size: int
    is_readonly = False
    file = -1

    @abstractmethod
    def is_ready(self) -> bool:
        """Whether all is done that was queued when this was made. Copies begin after that.

        Raises:
            DeviceFailed.
        """

    @abstractmethod
    def area(self, size: int) -> Pinned:
        """New memory of the host, such as the device copies to and from by itself.

        Raises:
            DeviceFailed: there is none.
        """

    @abstractmethod
    def read(self, offset: int, into: Pinned) -> Copy:
        """Begins to fill `into`, which is to be held until the copy is done.

        Raises:
            DeviceFailed.
        """

    @abstractmethod
    def write(self, offset: int, source: Pinned) -> Copy:
        """Begins to copy all of `source`; else as `read`."""

    @abstractmethod
    def part(self, offset: int, length: int) -> DeviceMemory: ...

    @abstractmethod
    def release(self) -> None:
        """Lets go of it."""
