"""Whatever programs and the client do: a mount that is written to is as a plain directory would be."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from .stage import Stage, aside, short_directory, staged, write
from .twins import Kept, Twins

pytestmark = pytest.mark.usefixtures("fuse")

_FLAGS = (os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_APPEND, os.O_RDWR | os.O_TRUNC)
_THROUGH = ("read", "write", "truncate", "stat", "sync", "lock")
_names = st.sampled_from("abcd")
_paths = st.lists(_names, min_size=1, max_size=3).map("/".join)
_data = st.binary(max_size=64)
_offsets = st.integers(0, 100)


def _fill(source: Path) -> None:
    (source / "a" / "b").mkdir(parents=True)
    (source / "c" / "d").mkdir(parents=True)
    for name in ("a/a", "a/b/c", "b", "c/a", "c/d/a", "c/d/b"):
        write(source / name, f"content of {name}")
    os.symlink("a", source / "d")
    os.symlink("b", source / "c" / "c")


def _told(stage: Stage) -> Kept:
    return sorted(
        (os.fsdecode(path), os.fsdecode(kept)) for path, kept in stage.followers.take_kept("host-0")
    )


class Machine(RuleBasedStateMachine):
    """Hypothesis makes what fails short."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = ExitStack()
        directory = self._stack.enter_context(short_directory())
        portal = self._stack.enter_context(anyio.from_thread.start_blocking_portal())
        staging = staged(directory, 1, _fill, is_writable=True)
        stage = self._stack.enter_context(portal.wrap_async_context_manager(staging))

        def barrier() -> Kept:
            portal.call(stage.barrier)
            return _told(stage)

        self.twins = Twins(stage.mount(), directory / "plain", stage.source, barrier)
        self._stack.callback(self.twins.close)

    def teardown(self) -> None:
        self._stack.close()

    @invariant()
    def they_are_the_same(self) -> None:
        self.twins.compare()

    @rule(path=_paths, data=_data)
    def write(self, path: str, data: bytes) -> None:
        self.twins.write(path, data)

    @rule(path=_paths, data=_data)
    def append(self, path: str, data: bytes) -> None:
        self.twins.append(path, data)

    @rule(path=_paths, size=_offsets)
    def truncate(self, path: str, size: int) -> None:
        self.twins.truncate(path, size)

    @rule(path=_paths, at=_offsets, data=_data)
    def store(self, path: str, at: int, data: bytes) -> None:
        self.twins.store(path, at, data)

    @rule(path=_paths)
    def make(self, path: str) -> None:
        self.twins.make(path)

    @rule(path=_paths)
    def mkdir(self, path: str) -> None:
        self.twins.mkdir(path)

    @rule(path=_paths)
    def rmdir(self, path: str) -> None:
        self.twins.rmdir(path)

    @rule(path=_paths)
    def unlink(self, path: str) -> None:
        self.twins.unlink(path)

    @rule(old=_paths, new=_paths)
    def rename(self, old: str, new: str) -> None:
        self.twins.rename(old, new)

    @rule(path=_paths, to=_names)
    def link(self, path: str, to: str) -> None:
        self.twins.link(path, to)

    @rule(path=_paths, mode=st.sampled_from([0o644, 0o600, 0o755, 0o400]))
    def chmod(self, path: str, mode: int) -> None:
        self.twins.chmod(path, mode)

    @rule(path=_paths, flags=st.sampled_from(_FLAGS))
    def open(self, path: str, flags: int) -> None:
        self.twins.open(path, flags)

    @rule(which=st.integers(0, 7), what=st.sampled_from(_THROUGH), at=_offsets, data=_data)
    def through(self, which: int, what: str, at: int, data: bytes) -> None:
        self.twins.through(which, what, at, data)

    @rule(path=_paths, data=_data)
    def edit(self, path: str, data: bytes) -> None:
        self.twins.edit(path, data)

    @rule(path=_paths)
    def edit_removal(self, path: str) -> None:
        self.twins.edit_removal(path)

    @rule(path=_paths)
    def edit_folder(self, path: str) -> None:
        self.twins.edit_folder(path)

    @rule(path=_paths, to=_names)
    def edit_link(self, path: str, to: str) -> None:
        self.twins.edit_link(path, to)


