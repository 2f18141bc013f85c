"""The owner's end of what RDMA does not reach: memory of the host that a device's bytes go through."""

from __future__ import annotations

from .device import DeviceMemory
from .handle import READ, WRITE
from .regions import Region, Regions
from .staging import AREAS, PIECE

__all__ = ["Stage"]


class Stage:
    """Of one peer, which asks for one thing at a time, and uses no area while that is loaded or stored."""

    def __init__(self, regions: Regions, memory: DeviceMemory) -> None:
        """
        Raises:
            DeviceFailed. Conflict: too_many_buffers.
        """
        self._regions = regions
        self._area = memory.area(AREAS * PIECE)
        self.region: Region = regions.register(self._area, READ | WRITE)

    @staticmethod
    def has(area: int, length: int) -> bool:
        return area < AREAS and length <= PIECE

    def load(self, area: int, memory: DeviceMemory, offset: int, length: int) -> None:
        """
        Raises:
            DeviceFailed.
        """
        memory.read(offset, self._area.part(area * PIECE, length)).wait()

    def store(self, area: int, memory: DeviceMemory, offset: int, length: int) -> None:
        """
        Raises:
            DeviceFailed.
        """
        memory.write(offset, self._area.part(area * PIECE, length)).wait()

    def close(self) -> None:
        """When the peer says nothing any more: what it may still have under way, its card is refused."""
        self._regions.retire(self.region)
        self._regions.let_go(self.region)
