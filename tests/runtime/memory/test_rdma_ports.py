"""What is known of RDMA without a device: the kernel's files, settings, what an owner tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.errors import ProtocolError
from milkweed.runtime.memory.grant import Grant
from milkweed.runtime.memory.rdma_ports import Port, address_of_interface, ports
from milkweed.runtime.memory.ucx import forbidden, library, settings, used

_KEY = st.binary(max_size=300)
_ADDRESS = st.integers(0, 2**64 - 1)


def _port(devices: Path, device: str, number: int, state: str, interface: str | None = None) -> None:
    port = devices / device / "ports" / str(number)
    (port / "gid_attrs/ndevs").mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    if interface is not None:
        (port / "gid_attrs/ndevs/0").write_text(f"{interface}\n")


def test_ports_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    _port(tmp_path, "mlx5_1", 1, "1: DOWN")
    _port(tmp_path, "mlx5_0", 1, "4: ACTIVE", "eth2")
    found = ports(tmp_path)
    assert found == [Port("mlx5_0", 1, "ACTIVE", "eth2"), Port("mlx5_1", 1, "DOWN", None)]
    assert [port.is_active for port in found] == [True, False]


def test_without_devices_there_are_no_ports(tmp_path: Path) -> None:
    assert ports(tmp_path / "none") == []


def test_an_interface_has_its_address_or_none() -> None:
    assert address_of_interface("lo") == "127.0.0.1"
    assert address_of_interface("no-such-one") is None


@pytest.mark.parametrize(
    ("names", "expected"),
    [(None, ["a:1", "b:1"]), ("all", ["a:1", "b:1"]), ("b:1", ["b:1"]), ("b:1,c:1", ["b:1"]), ("c:1", [])],
)
def test_the_devices_that_the_user_gives_ucx_are_used(names: str | None, expected: list[str]) -> None:
    found = [Port("a", 1, "ACTIVE", None), Port("b", 1, "ACTIVE", None)]
    env = {} if names is None else {"UCX_NET_DEVICES": names}
    assert [str(port) for port in used(found, env)] == expected


def test_what_the_user_has_set_is_left_as_it_is() -> None:
    assert settings({})["UCX_TLS"] == "rc"
    assert "UCX_TLS" not in settings({"UCX_TLS": "rc,ud"})


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"MILKWEED_RDMA": ""},
        {"MILKWEED_RDMA": "cm"},
        {"MILKWEED_RDMA": "address"},
        {"UCX_TLS": "self,rc_x"},
        {"UCX_TLS": "all"},
        {"UCX_TLS": "^tcp"},
    ],
)
def test_what_allows_rdma(env: dict[str, str]) -> None:
    assert forbidden(env) is None


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"MILKWEED_RDMA": "off"}, "MILKWEED_RDMA is off"),
        ({"MILKWEED_RDMA": "OFF"}, "MILKWEED_RDMA is OFF, which is none of off, cm and address"),
        ({"UCX_TLS": "tcp,self"}, "UCX_TLS is tcp,self: no RDMA among it"),
    ],
)
def test_what_forbids_rdma_is_said(env: dict[str, str], why: str) -> None:
    assert forbidden(env) == why


def test_ucx_is_the_loaders_unless_another_is_named() -> None:
    assert library({}) == library({"MILKWEED_UCX": ""}) == "libucp.so.0"
    assert library({"MILKWEED_UCX": "/opt/ucx/libucp.so"}) == "/opt/ucx/libucp.so"


@given(
    worker=_KEY,
    listener=st.none() | st.tuples(st.sampled_from(["10.0.0.1", "h"]), st.integers(1, 65535)),
    numbers=st.tuples(_ADDRESS, _ADDRESS, _ADDRESS),
    keys=st.tuples(_KEY, _KEY, _KEY),
    alive=_ADDRESS,
    rights=st.integers(1, 3),
    size=_ADDRESS,
    stage=st.none() | st.integers(0, 2**18),
)
def test_a_grant_arrives_as_it_was(
    worker: bytes,
    listener: tuple[str, int] | None,
    numbers: tuple[int, int, int],
    keys: tuple[bytes, bytes, bytes],
    alive: int,
    rights: int,
    size: int,
    stage: int | None,
) -> None:
    (lanes, region, word), (lanes_key, region_key, word_key) = numbers, keys
    grant = Grant(
        worker, listener, lanes, lanes_key, region, region_key, word, word_key, alive, rights, size, stage
    )
    packed = grant.pack()
    assert Grant.unpack(packed) == grant
    for wrong in (packed[:-1], packed + b"x", packed[:20]):
        with pytest.raises(ProtocolError):
            Grant.unpack(wrong)
