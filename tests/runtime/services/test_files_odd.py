"""Names that cannot be printed, entries that cannot be looked at, numbers that are too large."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from milkweed.runtime.errors import InvalidArgument, NotFound
from milkweed.runtime.services.files import Files

pytestmark = pytest.mark.anyio


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
