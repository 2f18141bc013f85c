"""Ranges, read-ahead, eviction and exclude rules."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.mounts.eviction import Usage
from milkweed.runtime.mounts.excludes import DEFAULT, Rules
from milkweed.runtime.mounts.manifest import DIRECTORY, FILE, Entry, FileRef
from milkweed.runtime.mounts.neighbours import Neighbours
from milkweed.runtime.mounts.ranges import Ranges
from milkweed.runtime.mounts.readahead import ALIGN, WHOLE, Stream, pieces, plan

_pairs = st.tuples(st.integers(0, 40), st.integers(0, 40))


@given(st.lists(st.tuples(st.booleans(), _pairs)), _pairs)
def test_ranges_are_a_set_of_bytes(steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    ranges, model = Ranges(), set[int]()
    for adds, (start, end) in steps:
        if adds:
            ranges.add(start, end)
            model |= set(range(start, end))
        else:
            ranges.discard(start, end)
            model -= set(range(start, end))
    assert len(ranges) == len(model)
    start, end = asked
    gaps = ranges.missing(start, end)
    assert {at for first, last in gaps for at in range(first, last)} == set(range(start, end)) - model
    assert all(last < first for (_, last), (first, _) in itertools.pairwise(gaps))
    run = start
    while run in model:
        run += 1
    assert ranges.end_of(start) == run
    assert {at for first, last in ranges.parts() for at in range(first, last)} == model
    assert ranges.has(start, end) == (set(range(start, end)) <= model)


@given(st.integers(1, 2**33), st.integers(0, 2**33), st.integers(1, 2**21), st.integers(0, 2**34))
def test_a_plan_has_what_was_asked_for_and_nothing_beyond_the_end(
    size: int, offset: int, length: int, so_far: int
) -> None:
    offset = min(offset, size - 1)
    end = min(size, offset + length)
    (start, needed), (after, until) = plan(Stream(end, so_far), size, offset, length)
    assert 0 <= start <= offset
    assert end <= needed <= after <= until <= size
    assert sum(last - first for first, last in pieces(start, needed)) == needed - start


def test_a_file_that_is_read_in_order_is_fetched_in_large_pieces() -> None:
    size, have, fetched = 200_000_000, Ranges(), []
    stream = Stream()
    for offset in range(0, size, ALIGN):
        stream = stream.after(offset, ALIGN)
        for wanted in plan(stream, size, offset, ALIGN):
            for gap in have.missing(*wanted):
                fetched += pieces(*gap)
                have.add(*gap)
    assert len(have) == size
    assert len(fetched) < 80
    assert max(last - first for first, last in fetched) == 4 * 1024 * 1024


def test_reads_here_and_there_fetch_little_more_than_they_ask() -> None:
    size, fetched, stream = 5 * 1024**3, 0, Stream()
    for offset in range(0, size, size // 50):
        stream = stream.after(offset, 4096)
        for start, end in plan(stream, size, offset, 4096):
            fetched += end - start
    assert fetched <= 2 * 51 * ALIGN  # some lie across two pieces


def test_a_small_file_is_fetched_whole() -> None:
    assert plan(Stream(10, 10), WHOLE, 5, 5) == ((0, WHOLE), (WHOLE, WHOLE))


def test_what_was_longest_not_used_goes_first_and_what_is_open_last() -> None:
    usage = Usage(limit=100)
    for version in (1, 2, 3, 4):
        usage.used(version, 25)
    usage.used(1)
    usage.opened(2)
    assert usage.victims() == []
    assert usage.victims(room=30) == [3, 4]
    assert usage.victims(room=80) == [3, 4, 1, 2]
    usage.closed(2)
    assert usage.victims(room=10) == [2]
    usage.removed(2)
    assert usage.victims(room=10) == []
    usage.found(9, 60)
    assert usage.victims() == [9]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=60), st.integers(0, 200))
def test_the_limit_is_kept_whatever_is_used(uses: list[tuple[int, int]], limit: int) -> None:
    usage = Usage(limit)
    for version, size in uses:
        for victim in usage.victims(size):
            usage.removed(victim)
        if size <= limit:
            usage.used(version, size)
        assert usage.total <= limit


@pytest.mark.parametrize(
    ("rule", "excluded", "kept"),
    [
        (b"*.log", [b"a.log", b"d/b.log"], [b"a.log.txt", b"log"]),
        (b"/build", [b"build"], [b"d/build"]),
        (b"build/", [b"build/", b"d/build/"], [b"build"]),
        (b"docs/*.html", [b"docs/a.html"], [b"docs/b/c.html", b"x/docs/a.html"]),
        (b"**/cache", [b"cache", b"a/b/cache"], [b"cached"]),
        (b"data/**", [b"data/a", b"data/b/c"], [b"data", b"x/data/a"]),
        (b"a/**/z", [b"a/z", b"a/b/z", b"a/b/c/z"], [b"z", b"b/a/z"]),
        (b"file?.txt", [b"file1.txt"], [b"file.txt", b"file12.txt", b"file/.txt"]),
        (b"[a-c]x", [b"ax", b"cx"], [b"dx", b"x"]),
        (b"[!a]x", [b"bx"], [b"ax"]),
        (b"\\#not", [b"#not"], [b"not"]),
        (b"blank  ", [b"blank"], [b"blank  "]),
        (b"\xff*", [b"\xff\xfe"], [b"\xfe"]),
        (b"# comment", [], [b"# comment"]),
        (b"", [], [b"x"]),
        (b"[", [b"["], [b"x"]),
    ],
)
def test_a_rule_fits_what_it_does_in_a_gitignore(
    rule: bytes, excluded: list[bytes], kept: list[bytes]
) -> None:
    rules = Rules([rule])
    for path in excluded:
        assert _is_out(rules, path), path
    for path in kept:
        assert not _is_out(rules, path), path


def _is_out(rules: Rules, path: bytes) -> bool:
    is_directory = path.endswith(b"/")
    path = path.rstrip(b"/")
    return rules.excluding(path, path.rpartition(b"/")[2], is_directory) is not None


def test_the_last_rule_that_fits_decides() -> None:
    rules = Rules([b"*.log", b"!keep.log", b"/keep.log"])
    assert _is_out(rules, b"a.log")
    assert not _is_out(rules, b"d/keep.log")
    assert _is_out(rules, b"keep.log")


def test_by_default_caches_are_out_but_an_environment_keeps_its_compiled_files() -> None:
    rules = Rules(DEFAULT)
    for path in (b".git/", b"src/__pycache__/", b"a/.mypy_cache/", b".DS_Store", b".milkweed-token-0a"):
        assert _is_out(rules, path), path
    for path in (
        b".venv/lib/python3.11/site-packages/torch/__pycache__/",
        b"env/lib/python3.12/json/__pycache__/",
        b".gitignore",
        b"src/main.py",
        b".github/",
    ):
        assert not _is_out(rules, path), path


def test_a_rule_is_named_where_it_leaves_something_out() -> None:
    assert Rules([b"*.ckpt"]).excluding(b"a/b.ckpt", b"b.ckpt", False) == "*.ckpt"


def test_with_each_file_that_is_waited_for_more_of_its_neighbours_come_along() -> None:
    content = {b"%03d" % number: Entry(FILE, 0o644, 100, 0, number + 1) for number in range(300)}
    content[b"005"] = content[b"005"]._replace(size=10_000_000)
    content[b"006"] = content[b"006"]._replace(kind=DIRECTORY)
    content[b"007"] = content[b"007"]._replace(size=0)
    neighbours, here, waits = Neighbours(), set[bytes](), 0
    for name, entry in content.items():
        if name in here or entry.kind != FILE or not entry.size:
            continue
        waits += 1
        found = neighbours.after(b"d", name, content)
        for file in found:
            assert file == FileRef(file.path, content[file.path.removeprefix(b"d/")].version, 100)
        here |= {file.path[2:] for file in found} | {name}
    assert waits < 12
    assert neighbours.after(b"d", b"000", content) == []
    assert neighbours.after(b"other", b"x", {}) == []


def test_neighbours_before_a_file_come_too_and_none_twice() -> None:
    content = {b"%03d" % number: Entry(FILE, 0o644, 100, 0, number + 1) for number in range(100)}
    neighbours = Neighbours()
    assert neighbours.after(b"", b"090", content) == []
    found = [file.path for _ in range(4) for file in neighbours.after(b"", b"095", content)]
    assert len(found) == len(set(found)) == 100
    assert found[0] == b"091"


def test_files_that_changed_come_with_their_neighbours_too() -> None:
    """After a checkout, say: a second round through the same directory."""
    content = {b"%03d" % number: Entry(FILE, 0o644, 100, 0, number + 1) for number in range(300)}
    neighbours = Neighbours()
    for _ in range(2):
        here, waits = set[bytes](), 0
        for name in content:
            if name not in here:
                waits += 1
                here |= {name, *(file.path for file in neighbours.after(b"", name, content))}
        assert waits < 12
        content = {name: entry._replace(version=entry.version + 1000) for name, entry in content.items()}
