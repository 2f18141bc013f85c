"""One-sided reads and writes within this host, beside `process_vm_readv`, Monarch's and NIXL's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from ..api import SIDE, spawn, start_procs, stop
from ..buffers import Getter, Holder, User
from ..plan import EVERY, Plan, Program, Row

__all__ = ["Measured", "plans"]

MIB = 1024 * 1024
SMALL = 8


class Measured(Program):
    """`times` transfers of `mib`, and `calls` of 8 bytes, a sample."""

    def __init__(self, mib: int, times: int, calls: int) -> None:
        self._size, self._times, self._calls = mib * MIB, times, calls

    async def open(self) -> None:
        self._side: Any = None
        if SIDE == "bare":
            from ..raw_memory import RawMemory

            self._side = RawMemory(self._size)
        elif SIDE == "nixl":
            from ..nixl_memory import NixlMemory

            self._side = NixlMemory(self._size)
        else:
            self._procs = await start_procs(2)
            holder = (await spawn(self._procs, "holder", Holder)).slice(gpus=0)
            self._user = (await spawn(self._procs, "user", User)).slice(gpus=1)
            self._getter = (await spawn(self._procs, "getter", Getter)).slice(gpus=1)
            self._large = await holder.array.call_one(self._size)
            self._place = await holder.place.call_one()
            self._small = await holder.array.call_one(SMALL)
            self._mapped = await holder.memory.call_one(self._size) if SIDE == "ours" else None
        await self.sample()

    async def sample(self) -> dict[str, float | str]:
        if self._side is not None:
            found: Mapping[str, float] = self._side.sample(self._times, self._calls)
            return {**found, "awaited": found["read"]}
        figures: dict[str, float | str] = {
            "read": await self._rate(self._getter, self._large, "read"),
            "write": await self._rate(self._getter, self._large, "write"),
            "awaited": await self._rate(self._user, self._large, "read"),
            "small": await self._seconds(self._user, self._small, "read", SMALL, self._calls) * 1e6,
        }
        if self._mapped is not None:
            beside = await self._getter.beside_kernel.call_one(
                self._large, *self._place, self._size, self._times
            )
            figures |= {
                "read_beside": beside["read"],
                "write_beside": beside["write"],
                "mapped_read": await self._rate(self._getter, self._mapped, "read"),
                "mapped_write": await self._rate(self._getter, self._mapped, "write"),
                "taken": await self._user.transport.call_one(self._large),
                "mapped": await self._user.transport.call_one(self._mapped),
            }
        return figures

    async def _rate(self, user: Any, buffer: Any, what: str) -> float:
        return self._size / await self._seconds(user, buffer, what, self._size, self._times) / 1e9

    async def _seconds(self, user: Any, buffer: Any, what: str, size: int, times: int) -> float:
        return statistics.median(await user.timed.call_one(buffer, what, size, times))

    async def close(self) -> None:
        if self._side is not None:
            self._side.close()
        else:
            await stop(self._procs)


def plans(*, quick: bool) -> list[Plan]:
    busy = "on a busy machine the kernel itself (bare) may be less than five times as fast as Monarch"
    woken = "a thread moves it and wakes the loop, and each may wait for a processor where others want it too"
    rows = (
        Row("read_beside", "64 MiB read, of one process_vm_readv of the same bytes", "x", 0.8, more=True),
        Row("write_beside", "64 MiB write, of one process_vm_writev of the same bytes", "x", 0.8, more=True),
        Row("read", "64 MiB read, same host, .get()", "GB/s", times=5, more=True, why=busy),
        Row("write", "64 MiB write, same host, .get()", "GB/s", times=5, more=True, why=busy),
        Row("awaited", "64 MiB read, same host, awaited", "GB/s", times=5, more=True, why=f"{busy}; {woken}"),
        Row("mapped_read", "64 MiB read of memory that RDMABuffer allocated", "GB/s", more=True),
        Row("mapped_write", "64 MiB write to memory that RDMABuffer allocated", "GB/s", more=True),
        Row("memcpy", "memcpy of 64 MiB within a process", "GB/s", more=True),
        Row("small", "8-byte read, same host, p50", "us", 20),
    )
    rounds, options = (
        (2, {"mib": 64, "times": 3, "calls": 200}) if quick else (7, {"mib": 64, "times": 7, "calls": 2000})
    )
    return [Plan(rows, rounds, options, EVERY)]
