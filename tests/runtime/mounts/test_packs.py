"""Small versions in one file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from milkweed.runtime.mounts.packs import MOST_PACKED, Packs, batches


def _put(packs: Packs, *contents: tuple[int, bytes]) -> int:
    number = packs.number()
    packs.write(number, contents)
    packs.add(number, [(version, len(data)) for version, data in contents])
    return number


def _get(packs: Packs, version: int, size: int) -> bytes:
    fd, at = packs.open(version)
    try:
        return os.pread(fd, size, at)
    finally:
        os.close(fd)


def test_each_version_of_a_pack_is_found_in_this_life_and_the_next(tmp_path: Path) -> None:
    packs = Packs(str(tmp_path))
    _put(packs, (1, b"one"), (2**63 - 1, b"x" * 1000))
    _put(packs, (3, b"three"))
    for one in (packs, Packs(str(tmp_path))):
        assert sorted(one.sizes()) == [(1, 3), (3, 5), (2**63 - 1, 1000)]
        assert _get(one, 1, 3) == b"one"
        assert _get(one, 2**63 - 1, 1000) == b"x" * 1000
        assert _get(one, 3, 5) == b"three"
        assert one.has(1, 3)
        assert not one.has(1, 4)
        assert not one.has(2, 3)
    with pytest.raises(OSError, match="2"):
        packs.open(2)


def test_the_next_life_adds_packs_beside_those_that_are_there(tmp_path: Path) -> None:
    _put(Packs(str(tmp_path)), (1, b"one"))
    _put(Packs(str(tmp_path)), (2, b"two"))
    assert sorted(Packs(str(tmp_path)).sizes()) == [(1, 3), (2, 3)]


@pytest.mark.parametrize("cut", [0, 5, 8, 20, 40, 45, 46])
def test_a_pack_that_was_not_finished_is_removed(tmp_path: Path, cut: int) -> None:
    number = _put(Packs(str(tmp_path)), (1, b"one"), (2, b"four"))
    assert (tmp_path / str(number)).stat().st_size == 47
    os.truncate(tmp_path / str(number), cut)
    assert list(Packs(str(tmp_path)).sizes()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_pack_is_none(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"\xff" * 1000)
    assert list(Packs(str(tmp_path)).sizes()) == []


def test_a_pack_goes_when_most_of_it_has_and_tells_what_was_left(tmp_path: Path) -> None:
    packs = Packs(str(tmp_path))
    _put(packs, *((version, b"%010d" % version) for version in range(10)))
    for version in range(5):
        assert packs.remove(version) == []
    assert packs.remove(1) == []
    assert packs.remove(5) == [(version, b"%010d" % version) for version in range(6, 10)]
    assert list(packs.sizes()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_version_in_two_packs_is_in_the_first(tmp_path: Path) -> None:
    packs = Packs(str(tmp_path))
    first = _put(packs, (1, b"one"))
    _put(packs, (1, b"one"), (2, b"two"))
    _put(packs, (1, b"one"))
    os.unlink(tmp_path / str(first))
    assert len(list(tmp_path.iterdir())) == 1
    assert _get(packs, 2, 3) == b"two"
    with pytest.raises(OSError, match="No such file"):
        packs.open(1)


def test_batches_are_as_large_as_they_may_be() -> None:
    assert batches([("a", 4), ("b", 6), ("c", 1), ("d", 20), ("e", 1)], 10) == [
        ["a", "b"],
        ["c"],
        ["d"],
        ["e"],
    ]
    assert batches([], 10) == []
    assert [len(one) for one in batches([(0, 1)] * 600, 10**9)] == [512, 88]
    assert len(batches([(0, MOST_PACKED)] * 2, 10**9)) == 2
