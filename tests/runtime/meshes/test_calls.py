"""Calls as a program makes them: of every kind, from async and sync code, in order, in parts of a mesh."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from milkweed.runtime import ProcMesh, this_host
from milkweed.runtime.actor import Actor, endpoint
from milkweed.runtime.errors import Conflict, InvalidArgument, MeshError, NotFound, Unavailable
from milkweed.runtime.meshes import Failed
from tests.runtime.meshes.actors import Counter, Failing, Picky, Stuck, Worker
from tests.runtime.meshes.conftest import DEADLINE_S

pytestmark = pytest.mark.anyio


async def test_a_call_gives_a_value_for_every_rank(procs: ProcMesh) -> None:
    workers = await procs.spawn("workers", Worker)
    with anyio.fail_after(DEADLINE_S):
        ranks = await workers.rank.call()
        assert ranks.values() == [0, 1]
        assert ranks.item(gpus=1) == 1
        places = await workers.rank_in_turn.call()
        assert places.values() == [(n, {"gpus": n}, {"gpus": 2}) for n in range(2)]


def test_sync_code_waits_with_get(procs: ProcMesh) -> None:
    workers = procs.spawn("workers", Worker).get(DEADLINE_S)
    assert workers.rank.call().get(DEADLINE_S).values() == [0, 1]
    assert workers.slice(gpus=1).rank.call_one().get(DEADLINE_S) == 1


def test_errors_of_a_call_that_nobody_looks_at_are_told(
    procs: ProcMesh, capfd: pytest.CaptureFixture[str]
) -> None:
    failing = procs.spawn("failing", Failing).get(DEADLINE_S)
    failing.value_error.call("lost").get(DEADLINE_S)
    gc.collect()
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "nobody looked" in line]
    what = "milkweed: nobody looked at what failing.value_error.call() gave: 2 of 2 ranks failed: "
    assert line.startswith(f"{what}ValueError: lost (ranks 0-1, at ")
    failing.value_error.call("seen").get(DEADLINE_S).errors()
    gc.collect()
    assert "nobody looked" not in capfd.readouterr().err


def test_a_stream_gives_results_as_they_come_to_sync_code(procs: ProcMesh) -> None:
    workers = procs.spawn("workers", Worker).get(DEADLINE_S)
    assert sorted((point["gpus"], value) for point, value in workers.rank.stream()) == [(0, 0), (1, 1)]


async def test_a_stream_gives_what_has_answered_while_others_have_not(procs: ProcMesh) -> None:
    counters = await procs.spawn("counters", Counter)
    late, quick = counters.slice(gpus=0), counters.slice(gpus=1)
    await quick.open.call_one()
    with anyio.fail_after(DEADLINE_S):
        stream = counters.wait_until_opened.stream()
        point, value = await anext(stream)
        assert (point.rank, value) == (1, "opened")
        await late.open.call_one()
        point, value = await anext(stream)
        assert (point.rank, value) == (0, "opened")
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


@pytest.mark.parametrize("late", [0, 1])
async def test_a_call_under_way_names_the_procs_that_have_not_answered(procs: ProcMesh, late: int) -> None:
    counters = await procs.spawn("counters", Counter)
    proc = (await procs.health())[late].proc
    with anyio.fail_after(DEADLINE_S):
        await counters.slice(gpus=1 - late).open.call_one()
        call = counters.wait_until_opened.call()
        while call.waits_for().procs != (proc,):
            await anyio.sleep(0.001)
        await counters.slice(gpus=late).open.call_one()
        await call
    assert call.waits_for().procs == ()


async def test_a_stream_tells_a_failure_in_its_place(procs: ProcMesh) -> None:
    failing = await procs.spawn("failing", Failing)
    outcomes = {point.rank: value async for point, value in failing.value_error.stream("no")}
    assert set(outcomes) == {0, 1}
    assert all(isinstance(one, Failed) and "ValueError: no" in str(one.error) for one in outcomes.values())


async def test_a_stream_that_is_cancelled_ends(procs: ProcMesh) -> None:
    stuck = await procs.spawn("stuck", Stuck)
    with anyio.fail_after(DEADLINE_S):
        stream = stuck.wait.stream()
        await stuck.begun.call("wait")
        stream.cancel()
        found = [value async for _, value in stream]
    assert [one.error.code for one in found] == ["cancelled", "cancelled"]


async def test_a_broadcast_is_done_once_it_has_left_this_process(procs: ProcMesh) -> None:
    counter = (await procs.spawn("counters", Counter)).slice(gpus=0)
    await counter.add.call_one()
    os.kill(procs.pids[0], signal.SIGSTOP)
    try:
        small = counter.note.broadcast("small")
        large = counter.note.broadcast(bytes(3 << 20))  # more than a socket takes, less than is a backlog
        behind = counter.note.broadcast("behind")
        assert [one.done() for one in (small, large, behind)] == [True, False, False]
    finally:
        os.kill(procs.pids[0], signal.SIGCONT)
    with anyio.fail_after(DEADLINE_S):
        await large
        await behind
        assert len(await counter.noted.call_one()) == 3


async def test_a_broadcast_reaches_every_rank_before_a_later_call(procs: ProcMesh) -> None:
    counters = await procs.spawn("counters", Counter)
    await counters.add.broadcast(5)
    counters.add_in_turn.broadcast(5)
    with anyio.fail_after(DEADLINE_S):
        assert (await counters.add_in_turn.call(0)).values() == [10, 10]


async def test_different_actors_live_on_different_slices(procs: ProcMesh) -> None:
    first = await procs.slice(gpus=0).spawn("first", Counter, 100)
    second = await procs.slice(gpus=[1]).spawn("second", Worker)
    with anyio.fail_after(DEADLINE_S):
        assert await first.add.call_one() == 101
        assert (await second.rank.call()).values() == [0]
        assert second.sizes == {"gpus": 1}


async def test_actors_of_one_proc_keep_their_state_apart(procs: ProcMesh) -> None:
    one, other = await procs.spawn("same", Counter), await procs.spawn("same", Counter, 10)
    with anyio.fail_after(DEADLINE_S):
        assert (await one.add.call()).values() == [1, 1]
        assert (await other.add.call()).values() == [11, 11]


async def test_several_meshes_share_a_host_and_only_the_stopped_one_ends(procs: ProcMesh) -> None:
    loaders = await this_host().spawn_procs(per_host={"loaders": 1}, env={"ROLE": "loader"}, output="keep")
    workers, readers = await procs.spawn("workers", Worker), await loaders.spawn("readers", Worker)
    with anyio.fail_after(DEADLINE_S):
        assert await readers.environment.call_one("ROLE") == "loader"
        assert (await workers.environment.call("ROLE")).values() == [None, None]
        assert await loaders.stop(0.0) >= 1
        with pytest.raises(Unavailable) as caught:
            await readers.rank.call_one()
        assert (caught.value.code, "was stopped" in caught.value.cause) == ("proc_lost", True)
        assert (await workers.rank.call()).values() == [0, 1]
        with pytest.raises(Conflict, match="mesh_stopped"):
            await loaders.spawn("more", Worker)


async def test_procs_start_cold_where_that_is_asked_for() -> None:
    for warm, start in ((True, "warm"), (False, "cold")):
        procs = await this_host().spawn_procs(per_host={"gpus": 1}, warm=warm, output="keep")
        assert procs.starts == {0: start}
        await procs.stop(0.0)


async def test_a_mesh_of_two_dimensions_is_sliced_by_name() -> None:
    grid = await this_host().spawn_procs(per_host={"dp": 2, "tp": 2}, output="keep")
    try:
        workers = await grid.spawn("workers", Worker)
        with anyio.fail_after(DEADLINE_S):
            assert (await workers.slice(tp=1).rank.call()).values() == [1, 3]
            assert (await workers.flatten("all").rank.call()).items()
            assert (await workers.slice(dp=slice(1, None)).rank.call()).ok() == {2: 2, 3: 3}
            column = await grid.slice(tp=0).spawn("column", Worker)
            assert (await column.rank_in_turn.call()).values() == [
                (n, {"dp": n}, {"dp": 2}) for n in range(2)
            ]
    finally:
        await grid.stop(0.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda counters: counters.add.call(1, 2),
        lambda counters: counters.add.call_one(1, wrong=2),
        lambda counters: counters.add.stream(1, 2, 3),
        lambda counters: counters.add.broadcast(1, 2),
    ],
)
def test_wrong_arguments_are_refused_at_the_caller_with_the_signature(
    procs: ProcMesh, call: Callable[[Any], object]
) -> None:
    counter = procs.slice(gpus=0).spawn("counter", Counter).get(DEADLINE_S)
    with pytest.raises(InvalidArgument) as caught:
        call(counter)
    assert caught.value.code == "invalid_argument"
    assert "add(by: 'int' = 1, *, times: 'int' = 1)" in caught.value.next_step
    assert counter.add.call_one(0).get(DEADLINE_S) == 0


def test_an_endpoint_that_is_none_is_refused_with_those_there_are(procs: ProcMesh) -> None:
    counter = procs.slice(gpus=0).spawn("counter", Counter).get(DEADLINE_S)
    with pytest.raises(NotFound) as caught:
        counter.substract.call_one(1)
    assert caught.value.code == "endpoint_not_found"
    assert "add, add_in_turn" in caught.value.cause


def test_call_one_of_many_ranks_is_refused(procs: ProcMesh) -> None:
    counters = procs.spawn("counters", Counter).get(DEADLINE_S)
    with pytest.raises(InvalidArgument, match="call_one is for one rank"):
        counters.add.call_one()


def test_a_construction_that_does_not_fit_is_refused_at_the_caller(procs: ProcMesh) -> None:
    with pytest.raises(InvalidArgument, match=r"Counter\.__init__: too many positional arguments"):
        procs.spawn("counter", Counter, 1, 2)
    with pytest.raises(InvalidArgument, match=r"Failing\.__init__: too many positional arguments"):
        procs.spawn("failing", Failing, 1)
    with pytest.raises(InvalidArgument, match="is no actor class"):
        procs.spawn("dict", dict)  # type: ignore[type-var]


def test_an_argument_that_cannot_be_sent_is_refused_and_nothing_is_sent(procs: ProcMesh) -> None:
    counters = procs.spawn("counters", Counter).get(DEADLINE_S)
    for send in (counters.note.call, counters.note.broadcast, counters.note.stream):
        with pytest.raises(InvalidArgument) as caught:
            send(threading.Lock())
        assert (caught.value.code, "lock" in caught.value.cause) == ("unpicklable", True)
    with pytest.raises(InvalidArgument, match="unpicklable"):
        procs.spawn("counter", Counter, threading.Lock())
    assert counters.noted.call().get(DEADLINE_S).values() == [[], []]


async def test_an_init_that_raises_on_some_ranks_leaves_no_actors_anywhere(procs: ProcMesh) -> None:
    with pytest.raises(MeshError) as caught:
        await procs.spawn("picky", Picky, (1,))
    assert list(caught.value.errors) == [1]
    assert "ValueError: rank 1 is refused" in str(caught.value)
    assert isinstance(caught.value.errors[1].__cause__, ValueError)
    picky = await procs.spawn("picky", Picky, ())
    assert (await picky.here.call()).values() == [True, True]


async def test_actors_that_were_removed_are_not_found(procs: ProcMesh) -> None:
    counters = await procs.spawn("counters", Counter)
    await procs.remove(counters)
    with anyio.fail_after(DEADLINE_S):
        errors = (await counters.add.call()).errors()
    assert [getattr(error, "code", "") for error in errors.values()] == ["actor_not_found"] * 2


async def test_messages_of_one_sender_begin_in_their_order_whatever_they_run_on(procs: ProcMesh) -> None:
    counter = await procs.slice(gpus=0).spawn("counter", Counter)
    with anyio.fail_after(DEADLINE_S):
        for turn in range(20):
            # An async one may begin as soon as the sync one before it has begun.
            for number in range(0, 60, 3):
                counter.note_in_turn.broadcast((turn, "sync", number))
                counter.note.broadcast((turn, "async", number + 1))
                counter.note.broadcast((turn, "async", number + 2))
            await counter.noted_in_turn.call_one()
        await counter.add_in_turn.call_one()
        noted = await counter.noted.call_one()
    for kind in ("sync", "async"):
        mine = [(turn, number) for turn, one, number in noted if one == kind]
        assert mine == sorted(mine)
    assert len(noted) == 20 * 60


async def test_what_follows_a_sync_message_that_waits_does_not_overtake_it(procs: ProcMesh) -> None:
    counter = await procs.slice(gpus=0).spawn("counter", Counter)
    other = await procs.slice(gpus=0).spawn("other", Counter)
    second_sender = await procs.slice(gpus=1).spawn("sender", Worker)
    with anyio.fail_after(DEADLINE_S):
        opened = counter.wait_until_opened.call_one()
        # Another actor's, on its main thread too: this one waits there, and what follows it waits behind it.
        while "waits" not in await counter.noted.call_one():
            pass
        other.note_in_turn.broadcast("first")
        other.note.broadcast("second")
        other.note_in_turn.broadcast("third")
        last = other.noted_in_turn.call_one()
        await counter.note.call_one("read behind those")
        assert await second_sender.call_on.call_one(other, "noted") == [[]]
        await counter.open.call_one()
        assert await opened == "opened"
        await last
        noted = await other.noted.call_one()  # async, as the second, and behind it on the loop
    assert sorted(noted) == ["first", "second", "third"]
    assert noted.index("first") < noted.index("third")


async def test_async_endpoints_run_while_a_sync_one_is_busy(procs: ProcMesh) -> None:
    counter = await procs.slice(gpus=0).spawn("counter", Counter)
    with anyio.fail_after(DEADLINE_S):
        waits = counter.wait_until_opened.call_one()
        while "waits" not in await counter.noted.call_one():
            pass
        assert await counter.add.call_one(3) == 3
        await counter.open.call_one()
        assert await waits == "opened"


async def test_sync_endpoints_and_init_run_on_the_main_thread(procs: ProcMesh) -> None:
    workers = await procs.spawn("workers", Worker)
    assert (await workers.threads.call()).values() == [("MainThread", "MainThread")] * 2


def test_a_hundred_threads_call_at_once(procs: ProcMesh) -> None:
    counters = procs.spawn("counters", Counter).get(DEADLINE_S)
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(10):
                counters.add.call().get(DEADLINE_S).values()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=call) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert counters.add.call(0).get(DEADLINE_S).values() == [1000, 1000]


def test_a_program_may_have_several_loops_one_after_the_other(procs: ProcMesh) -> None:
    counters = procs.spawn("counters", Counter).get(DEADLINE_S)

    async def add() -> list[int]:
        return (await counters.add.call()).values()

    assert [asyncio.run(add()) for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]


async def test_ten_thousand_calls_at_once_are_all_answered(procs: ProcMesh) -> None:
    worker = (await procs.spawn("workers", Worker)).slice(gpus=0)
    with anyio.fail_after(DEADLINE_S):
        futures = [worker.echo.call_one(number) for number in range(10_000)]
        assert [await one for one in futures] == list(range(10_000))


def test_what_a_proc_prints_can_be_had_line_by_line() -> None:
    lines: list[tuple[int, str]] = []
    came = threading.Event()

    def on_line(rank: int, line: str) -> None:
        lines.append((rank, line))
        came.set()

    spawned = this_host().spawn_procs(per_host={"gpus": 1}, output=on_line).get(DEADLINE_S)
    workers = spawned.spawn("workers", Worker).get(DEADLINE_S)
    workers.chatter.call_one("hello there").get(DEADLINE_S)
    assert came.wait(DEADLINE_S)
    spawned.stop(0.0).get(DEADLINE_S)
    assert lines == [(0, "hello there")]


class Sized(Actor):
    @endpoint
    async def size(self) -> int:
        return 1


def test_an_endpoint_with_a_name_that_meshes_use_is_refused_when_it_is_spawned(procs: ProcMesh) -> None:
    with pytest.raises(InvalidArgument, match="an endpoint of Sized is called 'size'"):
        procs.spawn("sized", Sized)
