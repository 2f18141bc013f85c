"""The environment of what a run starts on a host, and finding the ranks that a launcher started by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import anyio.abc

from ..agent.context import HostContext
from ..agent.hook_protocol import bytecode_environment, hook_environment
from ..agent.ptree import Process, descendants, read_environ
from ..agent.starter import Policy, Starters
from ..devices.own_device import with_own_device
from ..holdings import HostLayout
from ..mounts.mountpoints import resolved
from ..records import HostPlan, ProcessPlan

__all__ = ["environment", "find_ranks", "marks", "open_starters"]

# Torch's flight recorder: without a size it records nothing of gloo.
_RECORDED_COLLECTIVES = 2000


def environment(
    context: HostContext, plan: HostPlan, process: ProcessPlan, base: Mapping[str, str]
) -> dict[str, str]:
    """What a process of the plan gets: `base` without our variables, the plan's over it, our marks on top.

    Raises:
        InvalidArgument: unsupported, it is to have a device of its own, and there is none.
    """
    env = {name: value for name, value in base.items() if not name.startswith("MILKWEED_")}
    env |= {"PYTHONUNBUFFERED": "1", "TMPDIR": str(context.temporary)}
    env.setdefault("TORCH_FR_BUFFER_SIZE", str(_RECORDED_COLLECTIVES))
    env |= process.env
    env |= marks(context, plan.run, process.rank)
    env["MILKWEED_MESH"] = context.mesh
    env |= context.reached
    if process.own_device is not None:
        env = with_own_device(env, process.own_device, f" on {context.name}")
    env |= hook_environment(context.run_directory(plan.run), process.label, env.get("PYTHONPATH", ""))
    return env | _bytecode(HostLayout(context.directory))


def _bytecode(layout: HostLayout) -> dict[str, str]:
    """For the workspace, where it is mounted: there a new file costs requests, and plain disk does not."""
    for place in layout.mounts():
        if place.bytecode.is_dir() and (shown := place.shown):
            return bytecode_environment(place.bytecode, (shown, str(resolved(Path(shown)))))
    return {}


def open_starters(
    context: HostContext, tasks: anyio.abc.TaskGroup, modules: Sequence[str], policy: Policy
) -> Starters:
    """The starters of a host; they carry its mark, and that of no run."""
    mark = {"MILKWEED_HOST_ID": context.instance}
    directory = context.directory / "starters"
    return Starters(context.children, tasks, directory, mark, modules=modules, policy=policy)


def marks(context: HostContext, run: str, rank: int | None = None) -> dict[str, str]:
    """What tells processes of a run on this host, or of one of its ranks, from all others.

    A launcher has a negative rank and no mark of its own, since its ranks would inherit it.
    """
    found = {"MILKWEED_HOST_ID": context.instance, "MILKWEED_RUN": run}
    return found if rank is None or rank < 0 else {**found, "MILKWEED_RANK": str(rank)}


def find_ranks(
    table: Mapping[int, Process],
    launcher: int,
    ranks: Iterable[int],
    environ: Callable[[int], Mapping[str, str]] = read_environ,
) -> dict[int, Process]:
    """The ranks among the processes that a launcher started: the topmost with RANK in their environment."""
    wanted = set(ranks)
    numbers = {pid: environ(pid).get("RANK") for pid in descendants(table, [launcher]) if table[pid].alive}
    found = {}
    for pid, number in numbers.items():
        top = numbers.get(table[pid].parent) is None
        if top and number is not None and number.isdecimal() and int(number) in wanted:
            found[int(number)] = table[pid]
    return found
