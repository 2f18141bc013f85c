"""Fetching from a host whose files change meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from milkweed.runtime.errors import Conflict, MilkweedError
from milkweed.runtime.fetching import CHUNK, fetch
from milkweed.runtime.file_records import FileChunk, FileEntry, FileListing

pytestmark = pytest.mark.anyio

DATA = bytes(range(256)) * (CHUNK // 128)


@dataclass
class OneFile:
    """A host with `/w/a.pt`, which is written again after `changes_after` bytes were read of it."""

    changes_after: int

    async def list_files(
        self, path: str, *, hosts: Sequence[int] | None = None, pattern: str | None = None, limit: int = 200
    ) -> dict[int, FileListing | MilkweedError]:
        entry = FileEntry("a.pt", "file", len(DATA), 1.0)
        return dict.fromkeys(hosts or (0,), FileListing("/w/a.pt", (entry,), directory=False))

    async def file_chunk(self, path: str, *, host: int, offset: int, length: int) -> FileChunk:
        modified_at = 1.0 if offset < self.changes_after else 2.0
        return FileChunk(offset, DATA[offset : offset + length], len(DATA), modified_at)


async def report(done: float, total: float | None, message: str) -> None:
    return None


async def test_a_file_that_stays_as_it_is_arrives_whole(tmp_path: Path) -> None:
    source = OneFile(changes_after=2 * len(DATA))
    (fetched,) = await fetch(source, "a.pt", hosts=(3,), destination=str(tmp_path), report=report)
    assert (tmp_path / "3" / "a.pt").read_bytes() == DATA
    assert (fetched.destination, fetched.size) == (str(tmp_path / "3" / "a.pt"), len(DATA))


@pytest.mark.parametrize("changes_after", [CHUNK, len(DATA)], ids=["half way", "at the end"])
async def test_a_file_that_changes_while_it_is_read_is_refused_and_not_there(
    tmp_path: Path, changes_after: int
) -> None:
    with pytest.raises(Conflict, match=r"file_changed: .*a\.pt on host 3 changed"):
        await fetch(OneFile(changes_after), "a.pt", hosts=(3,), destination=str(tmp_path), report=report)
    assert not (tmp_path / "3" / "a.pt").exists()
