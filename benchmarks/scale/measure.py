"""The constants of the model, measured with real processes on this machine."""

from __future__ import annotations

import os
import pickle
import shutil
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import anyio
import psutil

from benchmarks.runtime.procfs import memory_mib
from milkweed.runtime import ActorMesh, attach
from milkweed.runtime.addresses import address_of
from milkweed.runtime.client import open_meshes
from milkweed.runtime.meshes.sending import GATHER_S
from milkweed.runtime.node import node
from milkweed.runtime.paths import Places
from milkweed.runtime.pickling import dumps
from milkweed.runtime.proc_records import ProcSpec, SpawnProcs
from milkweed.runtime.records import MeshSpec
from milkweed.runtime.tree import Answer, Header, Status, Trees
from milkweed.runtime.tree.envelope import numbered, pack, relayed
from milkweed.runtime.wire import Kind, encode

from .actors import Echo
from .model import MIB, Constants

__all__ = ["measure"]

_CALLS = 200
_REST_S = 10.0
_NEVER = 10**9


async def measure(hosts: int, per_host: int) -> Constants:
    """On simulated hosts of a mesh of its own, of which nothing is left."""
    root = Path(tempfile.mkdtemp(prefix="mw-", dir="/tmp"))
    for name in ("s", "r"):
        (root / name).mkdir(mode=0o700)
    os.environ |= {"MILKWEED_STATE_DIR": str(root / "s"), "MILKWEED_RUNTIME_DIR": str(root / "r")}
    try:
        async with open_meshes(Places(root / "s", root / "r")) as meshes:
            small = await meshes.allocate(MeshSpec("small", 4, per_host, workspace=str(root)))
            small_keeper = _private(_keeper(small.id))
            await small.release()
            mesh = await meshes.allocate(MeshSpec("large", hosts, per_host, workspace=str(root)))
            try:
                return await _measure_on(mesh.id, hosts, per_host, small_keeper)
            finally:
                await mesh.release()
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def _measure_on(mesh: str, hosts: int, per_host: int, small_keeper: float) -> Constants:
    keeper = _keeper(mesh)
    trees = node().part(Trees, Trees)
    everywhere = attach(mesh)
    first = await everywhere.slice(hosts=0).spawn_procs()  # what is imported and begun once
    await first.spawn("echo", Echo)
    await first.stop(0.0)
    own_before = _private(os.getpid())
    own_time = time.process_time()
    procs = await everywhere.spawn_procs(per_host={"gpus": per_host})
    actors = await procs.spawn("echo", Echo)
    spawn_s = time.process_time() - own_time
    trees.least_ranks = _NEVER
    await actors.echo.call(1)
    own_after = _private(os.getpid())
    agents = {psutil.Process(pid).ppid() for pid in procs.pids.values()}
    rest = await _at_rest([os.getpid(), keeper, *agents])

    direct, rank_us = await _calls(actors, [procs.pids[per_host - 1]])
    leaf = procs.pids[0]
    leaf_before = _private(leaf)
    trees.least_ranks = 2
    few, _ = await _calls(actors.slice(gpus=0), [])
    many, used = await _calls(actors, [leaf])
    leaf_after = _private(leaf)
    relays = trees.statistics()["relays"]
    per_rank = (many - few) / (hosts * (per_host - 1))
    relay = max(0.0, (few - hosts * per_rank) / relays)
    plan = trees.plan(actors.addresses())
    below = len(plan.branches[0].own) + len(plan.branches[0].below)
    found = Constants(
        caller_direct_us=direct / (hosts * per_host),
        caller_spawn_us=spawn_s / (hosts * per_host) * 1e6,
        caller_tree_us=per_rank,
        caller_relay_us=relay,
        relay_leaf_us=max(0.0, used - rank_us) / below,
        rank_us=rank_us,
        keeper_host_us=rest[keeper] / hosts,
        owner_host_us=rest[os.getpid()] / hosts,
        agent_us=statistics.median(rest[pid] for pid in agents),
        caller_proc_bytes=(own_after - own_before) / (hosts * per_host),
        relay_connection_bytes=max(0.0, leaf_after - leaf_before) / (below + 1),
        host_bytes=statistics.median(_host_pss(pid) for pid in agents),
        proc_bytes=statistics.median(memory_mib(pid)["pss"] for pid in procs.pids.values()) * MIB,
        keeper_host_bytes=max(0.0, _private(keeper) - small_keeper) / (hosts - 4),
        **_sizes(actors),
    )
    await procs.stop(0.0)
    return found


