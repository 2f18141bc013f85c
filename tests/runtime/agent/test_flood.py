"""Ranks that print without end: the agent stays small, answers, and keeps them within their cap."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from milkweed.runtime.records import Exit
from milkweed.runtime.services.runs import Runs
from tests.runtime.hosts import open_guarded, plan_of, until

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
FLOOD = ("sh", "-c", "exec yes step 1234567 loss 0.123456 learning rate 0.0001 tokens per second 123456")


def peak_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def test_a_flood_neither_swells_nor_stalls_the_agent(tmp_path: Path) -> None:
    async with open_guarded(tmp_path, cap=16 * MIB) as host:
        before = peak_kib(host.agent)
        await host.runs.call_one(Runs.start, plan_of(tmp_path, FLOOD, FLOOD))
        file = tmp_path / "runs" / "run-1" / "rank-0.out"
        await until(lambda: file.stat().st_size > 200 * MIB, 60.0)
        for rank in (0, 1):
            assert (await host.event("output_capped", rank)).detail.startswith("output over 16 MiB")
        with anyio.fail_after(10):
            assert await host.runs.call_one(Runs.end, "run-1", None, "cancelled", 2.0) == 2
        ending = (await host.event("rank_exited", 0)).exit
        assert ending == Exit(signal=15, ended_by="cancelled")
        (head, _) = await host.runs.call_one(Runs.read, "run-1", None, {}, None, 1000)
        (tail, _) = await host.runs.call_one(Runs.read, "run-1", None, {}, 1000, 1000)
        assert (len(head.data), len(tail.data)) == (1000, 1000)
        assert tail.gap_end > tail.gap_start == 2 * MIB
        assert b"\0" not in head.data + tail.data
        assert file.stat().st_blocks * 512 <= 16 * MIB
        assert peak_kib(host.agent) - before < 32 * 1024
