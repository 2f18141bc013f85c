"""Fifty allocations, runs and releases leave nothing behind."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, RunRequest

from .processes import eventually, keeper_of, of_mesh, with_argument
from .test_namespaces import links, possible

pytestmark = pytest.mark.anyio

CYCLES = 50
KINDS = ("mnt", "net", "uts")


def descriptors() -> set[tuple[str, str]]:
    """Number and target of each open file. Compared as sets: what earlier tests of this process left to the
    garbage collector may be closed at any time."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


def sockets_below(directory: Path) -> list[str]:
    lines = Path("/proc/net/unix").read_text().splitlines()
    return [line for line in lines if str(directory) in line]


@contextmanager
def namespaces_of(pids: list[int]) -> Iterator[set[str]]:
    """Their namespaces but our own, held open so that the kernel gives the numbers to no others."""
    files = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for pid in pids for kind in KINDS]
    try:
        yield {os.readlink(f"/proc/self/fd/{fd}") for fd in files} - namespaces_seen_by("self")
    finally:
        for fd in files:
            os.close(fd)


def namespaces_seen_by(pid: str) -> set[str]:
    found = set()
    for kind in KINDS:
        with suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found


def inside(namespaces: set[str]) -> list[str]:
    """Processes of this machine that live in one of these namespaces."""
    pids = (name for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if namespaces & namespaces_seen_by(pid)]


@pytest.fixture
def nap() -> Iterator[str]:
    """Seconds that nobody else sleeps: their number marks daemons that carry no other mark."""
    word = f"1000.{secrets.randbelow(10**9):09}"
    yield word
    for pid in with_argument(word):
        os.kill(pid, signal.SIGKILL)


def leaving_daemons(nap: str) -> str:
    """A script that ends once it has background processes: one in its session, one in another, and one that
    has also left its environment behind."""
    lost = f"echo >up-$1; exec sleep {nap}"
    return f"""
        sleep 100 &
        setsid sleep 100 &
        mkfifo up-$MILKWEED_RUN-$RANK
        (setsid env -i sh -c '{lost}' sh $MILKWEED_RUN-$RANK &)
        read -r _ <up-$MILKWEED_RUN-$RANK
        echo done
    """


async def test_daemons_end_with_their_run_also_without_its_marks(
    meshes: Meshes, tmp_path: Path, nap: str
) -> None:
    mesh = await meshes.allocate(MeshSpec("t", 1, 2, workspace=str(tmp_path)))
    run = await mesh.start_run(RunRequest((), script=leaving_daemons(nap)))
    assert (await mesh.wait_run(run.run, timeout_s=20)).state == "succeeded"
    await eventually(lambda: with_argument(nap) == [])
    assert len(of_mesh(mesh.id)) == 3


@pytest.mark.timeout(900)
async def test_fifty_cycles_leave_no_process_descriptor_socket_or_namespace(
    meshes: Meshes, places: Places, tmp_path: Path, nap: str
) -> None:
    seen = set()
    before: set[tuple[str, str]] = set()
    for cycle in range(CYCLES):
        isolated = possible() and cycle % 5 == 4
        spec = MeshSpec(
            f"c{cycle}",
            hosts=2,
            procs_per_host=1,
            workspace=str(tmp_path),
            options={"isolation": "namespaces"} if isolated else {},
        )
        if cycle == 1:
            before = descriptors()
        mesh = await meshes.allocate(spec)
        seen.add(mesh.id)
        agents = [host.agent_pid for host in (await mesh.view()).hosts if host.agent_pid]
        with namespaces_of(agents) as own:
            assert len(own) == (2 * len(KINDS) if isolated else 0)
            run = await mesh.start_run(RunRequest((), script=leaving_daemons(nap)))
            assert (await mesh.wait_run(run.run, timeout_s=20)).state == "succeeded"
            await mesh.start_run(RunRequest(("sleep", "100")))
            await mesh.release()
            assert inside(own) == []
        await eventually(lambda: not links(mesh.id))  # noqa: B023
    assert len(seen) == CYCLES
    assert [pid for mesh in seen for pid in of_mesh(mesh)] == []
    assert with_argument(nap) == []
    await eventually(lambda: not any(keeper_of(mesh) for mesh in seen))
    assert sockets_below(places.runtime) == []
    assert os.listdir(places.runtime) == []
    await eventually(lambda: descriptors() <= before)
