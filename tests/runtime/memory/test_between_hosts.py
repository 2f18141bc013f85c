"""Buffers between hosts with a network of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.records import MeshSpec, RunRequest
from milkweed.runtime.schedulers.namespaces import check_possible

pytestmark = pytest.mark.anyio

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    try:
        check_possible()
    except Unavailable as error:
        pytest.skip(str(error))


PROGRAM = """
import asyncio
import numpy as np
from milkweed.runtime import Actor, RDMABuffer, attach, endpoint

SIZE = 20_000_001


def data(seed):
    return np.random.default_rng(seed).integers(0, 256, SIZE, np.uint8)


class Holder(Actor):
    @endpoint
    async def make(self):
        self.data = data(1)
        return RDMABuffer(self.data)

    @endpoint
    async def has(self, seed):
        return bool((self.data == data(seed)).all())

    @endpoint
    async def use(self, buffer):
        mine = np.zeros(SIZE, np.uint8)
        await buffer.read_into(mine)
        right = bool((mine == data(1)).all())
        await buffer.write_from(data(2))
        return right, buffer.transport.name, buffer.transport.passed_over.get("process_vm")


async def main():
    procs = await attach().spawn_procs(per_host={"gpus": 2}, name="p")
    holders = await procs.spawn("holder", Holder)
    first = holders.slice(hosts=0, gpus=0)
    for other in (holders.slice(hosts=1, gpus=0), holders.slice(hosts=0, gpus=1)):
        buffer = await first.make.call_one()
        print(await other.use.call_one(buffer), await first.has.call_one(2), flush=True)


asyncio.run(main())
"""


async def test_hosts_reach_each_other_over_tcp_and_within_themselves_without(
    meshes: Meshes, tmp_path: Path
) -> None:
    spec = MeshSpec("iso", 2, 1, workspace=str(tmp_path), options={"isolation": "namespaces"})
    mesh = await meshes.allocate(spec)
    run = await mesh.start_run(RunRequest((), "single", script=PROGRAM, attach=True))
    view = await mesh.wait_run(run.run, timeout_s=DEADLINE_S)
    output = "".join(piece.data.decode() for piece in await mesh.read_output(run.run))
    assert view.state == "succeeded", output
    assert output.splitlines() == [
        "(True, 'tcp', 'its owner is on another host') True",
        "(True, 'process_vm', None) True",
    ]
