"""`milkweed run -- COMMAND`: allocates a mesh, runs the command, follows its output, gives the mesh back."""

from __future__ import annotations

import argparse
import os
import sys

import anyio

from ...tools.results import MeshResult, ReleaseResult, RunResult
from .seeing_through import see_through
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]

_LOOK_S = 2.0
_TO_DO = """\
To have them: milkweed call fetch_files mesh={mesh} path=FOLDER destination=DIRECTORY
Then, or to lose them: milkweed release --yes {mesh}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--mesh", help="use this mesh, and keep it")
    where.add_argument("--hosts", type=int, default=1, help="hosts of a new mesh (default 1)")
    parser.add_argument("--procs", type=int, default=1, help="ranks a host of a new mesh (default 1)")
    parser.add_argument("--scheduler", default="local")
    parser.add_argument(
        "--option", action="append", metavar="NAME=VALUE", default=[], help="of the scheduler: partition=gpu"
    )
    parser.add_argument("--workspace", help="directory that hosts see (default: this one)")
    parser.add_argument(
        "--workspace-mode",
        choices=("auto", "shared", "mount", "copy"),
        default="auto",
        help="how hosts of a new mesh see it (default auto)",
    )
    parser.add_argument("--launcher", choices=("spmd", "torchrun", "per_host", "single"), default="spmd")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="end the run after it")
    parser.add_argument("--keep", action="store_true", help="do not give the new mesh back")
    parser.add_argument(
        "--keep-files", action="append", metavar="GLOB", default=[], help="files of hosts to keep: 'out/**'"
    )
    add_output_argument(parser)
    parser.usage = "%(prog)s [options] -- COMMAND [ARG ...]"
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="program and arguments")


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        mesh = arguments.mesh or await _allocate(session, arguments)
        try:
            await _wait_for_hosts(session, mesh)
            return await _run(session, mesh, arguments)
        finally:
            if not arguments.mesh and not arguments.keep:
                with anyio.CancelScope(shield=True):
                    await _give_back(session, mesh)

    return run_session(work, toolsets="mesh,run")


async def _give_back(session: Session, mesh: str) -> None:
    """A mesh whose hosts wrote checkpoints stays until somebody has seen to them, or its lease ends."""
    answer = await session.tool("release_mesh", mesh=mesh)
    assert isinstance(answer, ReleaseResult)
    if answer.state == "not_released":
        answer = answer.model_copy(update={"next": _TO_DO.format(mesh=mesh)})
    if answer.state == "not_released" or answer.kept or answer.not_kept or answer.lost:
        print(answer.summary(), file=sys.stderr)


async def _allocate(session: Session, arguments: argparse.Namespace) -> str:
    result = await session.tool(
        "allocate_mesh",
        name=f"cli-{os.getpid()}",
        hosts=arguments.hosts,
        procs_per_host=arguments.procs,
        scheduler=arguments.scheduler,
        workspace=arguments.workspace,
        workspace_mode=arguments.workspace_mode,
        options=dict(option.partition("=")[::2] for option in arguments.option) or None,
    )
    assert isinstance(result, MeshResult)
    print(result.summary(), file=sys.stderr)
    return result.mesh


async def _wait_for_hosts(session: Session, name: str) -> None:
    """However long they are waited for; each change of the reason is told."""
    mesh, told = await session.meshes.get(name), ""
    while (view := await mesh.view()).state in ("queued", "starting"):
        if view.reason and view.reason != told:
            told = view.reason
            print(f"{view.mesh}: {told}", file=sys.stderr)
        if view.state == "queued":
            await anyio.sleep(_LOOK_S)
        else:
            await mesh.wait_ready(_LOOK_S)


async def _run(session: Session, mesh: str, arguments: argparse.Namespace) -> int:
    started = await session.tool(
        "run_on_mesh",
        mesh=mesh,
        command=arguments.command,
        launcher=arguments.launcher,
        timeout_s=arguments.timeout,
        wait_s=0,
        options={"keep": arguments.keep_files} if arguments.keep_files else None,
    )
    assert isinstance(started, RunResult)
    return await see_through(session, started, arguments.output)
