"""How procs are told to be, whatever their threads do."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from milkweed.runtime import this_host
from tests.runtime.meshes.actors import Counter, Stuck
from tests.runtime.meshes.conftest import DEADLINE_S

pytestmark = pytest.mark.anyio


async def test_a_proc_that_holds_the_gil_is_told_and_shown_and_ended_and_hides_no_other(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    procs = await this_host().spawn_procs(per_host={"gpus": 2}, output="keep")
    try:
        stuck, counters = await procs.spawn("stuck", Stuck), await procs.spawn("counters", Counter)
        with anyio.fail_after(DEADLINE_S):
            call = stuck.slice(gpus=0).hold_the_gil.call_one(str(pipe))
            while (health := await procs.health())[0].state != "holds_gil":
                await anyio.sleep(0.01)
            assert health[0].where.startswith("Stuck.hold_the_gil (actors.py:")
            while (await procs.health())[1].state != "ok":
                await anyio.sleep(0.01)
            main = next(one.threads[0] for one in await procs.stacks() if one.rank == 0)
            assert "Stuck.hold_the_gil" in {frame.function for frame in main.frames}
            call.cancel()
            with pytest.raises(Exception, match="uncancellable"):
                await call
            assert await counters.slice(gpus=1).add.call_one() == 1
            with open(pipe, "wb") as file:
                file.write(b"x")
            while (await procs.health())[0].state != "ok":
                await anyio.sleep(0.01)
            assert await counters.slice(gpus=0).add.call_one() == 1
    finally:
        await procs.stop(0.0)
