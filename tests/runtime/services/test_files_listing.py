"""Listing directories of every size and kind."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from milkweed.runtime.services.files import Files

pytestmark = pytest.mark.anyio


async def test_entries_are_sorted_and_say_what_they_are(files: Files, work: Path) -> None:
    (work / "b.txt").write_text("hello")
    (work / "a").mkdir()
    (work / "link").symlink_to("b.txt")
    os.mkfifo(work / "pipe")

    listing = await files.list(".")

    assert [(entry.name, entry.kind) for entry in listing.entries] == [
        ("a", "directory"),
        ("b.txt", "file"),
        ("link", "link"),
        ("pipe", "fifo"),
    ]
    assert listing.entries[1].size == 5
    assert listing.entries[1].modified_at == pytest.approx(time.time(), abs=3600)
    assert listing.entries[2].target == "b.txt"
    assert (listing.path, listing.left_out, listing.note) == (str(work), 0, "")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.pt", ["b.pt"]),
        ("runs/*", ["runs/1"]),
        ("runs/*/*.log", ["runs/1/a.log"]),
        ("**/*.log", ["runs/1/a.log", "top.log"]),
        ("runs/**", ["runs/1", "runs/1/a.log"]),
        ("**", ["b.pt", "runs", "runs/1", "runs/1/a.log", "top.log"]),
        ("[bt]*", ["b.pt", "top.log"]),
        ("nothing", []),
        ("./*.log", ["top.log"]),
    ],
)
async def test_a_pattern_chooses_entries(files: Files, work: Path, pattern: str, names: list[str]) -> None:
    (work / "runs/1").mkdir(parents=True)
    for name in ("runs/1/a.log", "top.log", "b.pt"):
        (work / name).touch()
    (work / "b.pt").unlink()
    (work / "b.pt").symlink_to("runs")

    assert [entry.name for entry in (await files.list(".", pattern)).entries] == names


@pytest.mark.timeout(60)
async def test_a_directory_of_100_000_entries_is_listed_fast_and_bounded(
    files: Files, work: Path, full_size: bool
) -> None:
    count = 100_000 if full_size else 20_000
    directory = work / "many"
    directory.mkdir()
    for number in range(count):
        os.close(os.open(directory / f"{number:06d}", os.O_CREAT | os.O_WRONLY))

    listing = await files.list("many", limit=10)

    assert [entry.name for entry in listing.entries] == [f"{number:06d}" for number in range(10)]
    assert listing.left_out == count - 10
    shutil.rmtree(directory)


async def test_a_file_is_listed_as_itself_and_a_link_to_a_directory_as_its_entries(
    files: Files, work: Path
) -> None:
    (work / "d").mkdir()
    (work / "d/x").touch()
    (work / "link").symlink_to("d")
    assert [entry.name for entry in (await files.list("d/x")).entries] == ["x"]
    assert [entry.name for entry in (await files.list("link")).entries] == ["x"]
