"""What threads and tasks wait for, as another thread finds it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from milkweed.runtime.node import Future
from milkweed.runtime.node.looking import find_loops, thread_waits, user_tasks
from milkweed.runtime.records import CallWait, ThreadStack

DEADLINE_S = 30.0
WAIT = CallWait("stores.get", ("stores-1f-0",))


class Asked(Future[int]):
    """Stands in for a call of actors; `awaited` is set when somebody waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = threading.Event()

    def waits_for(self) -> CallWait:
        return WAIT

    def _add(self, wake: object) -> None:
        super()._add(wake)  # type: ignore[arg-type]
        self.awaited.set()

    def finish(self) -> None:
        self.settle(lambda: 7)


@contextmanager
def thread(work: object) -> Iterator[threading.Thread]:
    started = threading.Thread(target=work)  # type: ignore[arg-type]
    started.start()
    yield started
    started.join(DEADLINE_S)


def functions(stack: ThreadStack) -> list[str]:
    return [frame.function.rpartition(".")[2] for frame in stack.frames]


def test_a_thread_that_gets_an_answer_says_of_which_call() -> None:
    call = Asked()
    with thread(call.get) as waiter:
        assert call.awaited.wait(DEADLINE_S)
        assert waiter.ident is not None
        assert thread_waits(waiter.ident) == WAIT
        assert thread_waits(threading.get_ident()) is None
        call.finish()


async def outer(call: Asked) -> int:
    return await inner(call)


async def inner(call: Asked) -> int:
    return await call


async def run_two(call: Asked, other: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(other.wait())  # no frame of the user's
    await outer(call)
    other.set()
    await waiting


def test_a_task_is_told_by_its_await_chain_and_what_that_awaits() -> None:
    call = Asked()
    with thread(lambda: asyncio.run(run_two(call, asyncio.Event()))) as runner:
        assert call.awaited.wait(DEADLINE_S)
        assert runner.ident is not None
        loop = find_loops()[runner.ident]
        (task,) = user_tasks(loop)
        assert functions(task)[-3:] == ["inner", "outer", "run_two"]
        assert task.waits == WAIT
        assert user_tasks(loop, without=frozenset(asyncio.all_tasks(loop))) == []
        call.finish()
