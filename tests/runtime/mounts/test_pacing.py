from __future__ import annotations

import anyio
import pytest

from milkweed.runtime.mounts import pacing
from milkweed.runtime.mounts.pacing import MOST_WAITING, Pace

pytestmark = pytest.mark.anyio


async def test_who_lends_waits_for_its_disk_and_goes_on_when_it_has_moved() -> None:
    pace = Pace()
    pace.lent()
    assert pace.began(MOST_WAITING)
    assert pace.began(1)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pace.follow)
            await anyio.wait_all_tasks_blocked()
            pace.ended(1)
    assert pace.waiting == MOST_WAITING


async def test_who_reads_for_itself_waits_for_no_disk() -> None:
    pace = Pace()
    assert pace.began(MOST_WAITING)
    assert not pace.began(1)
    with anyio.fail_after(10):
        await pace.follow()


async def test_a_disk_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "_PATIENCE_S", 0.01)
    pace = Pace()
    pace.lent()
    pace.began(2 * MOST_WAITING)
    with anyio.fail_after(10):
        await pace.follow()
        await pace.follow()
    pace.lent()
    assert not pace.began(1)
