"""Programs that end in every way: at once, with their own exit code, and with nothing left."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import anyio
import pytest

from tests.runtime.hosts import ROOT
from tests.runtime.processes import alive, eventually

pytestmark = pytest.mark.anyio

DEADLINE_S = 120.0

BEGIN = f"""
import asyncio, atexit, os, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from milkweed.runtime import this_host, this_proc
from tests.runtime.meshes.actors import Counter, Dying, Stuck, Worker

def spawn(count=1):
    procs = this_host().spawn_procs(per_host={{"gpus": count}}, output="keep").get()
    print(*procs.pids.values(), flush=True)
    return procs
"""


async def ended(code: str, *, returncode: int = 0, stderr: str | None = "") -> str:
    """Runs a program; what it printed behind the pids of its procs, which have ended when it returns."""
    with anyio.fail_after(DEADLINE_S):
        done = await anyio.run_process(
            [sys.executable, "-W", "default", "-c", BEGIN + textwrap.dedent(code)],
            cwd=ROOT,
            check=False,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == returncode, done.stderr.decode()
    if stderr is not None:
        assert done.stderr.decode() == stderr
    first, _, rest = done.stdout.decode().partition("\n")
    pids = [int(word) for word in first.split()]
    assert pids
    await eventually(lambda: not any(map(alive, pids)))
    return rest


async def test_a_program_that_ends_without_stop_leaves_nothing() -> None:
    assert await ended(
        "procs = spawn(2); print(procs.spawn('w', Worker).get().rank.call().get().values())"
    ) == ("[0, 1]\n")


async def test_a_program_ends_with_calls_under_way() -> None:
    await ended("""
        stuck = spawn(2).spawn("stuck", Stuck).get()
        calls = [stuck.wait.call(), stuck.sleep.call(), stuck.wait.stream()]
        stuck.begun.call("wait").get()
        stuck.begun.call("sleep").get()
    """)


async def test_a_program_ends_by_its_exception() -> None:
    await ended(
        """
        workers = spawn().spawn("w", Worker).get()
        workers.rank.call().get()
        raise ValueError("mine")
        """,
        returncode=1,
        stderr=None,
    )


@pytest.mark.parametrize("under_way", ["spawn()", "this_host().spawn_procs(per_host={'gpus': 1})"])
async def test_a_program_that_fails_tells_its_own_exception_and_nothing_of_what_was_under_way(
    under_way: str,
) -> None:
    program = f"""{BEGIN}
async def main():
    workers = {under_way}.spawn("w", Worker)
    await workers.work.call()

