"""From a run request to what each host starts: pure functions, one a launcher.

The variables of `spmd` are those that torchrun sets (torch 2.13, `torch.distributed.elastic.agent.server`),
so that a script cannot tell them apart; MASTER_ADDR is the first host's address.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..attach_records import ATTACH_VARIABLE, AttachPlace, encode_attach_place
from ..errors import InvalidArgument
from ..mesh import Extent, parse_selection
from ..records import HostPlan, ProcessPlan, RunRequest

__all__ = ["Placement", "command_text", "needs_port", "plan_run", "ranks_of"]

_LOOPBACK = "127.0.0.1"
# torchrun starts each rank through this, so that a rank writes straight to its own file.
_OWN_OUTPUT = 'exec "$@" >>"$MILKWEED_RUN_DIR/rank-$RANK.out" 2>&1'


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a run goes: the mesh's extent, each host's address, and what `python` means there.

    `cold`: why nothing there starts warm; None: it may. `python_path` is what PYTHONPATH is there; `attach`
    the mesh as controllers see it.
    """

    run: str
    extent: Extent
    addresses: Sequence[str]
    workspace: str
    python: str
    path: str
    master_port: int = 0
    cold: str | None = None
    python_path: str = ""
    attach: AttachPlace | None = None


@dataclass(frozen=True, slots=True)
class _Group:
    """The chosen ranks of one host: `group` counts the run's hosts, `first` its ranks before this one."""

    group: int
    host: int
    size: int
    first: int


def needs_port(launcher: str) -> bool:
    """Whether the launcher's ranks meet at MASTER_PORT."""
    return launcher in ("spmd", "torchrun")


def plan_run(request: RunRequest, place: Placement) -> tuple[HostPlan, ...]:
    """One plan a host that takes part, in host order.

    Raises:
        InvalidArgument: a selection the mesh does not have, or one that the launcher cannot serve.
    """
    if request.own_device and request.launcher != "spmd":
        raise InvalidArgument(
            "unsupported",
            f"own_device is for launcher='spmd', which starts each rank; {request.launcher!r} was asked for",
            "Leave it out: ranks find their device by LOCAL_RANK.",
        )
    groups = _groups(parse_selection(request.ranks, place.extent), place.extent)
    return _LAUNCHERS[request.launcher](request, place, groups)


def ranks_of(plans: Sequence[HostPlan]) -> tuple[tuple[int, int], ...]:
    """(rank, host) of every rank of a run, in rank order."""
    found = [
        (rank, plan.host)
        for plan in plans
        for rank in (plan.child_ranks or tuple(process.rank for process in plan.processes))
    ]
    return tuple(sorted(found))


def _groups(ranks: Sequence[int], extent: Extent) -> list[_Group]:
    groups: list[_Group] = []
    first = 0
    for host in sorted({extent.host_of(rank) for rank in ranks}):
        size = sum(1 for rank in ranks if extent.host_of(rank) == host)
        groups.append(_Group(len(groups), host, size, first))
        first += size
    return groups


def _spmd(request: RunRequest, place: Placement, groups: list[_Group]) -> tuple[HostPlan, ...]:
    world = sum(group.size for group in groups)
    plans = []
    for group in groups:
        processes = []
        for local in range(group.size):
            rank = group.first + local
            env = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_RANK": str(local),
                "LOCAL_WORLD_SIZE": str(group.size),
                "GROUP_RANK": str(group.group),
                "GROUP_WORLD_SIZE": str(len(groups)),
                "ROLE_RANK": str(rank),
                "ROLE_WORLD_SIZE": str(world),
                "ROLE_NAME": "default",
                "TORCHELASTIC_RUN_ID": place.run,
                "TORCHELASTIC_RESTART_COUNT": "0",
                "TORCHELASTIC_MAX_RESTARTS": "0",
                "TORCHELASTIC_USE_AGENT_STORE": "False",
                "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
                **_meeting_point(place, groups),
            }
            if group.size > 1:
                env["OMP_NUM_THREADS"] = "1"
            process = _process(
                request, place, group.host, rank, f"rank-{rank}", _with_python(request.argv), env
            )
            processes.append(replace(process, own_device=local if request.own_device else None))
        plans.append(_host_plan(request, place, group.host, processes))
    return tuple(plans)


