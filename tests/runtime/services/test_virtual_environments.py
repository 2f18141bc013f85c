"""Virtual environments whose base interpreter a host has not."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from milkweed.runtime.agent.children import open_children
from milkweed.runtime.errors import NotFound
from milkweed.runtime.services.virtual_environments import Interpreters

pytestmark = pytest.mark.anyio

OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def environment(path: Path, base: Path, version: str, key: str = "version") -> str:
    """As `python -m venv` makes it, and (by another key) as uv does."""
    (path / "bin").mkdir(parents=True)
    (path / "pyvenv.cfg").write_text(f"home = {base.parent}\n{key} = {version}\n")
    (path / "bin" / "python").symlink_to(base)
    return str(path / "bin" / "python")


@pytest.fixture
async def interpreters() -> AsyncIterator[Interpreters]:
    async with open_children(subreaper=False) as children:
        yield Interpreters(children)


@pytest.fixture
def base() -> Path:
    return Path(sys.executable).resolve()


@pytest.mark.parametrize("key", ["version", "version_info"])
async def test_an_environment_of_the_same_version_is_fine(
    interpreters: Interpreters, tmp_path: Path, base: Path, key: str
) -> None:
    await interpreters.check(environment(tmp_path / "e", base, f"{OWN}.99", key))


async def test_what_is_no_environment_is_not_asked(
    interpreters: Interpreters, tmp_path: Path, base: Path
) -> None:
    for program in (str(base), "/bin/sh", str(tmp_path / "absent"), "train.py"):
        await interpreters.check(program)


async def test_a_missing_base_is_told_with_the_mend(interpreters: Interpreters, tmp_path: Path) -> None:
    program = environment(tmp_path / "e", tmp_path / "gone" / "python3", "3.11.7")
    with pytest.raises(NotFound) as caught:
        await interpreters.check(program, " on host-1")
    assert caught.value.cause == (
        f"{program} is of a virtual environment that was made for Python 3.11,"
        f" and {tmp_path}/gone/python3 is missing on host-1"
    )
    assert "an interpreter that all hosts have" in caught.value.next_step


async def test_a_base_of_another_version_is_told_also_when_it_has_changed(
    interpreters: Interpreters, tmp_path: Path, base: Path
) -> None:
    fake = tmp_path / "python3"
    program = environment(tmp_path / "e", fake, OWN)
    for second, found in enumerate(("2.7", "9.9"), 1_700_000_000):
        fake.unlink(missing_ok=True)
        fake.write_text(f"#!/bin/sh\necho {found}\n")
        fake.chmod(0o755)
        os.utime(fake, (second, second))
        with pytest.raises(NotFound, match=rf"is Python {found} on host-1"):
            await interpreters.check(program, " on host-1")
    fake.unlink()
    fake.symlink_to(base)
    await interpreters.check(program, " on host-1")
