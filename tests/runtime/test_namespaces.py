"""Simulated hosts with namespaces of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.client import Meshes
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec, RunRequest
from milkweed.runtime.schedulers import namespaces

from .processes import eventually, of_mesh

pytestmark = pytest.mark.anyio


def possible() -> bool:
    try:
        namespaces.check_possible()
    except Unavailable:
        return False
    return True


def links(mesh: str) -> set[str]:
    """The mesh's own: other meshes of this machine come and go."""
    own = {namespaces.bridge_name(mesh), *(namespaces.cable_name(mesh, host) for host in range(16))}
    return own.intersection(os.listdir("/sys/class/net"))


def spec(workspace: Path, hosts: int = 2) -> MeshSpec:
    return MeshSpec("iso", hosts, 1, workspace=str(workspace), options={"isolation": "namespaces"})


ALLOCATE = """
import sys
import anyio
from milkweed.runtime.client import open_meshes
from milkweed.runtime.errors import Unavailable
from milkweed.runtime.paths import Places
from milkweed.runtime.records import MeshSpec

async def main():
    async with open_meshes() as meshes:
        try:
            await meshes.allocate(MeshSpec("iso", 2, 1, workspace="/", options={"isolation": "namespaces"}))
        except Unavailable as error:
            print(error, len(await meshes.list()))

anyio.run(main)
"""


def test_isolation_is_refused_with_the_reason_where_rights_are_missing(places: Places) -> None:
    without_rights = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] if os.getuid() == 0 else []
    env = {
        **os.environ,
        "MILKWEED_STATE_DIR": str(places.state),
        "MILKWEED_RUNTIME_DIR": str(places.runtime),
    }
    command = [*without_rights, sys.executable, "-c", ALLOCATE]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("isolation_unavailable: ")
    assert done.stdout.endswith("or leave out the isolation option. 0\n")


@pytest.mark.skipif(not possible(), reason="needs the right to make namespaces")
class TestIsolated:
    async def test_each_host_has_its_own_name_address_and_shared_memory(
        self, meshes: Meshes, tmp_path: Path
    ) -> None:
        mesh = await meshes.allocate(spec(tmp_path))
        script = (
            "echo $(hostname) $(ip -4 -br addr show eth0 | awk '{print $3}') $MASTER_ADDR"
            " $(getent hosts iso-1 | cut -d' ' -f1);"
            "touch /dev/shm/$RANK; ls /dev/shm"
        )
        run = await mesh.start_run(RunRequest((), script=script))
        assert (await mesh.wait_run(run.run, timeout_s=20)).state == "succeeded"
        texts = [one.data.decode() for one in await mesh.read_output(run.run)]
        assert texts == [
            "iso-0 10.77.0.1/16 10.77.0.1 10.77.0.2\n0\n",
            "iso-1 10.77.0.2/16 10.77.0.1 10.77.0.2\n1\n",
        ]

    async def test_each_host_has_a_name_for_the_others_in_both_families(
        self, meshes: Meshes, tmp_path: Path
    ) -> None:
        """A torch that finds none warns in every run."""
        mesh = await meshes.allocate(spec(tmp_path))
        script = (
            "import socket\n"
            "for address in ('10.77.0.2', '::ffff:10.77.0.2'):\n"
            "    print(socket.getnameinfo((address, 0), socket.NI_NAMEREQD)[0])\n"
            "print({one[4][0] for one in socket.getaddrinfo('iso-1', 1)})\n"
        )
        run = await mesh.start_run(RunRequest(("python", "-c", script)))
        assert (await mesh.wait_run(run.run, timeout_s=20)).state == "succeeded"
        texts = {one.data.decode() for one in await mesh.read_output(run.run)}
        assert texts == {"iso-1\niso-1.mapped\n{'10.77.0.2'}\n"}

    async def test_hosts_reach_each_other_and_nothing_else(self, meshes: Meshes, tmp_path: Path) -> None:
        mesh = await meshes.allocate(spec(tmp_path))
        server = (
            "import socket,os\n"
            "address=(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
            "socket.create_server(address).accept()\n"
        )
        client = (
            "import socket,os,time\n"
            "address=(os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
            "while True:\n"
            "    try: socket.create_connection(address, 1); break\n"
            "    except ConnectionRefusedError: time.sleep(0.01)\n"
            "try: socket.create_connection(('192.0.2.1', 9), 1)\n"
            "except OSError as error: print(error.strerror)\n"
        )
        (tmp_path / "server.py").write_text(server)
        (tmp_path / "client.py").write_text(client)
        script = 'if [ "$RANK" = 0 ]; then python3 server.py; else python3 client.py; fi'
        run = await mesh.start_run(RunRequest((), script=script))
        assert (await mesh.wait_run(run.run, timeout_s=20)).state == "succeeded"
        assert (await mesh.read_output(run.run))[1].data == b"Network is unreachable\n"

    async def test_links_and_namespaces_are_gone_after_the_release(
        self, meshes: Meshes, tmp_path: Path
    ) -> None:
        mesh = await meshes.allocate(spec(tmp_path, hosts=3))
        assert len(links(mesh.id)) == 4
        await mesh.release()
        assert of_mesh(mesh.id) == []
        await eventually(lambda: not links(mesh.id))

    async def test_the_last_host_that_ends_by_itself_takes_the_bridge_along(
        self, meshes: Meshes, tmp_path: Path
    ) -> None:
        mesh = await meshes.allocate(spec(tmp_path))
        assert len(links(mesh.id)) == 3
        for host in (await mesh.view()).hosts:
            assert host.agent_pid is not None
            os.kill(host.agent_pid, 9)
        await eventually(lambda: not links(mesh.id))
        with anyio.fail_after(10):
            while (await mesh.view()).state != "degraded":
                await anyio.sleep(0.01)
