"""Futures and feeds: settled from any thread, waited for in async and sync code."""

from __future__ import annotations

import asyncio
import threading

import anyio
import anyio.lowlevel
import pytest

from milkweed.runtime.errors import Conflict
from milkweed.runtime.node import Feed, Future, node

pytestmark = pytest.mark.anyio

DEADLINE_S = 20.0


class Noted(Future[int]):
    """Notes what it is asked for, and is settled then, as a call is."""

    def __init__(self, deadline_s: float | None = None) -> None:
        super().__init__(deadline_s=deadline_s)
        self.asked: list[str] = []

    def _on_deadline(self) -> None:
        self.asked.append("deadline")
        self.settle(lambda: -1)

    def _on_cancel(self) -> None:
        self.asked.append("cancel")


def raising() -> int:
    raise ValueError("no")


@pytest.mark.parametrize("timeout_s", [0.0, -1.0])
def test_with_no_time_left_it_is_not_waited_for(timeout_s: float) -> None:
    future: Future[int] = Future()
    with pytest.raises(TimeoutError):
        future.get(timeout_s)
    future.settle(lambda: 7)
    assert future.get(timeout_s) == 7


async def test_it_is_settled_once_and_tells_every_waiter() -> None:
    future: Future[int] = Future()
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(future.get(DEADLINE_S))) for _ in range(5)]
    for thread in threads:
        thread.start()

    async def wait() -> None:
        got.append(await future)

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            future.settle(lambda: 7)
            future.settle(lambda: 8)
    for thread in threads:
        thread.join()
    assert got == [7] * 10
    assert future.done()


async def test_what_it_raises_is_raised_in_every_waiter() -> None:
    future: Future[int] = Future()
    future.settle(raising)
    with pytest.raises(ValueError, match="no"):
        await future
    with pytest.raises(ValueError, match="no"):
        future.get()


def test_a_wait_that_is_too_short_changes_nothing() -> None:
    future = Noted()
    with pytest.raises(TimeoutError):
        future.get(0.001)
    assert not future.done()
    future.settle(lambda: 1)
    assert (future.get(), future.asked) == (1, [])


def test_the_deadline_counts_from_the_first_wait_however_often_it_is_waited_for() -> None:
    future = Noted(deadline_s=0.1)
    while not future.done():
        try:
            future.get(0.01)
        except TimeoutError:
            continue
    assert (future.get(), future.asked) == (-1, ["deadline"])


async def test_the_deadline_passes_for_async_code() -> None:
    future = Noted(deadline_s=0.01)
    with anyio.fail_after(DEADLINE_S):
        assert await future == -1


@pytest.mark.parametrize("deadline_s", [float("inf"), 1e300])
def test_a_deadline_without_end_is_none(deadline_s: float) -> None:
    future = Noted(deadline_s)
    threading.Timer(0.01, future.settle, (lambda: 3,)).start()
    assert future.get() == 3


async def test_a_waiter_that_is_cancelled_cancels_it() -> None:
    future = Noted()
    waiter = asyncio.ensure_future(wait_for(future))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert future.asked == ["cancel"]


async def wait_for(future: Future[int]) -> int:
    return await future


def test_it_may_be_settled_when_the_loop_of_its_waiter_is_closed() -> None:
    future: Future[int] = Future()
    loop = asyncio.new_event_loop()
    task = loop.create_task(wait_for(future))
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    future.settle(lambda: 1)
    assert future.get() == 1


def test_the_nodes_own_thread_is_kept_from_waiting_for_itself() -> None:
    async def wait() -> None:
        Future[int]().get()

    with pytest.raises(Conflict, match="would_deadlock"):
        node().start(wait()).get(DEADLINE_S)


def test_work_on_the_node_is_cancelled_by_its_future() -> None:
    begun = threading.Event()
    ended = threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    future = node().start(work())
    assert begun.wait(DEADLINE_S)
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        future.get(DEADLINE_S)
    assert ended.is_set()


async def test_a_feed_gives_what_was_put_and_ends_when_it_is_closed() -> None:
    feed: Feed[int] = Feed()
    feed.put(1)

    def put() -> None:
        feed.put(2)
        feed.close()
        feed.put(3)

    threading.Thread(target=put).start()
    with anyio.fail_after(DEADLINE_S):
        assert [one async for one in feed] == [1, 2]
    assert list(feed) == []
