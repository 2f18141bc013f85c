"""The spool: numbered events that survive everything but the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.agent.spool import Spool, decode_event, decode_spool, encode_event
from milkweed.runtime.records import Exit, HostEvent

pytestmark = pytest.mark.anyio

EXITS = st.builds(
    Exit,
    code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    oom_kills=st.integers(0, 9),
    ended_by=st.none() | st.sampled_from(["cancelled", "timeout", "released"]),
    error=st.text(),
)
EVENTS = st.builds(
    HostEvent,
    seq=st.integers(1),
    at=st.floats(0, 2e9),
    kind=st.sampled_from(["rank_started", "rank_exited"]),
    run=st.text(),
    rank=st.none() | st.integers(-9, 9999),
    pid=st.none() | st.integers(1),
    exit=st.none() | EXITS,
    detail=st.text(),
)


@given(EVENTS)
def test_events_survive_their_line(event: HostEvent) -> None:
    line = encode_event(event)
    assert line.count(b"\n") == 1
    assert decode_event(line) == event


@given(st.lists(EVENTS, max_size=5), st.integers(0))
def test_a_torn_line_costs_itself_only(events: list[HostEvent], cut: int) -> None:
    text = b"".join(map(encode_event, events))
    cut %= len(text) + 1
    assert decode_spool(text[:cut]) == tuple(events)[: text[:cut].count(b"\n")]


@pytest.mark.parametrize("line", [b"", b"{}", b"[1]", b"null", b'{"seq": 1}', b"\xff"])
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_event(line)


async def test_numbers_go_on_after_a_restart_and_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    spool = Spool(path)
    spool.append("rank_started", run="run-1", rank=0, pid=7)
    spool.append("rank_exited", run="run-1", rank=0, exit=Exit(code=1))
    spool.close()
    path.write_bytes(path.read_bytes() + b'{"seq":3,"at":1')
    spool = Spool(path)
    assert spool.append("run_ended", run="run-1").seq == 3
    assert [event.seq for event in Spool.read(path)] == [1, 2, 3]
    assert [event.kind for event in await spool.after(1, 0.0)] == ["rank_exited", "run_ended"]
    spool.close()


async def test_waiting_ends_with_the_next_event_or_the_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    assert await spool.after(0, 0.01) == ()
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            with anyio.fail_after(10):
                found.extend(await spool.after(0, 10.0))

        found: list[HostEvent] = []
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        spool.append("run_ended")
    assert [event.kind for event in found] == ["run_ended"]
    spool.close()


async def test_old_events_come_from_the_file_in_batches(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    for _ in range(6000):
        spool.append("rank_started")
    seq, batches = 0, 0
    while events := await spool.after(seq, 0.0):
        assert [event.seq for event in events] == list(range(seq + 1, seq + 1 + len(events)))
        seq = events[-1].seq
        batches += 1
    assert seq == 6000
    assert batches > 1
    spool.close()


async def test_a_full_disk_delays_events_and_says_so(tmp_path: Path) -> None:
    full = True

    def write(fd: int, data: bytes) -> int:
        if not full:
            return os.write(fd, data)
        if room:
            return os.write(fd, data[: room.pop()])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    room = [10]
    path = tmp_path / "spool.jsonl"
    spool = Spool(path, write=write)
    spool.append("rank_started", rank=0)
    spool.append("rank_started", rank=1)
    assert Spool.read(path) == ()
    told = await spool.after(0, 0.0)
    assert [event.kind for event in told] == ["rank_started", "spool_delayed", "rank_started"]
    assert "No space left" in told[1].detail
    full = False
    spool.append("run_ended")
    assert spool.unsaved == 0
    assert [event.seq for event in Spool.read(path)] == [1, 2, 3, 4]
    spool.close()


def test_a_real_full_disk_is_no_exception(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl", write=lambda _, data: os.write(full.fileno(), data))
    with open("/dev/full", "wb", buffering=0) as full:
        assert spool.append("run_ended").seq == 1
        assert spool.seq == 2
    spool._write = os.write
    spool.close()
    assert len(Spool.read(tmp_path / "spool.jsonl")) == 2


def test_no_spool_has_no_events(tmp_path: Path) -> None:
    assert Spool.read(tmp_path / "none") == ()
