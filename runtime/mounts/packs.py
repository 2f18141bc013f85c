"""Small versions that came together, kept together in one file: to make a file for each takes longer than to
fetch it. Blocks, briefly.

A pack is numbers (how many versions; the version and size of each), then their bytes. It is trusted in a
later life if its size is what the numbers say.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from .source import Bytes

__all__ = ["MOST_PACKED", "Packs", "batches"]

MOST_PACKED: Final = 4 * 1024 * 1024
"""Bytes of the versions in one pack."""
_MOST_VERSIONS = 512
_NUMBER = 8
_BITS = 24
_MASK = (1 << _BITS) - 1

T = TypeVar("T")


def batches(sized: Sequence[tuple[T, int]], most: int) -> list[list[T]]:
    """What goes into one pack each, in order: so many bytes, but for one that is larger alone."""
    made: list[list[T]] = []
    room = 0
    for one, size in sized:
        if not made or size > room or len(made[-1]) == _MOST_VERSIONS:
            made.append([])
            room = min(most, MOST_PACKED)
        made[-1].append(one)
        room -= size
    return made


class Packs:
    """A directory of packs. One thread calls all but `write`."""

    def __init__(self, directory: str) -> None:
        """Those that an earlier life left are known at once; what it did not finish is removed.

        Raises:
            OSError: it cannot be made.
        """
        self._directory = directory
        self._places: dict[
            int, int
        ] = {}  # of a version: its pack, offset and size in one number, to be small
        self._bytes: dict[int, tuple[int, int]] = {}  # of a pack: of versions that are still there, of all
        os.makedirs(directory, mode=0o700, exist_ok=True)
        numbers = sorted(int(name) for name in os.listdir(directory) if name.isdecimal())
        self._next = numbers[-1] + 1 if numbers else 0
        for number in numbers:
            versions = self._read(number)
            if versions:
                self.add(number, versions)
            else:
                self._unlink(number)

    def sizes(self) -> Iterator[tuple[int, int]]:
        return ((version, place & _MASK) for version, place in tuple(self._places.items()))

    def has(self, version: int, size: int) -> bool:
        place = self._places.get(version)
        return place is not None and place & _MASK == size

    def number(self) -> int:
        """For the next pack."""
        self._next += 1
        return self._next - 1

    def write(self, number: int, contents: Sequence[tuple[int, Bytes]]) -> None:
        """The file of a pack, in any thread. It is not known before it is added.

        Raises:
            OSError: the disk is full.
        """
        numbers = array("Q", [len(contents)])
        for version, data in contents:
            numbers.extend((version, len(data)))
        path = self._path(number)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            size = len(numbers) * _NUMBER + sum(len(data) for _, data in contents)
            if os.writev(fd, [numbers, *(data for _, data in contents)]) != size:
                raise OSError(28, "no room for all of it")
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(fd)

    def add(self, number: int, versions: Sequence[tuple[int, int]]) -> None:
        """A pack that was written, with the sizes of its versions in the order in which they were."""
        first = at = (1 + 2 * len(versions)) * _NUMBER
        there = 0
        for version, size in versions:
            if version not in self._places:  # another pack has the same bytes
                self._places[version] = number << 2 * _BITS | at << _BITS | size
                there += size
            at += size
        self._bytes[number] = (there, at - first)
        if not there:
            self._give_up(number)

    def open(self, version: int) -> tuple[int, int]:
        """A descriptor, and where the version begins in it.

        Raises:
            OSError: it is not there any more.
        """
        place = self._places.get(version)
        if place is None:
            raise FileNotFoundError(version)
        return os.open(self._path(place >> 2 * _BITS), os.O_RDONLY | os.O_CLOEXEC), place >> _BITS & _MASK

    def remove(self, version: int) -> list[tuple[int, bytes]]:
        """Gives a pack up when it is for the most part of versions that went: what else was in it."""
        place = self._places.pop(version, None)
        if place is None:
            return []
        number = place >> 2 * _BITS
        there, total = self._bytes[number]
        there -= place & _MASK
        self._bytes[number] = (there, total)
        if 2 * there >= total and there:
            return []
        return self._give_up(number)

    def _give_up(self, number: int) -> list[tuple[int, bytes]]:
        left = []
        if self._bytes[number][0]:
            named = [version for version, _ in self._read(number)] or list(self._places)  # all: it was cut
            for version in [one for one in named if self._places.get(one, -1) >> 2 * _BITS == number]:
                with suppress(OSError):
                    fd, at = self.open(version)
                    try:
                        left.append((version, os.pread(fd, self._places[version] & _MASK, at)))
                    finally:
                        os.close(fd)
                del self._places[version]
        del self._bytes[number]
        self._unlink(number)
        return left

    def _read(self, number: int) -> list[tuple[int, int]]:
        """Versions and sizes; none where that is no whole pack."""
        with (
            suppress(OSError, ValueError, IndexError),
            open(self._path(number), "rb", buffering=0) as file,
        ):
            numbers = array("Q")
            numbers.frombytes(file.read(_NUMBER))
            if 0 < numbers[0] <= _MOST_VERSIONS:
                numbers.frombytes(file.read(2 * _NUMBER * numbers[0]))
            size = len(numbers) * _NUMBER + sum(numbers[2::2])
            if len(numbers) == 1 + 2 * numbers[0] and os.fstat(file.fileno()).st_size == size:
                return list(zip(numbers[1::2], numbers[2::2], strict=True))
        return []

    def _unlink(self, number: int) -> None:
        with suppress(OSError):
            os.unlink(self._path(number))

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number}"
