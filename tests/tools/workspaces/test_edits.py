"""What is edited here is what the next run has, on every host, whatever was done and however fast."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes

from .stage import shown, told

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(400)]

MAIN = """
import sys
import part, package.inner
found = [part.VALUE, package.inner.VALUE, open("data.txt").read()]
sys.exit(found != sys.argv[1:] and f"{found}, and not {sys.argv[1:]}")
"""


class Edits:
    """One edit a round: of a module that is imported, of one of a package, or of data."""

    def __init__(self, directory: Path) -> None:
        self._chance = random.Random(5)
        self._directory = directory
        self._files = [directory / "part.py", directory / "package" / "inner.py", directory / "data.txt"]
        self._values = ["10000"] * 3
        (directory / "package").mkdir()
        (directory / "package" / "__init__.py").touch()
        (directory / "main.py").write_text(MAIN)
        for which in range(3):
            self._write(which)

    def _write(self, which: int) -> None:
        value = self._values[which]
        text = value if which == 2 else f"VALUE = '{value}'\n"
        file = self._files[which]
        way = self._chance.randrange(5)
        if way == 0:
            file.write_text(text)
        elif way == 1:  # as most editors do
            (fresh := file.with_name(f".{file.name}.swp")).write_text(text)
            fresh.rename(file)
        elif way == 2:
            file.unlink(missing_ok=True)
            file.write_text(text)
        elif way == 3:
            with file.open("r+" if file.exists() else "w") as opened:
                opened.write(text)
                opened.truncate()
        else:
            file.write_text(text)
            os.utime(file, (1_700_000_000, 1_700_000_000))  # the same as the last time it came here

    def next(self, number: int) -> list[str]:
        """Edits one file; what the program is to find. Every other edit keeps size and, mostly, second."""
        which = number % 2 and self._chance.randrange(1, 3)
        self._values[which] = f"{10_001 + number}" + "x" * (number % 2 * self._chance.randrange(9))
        self._write(which)
        return self._values


@pytest.mark.parametrize(
    ("place", "rounds"), [("mount", 500), ("isolated", 60), ("copy", 60)], indirect=["place"]
)
async def test_every_run_after_an_edit_has_it_on_every_host(
    real: Meshes, place: str, rounds: int, tmp_path: Path, full_size: bool
) -> None:
    """Compiled modules are written below a directory of the host, where all of them would be taken for fresh
    if two versions of a file had the same time and size."""
    compiled = tmp_path / "compiled"
    directory = tmp_path / "ws"
    directory.mkdir()
    edits = Edits(directory)
    async with shown(real, place, directory) as mesh:
        for number in range(500 if full_size else rounds):
            expected = edits.next(number)
            run = await mesh.run("python", "main.py", *expected, env={"PYTHONPYCACHEPREFIX": str(compiled)})
            assert run.state == "succeeded", f"round {number}: {told(run)}"
    assert len(list(compiled.rglob("part.*.pyc"))) >= 1


COUNT = """
import os
def contents():
    for top, _, names in os.walk("."):
        for name in names:
            with open(os.path.join(top, name)) as file:
                yield file.read()
print(*sorted({(word, found.count(word)) for found in [list(contents())] for word in found}))
"""


@pytest.mark.parametrize("place", ["mount", "copy"], indirect=True)
async def test_a_checkout_of_two_thousand_files_is_whole_in_the_next_run(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(branch: str, word: str) -> None:
        git("checkout", "-qb", branch)
        for number in range(2000):
            file = tmp_path / f"d{number % 20}" / f"f{number}"
            file.parent.mkdir(exist_ok=True)
            file.write_text(word)
        (tmp_path / f"only-in-{branch}").write_text(word)
        git("add", "-A")
        git("commit", "-qm", word)

    git("init", "-q")
    commit("one", "old")
    (tmp_path / "only-in-one").unlink()
    commit("two", "new")
    async with shown(real, place, tmp_path) as mesh:
        assert await mesh.python("import os; print(open('d7/f7').read(), len(os.listdir('d7')))") == "new 100"
        git("checkout", "-q", "one")
        assert await mesh.python(COUNT) == "('old', 2001)"


@pytest.mark.parametrize("place", ["mount", "copy"], indirect=True)
async def test_a_directory_that_is_made_and_filled_at_once_is_there(
    real: Meshes, place: str, tmp_path: Path
) -> None:
    async with shown(real, place, tmp_path) as mesh:
        for round_ in range(3):
            for number in range(20):
                inner = tmp_path / f"new{round_}" / f"{number}" / "deep" / "er"
                inner.mkdir(parents=True)
                (inner / "f").write_text("new")
            assert await mesh.python(COUNT) == f"('new', {20 * (round_ + 1)})"


READS = """
import os, sys
def words(top="."):
    for name in sorted(os.listdir(top)):
        path = os.path.join(top, name)
        mode = os.lstat(path).st_mode & 0o7777
        if os.path.islink(path):
            yield f"{name}->{os.readlink(path)}"
        elif os.path.isdir(path):
            yield f"{name}/"
            yield from words(path)
        else:
            yield f"{name}:{mode:o}:{open(path).read()}"
print(" ".join(words()))
"""


@pytest.mark.parametrize("place", ["mount", "copy"], indirect=True)
async def test_every_kind_of_change_is_in_the_next_run(real: Meshes, place: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first")
    (tmp_path / "a").chmod(0o644)
    (tmp_path / "d").mkdir()

    def editor() -> None:
        (tmp_path / "a~").write_text("edited")
        (tmp_path / "a~").rename(tmp_path / "a")

    async with shown(real, place, tmp_path) as mesh:
        assert await mesh.python(READS) == "a:644:first d/"
        for change, expected in changes(tmp_path, editor):
            change()
            assert await mesh.python(READS) == expected


def changes(at: Path, editor: Callable[[], None]) -> list[tuple[Callable[[], object], str]]:
    def other_link() -> None:
        (at / "l").unlink()
        (at / "l").symlink_to("gone")

    def directory_for_a_link() -> None:
        (at / "l").unlink()
        (at / "l").mkdir()

    def file_for_a_directory() -> None:
        (at / "e" / "b").unlink()
        (at / "e").rmdir()
        (at / "e").write_text("now")

    return [
        (lambda: (at / "a").write_text("other"), "a:644:other d/"),
        (lambda: os.truncate(at / "a", 2), "a:644:ot d/"),
        (editor, "a:644:edited d/"),
        (lambda: (at / "a").chmod(0o755), "a:755:edited d/"),
        (lambda: (at / "a").rename(at / "d" / "b"), "d/ b:755:edited"),
        (lambda: (at / "d").rename(at / "e"), "e/ b:755:edited"),
        (lambda: (at / "l").symlink_to("e/b"), "e/ b:755:edited l->e/b"),
        (other_link, "e/ b:755:edited l->gone"),
        (directory_for_a_link, "e/ b:755:edited l/"),
        (file_for_a_directory, "e:644:now l/"),
        ((at / "e").unlink, "l/"),
    ]
