"""The Stacks service against real processes: hung, stopped, ended, without Python, and closed to ptrace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from textwrap import dedent

import anyio
import pytest

from milkweed.runtime.agent import hook_protocol, ptree
from milkweed.runtime.agent.children import Children, open_children
from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.agent.spool import Spool
from milkweed.runtime.records import ProcessStacks
from milkweed.runtime.services.pyspy import explain_failure, parse_faulthandler, parse_pyspy
from milkweed.runtime.services.stacks import Stacks, find_pyspy

pytestmark = pytest.mark.anyio

HUNG = """
    import threading
    lock = threading.Lock()
    lock.acquire()
    def train(step):
        lock.acquire()
    print("ready", flush=True)
    train(7)
"""
UNDUMPABLE = "import ctypes; ctypes.CDLL(None).prctl(4, 0)\n"


class Live:
    """The part of the Runs service that says which processes live."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids

    async def processes(self, run: str, ranks: tuple[int, ...] | None) -> tuple[tuple[int, int], ...]:
        return tuple((rank, pid) for rank, pid in enumerate(self.pids) if ranks is None or rank in ranks)


class NoProcs:
    async def find(self, owner: str | None, procs: tuple[str, ...] | None) -> tuple[tuple[int, int], ...]:
        return ()


class Host:
    """One host whose ranks are started by `start`, each with `ready` printed before it hangs."""

    def __init__(self, directory: Path, children: Children, *, py_spy: str | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.context = HostContext(
            "mesh-t",
            0,
            "host-0",
            "127.0.0.1",
            directory,
            str(directory),
            children,
            Spool(directory / "spool.jsonl"),
        )
        self.run_directory = self.context.run_directory("run-1")
        self.run_directory.mkdir(parents=True)
        self.live = Live([])
        self.stacks = Stacks(self.context, self.live, NoProcs(), py_spy=py_spy)

    async def start(
        self, code: str, *, argv: list[str] | None = None, env: dict[str, str] | None = None
    ) -> int:
        script = self.run_directory / f"rank{len(self.live.pids)}.py"
        script.write_text(dedent(code))
        output = script.with_suffix(".out")
        fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            child = self.context.children.spawn(
                argv or [sys.executable, str(script)],
                env={**os.environ, **(env or {})},
                cwd=str(self.run_directory),
                output=fd,
                on_exit=lambda *_: None,
            )
        finally:
            os.close(fd)
        self.live.pids.append(child.pid)
        await until(lambda: "ready" in output.read_text())
        return child.pid

    async def start_hooked(self, code: str) -> int:
        label = f"rank-{len(self.live.pids)}"
        return await self.start(code, env=hook_protocol.hook_environment(self.run_directory, label, ""))

    async def dump(self, **options: object) -> tuple[ProcessStacks, ...]:
        return await self.stacks.dump("run-1", None, **options)  # type: ignore[arg-type]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with open_children(subreaper=False) as children:
        yield Host(tmp_path / "host", children)


@pytest.fixture
async def denied_host(tmp_path: Path) -> AsyncIterator[Host]:
    """A host whose py-spy has no CAP_SYS_PTRACE, so that it may not read a process that closed itself."""
    pyspy = tmp_path / "py-spy"
    drop = "setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace" if os.geteuid() == 0 else "exec"
    pyspy.write_text(f'#!/bin/sh\n{drop} {find_pyspy()} "$@"\n')
    pyspy.chmod(0o755)
    async with open_children(subreaper=False) as children:
        yield Host(tmp_path / "host", children, py_spy=str(pyspy))


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.sleep(0.01)


async def reach_state(pid: int, state: str) -> None:
    await until(lambda: (process := ptree.read_process(pid)) is not None and process.state == state)


def functions(stack: ProcessStacks) -> list[str]:
    return [frame.function for frame in stack.threads[0].frames]


async def test_a_rank_hung_on_a_lock_shows_where(host: Host) -> None:
    pid = await host.start(HUNG)

    (stack,) = await host.dump()

    assert (stack.rank, stack.pid, stack.error, stack.source) == (0, pid, "", "py-spy")
    assert stack.threads[0].main
    assert functions(stack) == ["train", "<module>"]
    frame = stack.threads[0].frames[0]
    assert frame.file.endswith("rank0.py")
    assert (host.run_directory / "rank0.py").read_text().splitlines()[
        frame.line - 1
    ].strip() == "lock.acquire()"


async def test_a_rank_that_hangs_as_it_makes_its_first_group_shows_where(host: Host) -> None:
    """The hook has wrapped that function; its frame is left out, and the others stay."""
    await host.start_hooked(
        """
        import torch.distributed as dist
        print("ready", flush=True)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=2)
        """
    )
    with anyio.fail_after(60):
        functions: list[str] = []
        while "_new_process_group_helper" not in functions:
            (stack,) = await host.dump()
            functions = [frame.function for thread in stack.threads for frame in thread.frames]
            await anyio.sleep(0.05)
    assert "<module>" in functions
    assert not [function for function in functions if "make_first_group" in function or "_answer" in function]


async def test_many_ranks_come_in_rank_order_and_can_be_chosen(host: Host) -> None:
    for _ in range(4):
        await host.start(HUNG)

    assert [stack.rank for stack in await host.dump()] == [0, 1, 2, 3]
    chosen = await host.stacks.dump("run-1", (1, 3))
    assert [stack.rank for stack in chosen] == [1, 3]


async def test_locals_and_native_frames_come_when_asked_for(host: Host) -> None:
    await host.start(HUNG)

    (stack,) = await host.dump(locals=True)
    assert stack.threads[0].frames[0].locals == (("step", "7"),)
    (stack,) = await host.dump(native=True)
    assert len(stack.threads[0].frames) > 2


async def test_a_child_that_holds_a_lock_is_shown_as_a_child(host: Host) -> None:
    pid = await host.start(
        """
        import multiprocessing, time
        def hold(lock, ready):
            with lock:
                ready.set()
                time.sleep(1000)
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            lock, ready = context.Lock(), context.Event()
            context.Process(target=hold, args=(lock, ready)).start()
            ready.wait()
            print("ready", flush=True)
            lock.acquire()
        """
    )

    rank, child = await host.dump()

    assert (rank.pid, rank.child_of) == (pid, None)
    assert "1 resource tracker processes not dumped" in rank.note
    assert child.child_of == pid
    assert "hold" in functions(child)


async def test_a_stopped_rank_is_dumped_and_its_state_is_told(host: Host) -> None:
    pid = await host.start(HUNG)
    os.kill(pid, signal.SIGSTOP)
    await reach_state(pid, "T")

    (stack,) = await host.dump(native=True)

    assert stack.os_state == "T"
    assert functions(stack) == ["train", "<module>"]
    assert "without native frames" in stack.note


async def test_a_process_without_python_is_said_to_be_one(host: Host) -> None:
    await host.start("", argv=["sh", "-c", "echo ready; exec sleep 1000"])

    (stack,) = await host.dump()

    assert not stack.threads
    assert "not a Python process: sleep 1000" in stack.error


async def test_python_below_a_shell_stands_for_its_rank(host: Host) -> None:
    script = host.run_directory / "below.py"
    script.write_text(dedent(HUNG))
    shell = await host.start("", argv=["sh", "-c", f"{sys.executable} {script}; true"])

    (stack,) = await host.dump()

    assert stack.pid != shell
    assert stack.child_of is None
    assert functions(stack) == ["train", "<module>"]
    assert f"process {shell} of this rank is not Python" in stack.note


async def test_a_rank_that_has_ended_is_said_and_the_others_are_dumped(host: Host) -> None:
    pid = await host.start(HUNG)
    await host.start(HUNG)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: ptree.read_process(pid) is None)

    ended, alive = await host.dump()

    assert ended.error == "the process has ended"
    assert functions(alive) == ["train", "<module>"]


