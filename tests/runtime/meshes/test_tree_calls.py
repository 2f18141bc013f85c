"""Calls over a tree of relays: real procs, on hosts that are one agent under several names."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import numpy as np
import pytest

from milkweed.runtime import ActorMesh, HostMesh, MeshError, ProcMesh, Restart, ValueMesh, this_host
from milkweed.runtime.errors import ActorError, MilkweedError
from milkweed.runtime.extent import Extent
from milkweed.runtime.meshes.members import HostRef
from milkweed.runtime.node import node
from milkweed.runtime.region import Region
from milkweed.runtime.tree import Trees
from tests.runtime.meshes.tree_actors import Caller, Notes

pytestmark = pytest.mark.anyio

DEADLINE_S = 60.0
HOSTS = 3
EACH = 2
RANKS = HOSTS * EACH
PATIENCE_S = 1.2


@contextmanager
def small_trees() -> Iterator[None]:
    """Few ranks are called over a tree, in which a relay is below another."""
    trees = node().part(Trees, Trees)
    before = trees.least_ranks, trees.fan_out, trees.patience_s
    trees.least_ranks, trees.fan_out, trees.patience_s = 2, 2, PATIENCE_S
    try:
        yield
    finally:
        trees.least_ranks, trees.fan_out, trees.patience_s = before


@contextmanager
def direct_calls() -> Iterator[None]:
    trees = node().part(Trees, Trees)
    before, trees.least_ranks = trees.least_ranks, 1000
    try:
        yield
    finally:
        trees.least_ranks = before


def named_hosts(count: int) -> HostMesh:
    (own,) = this_host().hosts
    return HostMesh(
        Region.of(Extent(hosts=count)), [HostRef(f"{own.name}-{at}", own.socket) for at in range(count)]
    )


@asynccontextmanager
async def spawned(restart: Restart | None = None) -> AsyncIterator[tuple[ProcMesh, ActorMesh]]:
    """A mesh for one test, which may break it."""
    with small_trees(), anyio.fail_after(DEADLINE_S):
        procs = await named_hosts(HOSTS).spawn_procs(per_host={"gpus": EACH}, restart=restart)
        try:
            yield procs, await procs.spawn("notes", Notes)
        finally:
            await procs.stop(0.0)


@pytest.fixture(scope="module")
def procs() -> Iterator[ProcMesh]:
    """For tests that leave procs as they are."""
    found = named_hosts(HOSTS).spawn_procs(per_host={"gpus": EACH}).get(DEADLINE_S)
    yield found
    found.stop(0.0).get(DEADLINE_S)


@pytest.fixture
async def notes(procs: ProcMesh) -> AsyncIterator[ActorMesh]:
    with small_trees(), anyio.fail_after(DEADLINE_S):
        actors = await procs.spawn("notes", Notes)
        yield actors
        await procs.remove(actors)


async def begun(actors: ActorMesh, count: int = 1) -> None:
    """Returns when `wait` has begun that often on every rank, and tasks that await it here have begun too."""
    await asyncio.sleep(0)  # an answer may be there before it is awaited, and then nothing else gets its turn
    with direct_calls():
        while any(began < count for began, _ in (await actors.counts.call()).ok().values()):
            await asyncio.sleep(0.005)


async def test_every_rank_gives_its_value_over_relays(notes: ActorMesh) -> None:
    assert (await notes.rank.call()).values() == list(range(RANKS))
    assert node().part(Trees, Trees).statistics()["relays"] >= 1
    assert node().sent_by_tree == {}


async def test_a_failing_rank_hides_no_other(notes: ActorMesh) -> None:
    values = await notes.fail_on.call(1, 4)
    assert values.ok() == {rank: rank for rank in (0, 2, 3, 5)}
    places = {getattr(error, "place", "") for error in values.errors().values()}
    assert {place.rpartition(":")[0] for place in places} == {"tests/runtime/meshes/tree_actors.py"}
    assert {rank: getattr(error, "cause", "") for rank, error in values.errors().items()} == {
        rank: f"notes.fail_on on rank {rank} raised ValueError: not on rank {rank}" for rank in (1, 4)
    }


async def test_a_slice_is_called_over_a_tree_of_its_own(notes: ActorMesh) -> None:
    assert (await notes.slice(gpus=1).rank.call()).ok() == {1: 1, 3: 3, 5: 5}
    assert (await notes.slice(hosts=[2, 0]).rank.call()).values() == [4, 5, 0, 1]


async def test_arrays_cross_relays_both_ways(notes: ActorMesh) -> None:
    array = np.arange(20_000.0)
    for doubled in (await notes.double.call(array)).values():
        assert np.array_equal(doubled, array * 2)


async def test_a_result_too_large_for_relays_is_fetched_directly_and_made_once(notes: ActorMesh) -> None:
    values = (await notes.ones.call(100_000)).values()
    assert [value.nbytes for value in values] == [800_000] * RANKS
    assert [began for began, _ in (await notes.counts.call()).values()] == [1] * RANKS


@pytest.mark.parametrize(
    ("operation", "expected"), [("sum", 15), ("min", 0), ("max", 5), ("mean", 2.5), (max, 5)]
)
async def test_a_reduction_is_one_value(notes: ActorMesh, operation: Any, expected: float) -> None:
    for least in (2, 1000):
        node().part(Trees, Trees).least_ranks = least
        reduced = await notes.rank.reduce(operation)
        assert (reduced.value(), reduced.count, reduced.errors()) == (expected, RANKS, {})


async def test_a_reduction_combines_values_in_the_order_of_ranks(notes: ActorMesh) -> None:
    await notes.note.call("x")
    assert (await notes.fail_on.reduce(lambda one, other: f"{one}{other}")).value() == "012345"


async def test_a_reduction_tells_the_ranks_that_failed_and_the_value_of_the_others(notes: ActorMesh) -> None:
    reduced = await notes.fail_on.reduce("sum", 0, 3)
    assert (reduced.ok(), reduced.count) == (12, 4)
    assert set(reduced.errors()) == {0, 3}
    assert all(isinstance(error, ActorError) for error in reduced.errors().values())
    with pytest.raises(MeshError, match="2 of 6 ranks failed"):
        reduced.value()
    with pytest.raises(MeshError):
        (await notes.fail_on.reduce("sum", *range(RANKS))).ok()


async def test_what_a_reduction_raises_is_raised_at_the_caller(notes: ActorMesh) -> None:
    with pytest.raises(TypeError):
        await notes.all.reduce("mean")


async def test_a_stream_gives_what_has_come_though_others_behind_the_relay_have_not(notes: ActorMesh) -> None:
    first, *rest = range(RANKS)
    waiting = notes.wait.stream()
    await begun(notes)
    with direct_calls():
        await notes.slice(hosts=2, gpus=1).open.call_one()
        point, _ = await anext(waiting)
        assert point.rank == 5
        await notes.open.call()
    assert sorted([point.rank async for point, _ in waiting]) == [first, *rest[:-1]]


async def test_the_messages_of_one_sender_keep_their_order_whichever_way_they_take(notes: ActorMesh) -> None:
    count = 60
    for at in range(count):
        target = notes.note if at % 2 else notes.note_in_turn
        match at % 3:
            case 0:
                target.broadcast(at)
            case 1:
                target.call(at)
            case 2:
                with direct_calls():
                    target.broadcast(at)
    await notes.all_in_turn.call()
    for seen in (await notes.all.call()).values():
        assert [at for at in seen if not at % 2] == list(range(0, count, 2))
        assert [at for at in seen if at % 2] == list(range(1, count, 2))


async def test_what_goes_over_a_tree_does_not_overtake_what_was_sent_directly(notes: ActorMesh) -> None:
    with direct_calls():
        notes.size_of.broadcast(bytes(32 << 20))  # this takes its time in its connection
    notes.note.broadcast("after")
    assert (await notes.all.call()).values() == [[32 << 20, "after"]] * RANKS


async def test_what_is_sent_directly_waits_for_what_a_stopped_relay_has_not_passed_on() -> None:
    async with spawned() as (procs, notes):
        await notes.rank.call()
        relay = procs.pids[4]
        os.kill(relay, signal.SIGSTOP)
        try:
            notes.note.broadcast("first")
            # Its relay has not passed that on; its sender gives the relay up, and tells it so directly.
            assert await notes.slice(hosts=2, gpus=1).all.call_one() == ["first"]
        finally:
            os.kill(relay, signal.SIGCONT)
        assert (await notes.all.call()).values() == [["first"]] * RANKS


@pytest.mark.parametrize("victim", [0, 2, 4])
async def test_a_relay_that_dies_hides_no_rank_and_nothing_runs_twice(victim: int) -> None:
    async with spawned() as (procs, notes):
        under_way = asyncio.ensure_future(awaited(notes.wait.call()))
        await begun(notes)
        os.kill(procs.pids[victim], signal.SIGKILL)
        with direct_calls():
            await notes.open.call()
        values = await under_way
        assert values.ok() == {rank: 1 for rank in range(RANKS) if rank != victim}
        assert codes(values) == {victim: "proc_lost"}
        assert all(began == 1 for began, _ in (await notes.counts.call()).ok().values())
        # Another rank of its host is the relay from now on.
        assert set((await notes.rank.call()).ok()) == set(values.ok())


async def test_a_relay_that_is_stopped_hides_no_rank_and_nothing_runs_twice() -> None:
    async with spawned() as (procs, notes):
        stream = notes.wait.stream()
        await begun(notes)
        relay = procs.pids[2]
        os.kill(relay, signal.SIGSTOP)
        try:
            with direct_calls():
                others = [rank for rank in range(RANKS) if rank != 2]
                for rank in others:
                    await notes.flatten("rank").slice(rank=rank).open.call_one()
            came = [(await anext(stream))[0].rank for _ in others]
            assert sorted(came) == others
        finally:
            os.kill(relay, signal.SIGCONT)
        with direct_calls():
            await notes.slice(hosts=1, gpus=0).open.call_one()
        assert [(point.rank, value) async for point, value in stream] == [(2, 1)]
        assert (await notes.counts.call()).values() == [(1, 0)] * RANKS


async def test_a_deadline_ends_the_call_on_every_rank(notes: ActorMesh) -> None:
    values = await notes.wait.within(0.1).call()
    assert codes(values) == dict.fromkeys(range(RANKS), "deadline_exceeded")
    assert (await notes.counts.call()).values() == [(1, 1)] * RANKS


async def test_a_cancel_ends_the_call_on_every_rank(notes: ActorMesh) -> None:
    task = asyncio.ensure_future(awaited(notes.wait.call()))
    await begun(notes)
    task.cancel()
    counts: list[tuple[int, int]] = []
    with anyio.move_on_after(8):
        while (counts := (await notes.counts.call()).values()) != [(1, 1)] * RANKS:
            await asyncio.sleep(0.005)
    assert counts == [(1, 1)] * RANKS


async def test_a_deadline_reaches_ranks_behind_a_relay_that_is_stopped() -> None:
    async with spawned() as (procs, notes):
        under_way = asyncio.ensure_future(awaited(notes.wait.within(0.2).call()))
        await begun(notes)
        os.kill(procs.pids[0], signal.SIGSTOP)
        try:
            found = codes(await under_way)
        finally:
            os.kill(procs.pids[0], signal.SIGCONT)
        assert found.pop(0) == "uncancellable"
        assert found == dict.fromkeys(range(1, RANKS), "deadline_exceeded")
        assert {cancelled for _, cancelled in (await notes.slice(hosts=[1, 2]).counts.call()).values()} == {1}


async def test_a_failure_of_what_was_broadcast_is_told_to_the_owner(
    procs: ProcMesh, notes: ActorMesh
) -> None:
    async with procs.failures() as failures:
        await notes.fail_on.broadcast(3, 4)
        told = [await anext(failures), await anext(failures)]
    assert sorted(failure.ranks for failure in told) == [(3,), (4,)]
    assert {failure.exception for failure in told} == {"ValueError"}


async def test_a_broadcast_that_a_rank_cannot_get_says_so_and_reaches_all_others() -> None:
    async with spawned() as (procs, notes):
        async with procs.failures() as failures:
            os.kill(procs.pids[2], signal.SIGKILL)
            await anext(failures)
        with pytest.raises(MilkweedError, match="proc"):
            await notes.note.broadcast("heard")
        assert set(map(tuple, (await notes.all.call()).ok().values())) == {("heard",)}


async def test_a_proc_that_was_started_again_is_called_over_a_tree_as_before() -> None:
    async with spawned(Restart(backoff_s=0.01)) as (_, notes):
        old = (await notes.pid.call()).values()
        notes.note.broadcast("to the old ones")
        await notes.all.call()
        notes.note.broadcast("of which it is not known that it arrived")
        for rank in (0, 3):
            os.kill(old[rank], signal.SIGKILL)
        with direct_calls():
            while len(set((await notes.pid.call()).ok().values()) - set(old)) < 2:
                await asyncio.sleep(0.01)
        for _ in range(2):
            assert (await notes.rank.call()).values() == list(range(RANKS))
        seen = (await notes.all.call()).values()
        assert [len(one) for one in seen] == [0, 2, 2, 0, 2, 2]


async def test_who_is_not_the_owner_calls_over_a_tree_too(procs: ProcMesh, notes: ActorMesh) -> None:
    callers = await procs.slice(hosts=1, gpus=1).spawn("caller", Caller)
    assert await callers.sum_of.call_one(notes) == sum(range(RANKS))
    assert await callers.sum_of.call_one(notes.slice(gpus=0)) == 0 + 2 + 4


async def test_the_calls_of_a_sender_that_died_end_behind_relays_too() -> None:
    async with spawned() as (procs, notes):
        caller = await procs.slice(hosts=0, gpus=1).spawn("caller", Caller)
        caller.wait_for.broadcast(notes.slice(hosts=[1, 2]))
        left = notes.slice(hosts=[1, 2])
        await begun(left)
        os.kill(procs.pids[1], signal.SIGKILL)
        while (await left.counts.call()).values() != [(1, 1)] * 4:
            await asyncio.sleep(0.02)


async def test_a_slow_rank_holds_its_sender_back_and_gets_all_in_order(
    procs: ProcMesh, notes: ActorMesh
) -> None:
    count = 6000
    opener = await procs.slice(hosts=0, gpus=0).spawn("opener", Caller)
    slow = notes.slice(hosts=2, gpus=1)
    blocking = slow.block.call_one()
    payload = "x" * 4096
    sent = [notes.note_in_turn.broadcast((at, payload)) for at in range(count)]
    await notes.slice(hosts=0).rank.call()
    assert not sent[-1].done()
    await opener.open.call_one(slow)
    await sent[-1]
    await blocking
    for seen in (await notes.all_in_turn.call()).values():
        assert [at for at, _ in seen] == list(range(count))


def codes(values: ValueMesh[Any]) -> dict[int, str]:
    return {rank: error.code for rank, error in values.errors().items() if isinstance(error, MilkweedError)}


async def awaited(future: Any) -> Any:
    return await future
