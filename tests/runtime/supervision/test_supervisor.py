"""A supervisor with children that are coroutines: started, ended, restarted, given up."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from milkweed.runtime.records import Exit
from milkweed.runtime.supervision import Escalate, Failure, Restart, RestartChild, Supervisor
from milkweed.runtime.supervision.supervisor import Hands

pytestmark = pytest.mark.anyio

DEAD = Failure("proc", "x", exit=Exit(signal=9))


class Children:
    """Each attempt lives until `end`, or until the test lets it end."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], Failure | None] = {}
        self.alive: list[tuple[str, int]] = []
        self.escalations: list[Escalate] = []
        self._happened = anyio.Event()

    @property
    def hands(self) -> Hands:
        return Hands(self.live, self.end, self.escalations.append)

    async def live(self, child: str, attempt: int, started: Callable[[], None]) -> Failure | None:
        self.alive.append((child, attempt))
        started()
        self._tell()
        while (child, attempt) not in self.ends:
            await self._happened.wait()
        self.alive.remove((child, attempt))
        return self.ends[child, attempt]

    async def end(self, child: str, attempt: int) -> None:
        self.let_end(child, attempt, DEAD)

    def let_end(self, child: str, attempt: int, failure: Failure | None) -> None:
        self.ends[child, attempt] = failure
        self._tell()

    def _tell(self) -> None:
        self._happened.set()
        self._happened = anyio.Event()

    async def wait_alive(self, *lives: tuple[str, int]) -> None:
        with anyio.fail_after(10):
            while sorted(self.alive) != sorted(lives):
                await self._happened.wait()


async def test_a_child_that_fails_is_started_again_and_a_well_one_is_the_end() -> None:
    children = Children()
    supervisor = Supervisor(Restart(backoff_s=0.01), ["a"], children.hands)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await children.wait_alive(("a", 1))
            children.let_end("a", 1, DEAD)
            await children.wait_alive(("a", 2))
            children.let_end("a", 2, None)
    assert supervisor.state.over
    assert (supervisor.state.total, children.escalations) == (1, [])


async def test_one_for_all_restarts_all_of_them() -> None:
    children = Children()
    supervisor = Supervisor(Restart("one_for_all", backoff_s=0.0), ["a", "b"], children.hands)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await children.wait_alive(("a", 1), ("b", 1))
            children.let_end("b", 1, DEAD)
            await children.wait_alive(("a", 2), ("b", 2))
            supervisor.stop()
    assert (children.alive, children.escalations) == ([], [])


async def test_it_gives_up_once_and_has_ended_everything_then() -> None:
    children = Children()
    supervisor = Supervisor(Restart(max_restarts=0), ["a", "b"], children.hands)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await children.wait_alive(("a", 1), ("b", 1))
            children.let_end("a", 1, DEAD)
    assert [one.failure for one in children.escalations] == [DEAD]
    assert children.alive == []


async def test_a_restart_can_be_asked_for() -> None:
    children = Children()
    supervisor = Supervisor(Restart(max_restarts=0), {"a": 4}, children.hands)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await children.wait_alive(("a", 5))
            supervisor.tell(RestartChild("a", supervisor.now()))
            await children.wait_alive(("a", 6))
            supervisor.stop()
    assert supervisor.state.over


async def test_a_stop_before_it_runs_starts_and_ends_what_was_to_be_started() -> None:
    children = Children()
    supervisor = Supervisor(Restart(), ["a"], children.hands)
    supervisor.stop()
    with anyio.fail_after(10):
        await supervisor.run()
    assert children.alive == []
