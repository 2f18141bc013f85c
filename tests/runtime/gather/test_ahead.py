"""What is fetched of a file, for what is read of it."""

from __future__ import annotations

import errno
import itertools

import pytest

from milkweed.runtime.gather.ahead import PIECE, Ahead

pytestmark = pytest.mark.anyio

_KIB = 1024
_PATTERN = bytes(range(251)) * 1000


class File:
    """Notes what is fetched of it."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fetched: list[tuple[int, int]] = []
        self.fails = False
        repeats = -(-size // len(_PATTERN))
        self.data = (_PATTERN * repeats)[:size]

    async def fetch(self, offset: int, length: int) -> bytes:
        if self.fails:
            raise OSError(errno.EIO, "gone")
        self.fetched.append((offset, length))
        return self.data[offset : offset + length]

    @property
    def bytes_fetched(self) -> int:
        return sum(len(self.data[offset : offset + length]) for offset, length in self.fetched)


async def test_a_read_somewhere_moves_what_it_asks_for() -> None:
    file = File(64 * PIECE)
    ahead = Ahead(file.fetch, 1.0)
    for offset in (0, 50 * PIECE + 4096, 3 * PIECE, 40 * PIECE, 7 * PIECE):
        assert await ahead.read(offset, 4096, file.size) == file.data[offset : offset + 4096]
    assert [length for _, length in file.fetched] == [4096] * 5
    await ahead.close()


@pytest.mark.parametrize("step", [4 * _KIB, 128 * _KIB, 1024 * _KIB, 768 * _KIB])
async def test_a_file_that_is_read_in_order_arrives_whole_and_once_in_pieces(step: int) -> None:
    file = File(8 * PIECE + 12_345)
    ahead = Ahead(file.fetch, 60.0)
    found = b"".join(
        [bytes(await ahead.read(offset, step, file.size)) for offset in range(0, file.size, step)]
    )
    assert found == file.data
    await ahead.close()
    assert file.bytes_fetched <= file.size + PIECE
    assert len(file.fetched) < file.size // PIECE + 2 * PIECE // step


async def test_the_end_of_a_file_that_grows_is_read_each_time() -> None:
    file = File(2 * PIECE)
    ahead = Ahead(file.fetch, 60.0)
    for offset in range(0, file.size, 128 * _KIB):
        await ahead.read(offset, 128 * _KIB, file.size)
    end = file.size
    assert await ahead.read(end, 4096, file.size) == b""
    for size in itertools.accumulate([100] * 5):
        file.data = file.data[:end] + b"x" * size
        assert await ahead.read(end, 4096, file.size + size) == b"x" * size
    await ahead.close()


async def test_what_was_fetched_before_its_life_is_not_believed() -> None:
    file = File(8 * PIECE)
    ahead = Ahead(file.fetch, 0.0)
    for offset in range(0, PIECE, 128 * _KIB):
        await ahead.read(offset, 128 * _KIB, file.size)
    file.data = b"y" * file.size
    assert await ahead.read(PIECE, 4096, file.size) == b"y" * 4096
    await ahead.close()


async def test_a_failure_is_told_and_the_next_read_tries_again() -> None:
    file = File(8 * PIECE)
    ahead = Ahead(file.fetch, 60.0)
    for offset in range(0, 1024 * _KIB, 128 * _KIB):
        await ahead.read(offset, 128 * _KIB, file.size)
    file.fails = True
    with pytest.raises(OSError, match="gone"):
        await ahead.read(7 * PIECE, 4096, file.size)
    file.fails = False
    assert await ahead.read(7 * PIECE, 4096, file.size) == file.data[7 * PIECE : 7 * PIECE + 4096]
    await ahead.close()
