"""Procs that die, in every way: what their callers get, and what their owner is told."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator

import anyio
import pytest

from milkweed.runtime import ActorError, Failure, ProcMesh, on_unhandled, this_host
from milkweed.runtime.errors import MeshError, MilkweedError, Unavailable
from milkweed.runtime.node import Feed
from tests.runtime.meshes.actors import Dying, Worker
from tests.runtime.meshes.conftest import DEADLINE_S
from tests.runtime.processes import alive, eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
async def procs() -> AsyncIterator[ProcMesh]:
    spawned = await this_host().spawn_procs(per_host={"gpus": 2}, name="doomed", output="keep")
    yield spawned
    await spawned.stop(0.0)


async def first(feed: Feed[Failure]) -> Failure:
    return await anext(feed)


@pytest.mark.parametrize(
    ("name", "args", "how"),
    [
        ("kill", (), "SIGKILL"),
        ("kill_async", (), "SIGKILL"),
        ("kill", (int(signal.SIGTERM),), "exit 143"),
        ("leave", (7,), "exit 7"),
        ("segfault", (), "SIGSEGV"),
        ("fork_and_die", (), "SIGKILL"),
        ("close_descriptors", (), "exit 1"),
    ],
)
async def test_a_death_is_told_to_the_caller_and_to_the_owner(
    procs: ProcMesh, name: str, args: tuple[object, ...], how: str
) -> None:
    dying = await procs.spawn("dying", Dying)
    one, other = dying.slice(gpus=0), dying.slice(gpus=1)
    with anyio.fail_after(DEADLINE_S):
        async with procs.failures() as feed:
            with pytest.raises(Unavailable) as caught:
                await getattr(one, name).call_one(*args)
            failure = await first(feed)
    assert caught.value.code == "proc_lost"
    assert how in caught.value.cause
    ending, _, place = failure.how.partition(" at ")
    assert (failure.what, ending, failure.ranks, failure.point) == ("proc", how, (0,), (("gpus", 0),))
    assert ("segfault" in failure.stacks) == (name == "segfault") == place.endswith(" in segfault")
    with anyio.fail_after(DEADLINE_S):
        assert await other.pid.call_one() == procs.pids[1]
        with pytest.raises(Unavailable, match="proc_lost"):
            await one.pid.call_one()


@pytest.mark.parametrize(
    ("name", "args", "how"),
    [
        ("sys_exit", (3,), "exit 3"),
        ("sys_exit_async", (4,), "exit 4"),
        ("sys_exit", (None,), "exit 0"),
        ("interrupt", (), "SIGINT"),
    ],
)
async def test_an_endpoint_that_ends_its_process_is_answered_and_its_end_told(
    procs: ProcMesh, name: str, args: tuple[object, ...], how: str
) -> None:
    dying = (await procs.spawn("dying", Dying)).slice(gpus=0)
    with anyio.fail_after(DEADLINE_S):
        async with procs.failures() as feed:
            with pytest.raises(ActorError, match=r"SystemExit|KeyboardInterrupt"):
                await getattr(dying, name).call_one(*args)
            assert (await first(feed)).how == how


async def test_last_output_is_in_the_failure(procs: ProcMesh) -> None:
    dying = (await procs.spawn("dying", Dying)).slice(gpus=0)
    with anyio.fail_after(DEADLINE_S):
        async with procs.failures() as feed:
            with pytest.raises(Unavailable, match="its last output: out of luck"):
                await dying.last_words.call_one("out of luck")
            before = time.time()
            failure = await first(feed)
    assert failure.tail[-1] == "out of luck"
    assert before - DEADLINE_S < failure.at <= time.time()


async def test_calls_under_way_end_when_their_proc_is_killed_from_outside(procs: ProcMesh) -> None:
    dying = await procs.spawn("dying", Dying)
    with anyio.fail_after(DEADLINE_S):
        both = dying.wait.within(DEADLINE_S).call()
        stream = dying.wait.stream()
        await dying.pid.call()
        for pid in procs.pids.values():
            os.kill(pid, signal.SIGKILL)
        errors = (await both).errors()
        found = [value async for _, value in stream]
    assert [getattr(error, "code", "") for error in errors.values()] == ["proc_lost"] * 2
    assert [one.error.code for one in found] == ["proc_lost"] * 2


async def test_a_proc_killed_in_the_middle_of_its_answer_is_told(procs: ProcMesh) -> None:
    dying = (await procs.spawn("dying", Dying)).slice(gpus=0)
    worker = (await procs.spawn("workers", Worker)).slice(gpus=1)
    answering, caller = procs.pids[0], procs.pids[1]
    with anyio.fail_after(DEADLINE_S):
        call = worker.call_on.call_one(dying, "answer_to_a_stopped_caller", caller, 64 * 1024 * 1024)
        try:
            while state_of(caller) != "T":
                await anyio.sleep(0.001)
            await dying.pid.call_one()  # by now the answer is sent, as far as the socket takes it
            os.kill(answering, signal.SIGKILL)
            await eventually(lambda: not alive(answering))
        finally:
            os.kill(caller, signal.SIGCONT)
        with pytest.raises(ActorError, match="connection_lost"):
            await call
        assert await worker.pid.call_one() == caller


async def test_a_proc_killed_while_its_actor_is_made_is_told(procs: ProcMesh) -> None:
    with anyio.fail_after(DEADLINE_S), pytest.raises(MeshError) as caught:
        await procs.spawn("late", Late)
    errors = {rank: error.code for rank, error in caught.value.errors.items()}  # type: ignore[attr-defined]
    assert errors == {0: "proc_lost", 1: "proc_lost"}


class Late(Dying):
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


async def test_a_broadcast_to_a_dead_proc_says_so(procs: ProcMesh) -> None:
    dying = (await procs.spawn("dying", Dying)).slice(gpus=0)
    with anyio.fail_after(DEADLINE_S):
        with pytest.raises(Unavailable):
            await dying.kill.call_one()
        with pytest.raises(MilkweedError):
            dying.kill.broadcast()


async def test_a_pool_of_processes_works_in_an_endpoint(procs: ProcMesh) -> None:
    workers = await procs.spawn("workers", Worker)
    with anyio.fail_after(DEADLINE_S):
        for method in ("fork", "spawn"):
            assert (await workers.in_a_pool.call(method)).values() == [[1, 2, 3]] * 2
        assert (await workers.rank.call()).values() == [0, 1]


async def test_an_exception_that_nobody_awaits_is_a_failure_of_the_actor(procs: ProcMesh) -> None:
    from tests.runtime.meshes.actors import Failing

    failing = await procs.spawn("failing", Failing)
    unhandled: list[Failure] = []
    on_unhandled(unhandled.append)
    with anyio.fail_after(DEADLINE_S):
        async with procs.failures() as feed:
            await failing.slice(gpus=1).value_error_in_turn.broadcast("lost")
            failure = await first(feed)
            assert (failure.what, failure.ranks, failure.how) == ("actor", (1,), "ValueError: lost")
            assert "value_error_in_turn" in failure.stacks
            assert failure.name == "failing.value_error_in_turn"
        await eventually(lambda: failure in unhandled)
        assert await failing.slice(gpus=1).well.call_one() is True


async def test_the_death_of_the_agent_or_of_its_guard_is_a_lost_host_and_a_new_one_can_be_had() -> None:
    for victim in ("agent", "guard"):
        lost = await this_host().spawn_procs(per_host={"gpus": 2}, output="keep")
        pids = list(lost.pids.values())
        workers = await lost.spawn("workers", Worker)
        agent = parent_of(pids[0])
        with anyio.fail_after(DEADLINE_S):
            async with lost.failures() as feed:
                os.kill(agent if victim == "agent" else parent_of(agent), signal.SIGKILL)
                failures = [await first(feed)]
                await eventually(lambda pids=pids: not any(map(alive, pids)))  # type: ignore[misc]
                errors = (await workers.rank.call()).errors()
                assert [getattr(error, "code", "") for error in errors.values()] == ["proc_lost"] * 2
                assert {one.state for one in (await lost.health()).values()} == {"gone"}
                await lost.stop(0.0)
                failures += [failure async for failure in feed]
            assert [(one.what, one.ranks) for one in failures] == [("host", (0, 1))]
            again = await this_host().spawn_procs(per_host={"gpus": 1}, output="keep")
            assert await (await again.spawn("workers", Worker)).rank.call_one() == 0
            await again.stop(0.0)


async def test_the_last_lines_that_were_heard_from_a_lost_host_are_in_its_failure() -> None:
    heard: list[str] = []
    spawned = this_host().spawn_procs(per_host={"gpus": 2}, output=lambda rank, line: heard.append(line))
    procs = await spawned
    speaking = await procs.spawn("speaking", Worker)
    with anyio.fail_after(DEADLINE_S):
        for rank in range(2):
            await speaking.slice(gpus=rank).chatter.call_one(f"step {rank}")
            await eventually(lambda rank=rank: f"step {rank}" in heard)  # type: ignore[misc]
        async with procs.failures() as feed:
            os.kill(parent_of(procs.pids[0]), signal.SIGKILL)
            failure = await first(feed)
    assert (failure.what, failure.tail) == ("host", ("[rank 0] step 0", "[rank 1] step 1"))
    await procs.stop(0.0)


def state_of(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def parent_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


async def test_what_listens_for_failures_ends_with_the_mesh(procs: ProcMesh) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with procs.failures() as feed:
            await procs.stop(0.0)
            assert [failure async for failure in feed] == []
        async with procs.failures() as feed:
            assert [failure async for failure in feed] == []


def _print_on_a_full_disk() -> str:
    """Its output may grow no more, as on a disk that is full."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        print("does not fit", flush=True)
    except OSError as error:
        return type(error).__name__
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    return "printed"


async def test_output_that_cannot_be_written_is_an_exception_there_and_ends_nothing(procs: ProcMesh) -> None:
    worker = (await procs.spawn("workers", Worker)).slice(gpus=0)
    with anyio.fail_after(DEADLINE_S):
        assert await worker.apply.call_one(_print_on_a_full_disk) == "OSError"
        await worker.chatter.call_one("fits")
        assert await worker.rank.call_one() == 0
