"""Memory that is received into: used again when nobody holds any of it, and not kept for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from milkweed.runtime.receiving import KEEP_S, LEAST_MAPPING, MOST_KEPT, KeptMemory, fresh_memory

MIB = 1024 * 1024
SIZE = 8 * MIB


class StandInLoop(asyncio.AbstractEventLoop):
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[..., Any]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., Any], *_: Any, **__: Any) -> Any:
        self.due.append((self.now + delay, callback))

    def go_on(self, seconds: float) -> None:
        end = self.now + seconds
        while self.due and self.due[0][0] <= end:
            self.now, callback = self.due.pop(0)
            callback()
        self.now = end


@pytest.fixture
def loop() -> StandInLoop:
    return StandInLoop()


@pytest.fixture
def memory(loop: StandInLoop) -> KeptMemory:
    return KeptMemory(loop)


def address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def received(memory: KeptMemory, size: int) -> int:
    """The address of memory that was held for a moment."""
    return address(memory.take(size))


def test_memory_that_nobody_holds_is_used_again(memory: KeptMemory) -> None:
    first = received(memory, SIZE)
    assert [received(memory, size) for size in (SIZE, SIZE - MIB, SIZE)] == [first] * 3
    assert memory.kept == SIZE


def test_of_several_the_last_is_used_again_and_the_others_grow_old(
    memory: KeptMemory, loop: StandInLoop
) -> None:
    held = [memory.take(SIZE) for _ in range(3)]
    last = address(held[-1])
    held.clear()
    for _ in range(3):
        loop.go_on(KEEP_S / 2)
        assert received(memory, SIZE) == last
    assert memory.kept == SIZE


@pytest.mark.parametrize(
    "hold",
    [
        lambda view: view,
        lambda view: view[SIZE // 2 :][:1],
        lambda view: np.frombuffer(view[64:], np.uint8)[::2],
        lambda view: {"a": [memoryview(view[1:]).toreadonly()]},
        lambda view: [view.obj],
        lambda view: np.frombuffer(view, np.uint8).base.obj,  # type: ignore[union-attr]
    ],
    ids=["whole", "one byte", "array", "read only", "what is below it", "what is below an array"],
)
def test_memory_of_which_anything_is_held_is_not_used_again(
    memory: KeptMemory, hold: Callable[[memoryview], Any]
) -> None:
    held = hold(memory.take(SIZE))
    at = id(memory._kept[0].mapping)
    others = [memory.take(SIZE) for _ in range(3)]
    assert all(id(other.obj) != at for other in others)
    del held
    assert id(memory.take(SIZE).obj) == at


def test_memory_that_its_holder_closed_is_never_used_again(memory: KeptMemory, loop: StandInLoop) -> None:
    below: Any = memory.take(SIZE).obj
    below.close()
    del below
    assert len({address(view) for view in [memory.take(SIZE), memory.take(SIZE)]}) == 2
    loop.go_on(2 * KEEP_S)
    assert memory.kept == 0


def test_what_is_held_keeps_its_bytes_though_it_is_kept_no_more(
    memory: KeptMemory, loop: StandInLoop
) -> None:
    held = memory.take(SIZE)
    held[:] = b"\x07" * SIZE
    loop.go_on(2 * KEEP_S)
    assert memory.kept == 0
    for _ in range(3):
        memory.take(SIZE)[:] = bytes(SIZE)
    assert bytes(held) == b"\x07" * SIZE


def test_memory_is_given_back_after_a_time_and_no_timer_is_left(
    memory: KeptMemory, loop: StandInLoop
) -> None:
    received(memory, SIZE)
    loop.go_on(KEEP_S - 2)
    received(memory, SIZE)
    loop.go_on(KEEP_S - 2)
    assert memory.kept == SIZE
    loop.go_on(3)
    assert memory.kept == 0
    assert loop.due == []


def test_memory_that_nobody_holds_can_be_taken_by_the_kernel_and_be_used_again(
    memory: KeptMemory, loop: StandInLoop
) -> None:
    view = memory.take(SIZE)
    view[:] = b"\x01" * SIZE
    before = free_to_take()
    loop.go_on(2)
    assert free_to_take() - before < SIZE // 2, "it was held"
    first = address(view)
    del view
    loop.go_on(2)
    assert free_to_take() - before >= SIZE - 2 * MIB
    again = memory.take(SIZE)
    assert address(again) == first
    again[:] = b"\x02" * SIZE
    assert bytes(again) == b"\x02" * SIZE


def free_to_take() -> int:
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("LazyFree:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such line")


def test_no_more_than_a_limit_is_kept(memory: KeptMemory) -> None:
    held = [memory.take(MOST_KEPT // 4) for _ in range(6)]
    assert memory.kept == MOST_KEPT
    assert len({address(view) for view in held}) == 6
    memory.take(MOST_KEPT + 1)
    assert memory.kept == MOST_KEPT


def test_a_small_payload_does_not_get_memory_that_is_far_larger(memory: KeptMemory) -> None:
    large = received(memory, 64 * MIB)
    assert received(memory, SIZE) != large
    assert received(memory, 60 * MIB) == large


@pytest.mark.parametrize("size", [1, LEAST_MAPPING - 1])
def test_small_memory_is_not_kept(memory: KeptMemory, loop: StandInLoop, size: int) -> None:
    assert len(memory.take(size)) == size
    assert memory.kept == 0
    assert loop.due == []


def test_memory_that_cannot_be_had_is_a_memory_error(memory: KeptMemory) -> None:
    for take in (memory.take, fresh_memory):
        with pytest.raises(MemoryError):
            take(2**60)


def test_forgotten_memory_is_its_holders_alone(memory: KeptMemory) -> None:
    held = memory.take(SIZE)
    memory.forget()
    assert memory.kept == 0
    assert memory.take(SIZE).obj is not held.obj
