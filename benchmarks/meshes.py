"""Hosts: how soon they are ready, what they weigh while idle, and the everyday numbers of a warm mesh."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio

from .harness import MIB, Line, Role, measure, open_lab

__all__ = ["run"]

_SETTLE_S = 2.0


async def run(*, quick: bool) -> AsyncIterator[Line]:
    async with open_lab() as lab:
        allocations: list[float] = []
        releases: list[float] = []
        weights: dict[Role, list[float]] = {"server": [], "keeper": [], "agent": [], "guard": []}
        for at in range(3 if quick else 12):
            answer = await lab.call(
                "allocate_mesh",
                name=f"bench-{at}",
                hosts=2,
                procs_per_host=2,
                workspace=str(lab.workspace),
            )
            if answer.fields["state"] != "ready":
                raise RuntimeError(f"the mesh is not ready: {answer.text}")
            allocations.append(answer.elapsed_s)
            if at < 3:
                await anyio.sleep(_SETTLE_S)
                for role, processes in lab.processes().items():
                    weights[role] += [process.memory_info().rss / MIB for process in processes]
            released = await lab.call("release_mesh", mesh=answer.fields["mesh"])
            releases.append(released.elapsed_s)
        yield measure("mesh", "allocate_mesh, 2 local hosts, to ready", "s", allocations, 1.0)
        yield measure("mesh", "release_mesh, 2 idle hosts", "s", releases)
        yield measure("size", "idle host agent, RSS", "MB", weights["agent"], 35.0)
        yield measure("size", "idle guard, RSS", "MB", weights["guard"], 12.0)
        yield measure("size", "idle keeper, RSS", "MB", weights["keeper"])
        yield measure("size", "milkweed serve, RSS", "MB", weights["server"])
        async with lab.mesh("warm", 2, 2) as mesh:
            runs = [
                (await lab.call("run_on_mesh", mesh=mesh, command="true")).elapsed_s
                for _ in range(5 if quick else 30)
            ]
            statuses = [
                (await lab.call("mesh_status", mesh=mesh)).elapsed_s for _ in range(10 if quick else 50)
            ]
        yield measure(
            "warm", "run_on_mesh of true on 4 ranks, end to end", "ms", [1000 * one for one in runs]
        )
        yield measure("warm", "mesh_status", "ms", [1000 * one for one in statuses])
        tools = (await lab.client.list_tools()).tools
        listed = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        size = len(json.dumps(listed, separators=(",", ":"), ensure_ascii=False))
        yield measure(
            "warm", f"tools/list, {len(tools)} tools", "characters", [size], 24_000.0, "6,000 tokens"
        )
