"""What a process has of all that registrations and transfers may leave behind, and uses that end badly."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from milkweed.runtime import Future, RDMABuffer
from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.memory.workers import THREAD_NAME
from tests.runtime.memory import peers
from tests.runtime.memory.peers import DEADLINE_S

__all__ = ["Holdings", "begin_write", "codes_of_bad_uses", "holdings"]


@dataclass(frozen=True)
class Holdings:
    """`mappings`: of memory that buffers allocated; `locked` as the kernel writes it. `threads` but for those
    that move: as many are made, and kept, as are put to work before another is seen to be idle.
    """

    descriptors: int
    threads: int
    mappings: int
    regions: int
    locked: tuple[str, str]


def holdings() -> tuple[Holdings, int]:
    """And how many bytes are resident."""
    gc.collect()
    with open("/proc/self/status", encoding="ascii") as file:
        status = {key: value.strip() for key, _, value in (line.partition(":") for line in file)}
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        mappings = sum("memfd:milkweed-buffer" in line for line in file)
    locked = (status["VmLck"], status["VmPin"])
    movers = sum(thread.name == THREAD_NAME for thread in threading.enumerate())
    threads = int(status["Threads"]) - movers
    found = Holdings(len(os.listdir("/proc/self/fd")), threads, mappings, peers.held(), locked)
    return found, int(status["VmRSS"].split()[0]) * 1024


def codes_of_bad_uses(buffer: RDMABuffer) -> list[str]:
    """What is said to uses of a buffer that may not, or cannot, come to their end."""
    dst = np.zeros(buffer.size(), np.uint8)

    def cancelled() -> Future[None]:
        moving = buffer.read_into(dst)
        moving.cancel()
        return moving

    uses: list[Callable[[], Future[None]]] = [
        cancelled,
        lambda: buffer.read_into(dst, timeout=0.0),
        lambda: buffer.write_from(dst, timeout=0.0),
        lambda: _forged(buffer, key=bytes(16)).read_into(dst),
        lambda: _forged(buffer, key=bytes(16)).write_from(dst),
        lambda: _forged(buffer, size=2**40).read_into(dst, buffer.size() - 5, 100),
        lambda: _forged(buffer, generation=buffer.handle.generation + 2).read_into(dst),
    ]
    return [_code_of(use) for use in uses]


def begin_write(buffer: RDMABuffer) -> None:
    """A write that goes on when this returns."""
    buffer.write_from(np.zeros(buffer.size(), np.uint8))


def _forged(buffer: RDMABuffer, **changed: object) -> RDMABuffer:
    made: RDMABuffer = pickle.loads(pickle.dumps(buffer))
    for name, value in changed.items():
        object.__setattr__(made.handle, name, value)
    return made


def _code_of(use: Callable[[], Future[None]]) -> str:
    try:
        use().get(DEADLINE_S)
    except MilkweedError as error:
        return error.code
    return ""
