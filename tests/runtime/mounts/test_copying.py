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
        copy = Copy(remote, stage.directory / "copy", stage.directory / "record", remote.kept)
        await copy.begin()
        tasks.start_soon(copy.follow)
        yield copy


async def test_a_directory_that_went_and_came_back_unnoticed_is_whole(directory: Path) -> None:
    def fill(source: Path) -> None:
        (source / "d").mkdir()
        write(source / "d" / "x", "content")

    async with staged(directory, fill=fill) as stage, open_remote(stage.socket, "copy") as remote:
        copy = Copy(remote, directory / "copy", directory / "record")
        await copy.begin()
        for before, after in (("d", "e"), ("e", "d")):  # both in one delta, since nobody follows yet
            os.rename(stage.source / before, stage.source / after)
            await stage.workspace.barrier()
        async with background_tasks() as tasks:
            tasks.start_soon(copy.follow)
            await _caught_up(stage)
            assert _tree(directory / "copy") == _tree(stage.source)


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


async def test_a_later_life_copies_what_changed_and_leaves_what_the_host_did(directory: Path) -> None:
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
        write(directory / "copy" / "f4", "the host's words")
        await stage.workspace.barrier()
        async with copied(stage) as copy:
            shutil.copy2(stage.source / "f3", directory / "copy" / "f3")
            assert read(directory / "copy" / "f4") == b"the host's words"
            shutil.copy2(stage.source / "f4", directory / "copy" / "f4")
            assert _tree(directory / "copy") == _tree(stage.source)
            assert copy.copied_files == 2
        shutil.rmtree(directory / "copy")
        async with copied(stage):
            assert _tree(directory / "copy") == _tree(stage.source)
        assert stage.followers.take_kept("copy") == ()


async def test_the_client_wins_in_a_copy_and_what_the_host_had_is_kept(directory: Path) -> None:
    def fill(source: Path) -> None:
        (source / "d").mkdir()
        for name in ("a", "b", "c", "same", "d/x", "d/y"):
            write(source / name, "first")
        os.symlink("a", source / "link")

    async with staged(directory, fill=fill) as stage, copied(stage):
        copy, source = directory / "copy", stage.source
        write(copy / "a", "of the host")
        write(copy / "made", "of the host")
        write(copy / "same", "the same")
        write(copy / "d" / "x", "of the host")
        write(copy / "d" / "own", "of the host")
        write(copy / "stays", "of the host")
        (copy / "b").unlink()
        (copy / "c").unlink()
        (copy / "link").unlink()
        write(copy / "link", "of the host")
        (copy / "folder").mkdir()
        write(copy / "folder" / "in it", "of the host")
        for name in ("a", "b", "made", "folder"):
            write(source / name, "edited")
        write(source / "same", "the same")
        (source / "link").unlink()
        os.symlink("b", source / "link")
        shutil.rmtree(source / "d")
        await _caught_up(stage)
        assert sorted(stage.followers.take_kept("copy")) == [
            (b"a", b"a.host-copy"),
            (b"b", b""),
            (b"d/x", b"d/x.host-copy"),
            (b"folder", b"folder.host-copy"),
            (b"link", b"link.host-copy"),
            (b"made", b"made.host-copy"),
        ]
        for name in ("a", "b", "made", "folder"):
            assert read(copy / name) == b"edited"
        assert os.readlink(copy / "link") == "b"
        assert sorted(os.listdir(copy / "d")) == ["own", "x.host-copy"]
        for name in ("a.host-copy", "made.host-copy", "link.host-copy", "folder.host-copy/in it", "stays"):
            assert read(copy / name) == b"of the host"
        assert not (copy / "c").exists()


async def test_a_folder_that_the_host_removed_from_a_copy_or_replaced_comes_back(directory: Path) -> None:
    def fill(source: Path) -> None:
        for folder in ("d/e", "f/g"):
            (source / folder).mkdir(parents=True)
            write(source / folder / "x", "first")
            write(source / folder / "y", "first")

    async with staged(directory, fill=fill) as stage, copied(stage):
        root = directory / "copy"
        shutil.rmtree(root / "d")
        shutil.rmtree(root / "f" / "g")
        write(root / "f" / "g", "of the host")
        for folder in ("d/e", "f/g"):
            write(stage.source / folder / "x", "second")
        await _caught_up(stage)
        for folder in ("d/e", "f/g"):
            assert os.listdir(root / folder) == ["x"]
        kept = [(b"d/e/x", b""), (b"f/g", b"f/g.host-copy"), (b"f/g/x", b"")]
        assert sorted(stage.followers.take_kept("copy")) == kept
        assert read(root / "f" / "g.host-copy") == b"of the host"


async def test_what_the_host_wrote_into_a_copy_is_counted_and_discarded(directory: Path) -> None:
    def fill(source: Path) -> None:
        (source / "d" / "e").mkdir(parents=True)
        for name in ("a", "b", "d/e/x"):
            write(source / name, "first")

    async with staged(directory, fill=fill) as stage, copied(stage) as copy:
        root = directory / "copy"
        before = _tree(root)
        assert await copy.usage() == (0, 0)
        write(root / "a", "changed")
        (root / "b").unlink()
        shutil.rmtree(root / "d")
        (root / "made" / "in").mkdir(parents=True)
        write(root / "made" / "in" / "it", "12345")
        write(root / "made" / "kept", "123")
        assert await copy.usage() == (3, 15)
        assert await copy.discard([b"made/kept"]) == (2, 12)
        assert _tree(root).keys() - before.keys() == {b"made", b"made/kept"}
        assert await copy.discard([]) == (1, 3)
        assert _tree(root) == before
        write(stage.source / "a", "later")
        await _caught_up(stage)
        assert stage.followers.take_kept("copy") == ()
        assert _tree(root) == _tree(stage.source)


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
