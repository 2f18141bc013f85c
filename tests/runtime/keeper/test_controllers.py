"""What a keeper makes of the failures that controllers did not handle, without a mesh."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from milkweed.runtime.attach_records import Controller
from milkweed.runtime.errors import Conflict
from milkweed.runtime.keeper.controllers import Controllers
from milkweed.runtime.records import Exit
from milkweed.runtime.supervision import Failure

pytestmark = pytest.mark.anyio


class FakeKeeper:
    """Notes what it is told; stands in for `MeshKeeper` and for `RunBook`."""

    def __init__(self) -> None:
        self.troubles: list[str] = []
        self.events: list[tuple[str, str, str]] = []
        self.warnings: list[tuple[str, str]] = []

    def set_troubles(self, troubles: Sequence[str]) -> None:
        self.troubles = list(troubles)

    def say(self, kind: str, detail: str, run: str = "") -> None:
        self.events.append((kind, detail, run))

    def warn(self, run: str, warning: str) -> None:
        self.warnings.append((run, warning))


def failure(name: str) -> Failure:
    return Failure("proc", name, exit=Exit(signal=9))


@pytest.fixture
def keeper() -> FakeKeeper:
    return FakeKeeper()


@pytest.fixture
def controllers(keeper: FakeKeeper) -> Controllers:
    stand_in: Any = keeper
    return Controllers(stand_in, stand_in)


Hold = Callable[..., None]


async def held(
    controllers: Controllers, tasks: anyio.abc.TaskGroup, who: Controller, *known: Failure
) -> None:
    tasks.start_soon(controllers.hold, who, known)
    await anyio.wait_all_tasks_blocked()


async def test_a_failure_is_an_event_a_warning_and_a_trouble_until_its_controller_leaves(
    controllers: Controllers, keeper: FakeKeeper
) -> None:
    async with anyio.create_task_group() as tasks:
        await held(controllers, tasks, Controller("1-a", 1, "run-a"))
        assert keeper.troubles == []
        await controllers.report("1-a", failure("p-1"))
        await controllers.report("1-a", failure("p-2"))
        assert keeper.events == [
            ("failure_unhandled", "proc p-1: SIGKILL", "run-a"),
            ("failure_unhandled", "proc p-2: SIGKILL", "run-a"),
        ]
        assert keeper.warnings[0] == ("run-a", "nobody handled: proc p-1: SIGKILL")
        assert keeper.troubles == ["run-a did not handle a failure: proc p-1: SIGKILL (and 1 more)"]
        tasks.cancel_scope.cancel()
    assert keeper.troubles == []


async def test_the_failures_of_one_controller_do_not_end_with_another(
    controllers: Controllers, keeper: FakeKeeper
) -> None:
    async with anyio.create_task_group() as tasks:
        await held(controllers, tasks, Controller("1-a", 17))
        async with anyio.create_task_group() as others:
            await held(controllers, others, Controller("2-b", 18, "run-b"))
            await controllers.report("1-a", failure("p-1"))
            await controllers.report("2-b", failure("q-1"))
            assert len(keeper.troubles) == 2
            others.cancel_scope.cancel()
        assert keeper.troubles == ["the program with pid 17 did not handle a failure: proc p-1: SIGKILL"]
        tasks.cancel_scope.cancel()


async def test_what_an_earlier_keeper_knew_is_a_trouble_and_no_new_event(
    controllers: Controllers, keeper: FakeKeeper
) -> None:
    async with anyio.create_task_group() as tasks:
        await held(controllers, tasks, Controller("1-a", 1, "run-a"), failure("p-1"))
        assert len(keeper.troubles) == 1
        assert keeper.events == []
        tasks.cancel_scope.cancel()


async def test_a_controller_that_comes_again_keeps_its_failures_when_its_old_call_ends(
    controllers: Controllers, keeper: FakeKeeper
) -> None:
    who = Controller("1-a", 1, "run-a")
    async with anyio.create_task_group() as tasks:
        async with anyio.create_task_group() as old:
            await held(controllers, old, who)
            await held(controllers, tasks, who, failure("p-1"))
            old.cancel_scope.cancel()
        assert len(keeper.troubles) == 1
        tasks.cancel_scope.cancel()
    assert keeper.troubles == []


async def test_a_report_of_somebody_who_does_not_hold_is_refused(
    controllers: Controllers, keeper: FakeKeeper
) -> None:
    with pytest.raises(Conflict, match="owner_gone"):
        await controllers.report("1-a", failure("p-1"))
    assert (keeper.events, keeper.troubles) == ([], [])


async def test_the_sockets_of_programs_that_were_killed_are_removed(
    controllers: Controllers, tmp_path: Path
) -> None:
    gone, own = tmp_path / "c4194305", tmp_path / f"c{os.getpid()}"  # no pid is so high
    for path in (gone, own, tmp_path / "k"):
        path.touch()
    async with anyio.create_task_group() as tasks:
        await held(controllers, tasks, Controller("1-a", os.getpid(), "run-a", str(own)))
        assert controllers.of("run-a")
        assert not controllers.of("run-b")
        tasks.cancel_scope.cancel()
    assert not gone.exists()
    assert own.exists()
    assert not controllers.any
