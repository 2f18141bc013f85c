from __future__ import annotations

import threading

import anyio
import pytest

from milkweed.runtime.mounts.invalidator import Invalidator
from milkweed.runtime.mounts.nodes import Invalid

pytestmark = pytest.mark.anyio


class Kernel:
    """Notes what it is told, and by which thread; can be held, and refuses one name."""

    def __init__(self) -> None:
        self.told: list[tuple[int, bytes]] = []
        self.threads: set[int] = set()
        self.free = threading.Event()
        self.free.set()

    def invalidate_inode(self, inode: int, attr_only: bool = False) -> None:
        assert attr_only
        self._tell(inode, b"")

    def invalidate_entry(self, inode_p: int, name: bytes, deleted: int = 0) -> None:
        self._tell(inode_p, name)

    def _tell(self, number: int, name: bytes) -> None:
        self.free.wait()
        self.threads.add(threading.get_ident())
        if name == b"unknown":
            raise FileNotFoundError
        if name == b"odd":
            raise OSError(22, "no")
        self.told.append((number, name))


async def test_all_is_told_in_order_by_a_thread_of_its_own_before_it_is_done() -> None:
    kernel = Kernel()
    invalidator = Invalidator(kernel)
    await invalidator.tell([Invalid(1, b"a"), Invalid(1, b"unknown"), Invalid(2, b"odd"), Invalid(3, b"")])
    await invalidator.tell([])
    assert kernel.told == [(1, b"a"), (3, b"")]
    assert len(kernel.threads) == 1
    assert threading.get_ident() not in kernel.threads
    invalidator.close()


async def test_the_loop_goes_on_while_the_kernel_waits() -> None:
    """It may wait for a directory that a look-up holds, which the loop has yet to answer."""
    kernel = Kernel()
    kernel.free.clear()
    invalidator = Invalidator(kernel)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(invalidator.tell, [Invalid(1, b"a")])
            await anyio.wait_all_tasks_blocked()
            assert kernel.told == []
            kernel.free.set()
    assert kernel.told == [(1, b"a")]
    invalidator.close()
