"""A broadcast over hosts with a network of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.records import MeshSpec, RunRequest

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("namespaces")]

DEADLINE_S = 60.0


PROGRAM = """
import asyncio
import numpy as np
from milkweed.runtime import Actor, RDMABuffer, attach, broadcast_buffer, endpoint

SIZE = 5_000_001
data = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)


class Receiver(Actor):
    @endpoint
    async def buffer(self):
        self.data = np.zeros(SIZE, np.uint8)
        return RDMABuffer(self.data)

    @endpoint
    async def sum(self):
        return int(self.data.sum(dtype=np.int64))


async def main():
    procs = await attach().spawn_procs(per_host={"gpus": 2}, name="p")
    receivers = await procs.spawn("receiver", Receiver)
    received = await broadcast_buffer(RDMABuffer(data), await receivers.buffer.call())
    for _, one in received:
        print(one.taken_from, one.transport == "tcp", flush=True)
    print(set((await receivers.sum.call()).values()) == {int(data.sum(dtype=np.int64))}, flush=True)


asyncio.run(main())
"""


async def test_each_host_takes_it_once_from_the_one_before_it_over_tcp(
    meshes: Meshes, tmp_path: Path
) -> None:
    spec = MeshSpec("iso", 3, 1, workspace=str(tmp_path), options={"isolation": "namespaces"})
    mesh = await meshes.allocate(spec)
    run = await mesh.start_run(RunRequest((), "single", script=PROGRAM, attach=True))
    view = await mesh.wait_run(run.run, timeout_s=DEADLINE_S)
    output = "".join(piece.data.decode() for piece in await mesh.read_output(run.run))
    assert view.state == "succeeded", output
    # The program runs on the first host: its receivers take from it, and the chain begins there.
    assert output.splitlines() == [
        "None False",
        "None False",
        "None True",
        "2 False",
        "2 True",
        "4 False",
        "True",
    ]
