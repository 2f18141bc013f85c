"""Mode `copy`: a directory of its own that is always as the source is."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.mounts import Copy, open_remote
from milkweed.runtime.tasks import background_tasks

from .stage import Stage, names_of_every_kind, read, replace_as_editors_do, staged, write

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def copied(stage: Stage) -> AsyncIterator[Copy]:
    """A copy in `copy`, followed as `copy`."""
    async with open_remote(stage.socket, "copy") as remote, background_tasks() as tasks:
        copy = Copy(remote, stage.directory / "copy", stage.directory / "record")
        await copy.begin()
        tasks.start_soon(copy.follow)
        yield copy


async def _caught_up(stage: Stage) -> None:
    revision = await stage.workspace.barrier()
    assert await stage.followers.acknowledged(revision, ["copy"], within_s=30.0) == []


def _tree(root: Path) -> dict[bytes, tuple[object, ...]]:
    found: dict[bytes, tuple[object, ...]] = {}
    base = os.fsencode(root)
    for folder, folders, names in os.walk(base):
        for name in folders + names:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            content = os.readlink(path) if os.path.islink(path) else b"" if name in folders else read(path)
            found[os.path.relpath(path, base)] = (status.st_mode, content)
    return found


async def test_a_copy_is_made_and_kept_up(directory: Path) -> None:
    def fill(source: Path) -> None:
        for name in names_of_every_kind():
            write(os.fsencode(source) + b"/" + name, name)
        (source / "d" / "e").mkdir(parents=True)
        write(source / "d" / "e" / "big", os.urandom(9_000_000))
        write(source / "run", "#!/bin/sh")
        (source / "run").chmod(0o755)
        os.symlink("d/e", source / "link")
        write(source / "empty", "")

    async with staged(directory, fill=fill) as stage, copied(stage) as copy:
        assert _tree(directory / "copy") == _tree(stage.source)
        assert os.stat(directory / "copy" / "run").st_mtime_ns == os.stat(stage.source / "run").st_mtime_ns
        replace_as_editors_do(stage.source / "plain.txt", "edited")
        (stage.source / "empty").unlink()
        (stage.source / "empty").mkdir()
        os.rename(stage.source / "d", stage.source / "renamed")
        (stage.source / "link").unlink()
        write(stage.source / "link", "a file now")
        (stage.source / "run").chmod(0o700)
        await _caught_up(stage)
        assert _tree(directory / "copy") == _tree(stage.source)
        assert copy.manifest == stage.workspace.manifest


async def test_a_copy_follows_whatever_is_done(directory: Path) -> None:
    chance = random.Random(11)
    async with staged(directory) as stage, copied(stage):
        for _ in range(30):
            for _ in range(chance.randrange(8)):
                path = stage.source.joinpath(*(chance.choice("abc") for _ in range(chance.randrange(1, 4))))
                match chance.randrange(4):
                    case 0:
                        with suppress(OSError):
                            path.mkdir(parents=True)
                    case 1 if path.parent.is_dir() and not path.is_dir():
                        write(path, str(chance.random()))
                    case 2:
                        subprocess.run(["rm", "-rf", path], check=False, capture_output=True)
                    case 3 if path.parent.is_dir() and not path.exists() and not path.is_symlink():
                        os.symlink("nowhere", path)
            await _caught_up(stage)
            assert _tree(directory / "copy") == _tree(stage.source)


async def test_a_later_life_copies_what_changed_and_mends_what_was_harmed(directory: Path) -> None:
    def fill(source: Path) -> None:
        for number in range(50):
            write(source / f"f{number}", f"{number}")

    async with staged(directory, fill=fill) as stage:
        async with copied(stage) as copy:
            assert copy.copied_files == 50
        write(stage.source / "f1", "changed while nobody copied")
        (stage.source / "f2").unlink()
        write(stage.source / "new", "n")
        (directory / "copy" / "f3").unlink()
        write(directory / "copy" / "f4", "somebody else's words")
        await stage.workspace.barrier()
        async with copied(stage) as copy:
            assert _tree(directory / "copy") == _tree(stage.source)
            assert copy.copied_files == 4
        shutil.rmtree(directory / "copy")
        async with copied(stage):
            assert _tree(directory / "copy") == _tree(stage.source)


async def test_a_copied_file_is_replaced_in_one_step(directory: Path) -> None:
    size = 6_000_000
    async with (
        staged(directory, fill=lambda source: write(source / "a", b"1" * size)) as stage,
        copied(stage),
    ):
        with open(directory / "copy" / "a", "rb") as before:
            write(stage.source / "a", b"2" * size)
            await _caught_up(stage)
            assert before.read() == b"1" * size
        assert read(directory / "copy" / "a") == b"2" * size
        assert sorted(os.listdir(directory / "copy")) == ["a"]


async def test_two_versions_in_a_copy_never_share_a_second(directory: Path) -> None:
    async with staged(directory, fill=lambda source: write(source / "a", "0")) as stage, copied(stage):
        seconds = {int(os.stat(directory / "copy" / "a").st_mtime)}
        for number in range(1, 6):
            write(stage.source / "a", str(number))
            await _caught_up(stage)
            seconds.add(int(os.stat(directory / "copy" / "a").st_mtime))
        assert len(seconds) == 6


async def test_files_that_change_while_they_are_copied_end_as_they_are(directory: Path) -> None:
    async with staged(directory) as stage, copied(stage):
        for number in range(100):
            write(stage.source / f"f{number % 7}", str(number) * 10_000)
            if number % 10 == 0:
                await anyio.sleep(0.002)
        await _caught_up(stage)
        assert _tree(directory / "copy") == _tree(stage.source)
