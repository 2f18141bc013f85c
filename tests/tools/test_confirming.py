from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from milkweed.runtime.errors import InvalidArgument
from milkweed.runtime.holdings import HeldFile, HostHoldings
from milkweed.runtime.index import Plan
from milkweed.tools.confirming import why_not
from tests.fakes import FakeMesh, FakeMeshes

pytestmark = pytest.mark.anyio

GB = 1 << 30


def holding(*files: tuple[str, int], mtime_ns: int = 1) -> HostHoldings:
    held = tuple(HeldFile(path, path, size, size, mtime_ns, "workspace") for path, size in files)
    return HostHoldings(held, len(held), sum(file.size for file in held))


@pytest.fixture
async def mesh(ask: Any, meshes: FakeMeshes) -> FakeMesh:
    await ask("allocate_mesh", name="a", hosts=2)
    (found,) = meshes.meshes.values()
    return found


async def test_small_files_are_lost_without_a_question_and_the_answer_says_so(
    ask: Any, mesh: FakeMesh
) -> None:
    mesh.held_files = {0: holding(("/w/train.log", 2048))}
    released = await ask("release_mesh", mesh="a")
    assert released.state == "released"
    assert released.lost == "2.0 KB: /w/train.log: 2.0 KB on host 0"
    assert f"lost: {released.lost}" in released.summary()


async def test_checkpoints_are_lost_by_a_second_call_with_the_plan_alone(ask: Any, mesh: FakeMesh) -> None:
    mesh.held_files = {
        0: holding(("/w/ckpt/step-1.pt", 5 * 1024), ("/w/ckpt/step-2.pt", 5 * 1024), ("/w/log", 10)),
        1: holding(("/w/ckpt/step-1.pt", 5 * 1024)),
    }
    first = await ask("release_mesh", mesh="a")
    assert first.state == "not_released"
    assert first.would_lose == [
        "/w/ckpt/: 3 checkpoints, 15 KB on hosts 0-1",
        "/w/log: 10 B on host 0",
    ]
    assert f"confirm='{first.confirm}'" in first.next
    assert first.next in first.summary()
    assert mesh.state.state == "ready"
    assert (await ask("release_mesh", mesh=mesh.id, confirm=first.confirm)).state == "released"


async def test_more_than_a_gigabyte_of_anything_is_to_be_confirmed(ask: Any, mesh: FakeMesh) -> None:
    mesh.held_files = {0: holding(("/w/data.bin", GB // 2)), 1: holding(("/w/data.bin", GB // 2 + 1))}
    assert (await ask("release_mesh", mesh="a")).state == "not_released"
    mesh.held_files = {0: holding(("/w/data.bin", GB // 2)), 1: holding(("/w/data.bin", GB // 2))}
    assert (await ask("release_mesh", mesh="a")).state == "released"


async def test_a_plan_is_for_once(ask: Any, mesh: FakeMesh, meshes: FakeMeshes) -> None:
    mesh.held_files = {0: holding(("/w/a.pt", 5))}
    plan = (await ask("release_mesh", mesh="a")).confirm
    meshes.take_plan(plan)
    again = await ask("release_mesh", mesh="a", confirm=plan)
    assert again.state == "not_released"
    assert again.reason.startswith("the plan was used, is older than 5 minutes, or never was; 5 B")
    assert again.confirm != plan
    assert (await ask("release_mesh", mesh="a", confirm=again.confirm)).state == "released"


@pytest.mark.parametrize(
    "later",
    [
        {0: holding(("/w/a.pt", 5), ("/w/b.pt", 5))},
        {0: holding(("/w/a.pt", 6))},
        {0: holding(("/w/a.pt", 5), mtime_ns=2)},
        {1: holding(("/w/a.pt", 5))},
        {0: holding(("/w/a.pt", 5), ("/w/data", 2 * GB))},
    ],
)
async def test_a_plan_is_for_what_was_there(ask: Any, mesh: FakeMesh, later: dict[int, HostHoldings]) -> None:
    mesh.held_files = {0: holding(("/w/a.pt", 5))}
    plan = (await ask("release_mesh", mesh="a")).confirm
    mesh.held_files = dict(later)
    again = await ask("release_mesh", mesh="a", confirm=plan)
    assert again.state == "not_released"
    assert again.reason.startswith("what it would do has changed since the plan was made; ")
    assert again.next.startswith("Where a run writes on, cancel_run ends it first.")


async def test_a_log_that_grows_does_not_end_a_plan(ask: Any, mesh: FakeMesh) -> None:
    mesh.held_files = {0: holding(("/w/a.pt", 5), ("/w/log", 10))}
    plan = (await ask("release_mesh", mesh="a")).confirm
    mesh.held_files = {0: holding(("/w/a.pt", 5), ("/w/log", 5000))}
    assert (await ask("release_mesh", mesh="a", confirm=plan)).state == "released"


async def test_what_was_not_looked_at_in_time_is_asked_about_and_the_next_look_may_see_other_files(
    ask: Any, mesh: FakeMesh
) -> None:
    mesh.held_files = {0: replace(holding(("/w/log", 10)), is_partial=True)}
    assert (await ask("mesh_status", mesh="a")).written == [
        "host 0: 1 file, 10 B in the workspace; and what could not be looked at, or not in time"
    ]
    first = await ask("release_mesh", mesh="a")
    assert first.state == "not_released"
    assert first.would_lose[-1] == "and what could not be looked at, or not in time, on hosts 0"
    mesh.held_files = {0: replace(holding(("/w/log", 10), ("/w/a.pt", 5)), is_partial=True)}
    assert (await ask("release_mesh", mesh="a", confirm=first.confirm)).state == "released"


async def test_a_plan_for_another_mesh_is_none(ask: Any, mesh: FakeMesh, meshes: FakeMeshes) -> None:
    await ask("allocate_mesh", name="b", hosts=1)
    for one in meshes.meshes.values():
        one.held_files = {0: holding(("/w/a.pt", 5))}
    plan = (await ask("release_mesh", mesh="a")).confirm
    other = await ask("release_mesh", mesh="b", confirm=plan)
    assert other.state == "not_released"
    assert other.reason.startswith("the plan was for another call; ")


async def test_what_is_no_plan_at_all_is_refused(ask: Any, mesh: FakeMesh) -> None:
    with pytest.raises(InvalidArgument, match="confirm"):
        await ask("release_mesh", mesh="a", confirm="yes")
    assert mesh.state.state == "ready"


async def test_many_folders_are_counted_not_listed(ask: Any, mesh: FakeMesh) -> None:
    mesh.held_files = {0: holding(*((f"/w/{number:02}/a.pt", 1 + number) for number in range(20)))}
    told = (await ask("release_mesh", mesh="a")).would_lose
    assert told[0] == "/w/19/a.pt: checkpoint, 20 B on host 0"
    assert told[-1] == "12 more files, 78 B"
    assert len(told) == 9


def test_a_plan_confirms_its_own_call_alone() -> None:
    plan = Plan("plan-abc", "call", "state", time.time())
    assert why_not(plan, "call", "state") == ""
    assert "another call" in why_not(plan, "other", "state")
    assert "has changed" in why_not(replace(plan, state="old"), "call", "state")
