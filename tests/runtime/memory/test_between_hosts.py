"""Buffers between hosts with a network of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, RunRequest

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("namespaces")]

DEADLINE_S = 60.0


ACTOR = """
import asyncio, sys
import numpy as np
from milkweed.runtime import Actor, MilkweedError, RDMABuffer, attach, endpoint

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

"""

PROGRAM = (
    ACTOR
    + """
async def main():
    procs = await attach().spawn_procs(per_host={"gpus": 2}, name="p")
    holders = await procs.spawn("holder", Holder)
    first = holders.slice(hosts=0, gpus=0)
    for other in (holders.slice(hosts=1, gpus=0), holders.slice(hosts=0, gpus=1)):
        buffer = await first.make.call_one()
        print(await other.use.call_one(buffer), await first.has.call_one(2), flush=True)


asyncio.run(main())
"""
)

# Nobody started it on the mesh.
GUEST = (
    ACTOR
    + """
async def main():
    procs = await attach(sys.argv[1]).spawn_procs(name="p")
    holders = await procs.spawn("holder", Holder)
    mine = np.zeros(SIZE, np.uint8)
    for holder in (holders.slice(hosts=0), holders.slice(hosts=1)):
        buffer = await holder.make.call_one()
        await buffer.read_into(mine)
        print((mine == data(1)).all(), buffer.transport.name)
        mine[:] = data(1)
        own = RDMABuffer(mine)
        print(await holder.use.call_one(own), (mine == data(2)).all())
        await own.drop()
    for way in ("unix", "tcp"):
        try:
            await buffer.over(way).read_into(mine)
        except MilkweedError as error:
            print(error.code, way, error.cause)


asyncio.run(main())
"""
)


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


async def test_a_program_that_attached_reaches_their_buffers_and_they_its_own(
    meshes: Meshes, places: Places, tmp_path: Path
) -> None:
    spec = MeshSpec("iso", 2, 1, workspace=str(tmp_path), options={"isolation": "namespaces"})
    mesh = await meshes.allocate(spec)
    lines = (await alone(places, tmp_path, mesh.id)).splitlines()
    each = ["True process_vm", "(True, 'process_vm', None) True"]
    assert lines[:4] == each * 2
    assert lines[4].startswith("transport_unusable unix ")
    assert "unix: its owner is on another host" in lines[4]
    assert lines[5].startswith("transport_unusable tcp ")
    assert "tcp: no way leads into the network of simulated hosts" in lines[5]


async def test_a_program_that_attached_knows_the_secret_of_the_mesh(
    meshes: Meshes, places: Places, tmp_path: Path
) -> None:
    mesh = await meshes.allocate(MeshSpec("plain", 2, 1, workspace=str(tmp_path)))
    lines = (await alone(places, tmp_path, mesh.id)).splitlines()
    each = ["True process_vm", "(True, 'process_vm', None) True"]
    assert lines[:4] == each * 2
    assert len(lines) == 5  # over unix, where both prove that they know it, it went well
    assert "tcp: its owner listens on no address" in lines[4]


async def alone(places: Places, directory: Path, mesh: str) -> str:
    """What a program of the user's own prints."""
    script = directory / "guest.py"
    script.write_text(GUEST)
    own = {"MILKWEED_STATE_DIR": str(places.state), "MILKWEED_RUNTIME_DIR": str(places.runtime)}
    with anyio.fail_after(DEADLINE_S):
        done = await anyio.run_process(
            [sys.executable, str(script), mesh],
            check=False,
            stderr=subprocess.STDOUT,
            env={**os.environ, **own},
        )
    return done.stdout.decode()
