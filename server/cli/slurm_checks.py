"""What `milkweed doctor --scheduler slurm` looks at: Slurm as this user reaches it, and what hosts need."""

from __future__ import annotations

import anyio

from ...runtime import engines
from ...runtime.errors import InvalidArgument, MilkweedError, Unavailable
from ...runtime.filesystems import NETWORK_TYPES, file_system_type
from ...runtime.paths import Places
from ...runtime.records import MeshSpec
from ...runtime.schedulers import find
from ...runtime.schedulers.base import AllocationPlan
from ...runtime.schedulers.slurm.asking import Asking
from ...runtime.schedulers.slurm.commands import Commands, Refused
from .checks import Check

__all__ = ["check_slurm"]


def check_slurm() -> list[Check]:
    """In this order, and no more once one is missing that the others need."""
    return anyio.run(_check)


async def _check() -> list[Check]:
    commands = Commands()
    if not commands.found():
        return [
            Check(
                "slurm", "missing", "no sbatch, squeue, scancel, scontrol and sinfo here",
                "Run Milkweed on a login node: the MCP command is `ssh LOGIN-NODE milkweed serve`.",
            )
        ]  # fmt: skip
    try:
        version = (await commands.ask("scontrol", "--version")).strip()
        await commands.ask("scontrol", "ping")
    except (Refused, Unavailable) as error:
        return [Check("slurm", "missing", f"no answer: {error}"[:300], "scontrol ping")]
    view = await find("slurm").capacity()
    up = Check("slurm", "ok" if view.available else "missing", f"{version}; {view.hosts or view.reason}")
    return [up, _check_directories(), await _check_reach(commands), await _check_submission()]


def _check_directories() -> Check:
    """Sockets must be local; state that other nodes need must not."""
    try:
        places = Places.from_environment()
    except MilkweedError as error:
        return Check("slurm files", "missing", error.cause, error.next_step)
    kind = file_system_type(places.runtime)
    if kind in NETWORK_TYPES:
        return Check(
            "slurm files", "missing", f"sockets would be in {places.runtime}, on {kind}",
            "Set MILKWEED_RUNTIME_DIR to a directory on a local disk.",
        )  # fmt: skip
    state = file_system_type(places.state)
    where = f"{places.state} on {state or 'an unknown file system'}"
    if state in NETWORK_TYPES:
        return Check("slurm files", "ok", f"state is shared with the nodes: {where}")
    return Check("slurm files", "ok", f"state is of this machine alone, as its nodes are: {where}")


async def _check_reach(commands: Commands) -> Check:
    """Whether an engine reaches the default partition's nodes."""
    asking = Asking(commands)
    try:
        default = next((one.name for one in await asking.partitions() if one.default), "")
        elsewhere = await asking.elsewhere(default)
        engines.find("embedded").check(AllocationPlan(elsewhere=elsewhere))
    except InvalidArgument as error:
        return Check("slurm nodes", "missing", error.cause, error.next_step)
    except (Refused, Unavailable) as error:
        return Check("slurm nodes", "warning", str(error)[:300], "scontrol show node")
    return Check("slurm nodes", "ok", f"all nodes of partition {default or 'any'} are this machine")


async def _check_submission() -> Check:
    """What Slurm says of a job of one node for an hour, without taking it."""
    spec = MeshSpec("doctor", 1, 1, scheduler="slurm")
    try:
        mesh = "mesh-doctor-xxx"
        plan = await find("slurm").plan(mesh, spec, Places.from_environment().mesh(mesh))
    except MilkweedError as error:
        return Check("slurm job", "warning", error.cause, error.next_step)
    if plan.warnings:
        return Check(
            "slurm job", "warning", plan.warnings[0][:300], "sbatch --test-only --nodes=1 --time=60 ..."
        )
    return Check("slurm job", "ok", "a job of one node for an hour would be taken")
