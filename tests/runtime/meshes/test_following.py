"""What procs print is passed on once, whoever looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import anyio
import pytest

from milkweed.runtime.meshes.following import Follower
from milkweed.runtime.meshes.host_link import HostLink
from milkweed.runtime.proc_records import ProcOutput

pytestmark = pytest.mark.anyio

DATA = b"first\nlast"


class StandInLink:
    """Of one proc that has printed `DATA`; answers when it is let."""

    lost = None

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.go_on = anyio.Event()

    async def output(self, cursors: Mapping[str, tuple[int, int]], max_bytes: int) -> tuple[ProcOutput, ...]:
        _, at = cursors["p"]
        self.asked.set()
        await self.go_on.wait()
        return (ProcOutput("p", 7, DATA[at:], len(DATA)),) if at < len(DATA) else ()


async def test_a_last_look_beside_one_that_is_under_way_repeats_nothing() -> None:
    link = StandInLink()
    heard: list[tuple[int, str]] = []
    follower = Follower(
        {cast(HostLink, cast(Any, link)): {"p": 3}}, lambda rank, line: heard.append((rank, line))
    )
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower.look)
            await link.asked.wait()
            tasks.start_soon(follower.finish)
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            link.go_on.set()
    assert heard == [(3, "first"), (3, "last")]
