"""Digests and chunks of files, and file systems that hang."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.context import HostContext
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.services import files as files_module
from milkweed.runtime.services.files import Files

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024


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
            with pytest.raises(Unavailable, match="deadline_exceeded"):
                await files.digest("a")
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
