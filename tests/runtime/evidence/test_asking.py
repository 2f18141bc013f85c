"""Asking the thread inside a rank for its flight recorder."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from milkweed.runtime.agent.hook_protocol import hook_environment
from milkweed.runtime.evidence import Flight
from milkweed.runtime.evidence.asking import ask_flight, kept_flight
from tests.runtime.hosts import popen, until

pytestmark = pytest.mark.anyio

DUMP = b'{"entries": [{"collective_seq_id": 5, "profiling_name": "gloo:all_reduce"}]}'


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def test_a_process_without_a_group_is_not_asked(tmp_path: Path) -> None:
    assert await ask_flight(tmp_path, 4711, 1.0) == Flight()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: Path(path).mkdir()])
async def test_a_door_behind_which_the_process_is_dead(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "rank-0.ask.7")
    found = await ask_flight(tmp_path, 7, 30.0)
    assert "cannot be asked" in found.problem
    assert found.entries == ()


async def test_a_door_that_nobody_answers(tmp_path: Path) -> None:
    door = tmp_path / "rank-0.ask.7"
    os.mkfifo(door)
    fd = os.open(door, os.O_RDWR)
    try:
        found = await ask_flight(tmp_path, 7, 0.05)
    finally:
        os.close(fd)
    assert "no answer" in found.problem
    assert names(tmp_path) == {door.name}


async def test_a_door_that_is_full(tmp_path: Path) -> None:
    door = tmp_path / "rank-0.ask.7"
    os.mkfifo(door)
    fd = os.open(door, os.O_RDWR | os.O_NONBLOCK)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(fd, bytes(4096))
        assert "cannot be asked" in (await ask_flight(tmp_path, 7, 30.0)).problem
    finally:
        os.close(fd)


@pytest.mark.parametrize(("answer", "numbers"), [(DUMP, [5]), (b"\0junk", []), (b"", [])])
async def test_an_answer_is_read_and_removed(tmp_path: Path, answer: bytes, numbers: list[int]) -> None:
    door = tmp_path / "rank-0.ask.7"
    os.mkfifo(door)
    fd = os.open(door, os.O_RDWR)

    async def serve() -> None:
        name = (await anyio.to_thread.run_sync(os.read, fd, 4096)).decode().strip()
        (tmp_path / "fresh").write_bytes(answer)
        (tmp_path / "fresh").rename(tmp_path / name)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve)
            found = await ask_flight(tmp_path, 7, 30.0)
    finally:
        os.close(fd)
    assert [one.seq for one in found.entries] == numbers
    assert bool(found.problem) is not bool(numbers)
    assert names(tmp_path) == {door.name}


def test_what_a_rank_left_of_its_recorder(tmp_path: Path) -> None:
    assert kept_flight(tmp_path, "rank-0") == Flight()
    (tmp_path / "rank-0.flight.7").write_bytes(DUMP)
    found = kept_flight(tmp_path, "rank-0")
    assert found.kept
    assert found.entries[0].seq == 5
    (tmp_path / "rank-0.flight.7").write_bytes(b"\xff")
    assert "cannot be read" in kept_flight(tmp_path, "rank-0").problem


async def test_a_real_rank_answers_while_its_main_thread_is_in_c(tmp_path: Path) -> None:
    code = """
import ctypes, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
for _ in range(3):
    dist.all_reduce(torch.ones(4, 2))
print("there", flush=True)
ctypes.CDLL(None).pause()
"""
    env = {**os.environ, "MILKWEED_RANK": "0", **hook_environment(tmp_path, "rank-0", "")}
    rank = popen(
        [sys.executable, "-c", code, str(tmp_path / "store")], env=env, stdout=subprocess.PIPE, text=True
    )
    assert rank.stdout is not None
    try:
        assert await anyio.to_thread.run_sync(rank.stdout.readline) == "there\n"
        found = await ask_flight(tmp_path, rank.pid, 30.0)
        assert [(one.seq, one.op, one.sizes) for one in found.entries] == [
            (seq, "all_reduce", ((4, 2),)) for seq in (1, 2, 3)
        ]
        assert all(one.done for one in found.entries)
    finally:
        rank.kill()
        rank.wait()
        rank.stdout.close()
    await until(lambda: rank.poll() is not None)
    assert "cannot be asked" in (await ask_flight(tmp_path, rank.pid, 30.0)).problem
