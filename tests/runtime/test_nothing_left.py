"""Fifty allocations, runs and releases leave nothing behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, RunRequest

from .processes import eventually, keeper_of, of_mesh
from .test_namespaces import links, possible

pytestmark = pytest.mark.anyio

CYCLES = 50


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def sockets_below(directory: Path) -> list[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    return [line for line in lines if str(directory) in line]


def namespaces() -> set[str]:
    return set(_namespaces())


def _namespaces() -> Iterator[str]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            for kind in ("net", "mnt", "uts"):
                try:
                    yield os.readlink(f"/proc/{name}/ns/{kind}")
                except OSError:
                    continue


@pytest.mark.timeout(170)
async def test_fifty_cycles_leave_no_process_descriptor_socket_or_namespace(
    meshes: Meshes, places: Places, tmp_path: Path
) -> None:
    seen = set()
    before = None
    for cycle in range(CYCLES):
        isolated = possible() and cycle % 5 == 4
        spec = MeshSpec(
            f"c{cycle}",
            hosts=2,
            procs_per_host=1,
            workspace=str(tmp_path),
            options={"isolation": "namespaces"} if isolated else {},
        )
        if cycle == 1:
            before = (descriptors(), links(), namespaces())
        mesh = await meshes.allocate(spec)
        seen.add(mesh.id)
        run = await mesh.start_run(RunRequest((), script="sleep 100 & setsid sleep 100 & echo done"))
        assert (await mesh.wait_run(run.run, timeout_s=20)).state == "succeeded"
        await mesh.start_run(RunRequest(("sleep", "100")))
        await mesh.release()
    assert before is not None
    assert len(seen) == CYCLES
    assert [pid for mesh in seen for pid in of_mesh(mesh)] == []
    await eventually(lambda: not any(keeper_of(mesh) for mesh in seen))
    assert sockets_below(places.runtime) == []
    assert os.listdir(places.runtime) == []
    await eventually(lambda: (descriptors(), links()) == before[:2])
    await eventually(lambda: namespaces() <= before[2])
