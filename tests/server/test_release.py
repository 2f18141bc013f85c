"""`milkweed release`, where a release is to be confirmed."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from milkweed.server.cli.release import _release
from milkweed.server.cli.run import _give_back
from milkweed.tools.results import ReleaseResult

pytestmark = pytest.mark.anyio


class WritesOn:
    """A session with a mesh whose runs write a checkpoint before so many calls: no plan holds until then."""

    def __init__(self, before: int) -> None:
        self.before = before
        self.calls = 0
        self.plan = ""

    async def tool(self, _tool: str, *, mesh: str, confirm: str | None = None) -> ReleaseResult:
        self.calls += 1
        if confirm == self.plan and self.calls > self.before:
            return ReleaseResult(mesh=mesh)
        self.plan = f"plan-a{self.calls}"
        return ReleaseResult(mesh=mesh, state="not_released", confirm=self.plan)


@pytest.mark.parametrize(("before", "is_released", "calls"), [(0, True, 2), (3, True, 4), (99, False, 6)])
async def test_yes_is_said_to_each_new_plan_while_runs_write_on(
    before: int, is_released: bool, calls: int, capsys: pytest.CaptureFixture[str]
) -> None:
    session: Any = WritesOn(before)
    arguments = argparse.Namespace(yes=True, output="json")
    assert await _release(session, "a", arguments) is is_released
    assert session.calls == calls


async def test_without_a_terminal_nobody_says_yes(capsys: pytest.CaptureFixture[str]) -> None:
    session: Any = WritesOn(0)
    assert not await _release(session, "a", argparse.Namespace(yes=False, output="json"))
    assert session.calls == 1


async def test_a_run_that_leaves_a_mesh_with_checkpoints_says_which_and_what_to_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Keeps:
        async def tool(self, _tool: str, *, mesh: str) -> ReleaseResult:
            lost = [f"/w/{number}/: 4 checkpoints, 781 KB on hosts 0-1" for number in range(3)]
            return ReleaseResult(mesh=mesh, state="not_released", reason="6 MB", would_lose=lost, next="...")

    session: Any = Keeps()
    await _give_back(session, "mesh-cli-7")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "mesh-cli-7: not released; 6 MB"
    assert lines[3] == "/w/2/: 4 checkpoints, 781 KB on hosts 0-1"
    assert lines[-2].startswith("To have them: milkweed call fetch_files mesh=mesh-cli-7 ")
    assert lines[-1] == "Then, or to lose them: milkweed release --yes mesh-cli-7"


async def test_a_run_says_what_was_kept_of_its_mesh_and_what_was_lost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Keeps:
        async def tool(self, _tool: str, *, mesh: str) -> ReleaseResult:
            return ReleaseResult(mesh=mesh, kept="4 files, 781 KB, in /data/m", lost="9 B: /w/log on host 0")

    session: Any = Keeps()
    await _give_back(session, "mesh-cli-7")
    assert capsys.readouterr().err.splitlines()[1:] == [
        "kept: 4 files, 781 KB, in /data/m",
        "lost: 9 B: /w/log on host 0",
    ]
