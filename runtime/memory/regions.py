"""The regions of this process: registered, looked up by those who serve them, dropped."""

from __future__ import annotations

import hmac
import threading
from secrets import token_bytes
from typing import Protocol

from .. import _native_memory as native
from ..errors import Conflict
from .handle import KEY_BYTES, READ, WRITE
from .holding import Held
from .pinned import Pinned

__all__ = ["Region", "Regions", "Remote"]

_SLOTS = 1 << 18


class Remote(Protocol):
    """What else reaches a region, without the help of its owner."""

    def retire(self) -> None:
        """No transfer is to begin any more."""

    def is_quiet(self) -> bool:
        """Whether none is under way; of a retired one."""

    def close(self) -> None:
        """None will ever be."""


class Region:
    """Memory that is offered. It is held until the region is dropped and nobody moves any of it."""

    __slots__ = ("generation", "is_live", "key", "memory", "remote", "rights", "slot", "users")

    def __init__(self, slot: int, key: bytes, rights: int, memory: Held) -> None:
        self.slot = slot
        self.key = key
        self.rights = rights
        self.memory = memory
        self.generation = 0
        self.users = 0
        self.is_live = True
        self.remote: Remote | None = None

    def refusal(self, key: bytes, offset: int, length: int, *, write: bool) -> int:
        """The status of a transfer that is not to be; DONE where it may."""
        if not hmac.compare_digest(key, self.key):
            return native.WRONG_KEY
        if offset < 0 or offset + length > self.memory.size:
            return native.OUT_OF_RANGE
        return native.DONE if self.rights & (WRITE if write else READ) else native.FORBIDDEN


class Regions:
    """Its methods may be called from any thread."""

    def __init__(self) -> None:
        self.token = token_bytes(KEY_BYTES)
        self._table = native.Table(_SLOTS, self.token)
        self._lock = threading.Lock()
        self._live: dict[int, Region] = {}
        self._dropped: dict[int, Region] = {}
        self._free: list[int] = []
        self._unused = 0

    @property
    def fd(self) -> int:
        """Of the table that other processes open."""
        return self._table.fd

    @property
    def held(self) -> int:
        """How many regions keep their memory."""
        return len(self._live) + len(self._dropped)

    def register(self, memory: Held, rights: int) -> Region:
        """
        Raises:
            Conflict: too_many_buffers.
        """
        with self._lock:
            if not self._free and self._unused == _SLOTS:
                raise Conflict("too_many_buffers", f"this process has {_SLOTS} buffers", "Drop some.")
            slot = self._free.pop() if self._free else self._unused
            self._unused = max(self._unused, slot + 1)
            region = Region(slot, token_bytes(KEY_BYTES), rights, memory)
            # What no processor reads is not told to others that would read it by theirs.
            address, size = (memory.address, memory.size) if isinstance(memory, Pinned) else (0, 0)
            region.generation = self._table.publish(slot, address, size, rights, region.key, memory.file)
            self._live[slot] = region
            return region

    def enter(self, slot: int, generation: int) -> Region | None:
        """The region, whose memory stays until `leave`; None if it was dropped."""
        with self._lock:
            region = self._live.get(slot)
            if region is None or region.generation != generation:
                return None
            region.users += 1
            return region

    def find(self, slot: int, generation: int) -> Region | None:
        """One that is held, dropped or not."""
        with self._lock:
            region = self._live.get(slot) or self._dropped.get(slot)
            return region if region is not None and region.generation == generation else None

    def leave(self, region: Region) -> None:
        with self._lock:
            region.users -= 1

    def retire(self, region: Region) -> None:
        """From now on no transfer begins; safe to repeat."""
        with self._lock:
            if self._live.get(region.slot) is region:
                self._dropped[region.slot] = self._live.pop(region.slot)
                self._table.retire(region.slot)
                region.is_live = False
                if region.remote is not None:
                    region.remote.retire()

    def let_go(self, region: Region) -> bool:
        """Whether nobody moves any of a retired region: its memory is then no longer held."""
        with self._lock:
            if self._dropped.get(region.slot) is not region:
                return True
            if region.users or not self._table.is_quiet(region.slot):
                return False
            if region.remote is not None:
                if not region.remote.is_quiet():
                    return False
                region.remote.close()
            del self._dropped[region.slot]
            self._free.append(region.slot)
        region.memory.release()
        return True

    def retire_all(self) -> list[Region]:
        """All that are held, retired."""
        for region in list(self._live.values()):
            self.retire(region)
        return list(self._dropped.values())

    def close(self) -> None:
        """Others are told from now on that this process is gone."""
        self._table.close()
