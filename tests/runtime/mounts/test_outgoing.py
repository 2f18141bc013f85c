from __future__ import annotations

import anyio
import pytest

from milkweed.runtime.mounts import outgoing
from milkweed.runtime.mounts.outgoing import MOST_OUT, Outgoing

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


async def test_memory_is_waited_for_until_some_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "_WAIT_S", 60.0)
    memory = Outgoing()
    held = [await memory.take(4 * MIB) for _ in range(MOST_OUT // (4 * MIB))]
    part = held[0][10:20]
    taken: list[memoryview] = []

    async def take() -> None:
        taken.append(await memory.take(MIB))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            del held[0]
            await anyio.wait_all_tasks_blocked()
            assert not taken  # a view of a part holds all of it
            del part
    assert len(taken[0]) == MIB
    assert memory.out == MOST_OUT


async def test_hosts_that_take_nothing_do_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "_WAIT_S", 0.01)
    memory = Outgoing()
    with anyio.fail_after(10):
        held = [await memory.take(4 * MIB) for _ in range(MOST_OUT // (4 * MIB) + 3)]
    assert memory.out > MOST_OUT
    del held


async def test_what_is_taken_is_of_the_size_asked_for_and_writable() -> None:
    memory = Outgoing()
    for size in (0, 100, MIB, 4 * MIB, 5 * MIB):
        taken = await memory.take(size)
        assert len(taken) == size
        taken[:] = b"x" * size
        assert bytes(taken) == b"x" * size
