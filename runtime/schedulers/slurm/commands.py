"""Asking Slurm by its commands, each with a deadline; its refusals in our words."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

import anyio

from ...errors import Unavailable

__all__ = ["Commands", "Refused", "own_environment", "refusal"]

_WITHIN_S = 12.0
_MENDS = (
    ("partition", "list_schedulers names the partitions; options={'partition': ...}."),
    ("account", "Name one of yours: sacctmgr show associations user=$USER; options={'account': ...}."),
    ("qos", "Name one that you may use; options={'qos': ...}."),
    ("node configuration", "No node has that many CPUs, GPUs or that memory: ask for less of each host."),
    ("node count", "The partition has fewer nodes: ask for fewer hosts."),
    ("time limit", "Ask for a shorter lease, or another partition (list_schedulers)."),
    ("gres", "options={'gpus_per_node': ...}: list_schedulers says what nodes have."),
)


class Refused(Exception):
    """Slurm answered, and said no; its own words."""


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Ours without what belongs to a job that we may run in, which would go over to every job of ours."""
    return {
        name: value
        for name, value in environ.items()
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SLURMD_", "SRUN_"))
    }


def refusal(words: str) -> Unavailable:
    """Slurm's no to a job, with what mends it."""
    last = [line.split("error: ", 1)[-1].strip() for line in words.splitlines() if line.strip()]
    said = "; ".join(dict.fromkeys(last))[:500] or "Slurm gave no reason"
    mend = next((mend for word, mend in _MENDS if word in said.lower()), "Call it with what Slurm allows.")
    return Unavailable("allocation_failed", f"Slurm refuses the job: {said}", mend)


class Commands:
    """Slurm as this user reaches it from here."""

    def __init__(self, within_s: float = _WITHIN_S) -> None:
        self._within_s = within_s
        self._version: tuple[int, int] | None = None

    @staticmethod
    def found() -> bool:
        return all(shutil.which(name) for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo"))

    async def ask(self, *argv: str, given: str | None = None) -> str:
        """What a command prints; `given` is what it reads.

        Raises:
            Refused: it failed. Unavailable: scheduler_unusable, there is none, or it does not answer.
        """
        program = shutil.which(argv[0])
        if program is None:
            raise Unavailable(
                "scheduler_unusable",
                f"there is no {argv[0]} here",
                "Run Milkweed on a login node: the MCP command is `ssh LOGIN-NODE milkweed serve`.",
            )
        try:
            with anyio.fail_after(self._within_s):
                done = await anyio.run_process(
                    [program, *argv[1:]],
                    input=None if given is None else given.encode(),
                    check=False,
                    env=own_environment(os.environ),
                )
        except TimeoutError:
            raise Unavailable(
                "scheduler_unusable",
                f"{argv[0]} did not answer within {self._within_s:.0f} s",
                "Is Slurm up? Try: scontrol ping",
            ) from None
        if done.returncode != 0:
            words = (done.stderr or done.stdout).decode(errors="replace").strip()
            if re.search(
                r"(?i)unable to contact|connection refused|configuration source|socket timed out", words
            ):
                raise Unavailable(
                    "scheduler_unusable",
                    f"Slurm does not answer: {words.splitlines()[-1][:300]}",
                    "Try: scontrol ping",
                )
            raise Refused(words)
        # What `sbatch --test-only` tells goes to the other one.
        return (done.stdout or done.stderr).decode(errors="replace")

    async def ask_json(self, *argv: str) -> Any:
        """
        Raises:
            Refused, Unavailable: as `ask`. ValueError: it prints no JSON.
        """
        return json.loads(await self.ask(*argv))

    async def version(self) -> tuple[int, int]:
        """(22, 5) of `slurm-wlm 22.05.8`; (0, 0) where it cannot be told."""
        if self._version is None:
            match = re.search(r"(\d+)\.(\d+)", await self.ask("scontrol", "--version"))
            self._version = (int(match[1]), int(match[2])) if match else (0, 0)
        return self._version
