"""Supervision: failures up the tree of owners, and procs that come again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import anyio
import pytest

from milkweed.runtime import Failure, ProcMesh, Restart, on_unhandled, this_host
from milkweed.runtime.errors import MilkweedError
from tests.runtime.hosts import ROOT
from tests.runtime.meshes.actors import Counter, Dying, Failing, Owner
from tests.runtime.meshes.conftest import DEADLINE_S
from tests.runtime.processes import alive, eventually

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("answer", [True, "async"])
async def test_an_owner_that_handles_a_failure_is_where_it_ends(procs: ProcMesh, answer: bool | str) -> None:
    owner = (await procs.spawn("owner", Owner, answer)).slice(gpus=0)
    unhandled: list[Failure] = []
    on_unhandled(unhandled.append)
    with anyio.fail_after(DEADLINE_S):
        async with procs.failures() as feed:
            await owner.spawn.call_one()
            await owner.kill_inner.call_one()
            assert await owner.heard_first.call_one() == ("proc", "SIGKILL")
            # What it had escalated would have come before what it raises now, over the same connection.
            failing = (await procs.spawn("later", Failing)).slice(gpus=0)
            failing.value_error.broadcast("later")
            assert (await anext(feed)).how == "ValueError: later"
    assert all(one.how == "ValueError: later" for one in unhandled)


@pytest.mark.parametrize("answer", [False, "raise"])
async def test_a_failure_that_an_owner_does_not_handle_reaches_the_root_and_ends_nothing(
    procs: ProcMesh, answer: bool | str
) -> None:
    owner = (await procs.spawn("owner", Owner, answer)).slice(gpus=0)
    with anyio.fail_after(DEADLINE_S):
        async with procs.failures() as feed:
            await owner.spawn.call_one()
            await owner.kill_inner.call_one()
            failure = await anext(feed)
        assert (failure.what, failure.how) == ("proc", "SIGKILL")
        assert await owner.heard_first.call_one() == ("proc", "SIGKILL")


async def test_the_procs_that_an_actor_spawned_end_with_its_proc() -> None:
    outer = await this_host().spawn_procs(per_host={"gpus": 1}, output="keep")
    owner = await outer.spawn("owner", Owner)
    with anyio.fail_after(DEADLINE_S):
        (pid,) = await owner.spawn.call_one()
        inner = await owner.inner_handle.call_one()
        assert await inner.pid.call_one() == pid
        os.kill(outer.pids[0], signal.SIGKILL)
        await eventually(lambda: not alive(pid))
    await outer.stop(0.0)


CONTROLLER = """
    import sys, time
    sys.path.insert(0, {root!r})
    from milkweed.runtime import this_host
    from tests.runtime.meshes.actors import Owner
    procs = this_host().spawn_procs(per_host={{"gpus": 2}}).get()
    owners = procs.spawn("owners", Owner).get()
    inner = [pid for pids in owners.spawn.call().get().values() for pid in pids]
    if {fork}:
        import os
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        print(child, flush=True)
    print(*procs.pids.values(), *inner, flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize("fork", [False, True], ids=["alone", "with-a-forked-child"])
async def test_nothing_is_left_of_a_controller_that_is_killed(fork: bool) -> None:
    code = textwrap.dedent(CONTROLLER.format(root=str(ROOT), fork=fork))
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert program.stdout is not None
    child = int(program.stdout.readline()) if fork else 0
    try:
        pids = [int(word) for word in program.stdout.readline().split()]
        assert len(pids) == 4
        assert all(map(alive, pids))
        program.kill()
        program.wait()
        await eventually(lambda: not any(map(alive, pids)))
        assert not child or alive(child)
    finally:
        program.stdout.close()
        if child:
            os.kill(child, signal.SIGKILL)


def quick(**more: object) -> Restart:
    return Restart(backoff_s=0.01, **more)  # type: ignore[arg-type]


async def until_answers(actor: object, *, pause_s: float = 0.01) -> int:
    """Its pid, once it is there again; any error but that of a lost proc is raised."""
    with anyio.fail_after(DEADLINE_S):
        while True:
            try:
                pid: int = await actor.pid.call_one()  # type: ignore[attr-defined]
            except MilkweedError as error:
                if error.code != "proc_lost":
                    raise
            else:
                return pid
            await anyio.sleep(pause_s)


async def test_one_for_one_starts_only_what_failed_with_its_actors_and_handles_stay() -> None:
    procs = await this_host().spawn_procs(per_host={"gpus": 2}, restart=quick(), output="keep")
    try:
        before = procs.pids
        dying, counters = await procs.spawn("dying", Dying), await procs.spawn("counters", Counter, 5)
        one = dying.slice(gpus=0)
        with anyio.fail_after(DEADLINE_S):
            assert (await counters.add.call()).values() == [6, 6]
            async with procs.failures() as feed:
                with pytest.raises(MilkweedError, match="proc_lost"):
                    await one.fork_and_die.call_one()
                assert await until_answers(one) == procs.pids[0] != before[0]
                assert (await anext(feed)).restarts == 0
                assert procs.pids[1] == before[1]
                assert (await counters.add.call()).values() == [6, 7]
                with pytest.raises(MilkweedError, match="proc_lost"):
                    await one.kill.call_one()
                assert await until_answers(one) != before[0]
                assert (await anext(feed)).restarts == 1
    finally:
        await procs.stop(0.0)


async def test_one_for_all_starts_all_again() -> None:
    policy = quick(strategy="one_for_all")
    procs = await this_host().spawn_procs(per_host={"gpus": 2}, restart=policy, output="keep")
    try:
        before = procs.pids
        dying, counters = await procs.spawn("dying", Dying), await procs.spawn("counters", Counter)
        await counters.add.call()
        with anyio.fail_after(DEADLINE_S), pytest.raises(MilkweedError, match="proc_lost"):
            await dying.slice(gpus=1).kill.call_one()
        await eventually(lambda: not any(map(alive, before.values())))
        for gpu in range(2):
            assert await until_answers(dying.slice(gpus=gpu)) not in before.values()
        assert (await counters.add.call()).values() == [1, 1]
    finally:
        await procs.stop(0.0)


async def test_what_fails_too_often_is_given_up_and_escalated_once() -> None:
    policy = quick(max_restarts=2)
    procs = await this_host().spawn_procs(per_host={"gpus": 1}, restart=policy, name="weak", output="keep")
    unhandled: list[Failure] = []
    on_unhandled(unhandled.append)
    try:
        dying = await procs.spawn("dying", Dying)
        for turn in range(3):
            with anyio.fail_after(DEADLINE_S), pytest.raises(MilkweedError, match="proc_lost"):
                await dying.kill.call_one()
            if turn < 2:
                await until_answers(dying)
        await eventually(lambda: [one for one in unhandled if one.mesh == "weak"])
        (failure,) = [one for one in unhandled if one.mesh == "weak"]
        assert (failure.how, failure.restarts) == ("SIGKILL", 2)
        with pytest.raises(MilkweedError, match="proc_lost"):
            await dying.pid.call_one()
    finally:
        await procs.stop(0.0)


async def test_calls_made_while_a_proc_comes_again_fail_or_wait_and_are_never_refused() -> None:
    procs = await this_host().spawn_procs(per_host={"gpus": 1}, restart=quick(max_restarts=9), output="keep")
    try:
        dying = await procs.spawn("dying", Dying)
        for _ in range(3):
            with anyio.fail_after(DEADLINE_S), pytest.raises(MilkweedError, match="proc_lost"):
                await dying.kill.call_one()
            await until_answers(dying, pause_s=0.0)
    finally:
        await procs.stop(0.0)


async def test_stop_while_procs_come_again_leaves_nothing() -> None:
    procs = await this_host().spawn_procs(per_host={"gpus": 2}, restart=quick(max_restarts=9), output="keep")
    dying = await procs.spawn("dying", Dying)
    with anyio.fail_after(DEADLINE_S):
        await dying.kill.call()
        await procs.stop(0.0)
        await eventually(lambda: not any(map(alive, procs.pids.values())))
        assert {one.state for one in (await procs.health()).values()} == {"gone"}
