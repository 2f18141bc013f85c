"""`milkweed status [MESH]`: meshes and runs."""

from __future__ import annotations

import argparse

from ...tools.results import MeshItem, MeshList, RunItem, RunList
from .printing import print_answer, print_rows
from .session import Session, add_output_argument, run_session

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mesh", nargs="?", help="one mesh in detail; default: all")
    add_output_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    async def work(session: Session) -> int:
        if arguments.mesh:
            print_answer(await session.tool("mesh_status", mesh=arguments.mesh), arguments.output)
            return 0
        meshes = await session.tool("list_meshes")
        assert isinstance(meshes, MeshList)
        if arguments.output == "json":
            print_answer(meshes, "json")
            return 0
        runs: list[RunItem] = []
        for mesh in meshes.meshes:
            listed = await session.tool("list_runs", mesh=mesh.mesh)
            assert isinstance(listed, RunList)
            runs += listed.runs[:5]
        if not meshes.meshes:
            print("no meshes")
            return 0
        columns = ("mesh", "state", "ranks", "lease left", "workspace")
        print_rows("Meshes", columns, [_mesh_row(mesh) for mesh in meshes.meshes])
        if runs:
            print_rows(
                "Runs", ("run", "state", "ranks", "time", "command"), [_run_row(item) for item in runs]
            )
        return 0

    return run_session(work, toolsets="mesh,run")


def _mesh_row(mesh: MeshItem) -> tuple[str, ...]:
    ranks = f"{mesh.hosts} x {mesh.procs_per_host}"
    return (mesh.mesh, mesh.state, ranks, f"{mesh.lease_left_s / 60:.0f} min", mesh.workspace)


def _run_row(item: RunItem) -> tuple[str, ...]:
    ranks = ", ".join(f"{state} {ranks}" for state, ranks in item.ranks.items())
    return (item.run, item.state, ranks, f"{item.duration_s:.1f} s", item.command)
