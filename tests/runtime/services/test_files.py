"""The Files service on what a user has on disk: large, binary, odd, missing, closed."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milkweed.runtime.agent.children import open_children
from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.agent.spool import Spool
from milkweed.runtime.errors import InvalidArgument, MilkweedError, NotFound, Unavailable
from milkweed.runtime.services import files as files_module
from milkweed.runtime.services.files import Files
from milkweed.runtime.services.reading import Bounds, read_text

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[HostContext]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    async with open_children(subreaper=False) as children:
        spool = Spool(tmp_path / "spool.jsonl")
        yield HostContext("mesh-t", 0, "host-0", "127.0.0.1", tmp_path, str(workspace), children, spool)


@pytest.fixture
def files(context: HostContext) -> Files:
    return Files(context)


@pytest.fixture
def work(context: HostContext) -> Path:
    return Path(context.workspace)


# Listing


async def test_entries_are_sorted_and_say_what_they_are(files: Files, work: Path) -> None:
    (work / "b.txt").write_text("hello")
    (work / "a").mkdir()
    (work / "link").symlink_to("b.txt")
    os.mkfifo(work / "pipe")

    listing = await files.list(".")

    assert [(entry.name, entry.kind) for entry in listing.entries] == [
        ("a", "directory"),
        ("b.txt", "file"),
        ("link", "link"),
        ("pipe", "fifo"),
    ]
    assert listing.entries[1].size == 5
    assert listing.entries[1].modified_at == pytest.approx(time.time(), abs=3600)
    assert listing.entries[2].target == "b.txt"
    assert (listing.path, listing.left_out, listing.note) == (str(work), 0, "")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.pt", ["b.pt"]),
        ("runs/*", ["runs/1"]),
        ("runs/*/*.log", ["runs/1/a.log"]),
        ("**/*.log", ["runs/1/a.log", "top.log"]),
        ("runs/**", ["runs/1", "runs/1/a.log"]),
        ("**", ["b.pt", "runs", "runs/1", "runs/1/a.log", "top.log"]),
        ("[bt]*", ["b.pt", "top.log"]),
        ("nothing", []),
        ("./*.log", ["top.log"]),
    ],
)
async def test_a_pattern_chooses_entries(files: Files, work: Path, pattern: str, names: list[str]) -> None:
    (work / "runs/1").mkdir(parents=True)
    for name in ("runs/1/a.log", "top.log", "b.pt"):
        (work / name).touch()
    (work / "b.pt").unlink()
    (work / "b.pt").symlink_to("runs")

    assert [entry.name for entry in (await files.list(".", pattern)).entries] == names


async def test_a_directory_of_100_000_entries_is_listed_fast_and_bounded(
    files: Files, work: Path, full_size: bool
) -> None:
    count = 100_000 if full_size else 20_000
    directory = work / "many"
    directory.mkdir()
    for number in range(count):
        os.close(os.open(directory / f"{number:06d}", os.O_CREAT | os.O_WRONLY))

    started = time.monotonic()
    listing = await files.list("many", limit=10)

    assert [entry.name for entry in listing.entries] == [f"{number:06d}" for number in range(10)]
    assert listing.left_out == count - 10
    assert time.monotonic() - started < 5
    shutil.rmtree(directory)


async def test_a_file_is_listed_as_itself_and_a_link_to_a_directory_as_its_entries(
    files: Files, work: Path
) -> None:
    (work / "d").mkdir()
    (work / "d/x").touch()
    (work / "link").symlink_to("d")
    assert [entry.name for entry in (await files.list("d/x")).entries] == ["x"]
    assert [entry.name for entry in (await files.list("link")).entries] == ["x"]


# Reading


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

    started = time.monotonic()
    assert (await files.read("big", tail=1)).text == "needle at the end\n"
    assert (await files.read("big")).binary
    found = await files.read("big", grep="needle")
    assert "needle at the end" in found.text
    assert (await files.digest("big")).partial
    assert time.monotonic() - started < 5


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


# Refusals


async def refused(call: object, kind: type[MilkweedError]) -> MilkweedError:
    with pytest.raises(kind) as caught:
        await call  # type: ignore[misc]
    return caught.value


async def test_a_missing_file_is_said_with_the_nearest_names(files: Files, work: Path) -> None:
    (work / "train.py").touch()
    (work / "data.csv").touch()
    error = await refused(files.read("trian.py"), NotFound)
    assert error.code == "file_not_found"
    assert f"no {work}/trian.py; in {work} nearest: train.py" in error.cause
    deeper = await refused(files.read("no/such/trian.py"), NotFound)
    assert f"in {work} nearest: data.csv, train.py" in deeper.cause
    through = await refused(files.list("train.py/x"), NotFound)
    assert "train.py is not a directory" in through.cause
    (work / "dangling").symlink_to("/nowhere/at/all")
    link = await refused(files.read("dangling"), NotFound)
    assert "is a link to /nowhere/at/all" in link.cause


async def test_what_is_no_regular_file_is_refused_without_waiting(
    files: Files, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(work / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(work)  # the address must be short
        server.bind("sock")
        with anyio.fail_after(5):
            for path, kind in (
                (".", "directory"),
                ("pipe", "fifo"),
                ("sock", "socket"),
                ("/dev/zero", "character device"),
            ):
                for call in (files.read(path), files.digest(path), files.chunk(path, 0, 10)):
                    error = await refused(call, InvalidArgument)
                    assert error.code == "invalid_path"
                    assert f"is a {kind}" in error.cause
                    assert error.next_step


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "loop", "x" * 300])
async def test_a_path_that_cannot_be_is_refused(files: Files, work: Path, path: str) -> None:
    (work / "loop").symlink_to("loop")
    for call in (files.read(path), files.list(path), files.stat("a\0b"), files.digest(path)):
        error = await refused(call, MilkweedError)
        assert error.code in ("invalid_path", "file_not_found")


@pytest.mark.parametrize(
    "arguments",
    [{"offset": -1}, {"limit": -1}, {"tail": 0}, {"max_bytes": 0}, {"grep": "["}, {"grep": r"(a)\1"}],
)
async def test_wrong_arguments_are_refused(files: Files, work: Path, arguments: dict[str, object]) -> None:
    (work / "a").write_text("a")
    error = await refused(files.read("a", **arguments), InvalidArgument)  # type: ignore[arg-type]
    assert error.code == "invalid_argument"
    await refused(files.list(".", limit=0), InvalidArgument)
    await refused(files.list(".", "../*"), InvalidArgument)
    await refused(files.chunk("a", 0, 2 * MIB), InvalidArgument)
    await refused(files.chunk("a", -1, 1), InvalidArgument)


def test_permission_denied_is_said_with_owner_and_mode(tmp_path: Path) -> None:
    """As another user, because root may read everything."""
    code = (
        "import sys, time; from milkweed.runtime.services.reading import Bounds, read_text\n"
        "from milkweed.runtime.errors import MilkweedError\n"
        "import os\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setresuid(65534, 65534, 65534)\n"
        "try: read_text(sys.argv[1], Bounds(time.monotonic() + 5))\n"
        "except MilkweedError as error: print(error)\n"
    )
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o000)
    done = subprocess.run(
        [sys.executable, "-c", code, str(secret)], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("invalid_path: permission denied: ")
    assert f"owned by uid {os.geteuid()}" in done.stdout


# Digests, chunks, deadlines


async def test_digests_tell_files_apart(files: Files, work: Path) -> None:
    (work / "a").write_bytes(b"same")
    (work / "b").write_bytes(b"same")
    (work / "c").write_bytes(b"other")
    a, b, c = [await files.digest(name) for name in "abc"]
    assert a.sha256 == b.sha256 == hashlib.sha256(b"same").hexdigest()
    assert not a.partial
    assert c.sha256 != a.sha256
    (work / "large").write_bytes(b"x" * (9 * MIB))
    assert (await files.digest("large")).partial


async def test_chunks_make_up_the_file(files: Files, work: Path) -> None:
    data = os.urandom(MIB + 100)
    (work / "a").write_bytes(data)
    first = await files.chunk("a", 0, MIB)
    rest = await files.chunk("a", MIB, MIB)
    end = await files.chunk("a", MIB + 100, MIB)
    assert first.data + rest.data == data
    assert (first.size, end.data) == (len(data), b"")


async def test_stat_tells_what_a_path_is(files: Files, work: Path) -> None:
    (work / "a").write_text("abc")
    entry = await files.stat("a")
    assert (entry.name, entry.kind, entry.size) == ("a", "file", 3)


async def test_a_file_system_that_hangs_costs_the_deadline_and_no_more(
    context: HostContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(context, timeout_s=0.2)
    hanging = threading.Event()
    monkeypatch.setattr(files_module, "digest_file", lambda path, bounds: hanging.wait(30))
    try:
        with anyio.fail_after(5):
            error = await refused(files.digest("a"), Unavailable)
        assert error.code == "deadline_exceeded"
    finally:
        hanging.set()


async def test_a_cancelled_search_stops_its_thread(files: Files, work: Path) -> None:
    with (work / "big").open("wb") as file:
        file.writelines(b"x\n" * 1_000_000 for _ in range(30))
    with anyio.move_on_after(0.1):
        await files.read("big", grep="y")
    with anyio.fail_after(10):
        while files._threads.borrowed_tokens:
            await anyio.sleep(0.01)


# Names that cannot be printed, entries that cannot be looked at, numbers that are too large


async def test_a_name_is_read_as_it_is_shown(files: Files, work: Path) -> None:
    (work / os.fsdecode(b"bad\xffname")).write_text("odd")
    (work / "red\x1b[31m").write_text("red")
    with pytest.raises(NotFound, match=r"nearest: .*bad\\xffname") as caught:
        await files.read("bad\\xfename")
    assert str(caught.value).isprintable()
    assert (await files.read("bad\\xffname")).text == "odd"
    assert (await files.read("red\\x1b[31m")).text == "red"
    (work / "bad\\xffname").write_text("literal")
    assert (await files.read("bad\\xffname")).text == "literal"


async def test_entries_that_cannot_be_looked_at_do_not_fail_a_listing(
    files: Files, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "closed").mkdir()
    (work / "open").mkdir()
    (work / "open" / "a").write_text("x")
    scan = os.scandir

    class Denying:
        """A directory whose reading fails after its entries."""

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

        def __iter__(self) -> Iterator[os.DirEntry[str]]:
            raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(os, "scandir", lambda path: Denying() if path.endswith("closed") else scan(path))
    listing = await files.list(".", "**/*")
    assert [entry.name for entry in listing.entries] == ["closed", "open", "open/a"]
    assert listing.note == "1 entries below could not be looked at"


async def test_an_offset_no_file_has_is_past_the_end(files: Files, work: Path) -> None:
    (work / "a").write_text("abc")
    for grep in (None, "a"):
        assert (await files.read("a", offset=1 << 70, grep=grep)).text == ""


async def test_the_tail_of_a_kernel_file_is_read(files: Files) -> None:
    assert (await files.read("/proc/self/status", tail=2)).text.splitlines()[-1].startswith("nonvoluntary")


async def test_an_error_quotes_little_of_a_long_path(files: Files) -> None:
    with pytest.raises(InvalidArgument, match="File name too long") as caught:
        await files.read("x" * 200_000)
    assert len(str(caught.value)) < 400