async def test_where_ptrace_is_denied_the_rank_dumps_itself(denied_host: Host) -> None:
    pid = await denied_host.start_hooked(UNDUMPABLE + dedent(HUNG))
    file = hook_protocol.find_stack_file(denied_host.run_directory, pid)
    assert file is not None

    for _ in range(2):
        (stack,) = await denied_host.dump()

        assert (stack.source, stack.error) == ("in-process", "")
        assert functions(stack) == ["train", "<module>"]
        assert "ptrace denied; mend: " in stack.note
        assert "--cap-add SYS_PTRACE" in stack.note


async def test_where_ptrace_is_denied_a_process_without_the_hook_is_left_unharmed(denied_host: Host) -> None:
    pid = await denied_host.start(UNDUMPABLE + dedent(HUNG))
    hook_protocol.stack_file(denied_host.run_directory, "rank-0", pid).touch()

    (stack,) = await denied_host.dump()

    assert "ptrace denied" in stack.error
    assert "no hook" in stack.error
    process = ptree.read_process(pid)
    assert process is not None
    assert process.alive


async def test_a_stopped_rank_that_may_not_be_read_is_given_up_in_time(denied_host: Host) -> None:
    pid = await denied_host.start_hooked(UNDUMPABLE + dedent(HUNG))
    os.kill(pid, signal.SIGSTOP)
    await reach_state(pid, "T")

    (stack,) = await denied_host.dump(timeout_s=5.0)

    assert "it is stopped" in stack.error


