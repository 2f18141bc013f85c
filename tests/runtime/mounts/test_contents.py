"""Bytes of one version or none, whatever is done to the file meanwhile."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from milkweed.runtime.mounts.contents import read_version, tick_s
from milkweed.runtime.mounts.excludes import Rules
from milkweed.runtime.mounts.manifest import FileRef
from milkweed.runtime.mounts.scanning import Place
from milkweed.runtime.mounts.source import Gone
from milkweed.runtime.mounts.versions import version_of

from .stage import replace_as_editors_do, write

_SIZE = 300_000


def _place(root: Path) -> Place:
    return Place(os.fsencode(root), os.stat(root).st_dev, Rules())


@pytest.mark.parametrize("tick", [0.0, 0.012])
def test_versions_that_are_written_over_all_the_time_are_never_mixed(tmp_path: Path, tick: float) -> None:
    """Each version is one letter; whatever was read of one version number is one letter for ever."""
    if not tick and tick_s("ext4", os.uname().release):
        pytest.skip("this kernel needs its tick waited out")
    path = tmp_path / "a"
    write(path, b"a" * _SIZE)
    stop = threading.Event()

    def rewrite() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            data = bytes([97 + number % 26]) * _SIZE
            if number % 2:
                with open(path, "r+b") as file:
                    file.write(data)
            else:
                replace_as_editors_do(path, data)
            if tick:
                stop.wait(3 * tick)

    letters: dict[int, set[bytes]] = {}
    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        tries = good = 0
        while good < 100 and tries < 20_000:
            tries += 1
            try:
                found = os.stat(path)
                file = FileRef(b"a", version_of(found), found.st_size)
                data = read_version(_place(tmp_path), file, 0, _SIZE, tick)
            except Gone:
                continue
            good += 1
            letters.setdefault(file.version, set()).update(
                {data[:1], data[-1:], data[_SIZE // 2 : _SIZE // 2 + 1]}
            )
            assert data.count(data[:1]) == _SIZE or _is_half_written(data)
    finally:
        stop.set()
        writer.join()
    assert good >= 100
    assert all(len(found) <= 2 for found in letters.values())


@pytest.mark.parametrize("moment", ["before", "between", "after"])
@pytest.mark.parametrize("change", ["in place", "renamed", "removed", "truncated"])
def test_what_changes_while_it_is_read_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, change: str
) -> None:
    """Before the first byte was read, between the halves of the file, after the last byte."""
    path = tmp_path / "a"
    write(path, b"a" * _SIZE)
    real, changed = os.pread, [False]

    def harm() -> None:
        if changed[0]:
            return
        changed[0] = True
        if change == "in place":
            with open(path, "r+b") as file:
                file.write(b"b" * _SIZE)
        elif change == "renamed":
            replace_as_editors_do(path, b"b" * _SIZE)
        elif change == "removed":
            path.unlink()
        else:
            os.truncate(path, 10)

    def pread(fd: int, length: int, offset: int) -> bytes:
        if moment == "before":
            harm()
        data = real(fd, length if moment == "after" else max(1, length // 2), offset)
        harm()
        return data

    found = os.stat(path)
    file = FileRef(b"a", version_of(found), found.st_size)
    assert read_version(_place(tmp_path), file, 0, _SIZE, 0.012) == b"a" * _SIZE
    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(Gone):
        read_version(_place(tmp_path), file, 0, _SIZE, 0.012)
    assert changed[0]


def _is_half_written(data: bytes) -> bool:
    """What stood in the file at one moment, when it was written in place."""
    first, last = data[:1], data[-1:]
    return data == first * data.count(first) + last * data.count(last)


def test_a_tick_is_waited_out_where_the_file_system_has_one() -> None:
    assert tick_s("ext4", "6.18.44-generic") == 0.0
    assert tick_s("tmpfs", "7.0") == 0.0
    assert tick_s("ext4", "6.1.0-debian") > 0.01
    assert tick_s("nfs4", "6.18") > 0.01
    assert tick_s("ext4", "unknown") > 0.01