async def _calls(actors: ActorMesh, watched: list[int]) -> tuple[float, float]:
    """Processor time of one call of all ranks, here and in a watched process, in microseconds."""
    for _ in range(20):
        (await actors.echo.call(1)).values()
    own, others = time.process_time(), [_cpu_s(pid) for pid in watched]
    for _ in range(_CALLS):
        (await actors.echo.call(1)).values()
    used = [_cpu_s(pid) - before for pid, before in zip(watched, others, strict=True)]
    return (time.process_time() - own) / _CALLS * 1e6, sum(used) / _CALLS * 1e6


async def _at_rest(pids: list[int]) -> dict[int, float]:
    """Processor time of each process in a second in which nothing happens, in microseconds."""
    await anyio.sleep(2.0)
    before = {pid: _cpu_s(pid) for pid in pids}
    await anyio.sleep(_REST_S)
    return {pid: (_cpu_s(pid) - before[pid]) / _REST_S * 1e6 for pid in pids}


def _cpu_s(pid: int) -> float:
    """Of all threads, by the scheduler's own count."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def _private(pid: int) -> float:
    return memory_mib(pid)["private"] * MIB


def _host_pss(agent: int) -> float:
    """Guard, agent, and the starter below the agent."""
    process = psutil.Process(agent)
    starters = [one.pid for one in process.children() if one.name() != "python" or _is_starter(one)]
    return sum(memory_mib(pid)["pss"] for pid in (process.ppid(), agent, *starters)) * MIB


def _is_starter(process: psutil.Process) -> bool:
    return "MILKWEED_PROC" not in process.environ()


def _keeper(mesh: str) -> int:
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "milkweed.runtime.keeper" in words and mesh in words:
            return process.pid
    raise LookupError(f"no keeper of {mesh}")


def _sizes(actors: ActorMesh) -> dict[str, float]:
    """Bytes on sockets; a small argument and a small answer."""
    trees = node().part(Trees, Trees)
    plan = trees.plan(actors.addresses())
    body, buffers = dumps(((1,), {}))
    message = address_of(actors.actor_id, "echo") + body, buffers
    frame = sum(map(len, encode(Kind.CALL, 1, *message)))
    header = Header("call", 1 << 62, 0, 1 << 62, 1 << 62, GATHER_S)
    branch = plan.branches[0]
    ranks = sum(1 for _ in branch.positions())
    known, new = len(relayed(header, 0, None, message)[0]), len(relayed(header, 0, branch, message)[0])
    answers = [Answer(at, Status.RESULT, dumps(1)[0]) for at in range(ranks)]
    spec = ProcSpec("procs-abc123-100", {})
    request = SpawnProcs(node().id, (), "/usr/bin/python3", "/home/me/work", ("/home/me/lib",) * 6)
    one = _request(request, [spec])
    eight = _request(request, [ProcSpec(f"procs-abc123-{at}", {}) for at in range(100, 108)])
    return {
        "frame_bytes": frame,
        "numbered_bytes": len(numbered(header.envelope(0), message)[0]) - len(message[0]),
        "header_bytes": known - len(message[0]),
        "branch_bytes": (new - known) / ranks,
        "answer_bytes": len(pack(answers)[0]) / ranks,
        "spawn_proc_bytes": (eight - one) / 7,
        "spawn_host_bytes": one - (eight - one) / 7,
    }


def _request(request: SpawnProcs, specs: list[ProcSpec]) -> int:
    return len(pickle.dumps(replace(request, procs=tuple(specs)), 5))
