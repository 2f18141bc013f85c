"""One-sided transfers by libibverbs alone, without Milkweed: what a test of Milkweed's may count on."""

from __future__ import annotations

import pytest

from tests.rdma.ends import SIZE, End, cut_wire

RANGES = [(0, SIZE), (4095, 2**20 + 1), (SIZE - 1, 1)]


@pytest.mark.parametrize(("at", "length"), RANGES)
def test_a_stopped_owner_is_read(ends: tuple[End, End], at: int, length: int) -> None:
    owner, other = ends
    before = other.content
    owner.stop()
    assert other.read(owner, at, length) == "done"
    assert other.content == before[:at] + owner.content[at : at + length] + before[at + length :]


@pytest.mark.parametrize(("at", "length"), RANGES)
def test_a_stopped_owner_is_written(ends: tuple[End, End], at: int, length: int) -> None:
    owner, other = ends
    before = owner.content
    owner.stop()
    assert other.write(owner, at, length) == "done"
    assert owner.content == before[:at] + other.content[at : at + length] + before[at + length :]


def test_another_key_is_refused(ends: tuple[End, End]) -> None:
    owner, other = ends
    before = other.content
    assert other.read(owner, 0, SIZE, key=f"{int(owner.key, 16) ^ 1:x}") == "remote access error"
    assert other.content == before


def test_what_lies_beyond_the_memory_is_refused(ends: tuple[End, End]) -> None:
    owner, other = ends
    assert (
        other.ask("read", f"{int(owner.address, 16) + SIZE:x}", owner.key, "0", "1") == "remote access error"
    )


def test_an_owner_that_was_killed_is_an_error(ends: tuple[End, End]) -> None:
    owner, other = ends
    owner.kill()
    assert other.read(owner, 0, 1) == "transport retry counter exceeded"


def test_an_owner_beyond_a_cut_wire_is_an_error(ends: tuple[End, End]) -> None:
    owner, other = ends
    with cut_wire():
        assert other.read(owner, 0, 1) == "transport retry counter exceeded"
