"""`import torch` from a mounted virtual environment, cold and warm, beside the same on its own disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ...runtime.api import SIDE
from ...runtime.plan import ALL, Plan, Program, Row
from ..hosts import open_hosts
from ..trees import drop_caches, timed

__all__ = ["VENV_VARIABLE", "Measured", "plans"]

VENV_VARIABLE = "BENCH_VENV"
"""The environment that is mounted, with torch in it; default: the one that runs this."""


class Measured(Program):
    """Cold is with caches dropped on the bare side; where that is not allowed, nothing is compared."""

    def __init__(self, venv: str) -> None:
        self._venv = Path(venv)

    async def open(self) -> None:
        self._hosts = await open_hosts(1)

    async def sample(self) -> dict[str, float | str]:
        figures: dict[str, float | str] = {}
        hosts = self._hosts
        may_drop = drop_caches()
        if SIDE == "bare" and not may_drop:
            figures["note"] = "caches cannot be dropped here: no cold import"
        if SIDE == "bare" and may_drop:
            figures["cold"] = self._import(self._venv)
        if SIDE != "bare":
            self._import(self._venv)  # a mount is cold, not the disk of the client
        await hosts.open(self._venv)
        try:
            if SIDE != "bare":
                figures["cold"] = self._import(hosts.path(0))
            figures["warm"] = min(self._import(hosts.path(0)) for _ in range(2))
        finally:
            await hosts.close()
        return figures

    def _import(self, venv: Path) -> float:
        command = [venv / "bin" / "python", "-c", "import torch; print(torch.__file__)"]
        ours = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        found: list[str] = []
        took = timed(lambda: found.append(subprocess.check_output(command, text=True, env=ours, cwd="/")))
        if not found[0].startswith(str(venv)):
            raise RuntimeError(f"torch was imported from {found[0]}, not from {venv}")
        return took

    async def close(self) -> None:
        await self._hosts.end()


def plans(*, quick: bool) -> list[Plan]:
    rows = (
        Row("cold", "import torch, a cold mount; bare: caches dropped", "s", bare=0.5),
        Row("warm", "import torch, a warm mount; bare: cached", "s", bare=1 / 1.2),
    )
    options = {"venv": os.path.realpath(os.environ.get(VENV_VARIABLE, sys.prefix))}
    return [Plan(rows, 1 if quick else 5, options, ALL, timeout_s=300)]