async def test_a_pyspy_that_hangs_costs_the_time_allowed_and_no_more(tmp_path: Path) -> None:
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    async with open_children(subreaper=False) as children:
        host = Host(tmp_path / "host", children, py_spy=str(slow))
        await host.start_hooked(HUNG)
        await host.start(HUNG)
        with anyio.fail_after(10):
            hooked, plain = await host.dump(timeout_s=2.0)
        assert len(children.alive) == 2

    assert hooked.source == "in-process"
    assert "py-spy did not answer" in hooked.note
    assert "py-spy did not answer" in plain.error


async def test_a_rank_that_ends_while_it_is_dumped_is_said(tmp_path: Path) -> None:
    deadly = tmp_path / "py-spy"
    deadly.write_text(
        "#!/bin/sh\nfor pid; do :; done\nkill -9 $pid\necho Error: No such process >&2\nexit 1\n"
    )
    deadly.chmod(0o755)
    async with open_children(subreaper=False) as children:
        host = Host(tmp_path / "host", children, py_spy=str(deadly))
        await host.start_hooked(HUNG)
        (stack,) = await host.dump()

    assert stack.error == "the process ended while it was dumped"


async def test_a_rank_that_keeps_the_gil_to_itself_is_dumped_and_told(host: Host) -> None:
    await host.start(
        """
        import ctypes
        def stuck():
            ctypes.PyDLL(None).sleep(1000)
        print("ready", flush=True)
        stuck()
        """
    )
    with anyio.fail_after(20):
        while True:
            (stack,) = await host.dump()
            if functions(stack)[:1] == ["stuck"]:
                break

    assert stack.threads[0].owns_gil


async def test_a_stack_too_deep_for_pyspy_is_told_by_the_rank_itself(host: Host) -> None:
    await host.start_hooked(
        """
        import sys, time
        def descend(left):
            if left:
                descend(left - 1)
            print("ready", flush=True)
            time.sleep(1000)
        sys.setrecursionlimit(20_000)
        descend(10_000)
        """
    )

    (stack,) = await host.dump()

    assert (stack.error, stack.source) == ("", "in-process")
    assert functions(stack)[:2] == ["descend", "descend"]
    assert "very deep" in stack.note


async def test_a_look_that_finds_another_one_at_work_waits_for_it(tmp_path: Path) -> None:
    busy = tmp_path / "py-spy"
    busy.write_text(
        f"#!/bin/sh\nmkdir {tmp_path}/once && echo Error: Permission Denied >&2 && exit 1\n"
        f'exec {find_pyspy()} "$@"\n'
    )
    busy.chmod(0o755)
    async with open_children(subreaper=False) as children:
        host = Host(tmp_path / "host", children, py_spy=str(busy))
        await host.start_hooked(HUNG)
        (stack,) = await host.dump()

    assert (stack.source, stack.note) == ("py-spy", "")
    assert functions(stack) == ["train", "<module>"]


async def test_parsers_know_what_is_not_theirs() -> None:
    with pytest.raises(ValueError, match="not a list"):
        parse_pyspy("{}", 1)
    with pytest.raises(ValueError, match="another shape"):
        parse_pyspy('[{"thread_id": 1}]', 1)
    assert parse_pyspy("[]", 1) == ()
    assert parse_faulthandler("no dump\n") == ()


async def test_pyspys_words_are_told_apart() -> None:
    assert explain_failure("Permission Denied: Try running again")[0] == "denied"
    assert (
        explain_failure("Error: Failed\n\nCaused by:\n    0: EPERM: Operation not permitted")[0] == "denied"
    )
    assert explain_failure("Error: Failed to find python version from target process")[0] == "not_python"
    problem, text = explain_failure("Error: x\n\nCaused by:\n    0: y\n\nStack backtrace:\n   0: main")
    assert (problem, text) == ("other", "x; y")


async def test_of_several_dumps_in_a_file_the_last_counts() -> None:
    def block(kind: str, thread: str, line: int) -> str:
        return f'{kind} {thread} (most recent call first):\n  File "a.py", line {line} in f\n\n'

    dump = block("Thread", "0xa", 1) + block("Current thread", "0xb", 2)
    later = block("Thread", "0xa", 3) + block("Current thread", "0xb", 4)

    threads = parse_faulthandler('  File "cut.py", line 9 in cut\n' + dump + later)

    assert [(thread.thread, thread.main, thread.frames[0].line) for thread in threads] == [
        ("MainThread", True, 4),
        ("0xa", False, 3),
    ]


def test_setpriv_is_there_for_the_tests_of_denial() -> None:
    if os.geteuid() == 0:
        assert subprocess.run(["setpriv", "--version"], check=False, capture_output=True).returncode == 0
