"""Children: started, reaped, ended; run in this process, which is no subreaper here."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent import ptree
from milkweed.runtime.agent.children import Child, Children, open_children
from milkweed.runtime.agent.oom import Counts, OomHistory
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.records import Exit
from tests.runtime.hosts import open_descriptors, popen, python, unique, until

pytestmark = pytest.mark.anyio


def spawn(children: Children, *argv: str, env: Mapping[str, str] | None = None) -> Child:
    fd = os.open(os.devnull, os.O_WRONLY)
    try:
        return children.spawn(
            argv, env={**os.environ, **(env or {})}, cwd="/", output=fd, on_exit=lambda child, ending: None
        )
    finally:
        os.close(fd)


async def ending_of(child: Child) -> Exit | None:
    with anyio.fail_after(10):
        await child.ended.wait()
    return child.exit


async def test_exits_are_told_once(tmp_path: Path) -> None:
    told: list[tuple[int, Exit]] = []
    async with open_children(subreaper=False) as children:
        output = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        child = children.spawn(
            ["sh", "-c", "echo out; echo err >&2; cat; exit 4"],
            env=os.environ,
            cwd=str(tmp_path),
            output=output,
            on_exit=lambda child, ending: told.append((child.pid, ending)),
        )
        os.close(output)
        assert child.exit is None
        assert await ending_of(child) == Exit(code=4)
        assert children.alive == ()
    assert told == [(child.pid, Exit(code=4))]
    assert (tmp_path / "out").read_text() == "out\nerr\n"


async def test_a_child_may_have_an_input_and_errors_apart_from_its_output(tmp_path: Path) -> None:
    async with open_children(subreaper=False) as children:
        stdin, ours = os.pipe()
        output, errors = (os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT) for name in ("out", "err"))
        child = children.spawn(
            ["sh", "-c", "cat; echo err >&2"],
            env=os.environ,
            cwd="/",
            stdin=stdin,
            output=output,
            errors=errors,
            on_exit=lambda child, ending: None,
        )
        for descriptor in (stdin, output, errors):
            os.close(descriptor)
        os.write(ours, b"said\n")
        os.close(ours)
        assert await ending_of(child) == Exit(code=0)
    assert (tmp_path / "out").read_text() == "said\n"
    assert (tmp_path / "err").read_text() == "err\n"


async def test_a_child_leads_its_own_session() -> None:
    async with open_children(subreaper=False) as children:
        child = spawn(children, "sleep", "1000")
        assert os.getsid(child.pid) == child.pid
        os.kill(child.pid, signal.SIGSEGV)
        assert await ending_of(child) == Exit(signal=signal.SIGSEGV)


@pytest.mark.parametrize("argv", [("no-such-program",), ("/",), ("sh", "\0")])
async def test_what_cannot_start_raises_and_leaves_nothing(argv: tuple[str, ...]) -> None:
    async with open_children(subreaper=False) as children:
        before = open_descriptors()
        with pytest.raises((OSError, ValueError)):
            spawn(children, *argv)
        assert children.alive == ()
        assert open_descriptors().keys() == before.keys()


async def test_fifty_children_leave_no_descriptor() -> None:
    async with open_children(subreaper=False) as children:
        await ending_of(spawn(children, "true"))
        gc.collect()
        before = open_descriptors()
        for _ in range(50):
            await ending_of(spawn(children, "true"))
        await children.run(["true"], timeout_s=10)
        gc.collect()
        assert open_descriptors() == before


async def test_garbage_collection_steals_no_exit() -> None:
    async with open_children(subreaper=False) as children:
        child = spawn(children, "sh", "-c", "exit 9")
        gc.collect()
        popen(["true"]).wait()  # would reap what the collector queued
        assert await ending_of(child) == Exit(code=9)


async def test_children_that_are_left_are_killed_at_the_end() -> None:
    async with open_children(subreaper=False) as children:
        child = spawn(children, "sleep", "1000")
    assert child.exit == Exit(signal=signal.SIGKILL)


async def test_end_tree_ends_descendants_and_marked_processes_and_nobody_else() -> None:
    mark = {"MILKWEED_RUN": unique("run")}
    tree = "sleep 1000 & setsid sleep 1000 & wait"
    async with open_children(subreaper=False) as children:
        child = spawn(children, "sh", "-c", tree, env=mark)
        other = spawn(children, "sleep", "1000", env={"MILKWEED_RUN": "another"})
        marked = spawn(children, "sleep", "1000", env=mark)
        await until(lambda: len(ptree.descendants(ptree.snapshot(), [child.pid])) == 2)
        assert await children.end_tree(child.pid, mark, 1.0) == 4
        # By the signal, or with exit 0: the shell may hear first that what it waits for has ended.
        assert child.exit in (Exit(signal=signal.SIGTERM), Exit(code=0))
        assert marked.exit == Exit(signal=signal.SIGTERM)
        assert other.exit is None


async def test_a_stopped_child_gets_its_sigterm() -> None:
    async with open_children(subreaper=False) as children:
        child = spawn(children, "sleep", "1000")
        os.kill(child.pid, signal.SIGSTOP)
        await until(lambda: ptree.snapshot()[child.pid].state == "T")
        await children.end_tree(child.pid, {}, 10.0)
        assert child.exit == Exit(signal=signal.SIGTERM)


async def test_end_tree_of_a_dead_child_spares_its_pids_next_owner() -> None:
    async with open_children(subreaper=False) as children:
        child = spawn(children, "sleep", "1000", env={"MILKWEED_RUN": "new"})
        reused = ptree.Tree(child.pid, child.start_time - 1, {"MILKWEED_RUN": "old"})
        assert await children.end_trees([reused], 0.0) == 0
        assert child.exit is None


async def test_a_process_that_is_not_below_us_is_never_touched() -> None:
    mark = {"MILKWEED_RUN": unique("run")}
    popen(["setsid", "--fork", "sleep", "1000"], env={**os.environ, **mark}).wait()

    def outsiders() -> dict[int, ptree.Process]:
        table = ptree.snapshot()
        return {
            pid: p for pid, p in table.items() if ptree.carries(ptree.read_environ(pid), mark) and p.alive
        }

    await until(outsiders)
    ((pid, outsider),) = outsiders().items()
    try:
        async with open_children(subreaper=False) as children:
            assert await children.end_tree(pid, mark, 0.0) == 0
        assert pid in outsiders()
    finally:
        ptree.send_signal(outsider, signal.SIGKILL)


async def test_a_helper_gives_its_output() -> None:
    async with open_children(subreaper=False) as children:
        done = await children.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=10)
        assert (done.code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
        done = await children.run(python("print('x' * 1000000)"), timeout_s=10, max_output=1000)
        assert (done.code, done.stdout) == (0, b"x" * 1000)
        done = await children.run(["sh", "-c", "kill -9 $$"], timeout_s=10)
        assert done.code == -9


async def test_a_helper_is_killed_with_its_tree_at_its_deadline() -> None:
    async with open_children(subreaper=False) as children:
        with pytest.raises(Unavailable, match="deadline_exceeded: sh did not end within 0"):
            await children.run(["sh", "-c", "sleep 1000 & sleep 1000"], timeout_s=0.2)
        assert children.alive == ()


async def test_a_cancelled_helper_is_killed() -> None:
    async with open_children(subreaper=False) as children:
        with anyio.move_on_after(0.2):
            await children.run(["sleep", "1000"], timeout_s=100)
        assert children.alive == ()


async def test_a_kill_that_was_not_ours_is_set_beside_the_kernels_count() -> None:
    counts = [Counts(machine=5, group=2)]
    children = Children(subreaper=False, history=OomHistory(read=lambda _: counts[0]))
    mine, killed, exited = (spawn(children, "sleep", "1000") for _ in range(3))
    counts[0] = Counts(machine=6, group=3)
    os.kill(killed.pid, signal.SIGKILL)
    assert await ending_of(killed) == Exit(signal=9, oom_kills=1)
    os.kill(exited.pid, signal.SIGTERM)
    assert await ending_of(exited) == Exit(signal=15)
    await children.end_tree(mine.pid, {}, 0.0)
    assert mine.exit == Exit(signal=9)


async def test_a_subreaper_reaps_orphans_and_keeps_the_exits_of_its_own() -> None:
    code = """