@pytest.mark.timeout(3600)
def test_no_short_series_of_operations_makes_a_difference(full_size: bool) -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=2_000 if full_size else 8,
            stateful_step_count=40,
            deadline=None,
            derandomize=not full_size,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.anyio
@pytest.mark.timeout(7200)
async def test_no_long_series_of_operations_makes_a_difference(directory: Path, full_size: bool) -> None:
    seed = random.SystemRandom().randrange(1 << 32) if full_size else 20261
    count = 1_000_000 if full_size else 10_000
    async with staged(directory, 1, _fill, is_writable=True, within_s=7200.0) as stage:

        def barrier() -> Kept:
            anyio.from_thread.run(stage.barrier)
            return _told(stage)

        def kill() -> None:
            mount = stage.hosts[0]
            before = mount.state.restarts
            os.kill(mount.state.pid, signal.SIGKILL)
            while mount.state.phase != "ready" or mount.state.restarts == before:
                time.sleep(0.01)

        def run() -> None:
            twins = Twins(stage.mount(), directory / "plain", stage.source, barrier)
            chance = random.Random(seed)
            try:
                for number in range(count):
                    name, arguments = _operation(chance)
                    try:
                        getattr(twins, name)(*arguments)
                        if number % 50 == 0:
                            twins.compare()
                    except AssertionError as error:
                        raise AssertionError(
                            f"seed {seed}, operation {number}: {name}{arguments}: {error}"
                        ) from None
                    if number % 500 == 499:
                        _tidy(twins)
                    if number % (10_000 if full_size else 2_500) == 2_000:
                        twins.killed(kill)
                twins.compare()
            finally:
                twins.close()

        await aside(run)


def _operation(chance: random.Random) -> tuple[str, tuple[Any, ...]]:
    def path() -> str:
        return "/".join(chance.choice("abcd") for _ in range(chance.choice((1, 2, 2, 3, 3))))

    data, at = chance.randbytes(chance.choice((0, 1, 50, 5000))), chance.choice((0, 3, 60, 4096))
    operations: list[tuple[int, str, tuple[Any, ...]]] = [
        (6, "write", (path(), data)),
        (4, "append", (path(), data)),
        (4, "patch", (path(), at, data)),
        (4, "make", (path(),)),
        (4, "truncate", (path(), at)),
        (3, "chmod", (path(), chance.choice((0o644, 0o600, 0o755, 0o400)))),
        (2, "date", (path(), chance.randrange(10**18))),
        (3, "store", (path(), at, data[:50])),
        (8, "read", (path(),)),
        (8, "look", (path(),)),
        (2, "link", (path(), chance.choice("abcd"))),
        (2, "link_hard", (path(), path())),
        (6, "mkdir", (path(),)),
        (4, "rmdir", (path(),)),
        (6, "unlink", (path(),)),
        (8, "rename", (path(), path())),
        (4, "open", (path(), chance.choice(_FLAGS))),
        (1, "shut", (chance.randrange(8),)),
        (8, "through", (chance.randrange(8), chance.choice(_THROUGH), at, data)),
        (2, "edit", (path(), data)),
        (1, "edit_removal", (path(),)),
        (1, "edit_folder", (path(),)),
        (1, "edit_link", (path(), chance.choice("abcd"))),
    ]
    return chance.choices([one[1:] for one in operations], [one[0] for one in operations])[0]


def _tidy(twins: Twins) -> None:
    """What went aside is removed, as a person would."""
    for folder, folders, names in list(os.walk(twins.plain, topdown=False)):
        for name in [*names, *folders]:
            if ".host-copy" in name:
                relative = os.path.relpath(os.path.join(folder, name), twins.plain)
                for root in (twins.mount, twins.plain):
                    place = root / relative
                    if place.is_dir() and not place.is_symlink():
                        shutil.rmtree(place, ignore_errors=True)
                    elif os.path.lexists(place):
                        place.unlink()
                twins.forget(relative)
