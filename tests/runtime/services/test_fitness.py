"""What a check asks a host's agent."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.checking.records import AllReduceTurn, Turn
from milkweed.runtime.services.fitness import Fitness
from tests.runtime.hosts import until

pytestmark = pytest.mark.anyio

DEADLINE_S = 90.0


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def turn(
    python: str, rank: int = 0, world: int = 1, seconds: float = DEADLINE_S, port: int = 0
) -> AllReduceTurn:
    return AllReduceTurn(python, rank, world, "127.0.0.1", port, 1024 * 1024, seconds)


async def test_its_clock_and_what_runs_find_there_are_told(context: HostContext) -> None:
    fitness = Fitness(context)
    before = time.time()
    assert before <= await fitness.clock() <= time.time()
    found = await fitness.surroundings(sys.executable)
    assert found.fingerprint.interpreter == sys.executable
    assert found.fingerprint.packages["anyio"]
    assert found.disks[0].total >= found.disks[0].free > 0
    assert (await fitness.surroundings("/no/such/python")).fingerprint.interpreter == ""


async def test_hosts_that_take_their_turn_at_once_measure_it(context: HostContext) -> None:
    fitness = Fitness(context)
    found: dict[int, Turn] = {}

    async def take(rank: int, port: int) -> None:
        found[rank] = await fitness.all_reduce(turn(sys.executable, rank, 2, port=port))

    port = free_port()
    async with anyio.create_task_group() as group:
        for rank in range(2):
            group.start_soon(take, rank, port)
    assert {rank: (one.error, one.missing) for rank, one in found.items()} == {0: ("", ""), 1: ("", "")}
    assert all(one.seconds > 0 for one in found.values())
    await until(lambda: context.children.alive == ())


async def test_one_whose_others_never_come_is_over_in_time(context: HostContext) -> None:
    found = await Fitness(context).all_reduce(turn(sys.executable, world=2, seconds=1.0, port=free_port()))
    assert found.error
    assert found.seconds == 0.0
    assert context.children.alive == ()


async def test_without_torch_there_is_nothing_to_measure(context: HostContext, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    assert "No module named 'torch'" in (await Fitness(context).all_reduce(turn(str(bare)))).missing
    assert "No such file" in (await Fitness(context).all_reduce(turn("/no/such/python"))).missing


async def test_one_that_crashes_is_told_with_its_last_words(context: HostContext, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'Illegal instruction' >&2; exit 132\n")
    broken.chmod(0o755)
    assert (
        await Fitness(context).all_reduce(turn(str(broken)))
    ).error == "ended with exit 132: Illegal instruction"
