"""Deadlines and cancels: of what waits, runs, blocks, has not begun, or is stuck in native code."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from milkweed.runtime import ActorMesh, ProcMesh, this_host
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.node import Future
from tests.runtime.meshes.actors import Counter, Stuck, Worker
from tests.runtime.meshes.conftest import DEADLINE_S

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stuck(procs: ProcMesh) -> ActorMesh:
    return await procs.slice(gpus=0).spawn("stuck", Stuck)


async def code_of(future: Future[object]) -> str:
    with anyio.fail_after(DEADLINE_S), pytest.raises(Unavailable) as caught:
        await future
    return caught.value.code


async def test_an_async_endpoint_is_cancelled_where_it_awaits(stuck: ActorMesh) -> None:
    call = stuck.wait.call_one()
    await stuck.begun.call_one("wait")
    call.cancel()
    assert await code_of(call) == "cancelled"
    assert await stuck.logged.call_one() == ["wait", "wait ended"]


async def test_an_endpoint_that_answers_though_cancelled_is_heard(stuck: ActorMesh) -> None:
    call = stuck.wait_stubbornly.call_one()
    await stuck.begun.call_one("stubborn")
    call.cancel()
    with anyio.fail_after(DEADLINE_S):
        assert await call == "answered all the same"


@pytest.mark.parametrize("name", ["spin", "sleep"])
async def test_a_sync_endpoint_is_cancelled_in_python_code_and_in_system_calls(
    stuck: ActorMesh, name: str
) -> None:
    call = getattr(stuck, name).call_one()
    await stuck.begun.call_one(name)
    call.cancel()
    assert await code_of(call) == "cancelled"
    assert (await stuck.logged_in_turn.call_one())[0] == name


async def test_the_cancel_of_an_endpoint_that_waits_for_another_reaches_that(
    procs: ProcMesh, stuck: ActorMesh
) -> None:
    other = await procs.slice(gpus=1).spawn("other", Stuck)
    call = stuck.wait_for_another.call_one(other)
    with anyio.fail_after(DEADLINE_S):
        await other.begun.call_one("wait")
        call.cancel()
        assert await code_of(call) == "cancelled"
        await other.begun.call_one("wait ended")


async def test_a_call_that_has_not_begun_never_does(stuck: ActorMesh) -> None:
    ahead = stuck.sleep.call_one()
    await stuck.begun.call_one("sleep")
    waits = stuck.mark.call_one()
    behind = stuck.mark.call_one()
    behind.cancel()
    waits.cancel()
    assert [await code_of(waits), await code_of(behind)] == ["cancelled"] * 2
    assert not ahead.done()
    ahead.cancel()
    assert await code_of(ahead) == "cancelled"
    assert await stuck.logged_in_turn.call_one() == ["sleep"]


async def test_a_deadline_ends_the_endpoint(stuck: ActorMesh) -> None:
    for name in ("wait", "spin", "sleep"):
        assert await code_of(getattr(stuck, name).within(0.05).call_one()) == "deadline_exceeded"
    assert await stuck.logged_in_turn.call_one() == ["wait", "wait ended", "spin", "spin ended", "sleep"]


def test_a_deadline_passes_for_sync_code_that_waits_in_steps(procs: ProcMesh) -> None:
    stuck = procs.spawn("stuck", Stuck).get(DEADLINE_S)
    call = stuck.wait.within(0.2).call()
    with pytest.raises(TimeoutError):
        call.get(0.01)
    while not call.done():
        try:
            call.get(0.05)
        except TimeoutError:
            continue
    assert {error.code for error in call.get().errors().values()} == {"deadline_exceeded"}  # type: ignore[attr-defined]


async def test_a_deadline_of_one_rank_hides_no_other(procs: ProcMesh) -> None:
    counters = await procs.spawn("counters", Counter)
    await counters.slice(gpus=1).open.call_one()
    with anyio.fail_after(DEADLINE_S):
        # The second rank has answered before the first's time is over, however slow this machine is now.
        both = counters.wait_until_opened.within(2.0).call()
        values = await both
    assert values.ok() == {1: "opened"}
    assert {rank: error.code for rank, error in values.errors().items()} == {0: "deadline_exceeded"}  # type: ignore[attr-defined]


async def test_a_task_that_is_cancelled_while_it_awaits_cancels_its_call(stuck: ActorMesh) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                await stuck.wait.call_one()

            tasks.start_soon(call)
            await stuck.begun.call_one("wait")
            tasks.cancel_scope.cancel()
        await stuck.begun.call_one("wait ended")


@pytest.fixture
async def doomed() -> AsyncIterator[ProcMesh]:
    """A proc of one test, which may leave it stuck."""
    procs = await this_host().spawn_procs(per_host={"gpus": 1}, output="keep")
    yield procs
    await procs.stop(0.0)


async def test_what_is_stuck_in_native_code_is_said_and_its_proc_goes_on(doomed: ProcMesh) -> None:
    stuck = await doomed.spawn("stuck", Stuck)
    call = stuck.compute_in_c.call_one()
    with anyio.fail_after(DEADLINE_S):
        await stuck.begun.call_one("compute")
        waits = stuck.mark.call_one()
        call.cancel()
        assert await code_of(call) == "uncancellable"
        waits.cancel()
        assert await code_of(waits) == "cancelled"
        health = await doomed.health()
        assert (health[0].state, health[0].where) == ("busy", "Stuck.compute_in_c")
        assert await stuck.logged.call_one() == ["compute"]


async def test_a_blocked_loop_is_told_and_what_blocks_it_is_cancelled(doomed: ProcMesh) -> None:
    stuck = await doomed.spawn("stuck", Stuck)
    call = stuck.block_the_loop.call_one()
    with anyio.fail_after(DEADLINE_S):
        while (await doomed.health())[0].state != "blocked":
            await anyio.sleep(0.01)
        call.cancel()
        assert await code_of(call) == "cancelled"
        assert await stuck.logged.call_one() == ["block", "block ended"]


async def test_a_flood_of_messages_is_held_back_and_bounded(doomed: ProcMesh, full_size: bool) -> None:
    counter = await doomed.spawn("counter", Counter)
    worker = await doomed.spawn("worker", Worker)
    count = 100_000 if full_size else 20_000
    data = bytes(10_000)
    with anyio.fail_after(10 * DEADLINE_S):
        before = await worker.rss.call_one()
        waits = counter.wait_until_opened.call_one()
        while "waits" not in await counter.noted.call_one():
            pass
        for _ in range(count // 2):  # more than its mailbox takes, less than what may be unsent
            counter.take.broadcast(data)
        # What is behind the flood on this connection waits: health and cancel have their own way.
        assert (await doomed.health())[0].state == "busy"
        late = counter.take.call_one(data)
        late.cancel()
        assert await code_of(late) in ("cancelled", "uncancellable")
        waits.cancel()
        assert await code_of(waits) == "cancelled"
        for _ in range(count // 2):
            await counter.take.broadcast(data)
        assert await counter.add_in_turn.call_one(0) == count
        assert await worker.rss.call_one() - before < 64 * 1024 * 1024


async def test_an_owner_ends_one_stuck_proc_and_the_rest_of_its_mesh_goes_on() -> None:
    procs = await this_host().spawn_procs(per_host={"gpus": 2}, output="keep")
    try:
        stuck = await procs.spawn("stuck", Stuck)
        with anyio.fail_after(DEADLINE_S):
            call = stuck.slice(gpus=1).compute_in_c.call_one()
            await stuck.slice(gpus=1).begun.call_one("compute")
            assert await procs.slice(gpus=1).end() >= 1
            assert await code_of(call) == "proc_lost"
            outcomes = await stuck.mark.call()
            assert list(outcomes.ok()) == [0]
            while (await procs.health())[0].state != "ok":
                await anyio.sleep(0.01)
    finally:
        await procs.stop(0.0)
