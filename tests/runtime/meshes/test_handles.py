"""Handles that travel: as arguments, to actors that call them; actors that spawn."""

from __future__ import annotations

import pickle

import anyio
import pytest

from milkweed.runtime import ActorError, ProcMesh, current_rank, this_proc
from milkweed.runtime.errors import Conflict
from tests.runtime.meshes.actors import Counter, Worker
from tests.runtime.meshes.conftest import DEADLINE_S

pytestmark = pytest.mark.anyio


async def test_a_handle_is_an_argument_and_is_called_from_there(procs: ProcMesh) -> None:
    callers = (await procs.spawn("callers", Worker)).slice(gpus=0)
    counters = await procs.spawn("counters", Counter, 10)
    with anyio.fail_after(DEADLINE_S):
        assert await callers.call_on.call_one(counters, "add", 1) == [11, 11]
        assert await callers.call_on_in_turn.call_one(counters.slice(gpus=1), "add", 1) == [12]


async def test_a_handle_given_to_init_is_kept_and_called(procs: ProcMesh) -> None:
    counters = await procs.spawn("counters", Counter)
    callers = await procs.spawn("callers", Worker, counters)
    with anyio.fail_after(DEADLINE_S):
        totals = (await callers.call_on.call(counters, "add")).values()
        assert sorted(total for both in totals for total in both) == [1, 1, 2, 2]
        assert (await counters.add.call(0)).values() == [2, 2]


def test_a_handle_is_pickled_with_its_slice_and_its_names(procs: ProcMesh) -> None:
    counters = procs.spawn("counters", Counter).get(DEADLINE_S)
    other = pickle.loads(pickle.dumps(counters.slice(gpus=[1]).rename(gpus="tp")))
    assert other.sizes == {"tp": 1}
    assert other.add.call().get(DEADLINE_S).values() == [1]
    assert counters.add.call(0).get(DEADLINE_S).values() == [0, 1]


def test_a_mesh_of_procs_stays_with_its_owner(procs: ProcMesh) -> None:
    with pytest.raises(Conflict, match="not_the_owner"):
        pickle.dumps(procs)


async def test_an_actor_spawns_in_its_own_process(procs: ProcMesh) -> None:
    workers = await procs.spawn("workers", Worker)
    with anyio.fail_after(DEADLINE_S):
        assert (await workers.spawn_here.call()).values() == [42, 42]


async def test_an_async_endpoint_that_would_wait_for_its_own_thread_is_told(procs: ProcMesh) -> None:
    workers = await procs.spawn("workers", Worker)
    one = workers.slice(gpus=0)
    with anyio.fail_after(DEADLINE_S), pytest.raises(ActorError) as caught:
        await one.get_on_loop.call_one(workers.slice(gpus=1))
    assert isinstance(caught.value.exception, Conflict)
    assert caught.value.exception.code == "would_deadlock"


async def test_a_program_has_actors_of_its_own_that_procs_call(procs: ProcMesh) -> None:
    counter = await this_proc().spawn("counter", Counter, 5)
    workers = await procs.spawn("workers", Worker)
    with anyio.fail_after(DEADLINE_S):
        assert await counter.add_in_turn.call_one(1) == 6
        assert sorted((await workers.call_on.call(counter, "add", 1)).ok().values()) == [[7], [8]]


def test_outside_of_an_actor_there_is_no_rank() -> None:
    with pytest.raises(Conflict, match="not_in_an_actor"):
        current_rank()
