"""Many hosts of one controller: allocated, called, hurt, recovered and released, with nothing left.

The CI size is small; the full one is 64 hosts of four procs.
"""

from __future__ import annotations

import os
import signal
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from milkweed.runtime import ActorMesh, HostMesh, ProcMesh, Restart, attach
from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import MilkweedError
from milkweed.runtime.node import node
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec
from milkweed.runtime.tree import Trees
from tests.runtime.meshes.tree_actors import Notes

from .processes import eventually, of_mesh

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

DEADLINE_S = 500.0
PRIVATE_MIB = 4.0  # 3.3 measured; without what is done before the fork it is 4.7


@contextmanager
def trees_from(ranks: int) -> Iterator[None]:
    trees = node().part(Trees, Trees)
    before, trees.least_ranks = trees.least_ranks, ranks
    try:
        yield
    finally:
        trees.least_ranks = before


async def test_many_hosts_are_called_lose_a_tenth_recover_and_leave_nothing(
    meshes: Meshes,
    places: Places,
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
    full_size: bool,
) -> None:
    hosts, each = (64, 4) if full_size else (5, 2)
    monkeypatch.setenv("MILKWEED_STATE_DIR", str(places.state))
    monkeypatch.setenv("MILKWEED_RUNTIME_DIR", str(places.runtime))
    before = node().statistics()["connections"]
    with anyio.fail_after(DEADLINE_S), trees_from(4):
        mesh = await meshes.allocate(MeshSpec("scale", hosts, each, workspace=str(tmp_path)))
        everywhere = attach(mesh.id)
        restart = Restart(max_restarts=hosts * each, backoff_s=0.01)
        procs = await everywhere.spawn_procs(per_host={"gpus": each}, restart=restart)
        forked = [procs.pids[rank] for rank, start in procs.starts.items() if start == "warm"]
        assert forked, procs.starts
        assert statistics.fmean(memory_mib(pid, "Pss") for pid in forked) < 12
        private = [memory_mib(pid, "Private_Clean", "Private_Dirty") for pid in forked]
        assert statistics.fmean(private) < PRIVATE_MIB, private
        await a_tenth_of_procs_comes_back(procs, await procs.spawn("notes", Notes))
        assert await procs.stop(0.0) >= hosts * each
        await lost_hosts_hide_no_others(everywhere, each)
        await mesh.release()
        await eventually(lambda: not of_mesh(mesh.id), within_s=30.0)
        await eventually(lambda: node().statistics()["connections"] <= before, within_s=30.0)
    assert node().part(Trees, Trees).statistics()["open"] == 0


def memory_mib(pid: int, *kinds: str) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return sum(sizes[kind] for kind in kinds) / 1024


async def a_tenth_of_procs_comes_back(procs: ProcMesh, notes: ActorMesh) -> None:
    ranks = len(procs)
    assert (await notes.rank.reduce("sum")).value() == sum(range(ranks))
    await notes.note.broadcast("hello")
    assert (await notes.all.call()).values() == [["hello"]] * ranks
    victims = list(range(0, ranks, 10))  # relays among them
    old = procs.pids
    for rank in victims:
        os.kill(old[rank], signal.SIGKILL)
    await eventually_all_answer(notes, {old[rank] for rank in victims})
    seen = (await notes.all.call()).values()
    assert [rank for rank, one in enumerate(seen) if one != ["hello"]] == victims
    assert {rank for rank, pid in procs.pids.items() if pid != old[rank]} == set(victims)


async def eventually_all_answer(notes: ActorMesh, gone: set[int]) -> None:
    """Until then every call gives the ranks that live, and says of the others that they are lost."""
    while True:
        values = await notes.pid.call()
        if not values.errors() and not gone & set(values.values()):
            return
        codes = {error.code for error in values.errors().values() if isinstance(error, MilkweedError)}
        assert codes <= {"proc_lost", "connection_lost"}
        await anyio.sleep(0.01)


async def lost_hosts_hide_no_others(everywhere: HostMesh, each: int) -> None:
    hosts = len(everywhere)
    lost = [1] if hosts < 20 else [1, 17, 40]
    procs = await everywhere.spawn_procs(per_host={"gpus": each})
    notes = await procs.spawn("notes", Notes)
    await notes.rank.call()
    for host in lost:
        with open(f"/proc/{procs.pids[host * each]}/stat") as file:
            agent = int(file.read().rpartition(")")[2].split()[1])
        os.kill(agent, signal.SIGKILL)
    expected = {host * each + at for host in lost for at in range(each)}
    while set((values := await notes.rank.call()).errors()) != expected:
        assert set(values.errors()) <= expected
    reduced = await notes.rank.reduce("sum")
    assert reduced.ok() == sum(set(range(hosts * each)) - expected)
    assert set(reduced.errors()) == expected
    await procs.stop(0.0)
