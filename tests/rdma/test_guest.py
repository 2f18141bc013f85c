"""That the guest is what the other tests take it for."""

from __future__ import annotations

import resource
import socket
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.rdma.ends import DEVICES, End, crossed, packets, port


@pytest.mark.parametrize("device", DEVICES)
def test_it_has_an_active_roce_device(device: str) -> None:
    assert port(device, "state").endswith("ACTIVE")
    assert port(device, "link_layer") == "Ethernet"


@pytest.mark.parametrize(("device", "address"), DEVICES.items())
def test_a_device_has_an_ipv4_address_of_roce_version_2(device: str, address: str) -> None:
    gid = ip_address(f"::ffff:{address}").exploded
    folder = Path(f"/sys/class/infiniband/{device}/ports/1/gids")
    (found,) = (file.name for file in folder.iterdir() if file.read_text().strip() == gid)
    assert port(device, f"gid_attrs/types/{found}") == "RoCE v2"


@pytest.mark.parametrize(("address", "end"), [("10.9.0.2", "wire1"), ("10.9.0.1", "wire0")])
def test_a_connection_to_an_address_crosses_the_wire(address: str, end: str) -> None:
    before = crossed(end)
    with (
        socket.create_server((address, 0)) as server,
        socket.create_connection(server.getsockname()) as sender,
        server.accept()[0] as receiver,
    ):
        sender.sendall(bytes(2**14))
        assert receiver.recv(2**14, socket.MSG_WAITALL) == bytes(2**14)
    assert crossed(end) - before > 2**14


def test_what_goes_from_one_device_to_the_other_crosses_the_wire(ends: tuple[End, End]) -> None:
    owner, other = ends
    sent, received, wire = packets("rxe0")[0], packets("rxe1")[1], crossed("wire1")
    assert other.read(owner, 0, 2**20) == "done"
    assert packets("rxe0")[0] - sent >= 2**20 // 4096
    assert packets("rxe1")[1] - received >= 2**20 // 4096
    assert crossed("wire1") - wire > 2**20


def test_memory_may_be_locked_without_a_limit() -> None:
    assert resource.getrlimit(resource.RLIMIT_MEMLOCK) == (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_the_files_are_those_of_the_machine_and_can_be_written(request: pytest.FixtureRequest) -> None:
    assert Path(__file__).is_relative_to(request.config.rootpath)
    new = Path(__file__).with_name("written")
    new.write_text("forgotten when the guest ends")
    new.unlink()
