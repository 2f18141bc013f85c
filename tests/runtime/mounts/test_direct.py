from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.mounts.direct import NOWHERE, open_direct, write

_BLOCK = 4096


class _File:
    """One file, open twice."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self.direct = open_direct(str(path))

    def close(self) -> None:
        for fd in {self.fd, self.direct} - {NOWHERE}:
            os.close(fd)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[_File]:
    made = _File(tmp_path / "file")
    yield made
    made.close()


def memory(data: bytes) -> memoryview:
    """It begins at a page."""
    mapping = mmap.mmap(-1, max(1, len(data)))
    mapping.write(data)
    return memoryview(mapping)[: len(data)]


@given(
    start=st.one_of(st.just(0), st.integers(0, 3).map(lambda n: n * _BLOCK), st.integers(0, 3 * _BLOCK)),
    skipped=st.one_of(st.just(0), st.integers(0, 600)),
    length=st.integers(0, 3 * _BLOCK),
    is_plain=st.booleans(),
)
def test_what_was_written_is_there_however_it_lies(
    tmp_path_factory: pytest.TempPathFactory, start: int, skipped: int, length: int, is_plain: bool
) -> None:
    file = _File(tmp_path_factory.mktemp("direct") / "file")
    data = os.urandom(skipped + length)
    try:
        view = memory(data)[skipped:]
        write(file.fd, file.direct, start, data[skipped:] if is_plain else view)
        assert os.pread(file.fd, length, start) == data[skipped:]
        assert os.fstat(file.fd).st_size == (start + length if length else 0)
    finally:
        file.close()


def test_where_a_file_system_has_no_such_writes_they_are_plain(tmp_path: Path, file: _File) -> None:
    write(file.fd, NOWHERE, 0, memory(b"x" * _BLOCK))
    assert file.path.read_bytes() == b"x" * _BLOCK
    assert open_direct(str(tmp_path / "absent")) == NOWHERE


def test_what_a_direct_write_refuses_is_written_plainly(file: _File) -> None:
    reading = os.open(file.path, os.O_RDONLY)
    try:
        write(file.fd, reading, 0, memory(b"y" * _BLOCK))
    finally:
        os.close(reading)
    assert file.path.read_bytes() == b"y" * _BLOCK


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, file: _File) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space"):
            write(file.fd, file.direct, 0, memory(b"z" * _BLOCK))


def test_the_page_cache_is_passed_by_where_it_can_be(monkeypatch: pytest.MonkeyPatch, file: _File) -> None:
    direct = os.dup(file.fd) if file.direct == NOWHERE else os.dup(file.direct)
    used: list[tuple[int, int]] = []
    real = os.pwrite

    def noted(fd: int, data: memoryview, at: int) -> int:
        used.append((fd, len(data)))
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", noted)
    try:
        write(file.fd, direct, 0, memory(b"x" * (2 * _BLOCK + 5)))
    finally:
        with suppress(OSError):
            os.close(direct)
    assert used == [(direct, 2 * _BLOCK), (file.fd, 5)]
