"""The Profiling service against real processes: busy, ending, stopped, without Python, with torch."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from milkweed.runtime.agent.children import open_children
from milkweed.runtime.evidence.asking import ask_flight
from milkweed.runtime.profiling import ProfileRequest, RankProfile, TorchProfile, parse_folded, read_trace
from milkweed.runtime.profiling.asking import ask_torch
from milkweed.runtime.services.profiling import Profiling
from milkweed.runtime.services.stacks import find_pyspy
from tests.runtime.services.test_stacks import UNDUMPABLE, Host, reach_state, until

pytestmark = pytest.mark.anyio

BUSY = """
    def hot():
        sum(i * i for i in range(30000))
    def mild():
        sum(i * i for i in range(5000))
    print("ready", flush=True)
    while True:
        hot()
        mild()
"""
WITH_TORCH = """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    a = torch.ones(64, 64)
    print("ready", flush=True)
    while True:
        a.mm(a)
"""
SHORT = ProfileRequest(seconds=1.0)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with open_children(subreaper=False) as children:
        yield opened(Host(tmp_path / "host", children))


def opened(host: Host) -> Host:
    host.context.temporary.mkdir()
    return host


async def profile(
    host: Host, request: ProfileRequest = SHORT, *, py_spy: str | None = None, ranks: int | None = None
) -> tuple[RankProfile, ...]:
    count = len(host.live.pids) if ranks is None else ranks
    with anyio.fail_after(60):
        found = await Profiling(host.context, host.live, py_spy=py_spy).record(
            "run-1", tuple(range(count)), request
        )
    assert not list(host.context.temporary.iterdir())
    return found


def innermost(one: RankProfile) -> list[str]:
    """Functions of the program, the hottest first."""
    counts: Counter[str] = Counter()
    for stack in parse_folded(one.folded):
        for name in {frame.function for frame in stack.frames}:
            counts[name] += stack.count
    return [name for name, _ in counts.most_common() if name in ("hot", "mild", "below")]


def samples(one: RankProfile) -> int:
    return sum(stack.count for stack in parse_folded(one.folded))


async def test_the_hotter_of_two_functions_comes_first_on_every_rank(host: Host) -> None:
    await host.start(BUSY)
    await host.start(BUSY)

    profiles = await profile(host)

    assert [one.rank for one in profiles] == [0, 1]
    for one in profiles:
        assert one.error == ""
        assert innermost(one)[0] == "hot"


async def test_what_children_do_is_in_it_and_told_apart(host: Host) -> None:
    pid = await host.start(
        """
        import os
        def below():
            while True: pass
        if os.fork() == 0:
            below()
        print("ready", flush=True)
        os.wait()
        """
    )

    (one,) = await profile(host)

    assert innermost(one) == ["below"]
    assert {stack.pid for stack in parse_folded(one.folded)} - {pid}


async def test_a_rank_that_ends_while_it_is_sampled_keeps_what_was_seen(host: Host) -> None:
    pid = await host.start(BUSY)
    await host.start(BUSY)
    found: list[tuple[RankProfile, ...]] = []

    async def end() -> None:
        status = Path(f"/proc/{pid}/status")
        await until(lambda: "TracerPid:\t0" not in status.read_text())  # a moment, at each sample
        os.kill(pid, signal.SIGKILL)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
        found.append(await profile(host, ProfileRequest(seconds=3.0)))

    ended, other = found[0]
    assert "ended" in ended.error + ended.note
    assert innermost(other)[0] == "hot"


async def test_ranks_that_have_ended_are_said(host: Host) -> None:
    await host.start(BUSY)

    _, ended = await profile(host, ranks=2)

    assert (ended.rank, ended.error) == (1, "the process has ended")


async def test_a_stopped_rank_is_said_and_left_as_it_is(host: Host) -> None:
    pid = await host.start(BUSY)
    os.kill(pid, signal.SIGSTOP)
    await reach_state(pid, "T")

    (one,) = await profile(host)

    assert "stopped" in one.error
    await reach_state(pid, "T")


async def test_a_rank_without_python_is_said_to_be_one(host: Host) -> None:
    await host.start("", argv=["sh", "-c", "echo ready; exec sleep 1000"])

    (one,) = await profile(host)

    assert one.error == "not a Python process"


async def test_a_rank_that_waits_has_few_samples_unless_asked_for(host: Host) -> None:
    await host.start("print('ready', flush=True)\ndef below():\n    input()\nimport time\ntime.sleep(1000)")

    (busy,) = await profile(host)
    (idle,) = await profile(host, ProfileRequest(seconds=1.0, idle=True))

    assert (busy.error, idle.error) == ("", "")
    assert 2 * samples(busy) < samples(idle)


@pytest.mark.skipif(os.geteuid() != 0, reason="drops a capability that only root has")
async def test_where_ptrace_is_denied_the_mend_is_told(tmp_path: Path, host: Host) -> None:
    denied = tmp_path / "py-spy"
    drop = "setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace"
    denied.write_text(f'#!/bin/sh\n{drop} {find_pyspy()} "$@"\n')
    denied.chmod(0o755)
    await host.start(UNDUMPABLE + "print('ready', flush=True)\nwhile True: pass")

    (one,) = await profile(host, py_spy=str(denied))

    assert one.error.startswith("ptrace denied; mend: ")


async def test_a_pyspy_that_hangs_is_given_up(
    tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milkweed.runtime.services.profiling._PYSPY_SPARE_S", 0.1)
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    await host.start(BUSY)

    (one,) = await profile(host, py_spy=str(slow))

    assert "did not end" in one.error
    assert len(host.context.children.alive) == 1


async def test_torch_is_recorded_in_a_rank_that_has_a_process_group(host: Host) -> None:
    await host.start_hooked(WITH_TORCH)
    await host.start_hooked(BUSY)

    traced, other = await profile(host, ProfileRequest(seconds=1.0, torch=True))

    assert traced.torch is not None
    assert traced.torch.problem == ""
    assert "aten::mm" in [op.name for op in read_trace(traced.torch.trace)]
    assert other.torch is not None
    assert other.torch.problem == "it has not imported torch"
    assert not list(host.run_directory.glob("torch.*"))


async def test_a_program_that_profiles_itself_is_left_alone(host: Host) -> None:
    await host.start_hooked(
        """
        import torch, torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        a = torch.ones(64, 64)
        with torch.autograd.profiler.profile():
            print("ready", flush=True)
            while True:
                a.mm(a)
        """
    )

    (one,) = await profile(host, ProfileRequest(seconds=1.0, torch=True))

    assert one.torch is not None
    assert one.torch.problem == "the program profiles itself at the moment"


async def test_collectives_can_be_asked_for_while_torch_is_recorded(host: Host) -> None:
    pid = await host.start_hooked(WITH_TORCH)
    found: list[TorchProfile] = []

    async def record() -> None:
        found.append(await ask_torch(host.run_directory, pid, 1.0, 30.0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(record)
        await anyio.lowlevel.checkpoint()
        flight = await ask_flight(host.run_directory, pid, 20.0)
        assert not found  # the profile is still being taken

    assert flight.problem == ""
    assert found[0].problem == ""
