"""Reading text, searching in it, and describing what is none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milkweed.runtime.services.files import Files
from milkweed.runtime.services.reading import Bounds, read_text

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


async def test_a_file_is_read_from_an_offset_to_the_next(files: Files, work: Path) -> None:
    (work / "a.txt").write_text("".join(f"line {number}\n" for number in range(100)))

    parts, offset = [], 0
    while True:
        part = await files.read("a.txt", offset=offset, max_bytes=100)
        assert len(part.text.encode()) <= 100
        assert (part.start, part.size) == (offset, (work / "a.txt").stat().st_size)
        parts.append(part.text)
        if part.next is None:
            break
        assert part.text.endswith("\n")
        offset = part.next

    assert "".join(parts) == (work / "a.txt").read_text()
    assert len(parts) > 5


async def test_a_limit_is_kept_to_the_byte_but_no_character_is_split(files: Files, work: Path) -> None:
    (work / "a.txt").write_text("aé€😀z")
    assert (await files.read("a.txt", limit=1)).text == "a"
    part = await files.read("a.txt", limit=4)
    assert (part.text, part.next) == ("aé", 3)
    assert (await files.read("a.txt", offset=3)).text == "€😀z"


async def test_the_last_lines_are_read_from_the_end(files: Files, work: Path) -> None:
    (work / "a.txt").write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert (await files.read("a.txt", tail=2)).text == "line 99998\nline 99999\n"
    long = await files.read("a.txt", tail=5000, max_bytes=1000)
    assert len(long.text.encode()) <= 1000
    assert long.text.endswith("line 99999\n")
    assert "more was asked for" in long.note
    (work / "short").write_text("only")
    assert (await files.read("short", tail=10)).text == "only"


async def test_matching_lines_come_with_their_numbers(files: Files, work: Path) -> None:
    (work / "a.txt").write_text("".join(f"step {number}\n" for number in range(1000)) + "loss nan")
    found = await files.read("a.txt", grep="nan|step 7$")
    assert (found.text, found.next) == ("8:step 7\n1001:loss nan\n", None)
    assert (await files.read("a.txt", grep="step", tail=2)).text == "999:step 998\n1000:step 999\n"
    none = await files.read("a.txt", grep="absent")
    assert (none.text, none.note) == ("", "0 matches")


async def test_matches_beyond_the_room_are_said_and_can_be_gone_on_with(files: Files, work: Path) -> None:
    (work / "a.txt").write_text("".join(f"step {number}\n" for number in range(1000)))
    texts, offset = "", 0
    while True:
        found = await files.read("a.txt", grep="step", offset=offset, max_bytes=2000)
        assert len(found.text.encode()) <= 2000
        texts += found.text
        if found.next is None:
            break
        assert "go on from the next offset" in found.note
        offset = found.next
    assert texts.count("step") == 1000


async def test_ten_sparse_gigabytes_are_read_and_searched_at_once(files: Files, work: Path) -> None:
    with (work / "big").open("wb") as file:
        file.write(b"head\n")
        file.seek(10 * 1024 * MIB)
        file.write(b"\nneedle at the end\n")

    before = bytes_read()
    assert (await files.read("big", tail=1)).text == "needle at the end\n"
    assert (await files.read("big")).binary
    found = await files.read("big", grep="needle")
    assert "needle at the end" in found.text
    assert (await files.digest("big")).partial
    assert bytes_read() - before < 500 * MIB


def bytes_read() -> int:
    """What this process has read so far, from files of whatever kind."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar:")).split()[1])


@pytest.mark.parametrize("late_s", [0.0, 100.0])
async def test_a_search_stops_at_its_bounds_and_can_be_gone_on_with(work: Path, late_s: float) -> None:
    (work / "a").write_text("x\n" * 1_000_000)
    found = read_text(str(work / "a"), Bounds(time.monotonic() - late_s), grep="needle")
    assert found.next is not None
    assert 0 < found.next < found.size
    assert "go on from the next offset" in found.note


async def test_a_search_within_a_limit_says_where_to_go_on(files: Files, work: Path) -> None:
    (work / "a").write_text("".join(f"step {number}\n" for number in range(100)))
    found = await files.read("a", grep="step 1$", limit=100)
    assert (found.text, found.next) == ("2:step 1\n", 102)


async def test_lines_of_megabytes_are_searched_in_bounded_memory(files: Files, work: Path) -> None:
    (work / "a").write_bytes(b"start" + b"x" * (20 * MIB) + b"\nneedle\n")
    found = await files.read("a", grep="needle|^start")
    assert "needle" in found.text
    assert len(found.text.encode()) <= 8192


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x7fELF\x02\x01\x01\x00", "ELF"),
        (b"PK\x03\x04\x00\x00", "PyTorch checkpoints"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"\x00" * 100, "zeros"),
        (bytes(range(128, 256)), "unknown type"),
    ],
)
async def test_a_binary_file_is_described(files: Files, work: Path, data: bytes, said: str) -> None:
    (work / "b").write_bytes(data)
    text = await files.read("b")
    assert text.binary
    assert said in text.text
    assert data[:4].hex() in text.text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=st.one_of(st.binary(max_size=300), st.text(max_size=100).map(str.encode)),
    offset=st.integers(0, 50),
    tail=st.one_of(st.none(), st.integers(1, 5)),
    grep=st.sampled_from([None, "a", "."]),
    max_bytes=st.integers(40, 100),
)
def test_no_text_exceeds_its_bytes(
    tmp_path: Path, data: bytes, offset: int, tail: int | None, grep: str | None, max_bytes: int
) -> None:
    path = tmp_path / "data"
    path.write_bytes(data)
    bounds = Bounds(time.monotonic() + 10)
    text = read_text(str(path), bounds, offset=offset, tail=tail, grep=grep, max_bytes=max_bytes)
    assert text.binary or len(text.text.encode()) <= max_bytes
    assert text.next is None or text.next > offset


async def test_files_of_the_kernel_are_read_although_they_have_no_size(files: Files) -> None:
    assert "MemTotal" in (await files.read("/proc/meminfo")).text
