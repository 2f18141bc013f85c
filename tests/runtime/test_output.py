"""Output on disk: reading it while it grows, and keeping it within its cap."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime import _native
from milkweed.runtime.agent.capping import CappedFile, CapPolicy, OutputCap, next_hole, period_s
from milkweed.runtime.output import Layout, Segment, decode_layout, encode_layout, read_layout, read_slice
from milkweed.runtime.records import OutputSlice
from tests.runtime.hosts import popen, python, until

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
SMALL = CapPolicy(cap=1 * MIB, head=64 * 1024)
LINE = 64


def no_holes(fd: int, offset: int, length: int) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def lines(first: int, count: int) -> bytes:
    """Lines of `LINE` bytes that say their own offset."""
    return b"".join(b"%0*d\n" % (LINE - 1, number * LINE) for number in range(first, first + count))


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "run-1"
    path.mkdir(parents=True)
    return path


def read(
    run_directory: Path,
    offset: int | None = None,
    tail: int | None = None,
    limit: int = 64 * 1024,
    *,
    ended: bool = False,
) -> OutputSlice:
    return read_slice(
        run_directory.parents[1],
        "run-1",
        "rank-0",
        0,
        offset=offset,
        tail_bytes=tail,
        max_bytes=limit,
        ended=ended,
    )


def walk(run_directory: Path) -> Iterator[OutputSlice]:
    offset = 0
    while (piece := read(run_directory, offset)).next > offset:
        yield piece
        offset = piece.next


def check_kept(run_directory: Path, written: int) -> Layout:
    """Every byte that is read stands where it was written; what is not read is the gap, counted."""
    layout = read_layout(run_directory, "rank-0")
    at = 0
    for piece in walk(run_directory):
        assert piece.start == (
            at if piece.start < layout.gap_start or at >= layout.gap_end else layout.gap_end
        )
        whole = lines(piece.start // LINE, len(piece.data) // LINE + 2)
        assert whole[piece.start % LINE :][: len(piece.data)] == piece.data
        at = piece.next
    assert at == written
    assert layout.gap_lines == layout.gap_end // LINE - layout.gap_start // LINE
    return layout


def blocks(run_directory: Path) -> int:
    found = 0
    for path in run_directory.iterdir():
        with suppress(FileNotFoundError):
            if path.suffix != ".gap":
                found += path.stat().st_blocks * 512
    return found


def grow(file: CappedFile, count: int, first: int = 0, batch: int = 512) -> None:
    """Writes lines as a rank would, with a look and a trim after each batch."""
    with open(file.path, "ab", buffering=0) as rank:
        for number in range(first, first + count, batch):
            rank.write(lines(number, min(batch, first + count - number)))
            file.look()
            if file.is_due:
                file.trim()


def test_an_output_that_is_not_there_is_empty(run_directory: Path) -> None:
    piece = read(run_directory)
    assert (piece.data, piece.start, piece.next, piece.size) == (b"", 0, 0, 0)


def test_what_a_program_did_to_its_output_file_is_said(run_directory: Path) -> None:
    path = run_directory / "rank-0.out"
    path.write_bytes(b"0123456789")
    assert read(run_directory, 10).note == ""
    os.truncate(path, 3)
    assert read(run_directory, 10).note == "the program truncated its own output"
    path.unlink()
    assert read(run_directory).note == ""
    assert read(run_directory, ended=True).note == "its output file was removed"
    path.mkdir()
    piece = read(run_directory)
    assert (piece.data, piece.size, piece.note) == (b"", 0, "its output file was replaced by something else")


def test_reading_by_offset_and_tail(run_directory: Path) -> None:
    (run_directory / "rank-0.out").write_bytes(b"0123456789")
    assert read(run_directory, 3, limit=4).data == b"3456"
    assert read(run_directory, 3, limit=4).next == 7
    assert read(run_directory, 99).start == 10
    assert read(run_directory, -5, limit=1).data == b"0"
    assert read(run_directory, tail=3).data == b"789"
    assert read(run_directory, tail=99).data == b"0123456789"
    assert read(run_directory, tail=9, limit=2).data == b"89"


def test_a_small_output_is_left_alone(run_directory: Path) -> None:
    file = CappedFile(run_directory, "rank-0", SMALL)
    grow(file, 8000)
    assert check_kept(run_directory, 8000 * LINE) == Layout()
    assert [path.name for path in run_directory.iterdir()] == ["rank-0.out"]


@pytest.mark.parametrize("punch", [_native.punch_hole, no_holes])
def test_the_middle_falls_out_and_everything_else_stays_in_place(
    run_directory: Path, punch: Callable[[int, int, int], None]
) -> None:
    file = CappedFile(run_directory, "rank-0", SMALL, punch)
    most = 0
    for step in range(16):
        grow(file, 4096, step * 4096, batch=128)
        most = max(most, blocks(run_directory))
    layout = check_kept(run_directory, 16 * 4096 * LINE)
    assert layout.gap_start >= SMALL.head
    assert layout.gap_end - layout.gap_start > 3 * MIB
    assert most <= SMALL.cap
    assert ("no holes" in layout.note) == (punch is no_holes)
    assert read(run_directory, layout.gap_start + 5).start == layout.gap_end
    before = read(run_directory, layout.gap_start - 10)
    assert (len(before.data), before.next) == (10, layout.gap_end)
    assert (before.gap_start, before.gap_end, before.gap_lines) == (
        layout.gap_start,
        layout.gap_end,
        layout.gap_lines,
    )


@pytest.mark.parametrize("punch", [_native.punch_hole, no_holes])
def test_a_reader_never_takes_the_hole_for_output(
    run_directory: Path, punch: Callable[[int, int, int], None]
) -> None:
    """Readers run while the file grows and loses its middle, in both ways of losing it."""
    file = CappedFile(run_directory, "rank-0", SMALL, punch)
    done = threading.Event()
    faults: list[OutputSlice] = []
    pieces = [0]

    def look() -> None:
        offset = 0
        while not done.is_set():
            piece = read(run_directory, offset, limit=50_000)
            pieces[0] += bool(piece.data)
            expected = lines(piece.start // LINE, len(piece.data) // LINE + 2)[piece.start % LINE :]
            if expected[: len(piece.data)] != piece.data:
                faults.append(piece)
            offset = piece.next if piece.next > offset else 0

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for step in range(40):
        grow(file, 1024, step * 1024, batch=64)
    done.set()
    for reader in readers:
        reader.join()
    assert pieces[0] > 10
    assert faults == []


def test_a_program_that_empties_its_output_is_read_from_its_new_beginning(run_directory: Path) -> None:
    file = CappedFile(run_directory, "rank-0", SMALL)
    grow(file, 40_000)
    assert file.layout.gap_end
    os.truncate(file.path, 0)
    file.path.write_bytes(b"again")
    file.look()
    assert file.is_due
    file.trim()
    piece = read(run_directory)
    assert (piece.data, piece.gap_end) == (b"again", 0)
    assert piece.note == "the program emptied its own output"


def test_a_full_disk_loses_nothing_and_is_tried_again(
    run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for label, punch in (("rank-0", _native.punch_hole), ("rank-1", no_holes)):
        file = CappedFile(run_directory, label, SMALL, punch)
        with open(file.path, "ab", buffering=0) as rank:
            rank.write(lines(0, 20_000))
        file.look()
        with monkeypatch.context() as patch:
            patch.setattr("milkweed.runtime.agent.capping.write_layout", full_disk)
            with pytest.raises(OSError, match="No space"):
                file.trim()
        assert not file.is_due
        assert read_layout(run_directory, label) == Layout()
        assert [path.name for path in run_directory.glob(f"{label}.*")] == [f"{label}.out"]
        file.trim()
        assert read_layout(run_directory, label) != Layout()


def full_disk(run_directory: Path, label: str, layout: Layout) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@given(
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.sampled_from([512, 4096, 65536]),
    st.floats(0, 1e9),
)
def test_holes_are_aligned_and_never_touch_head_or_recent_tail(
    size: int, gap_end: int, block: int, rate: float
) -> None:
    policy = CapPolicy()
    layout = Layout(policy.head, max(policy.head, gap_end // block * block)) if gap_end else Layout()
    limit = policy.limit(rate, 0.05)
    assert policy.cap // 2 <= limit < policy.cap
    hole = next_hole(max(size, layout.gap_end), layout, policy, limit, block)
    if hole is None:
        assert max(size, layout.gap_end) - (layout.gap_end - layout.gap_start) <= limit
    else:
        start, end = hole
        assert start % block == end % block == 0
        assert start >= policy.head
        assert start >= layout.gap_end
        assert end <= size - policy.cap // 4


@given(st.integers(-5, 10**9), st.floats(0, 10), st.integers(0, 10**8))
def test_files_are_looked_at_often_enough(grown: int, elapsed: float, kept: int) -> None:
    period = period_s(grown, elapsed, kept, CapPolicy())
    assert 0.01 <= period <= 0.25
    if grown > 0 and elapsed > 0:
        assert period <= 0.05


@given(
    st.builds(
        Layout,
        *[st.integers(0)] * 4,
        st.lists(st.builds(Segment, st.text(), st.integers(0), st.integers(-1))).map(tuple),
        st.booleans(),
        st.text(),
    )
)
def test_layouts_survive_their_file(layout: Layout) -> None:
    assert decode_layout(encode_layout(layout)) == layout


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"gap_start": "x"}'])
def test_a_damaged_layout_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        decode_layout(text)


def test_a_policy_must_leave_room_for_a_tail() -> None:
    with pytest.raises(ValueError, match="head"):
        CapPolicy(cap=MIB, head=MIB)


@contextmanager
def a_file_system_without_holes(path: Path) -> Iterator[None]:
    path.mkdir()
    try:
        _native.mount("none", str(path), "ramfs")
    except PermissionError:
        pytest.skip("mounting a ramfs needs root")
    try:
        yield
    finally:
        _native.umount(str(path), _native.MNT_DETACH)


def test_a_real_file_system_without_holes(tmp_path: Path) -> None:
    with a_file_system_without_holes(tmp_path / "ram"):
        run_directory = tmp_path / "ram" / "runs" / "run-1"
        run_directory.mkdir(parents=True)
        file = CappedFile(run_directory, "rank-0", SMALL)
        grow(file, 40_000)
        layout = check_kept(run_directory, 40_000 * LINE)
        assert layout.segments
        assert "no holes" in layout.note
        assert sum(path.stat().st_size for path in run_directory.iterdir()) <= SMALL.cap


WRITER = """
import sys, time
rate, seconds, line = int(sys.argv[1]), float(sys.argv[2]), 64
number, start = 0, time.monotonic()
while number * line < rate * seconds:
    batch = b"".join(b"%063d\\n" % (n * line) for n in range(number, number + 4096))
    sys.stdout.buffer.write(batch)
    sys.stdout.buffer.flush()
    number += 4096
    time.sleep(max(0.0, start + number * line / rate - time.monotonic()))
