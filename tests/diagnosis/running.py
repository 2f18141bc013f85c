"""Runs a case: a mesh of its own, the program's folder as its workspace, until it can be asked.

    async with open_places() as places, open_real_meshes(places) as meshes:
        async with run_case(find("nan_loss/plain"), meshes) as case:
            ...  # case.mesh, case.run: running and past its `ready` line, or over

What a case's `options` say is done here, and out of the program's sight:

    isolation      "namespaces": hosts with a network and mounts of their own
    memory_mb      the ranks of `memory_ranks` ("3", "2-3"; default: all) share a memory cgroup of this size
    shm_mb         each rank sees a /dev/shm of this size
    disk_mb        the workspace's folder `disk` (default: checkpoints) is a file system of this size
    host_env       "1:NAME=value": a variable of one host
    host_path      folder of the workspace before PYTHONPATH, in words of the shell: "sites/node$GROUP_RANK"
    ulimit         arguments of the shell's ulimit
    keep_going     the other ranks go on when one has failed
    only_ranks     ranks that are started (RunRequest.ranks)
    timeout_s      for the program to get where it can be asked, in seconds (default: 60)

`check_case` says what of it this machine does not allow.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from milkweed.runtime.client import Mesh, Meshes
from milkweed.runtime.errors import Conflict, Unavailable
from milkweed.runtime.records import MeshSpec, RunRequest, RunView
from milkweed.runtime.schedulers.namespaces import check_possible
from tests.diagnosis.cases import PROGRAMS, Case
from tests.runtime.processes import eventually

__all__ = ["RunningCase", "check_case", "run_case"]

_CGROUPS = Path("/sys/fs/cgroup")
_MIB = 1 << 20
_READY_S = 60.0


@dataclass(frozen=True, slots=True)
class RunningCase:
    """`run` is its view when it could be asked first; `workspace` what its hosts see."""

    case: Case
    mesh: Mesh
    run: RunView
    workspace: Path


def check_case(case: Case) -> str:
    """Why the case cannot be had on this machine; empty where it can."""
    try:
        if case.options.get("isolation") == "namespaces":
            check_possible()
        if "memory_mb" in case.options:
            with _memory_cgroup(64):
                pass
    except (OSError, Unavailable) as error:
        return str(error)
    if ("shm_mb" in case.options or "disk_mb" in case.options) and os.geteuid() != 0:
        return "mounts need root"
    return ""


@asynccontextmanager
async def run_case(case: Case, meshes: Meshes) -> AsyncIterator[RunningCase]:
    """The case's run, when it is ready to be asked about.

    Raises:
        TimeoutError: it did not get there.
    """
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="mw-ws-", dir="/tmp"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        workspace = root / "project"
        program = PROGRAMS / case.program
        shutil.copytree(program.parent, workspace, ignore=shutil.ignore_patterns("__pycache__"))
        if "disk_mb" in case.options:
            stack.enter_context(
                _small_disk(workspace / case.options.get("disk", "checkpoints"), case.options["disk_mb"])
            )
        group = None
        if "memory_mb" in case.options:
            group = stack.enter_context(_memory_cgroup(int(case.options["memory_mb"])))
        options = {key: value for key, value in case.options.items() if key == "isolation"}
        mesh = await meshes.allocate(
            MeshSpec("trainers", case.hosts, case.procs_per_host, workspace=str(workspace), options=options)
        )
        try:
            run = await mesh.start_run(_request(case, program.name, group))
            run = await _until_ready(case, mesh, run)
            yield RunningCase(case, mesh, run, workspace)
        finally:
            with anyio.CancelScope(shield=True):
                with suppress(Conflict):
                    await mesh.release()
                if group is not None:
                    procs = group / "cgroup.procs"
                    await eventually(lambda: not procs.read_text())


async def _until_ready(case: Case, mesh: Mesh, run: RunView) -> RunView:
    limit = float(case.options.get("timeout_s", _READY_S))
    with anyio.fail_after(limit + 5):
        if case.while_running:
            view = await mesh.wait_run(run.run, until="output", pattern=case.ready, timeout_s=limit)
        else:
            view = await mesh.wait_run(run.run, until="end", timeout_s=limit)
    slices = await mesh.read_output(run.run, tail_bytes=64 * 1024)
    said = {one.rank: one.data.decode(errors="replace") for one in slices}
    there = not case.while_running or any(re.search(case.ready, text, re.MULTILINE) for text in said.values())
    if (view.state == "running") is case.while_running and there:
        return view
    tails = "\n".join(f"rank {rank}: {text[-800:]}" for rank, text in said.items())
    raise TimeoutError(
        f"{case.name} is {view.state} and not where it can be asked after {limit:g} s\n{tails}"
    )


def _request(case: Case, program: str, group: Path | None) -> RunRequest:
    env = dict(case.env)
    ranks = case.options.get("only_ranks")
    lines = []
    if group is not None:
        chosen = _ranks(case.options.get("memory_ranks", ""), case.hosts * case.procs_per_host)
        lines.append(
            f'case " {" ".join(map(str, chosen))} " in *" $RANK "*) echo $$ >{group}/cgroup.procs;; esac'
        )
    if "ulimit" in case.options:
        lines.append(f"ulimit {case.options['ulimit']}")
    if "host_env" in case.options:
        host, _, variable = case.options["host_env"].partition(":")
        lines.append(f'if [ "$GROUP_RANK" = {host} ]; then export {variable}; fi')
    if "host_path" in case.options:
        lines.append(f'export PYTHONPATH="$PWD/{case.options["host_path"]}${{PYTHONPATH:+:$PYTHONPATH}}"')
    if not lines and "shm_mb" not in case.options:
        return RunRequest(
            ("python", program), case.launcher, env=env, ranks=ranks, keep_going="keep_going" in case.options
        )
    command = f"exec python {program}"
    if "shm_mb" in case.options:
        mount = f"mount -t tmpfs -o size={case.options['shm_mb']}m tmpfs /dev/shm"
        command = f"exec unshare --mount sh -c {shlex.quote(f'{mount} && {command}')}"
    return RunRequest(
        (),
        case.launcher,
        script="\n".join((*lines, command)),
        env=env,
        ranks=ranks,
        keep_going="keep_going" in case.options,
    )


def _ranks(text: str, world: int) -> list[int]:
    if not text:
        return list(range(world))
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


@contextmanager
def _memory_cgroup(mib: int) -> Iterator[Path]:
    """
    Raises:
        OSError: there is none to be had.
    """
    first = (_CGROUPS / "memory").is_dir()
    group = _CGROUPS / ("memory" if first else "") / f"milkweed-test-{secrets.token_hex(4)}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(mib * _MIB))
        (group / ("memory.swappiness" if first else "memory.swap.max")).write_text("0")
        yield group
    finally:
        group.rmdir()


@contextmanager
def _small_disk(folder: Path, mib: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