import anyio, os, sys
from milkweed.runtime.agent.children import open_children
async def main():
    async with open_children() as children:
        fd = os.open(os.devnull, os.O_WRONLY)
        started = [
            children.spawn(
                ["sh", "-c", f"(setsid sh -c 'exit 1' &); exit {n}"],
                env=os.environ, cwd="/", output=fd, on_exit=lambda child, ending: None,
            )
            for n in range(20)
        ]
        with anyio.fail_after(10):
            for child in started:
                await child.ended.wait()
            while open(f"/proc/self/task/{os.getpid()}/children").read():
                await anyio.sleep(0.01)
        print([child.exit.code for child in started] == list(range(20)))
anyio.run(main)
"""
    done = await anyio.run_process([sys.executable, "-c", code])
    assert done.stdout == b"True\n"


async def test_a_process_that_is_ours_is_adopted_and_its_end_told() -> None:
    told: list[Exit] = []
    async with open_children(subreaper=False) as children:
        process = popen(["sh", "-c", "read line; exit 7"], stdin=subprocess.PIPE)
        found = ptree.read_process(process.pid)
        assert found is not None
        child = children.adopt(process.pid, found.start_time, lambda _, ending: told.append(ending))
        assert process.stdin is not None
        process.stdin.close()
        assert await ending_of(child) == Exit(code=7)
        process.returncode = 7
    assert told == [Exit(code=7)]


@pytest.mark.parametrize("whose", ["another start", "no child of ours", "nobody"])
async def test_another_process_is_not_adopted(whose: str) -> None:
    async with open_children(subreaper=False) as children:
        pid = os.getppid() if whose == "no child of ours" else os.getpid()
        found = ptree.read_process(pid)
        assert found is not None
        before = open_descriptors()
        with pytest.raises(OSError, match=r"No (such process|child processes)"):
            children.adopt(
                2**22 if whose == "nobody" else pid,
                found.start_time + (whose == "another start"),
                lambda _, ending: None,
            )
        assert open_descriptors().keys() == before.keys()
        assert children.alive == ()


async def test_an_orphan_that_a_thread_was_faster_to_reap_ends_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = os.waitid
    late: list[int] = []
    with popen("true") as process:

        def waitid(kind: int, number: int, options: int) -> os.waitid_result | None:
            if kind == os.P_PID and number == process.pid:
                late.append(process.wait())
            return real(kind, number, options)  # type: ignore[arg-type]

        async with open_children(subreaper=False) as children:
            with anyio.fail_after(10):
                while real(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
                    await anyio.sleep(0.005)
            monkeypatch.setattr(os, "waitid", waitid)
            children._reap()
    assert late == [0]
