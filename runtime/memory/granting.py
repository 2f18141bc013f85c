"""The owner's end of RDMA: regions that network cards reach by themselves, and when they no longer do."""

from __future__ import annotations

import itertools
import mmap
import threading
from contextlib import suppress

from .. import _native_memory as native
from .device import DeviceMemory
from .grant import LANES, Grant
from .handle import READ, WRITE
from .holding import Held
from .pinned import Pinned
from .regions import Region
from .ucx import Ucx

__all__ = ["Grants", "Lanes"]

_PAGE = mmap.PAGESIZE
_WORD = 8


class _Page:
    """Words that are reached over the network."""

    def __init__(self, engine: native.Ucx, *, read: bool, write: bool) -> None:
        self._memory = mmap.mmap(-1, _PAGE)
        self.words = memoryview(self._memory).cast("Q")
        self.address = native.address_of(self.words)
        self._number, self.key = engine.map(self.address, _PAGE, read, write)

    def close(self, engine: native.Ucx) -> None:
        engine.unmap(self._number)
        self.words.release()
        self._memory.close()


class Lanes:
    """Those of one peer: it is in a region as long as one of them says so."""

    def __init__(self, engine: native.Ucx) -> None:
        self._engine = engine
        self._page = page = _Page(engine, read=True, write=True)
        self.address = page.address
        self.key = page.key

    def hold(self, region: Region) -> bool:
        return region.slot + 1 in self._page.words[:LANES].tolist()

    def close(self) -> None:
        self._page.close(self._engine)


class Grants:
    """Any thread. A peer's lanes live as long as its connection: with a dead peer nothing waits for them."""

    def __init__(self, ucx: Ucx) -> None:
        self._ucx = ucx
        self._lock = threading.RLock()
        self._lanes: set[Lanes] = set()
        self._pages: list[_Page] = []
        self._free: list[tuple[_Page, int]] = []
        self._numbers = itertools.count(1)

    def lanes(self) -> Lanes:
        """
        Raises:
            Unreachable: there is no RDMA here.
            RuntimeError: its memory cannot be registered.
        """
        engine = self._ucx.engine()
        with self._lock:
            lanes = Lanes(engine)
            self._lanes.add(lanes)
            return lanes

    def forget(self, lanes: Lanes) -> None:
        with self._lock:
            self._lanes.discard(lanes)
        with suppress(RuntimeError):  # UCX has ended, and all of it
            lanes.close()

    def reaches(self, memory: Held) -> bool:
        """Whether network cards do, as far as UCX knows.

        Raises:
            Unreachable: there is no RDMA here.
        """
        return isinstance(memory, Pinned) or bool(self._ucx.engine().memory_types >> memory.kind & 1)

    def grant(self, region: Region, lanes: Lanes) -> Grant | None:
        """For a region that is held meanwhile; None where it has been dropped.

        Raises:
            RuntimeError: it cannot be registered.
        """
        engine, listener = self._ucx.engine(), self._ucx.listener()
        with self._lock:
            if region.remote is None:
                region.remote = _Offer(self, engine, region)
            offer = region.remote
            assert isinstance(offer, _Offer)
            if not region.is_live:  # `retire` may have come before the offer
                offer.retire()
                return None
        return Grant(
            worker=engine.address,
            listener=listener,
            lanes=lanes.address,
            lanes_key=lanes.key,
            region=region.memory.address,
            region_key=offer.key,
            word=offer.word_address,
            word_key=offer.word_key,
            alive=offer.alive,
            rights=region.rights,
            size=region.memory.size,
        )

    def is_held(self, region: Region) -> bool:
        native.fence()  # after its generation was changed
        with self._lock:
            return any(lanes.hold(region) for lanes in self._lanes)

    def take_word(self, engine: native.Ucx) -> tuple[_Page, int]:
        with self._lock:
            if not self._free:
                page = _Page(engine, read=True, write=False)
                self._pages.append(page)
                self._free += [(page, index) for index in range(_PAGE // _WORD)]
            return self._free.pop()

    def next_number(self) -> int:
        """No two offers have the same: who knew what a word was for is not to take another's for it."""
        return next(self._numbers)

    def give_word(self, word: tuple[_Page, int]) -> None:
        with self._lock:
            self._free.append(word)


class _Offer:
    """A region that is registered with the network card (`regions.Remote`)."""

    def __init__(self, grants: Grants, engine: native.Ucx, region: Region) -> None:
        self._grants = grants
        self._engine = engine
        self._region = region
        self._number: int | None = None
        self.key = b""
        self._word = page, index = grants.take_word(engine)
        try:
            if region.memory.size:
                self._number, self.key = engine.map(
                    region.memory.address,
                    region.memory.size,
                    bool(region.rights & READ),
                    bool(region.rights & WRITE),
                    region.memory.kind if isinstance(region.memory, DeviceMemory) else 0,
                )
        except BaseException:
            grants.give_word(self._word)
            raise
        self.word_address, self.word_key = page.address + _WORD * index, page.key
        self.alive = grants.next_number()
        page.words[index] = self.alive

    def retire(self) -> None:
        page, index = self._word
        page.words[index] = 0

    def is_quiet(self) -> bool:
        return not self._grants.is_held(self._region)

    def close(self) -> None:
        """From now on the card refuses whoever comes still."""
        if self._number is not None:
            with suppress(RuntimeError):  # UCX has ended, and all of it
                self._engine.unmap(self._number)
        self._grants.give_word(self._word)