spawn()
asyncio.run(main())
"""
    with anyio.fail_after(DEADLINE_S):
        done = await anyio.run_process([sys.executable, "-c", program], cwd=ROOT, check=False)
    told = done.stderr.decode()
    assert told.count("Traceback") == 1, told
    assert told.splitlines()[-1] == (
        f"AttributeError: this is a Future, without {'work' if under_way == 'spawn()' else 'spawn'!r}:"
        " await it, or call .get(), and use what that gives"
    )


@pytest.mark.parametrize(("how", "code"), [("sys.exit(5)", 5), ("os._exit(6)", 6)])
async def test_a_program_ends_with_its_own_code(how: str, code: int) -> None:
    await ended(f"spawn().spawn('w', Worker).get().rank.call().get(); {how}", returncode=code)


async def test_a_program_ends_while_a_daemon_thread_waits_for_a_call() -> None:
    await ended("""
        stuck = spawn().spawn("stuck", Stuck).get()
        threading.Thread(target=lambda: stuck.wait.call().get(), daemon=True).start()
        stuck.begun.call("wait").get()
    """)


async def test_a_program_that_is_used_from_a_thread_ends_when_that_has() -> None:
    rest = await ended("""
        def work():
            print(spawn().spawn("w", Worker).get().rank.call_one().get(), flush=True)
        threading.Thread(target=work).start()
    """)
    assert rest == "0\n"


async def test_a_program_with_two_loops_one_after_the_other_ends_cleanly() -> None:
    rest = await ended("""
        procs = spawn()
        async def main():
            counter = await procs.spawn("c", Counter)
            return await counter.add.call_one()
        print(asyncio.run(main()), asyncio.run(main()))
    """)
    assert rest == "1 1\n"


async def test_what_is_asked_at_the_end_of_the_interpreter_is_answered_or_refused() -> None:
    rest = await ended("""
        import milkweed.runtime.node
        def late():
            try:
                print("late", workers.rank.call_one().get(10))
            except Exception as error:
                print("late", getattr(error, "code", error))
        procs = spawn()
        workers = procs.spawn("w", Worker).get()
        atexit.register(late)
    """)
    assert rest == "late 0\n"


async def test_what_is_asked_after_the_end_of_the_node_is_refused() -> None:
    rest = await ended("""
        from milkweed.runtime.node import node
        procs = spawn()
        workers = procs.spawn("w", Worker).get()
        node().close()
        for ask in (workers.rank.call_one, lambda: procs.spawn("w", Worker), procs.stop):
            try:
                ask().get(10)
            except Exception as error:
                print(getattr(error, "code", repr(error)))
    """)
    assert rest == "program_ending\n" * 3


async def test_a_forked_child_has_a_place_of_its_own_and_leaves_its_parents_alone() -> None:
    rest = await ended("""
        procs = spawn()
        counter = procs.spawn("c", Counter).get()
        mine = this_proc().spawn("mine", Counter, 7).get()
        counter.add.call_one().get()
        child = os.fork()
        if child == 0:
            assert counter.add.call_one().get(20) == 2
            sys.exit(3)  # with the interpreter's end, and whatever was registered for it
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), counter.add.call_one().get(), mine.add.call_one().get())
        print(os.path.exists(this_proc().address.socket))
    """)
    assert rest == "3 3 8\nTrue\n"


async def test_a_program_uses_pools_of_processes_beside_procs() -> None:
    rest = await ended("""
        import multiprocessing
        counter = spawn().spawn("c", Counter).get()
        counter.add.call_one().get()
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                print(pool.map(abs, [-1, -2]))
        print(counter.add.call_one().get())
    """)
    assert rest == "[1, 2]\n[1, 2]\n2\n"


async def test_an_actor_of_the_program_that_raises_systemexit_ends_nothing_else() -> None:
    rest = await ended(
        """
        procs = spawn()
        dying = this_proc().spawn("dying", Dying).get()
        for endpoint in (dying.sys_exit, dying.sys_exit_async):
            try:
                endpoint.call_one(3).get(20)
            except Exception as error:
                print(error.exception_type)
        print(dying.pid.call_one().get(20) == os.getpid())
        """,
        stderr=None,
    )
    assert rest == "SystemExit\nSystemExit\nTrue\n"


async def test_last_lines_of_procs_are_printed_before_the_program_ends() -> None:
    rest = await ended("""
        procs = this_host().spawn_procs(per_host={"gpus": 1}, name="talkers").get()
        print(*procs.pids.values(), flush=True)
        procs.spawn("w", Worker).get().chatter.call_one("last words").get()
    """)
    assert rest == "[talkers 0] last words\n"


async def test_messages_told_just_before_the_end_are_not_lost_while_their_proc_lives(tmp_path: str) -> None:
    """Of a child that leaves: its parent owns the proc, so that lives on."""
    rest = await ended("""
        counter = spawn().spawn("c", Counter).get()
        child = os.fork()
        if child == 0:
            counter.wait_until_opened.broadcast()
            for number in range(500):
                counter.note_in_turn.broadcast(number)
                counter.note.broadcast(number)
            counter.note.broadcast("last").get()
            os._exit(0)
        os.waitpid(child, 0)
        while "waits" not in counter.noted.call_one().get():
            pass
        time.sleep(0.2)  # the child's connection has ended meanwhile, or it has not: both are to do
        counter.open.call_one().get()
        while "last" not in counter.noted.call_one().get():
            pass
        print(len(counter.noted.call_one().get()))
    """)
    assert rest == "1002\n"