def _torchrun(request: RunRequest, place: Placement, groups: list[_Group]) -> tuple[HostPlan, ...]:
    if request.script is not None:
        raise InvalidArgument(
            "invalid_argument",
            "launcher='torchrun' starts a Python program, not a script",
            "Give command='train.py ...'.",
        )
    if len({group.size for group in groups}) > 1:
        raise InvalidArgument(
            "invalid_argument",
            "torchrun needs the same number of ranks on every host",
            'Select them as "hosts=0-1,gpus=0-1".',
        )
    master = _meeting_point(place, groups)
    plans = []
    for group in groups:
        argv = (
            *("python", "-m", "torch.distributed.run"),
            *(
                "--nnodes",
                str(len(groups)),
                "--node-rank",
                str(group.group),
                "--nproc-per-node",
                str(group.size),
            ),
            *("--master-addr", master["MASTER_ADDR"], "--master-port", master["MASTER_PORT"]),
            *("--rdzv-id", place.run, "--max-restarts", "0", "--no-python"),
            *("/bin/sh", "-c", _OWN_OUTPUT, "sh", *_resolve_python(_torchrun_program(request.argv), place)),
        )
        env = {
            "NNODES": str(len(groups)),
            "NODE_RANK": str(group.group),
            "NPROC_PER_NODE": str(group.size),
            **master,
        }
        # A launcher is no rank: it has the number -1 - host, so that its own end is told from theirs.
        process = _process(request, place, group.host, -1 - group.host, f"torchrun-{group.group}", argv, env)
        plan = _host_plan(request, place, group.host, [process])
        children = tuple(range(group.first, group.first + group.size))
        plans.append(HostPlan(plan.run, plan.host, plan.processes, children, None, plan.timeout_s))
    return tuple(plans)


def _per_host(request: RunRequest, place: Placement, groups: list[_Group]) -> tuple[HostPlan, ...]:
    plans = []
    for group in groups:
        env = {
            "NNODES": str(len(groups)),
            "NODE_RANK": str(group.group),
            "MASTER_ADDR": place.addresses[groups[0].host],
        }
        process = _process(request, place, group.host, group.group, f"rank-{group.group}", request.argv, env)
        plans.append(_host_plan(request, place, group.host, [process]))
    return tuple(plans)


def _single(request: RunRequest, place: Placement, groups: list[_Group]) -> tuple[HostPlan, ...]:
    return _per_host(request, place, groups[:1])


_LAUNCHERS: Mapping[str, Callable[[RunRequest, Placement, list[_Group]], tuple[HostPlan, ...]]] = {
    "spmd": _spmd,
    "torchrun": _torchrun,
    "per_host": _per_host,
    "single": _single,
}


def _meeting_point(place: Placement, groups: list[_Group]) -> dict[str, str]:
    return {"MASTER_ADDR": place.addresses[groups[0].host], "MASTER_PORT": str(place.master_port)}


def _process(
    request: RunRequest,
    place: Placement,
    host: int,
    rank: int,
    label: str,
    argv: Sequence[str],
    env: Mapping[str, str],
) -> ProcessPlan:
    base = {
        # A rank that dies by a signal says where; only then does it print.
        "PATH": place.path,
        "MILKWEED_HOST": str(host),
        "MILKWEED_HOST_ADDRESS": place.addresses[host],
    }
    if request.attach and place.attach is not None:
        base[ATTACH_VARIABLE] = encode_attach_place(replace(place.attach, here=host))
    if place.addresses[host] == _LOOPBACK:
        # Hosts that share the machine meet on its loopback, whatever its host name resolves to.
        base["GLOO_SOCKET_IFNAME"] = "lo"
    cwd = request.cwd or place.workspace
    variables = {**base, **env, **request.env}
    if _interpreter(request, place):
        # The script lies elsewhere, and its modules are in the directory that it runs in.
        known = request.env.get("PYTHONPATH", place.python_path)
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (cwd, known)))
    return ProcessPlan(
        rank,
        label,
        _resolve_python(argv, place),
        variables,
        cwd,
        place.cold if request.warm else "",
    )


def _host_plan(
    request: RunRequest, place: Placement, host: int, processes: Sequence[ProcessPlan]
) -> HostPlan:
    return HostPlan(
        place.run,
        host,
        tuple(processes),
        script=request.script,
        timeout_s=request.timeout_s,
        interpreter=_interpreter(request, place),
    )


def _interpreter(request: RunRequest, place: Placement) -> str:
    """What runs the script of a controller; empty for any other run."""
    return place.python if request.attach and request.script is not None else ""


def _with_python(argv: tuple[str, ...]) -> tuple[str, ...]:
    """`train.py --x` means `python train.py --x`, as it does for torchrun."""
    return ("python", *argv) if argv and argv[0].endswith(".py") and "/" not in argv[0] else argv


def _torchrun_program(argv: tuple[str, ...]) -> tuple[str, ...]:
    """torchrun starts a file by Python wherever it is."""
    return ("python", *argv) if argv and argv[0].endswith(".py") else argv


def _resolve_python(argv: Sequence[str], place: Placement) -> tuple[str, ...]:
    return (place.python, *argv[1:]) if argv and argv[0] in ("python", "python3") else tuple(argv)


def command_text(request: RunRequest) -> str:
    """The command as results show it."""
    if request.script is not None:
        lines = [line for line in request.script.splitlines() if line.strip() and not line.startswith("#!")]
        return f"script: {lines[0].strip()[:80]}" + (" ..." if len(lines) > 1 else "") if lines else "script"
    return shlex.join(request.argv)