"""


async def test_a_rank_that_floods_stays_within_the_cap(run_directory: Path, full_size: bool) -> None:
    """100 MB/s for 10 s at full size; the CI sample is a cap and a rate of an eighth, for 2 s."""
    scale = 1 if full_size else 8
    policy = CapPolicy(64 * MIB // scale, 8 * MIB // scale)
    rate, seconds = 100_000_000 // scale, 10.0 if full_size else 2.0
    cap = OutputCap(policy)
    told: list[Layout] = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    most = 0
    writer = popen([*python(WRITER), str(rate), str(seconds)], output=run_directory / "rank-0.out")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cap.run)
        cap.watch(run_directory, "rank-0", told.append)

        def look() -> bool:
            nonlocal most
            most = max(most, blocks(run_directory))
            return writer.poll() is not None

        await until(look, 30 * seconds)
        await cap.finish(run_directory)
        tasks.cancel_scope.cancel()
    assert writer.returncode == 0
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    written = (run_directory / "rank-0.out").stat().st_size
    assert written >= rate * seconds
    layout = check_kept(run_directory, written)
    assert layout.gap_end - layout.gap_start > written - policy.cap
    assert len(told) == 1
    assert most <= policy.cap
    assert grown < 32 * MIB


async def test_the_watch_sleeps_without_files_and_sees_a_new_one(run_directory: Path) -> None:
    cap = OutputCap(SMALL)
    told: list[Layout] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cap.run)
        await anyio.wait_all_tasks_blocked()
        (run_directory / "rank-0.out").write_bytes(lines(0, 30_000))
        cap.watch(run_directory, "rank-0", told.append)
        await until(lambda: told)
        await cap.finish(run_directory)
        tasks.cancel_scope.cancel()
    check_kept(run_directory, 30_000 * LINE)


def test_a_reader_without_an_agent_reads_what_a_dead_one_left(run_directory: Path) -> None:
    """The agent died between emptying the file and saying so: the segments have everything up to there."""
    (run_directory / "rank-0.seg-0").write_bytes(lines(0, 10))
    (run_directory / "rank-0.out").write_bytes(b"")
    layout = Layout(segments=(Segment("rank-0.seg-0", 0, -1),), moving=True)
    (run_directory / "rank-0.gap").write_text(encode_layout(layout))
    assert read(run_directory).data == lines(0, 10)


def test_reading_costs_constant_memory(run_directory: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
from milkweed.runtime.output import read_slice
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
piece = read_slice(Path(sys.argv[1]), "run-1", "rank-0", 0, tail_bytes=10**9, max_bytes=100_000, ended=True)
assert len(piece.data) == 100_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    with open(run_directory / "rank-0.out", "wb") as file:
        file.truncate(10 * 1024 * MIB)
    done = subprocess.run(
        [sys.executable, "-c", code, str(run_directory.parents[1])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 8 * 1024
