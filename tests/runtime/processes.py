"""What tests ask of the machine: which processes, namespaces and links are there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import anyio

from milkweed.runtime.agent.ptree import read_environ
from milkweed.runtime.schedulers.processes import marked, start_time


def alive(pid: int) -> bool:
    return start_time(pid) is not None


def of_mesh(mesh: str) -> list[int]:
    """Pids of everything that a mesh's hosts run: guards, agents, ranks and their children."""
    return list(marked(lambda host_id: host_id.rpartition(".")[0] == mesh))


def checkers(mesh: str, host: int | None = None) -> list[int]:
    """Pids of the procs that a check has spawned."""
    found = []
    for pid in of_mesh(mesh):
        env = read_environ(pid)
        place = env.get("MILKWEED_PROC")
        if place and json.loads(place)["proc"].startswith("check-"):
            found += [pid] * (host is None or env["MILKWEED_HOST_ID"] == f"{mesh}.{host}")
    return found


def keeper_of(mesh: str) -> int | None:
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"milkweed.runtime.keeper" in words and mesh.encode() in words and alive(int(name)):
                return int(name)
    return None


def with_argument(word: str) -> list[int]:
    """Pids of the processes that have this word on their command line, whoever started them."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in words:
                found.append(int(name))
    return found


async def eventually(condition: Callable[[], object], within_s: float = 10.0) -> None:
    """Returns once the condition holds; a test fails when it does not within that time."""
    with anyio.fail_after(within_s):
        while not condition():
            await anyio.sleep(0.01)
