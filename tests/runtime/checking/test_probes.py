"""What is found on a host, here in trees as the kernel would show them."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from milkweed.runtime.checking import RdmaPort, RdmaView
from milkweed.runtime.checking.probes import (
    RdmaProbe,
    SysfsRdma,
    look,
    may_lock,
    memlock,
    shm_free,
    ucx_version,
)


def port(root: Path, device: str, number: int, state: str, layer: str = "", rate: str = "") -> None:
    directory = root / "infiniband" / device / "ports" / str(number)
    directory.mkdir(parents=True)
    (directory / "state").write_text(f"{state}\n")
    for name, text in (("link_layer", layer), ("rate", rate)):
        if text:
            (directory / name).write_text(f"{text}\n")


def view(root: Path) -> RdmaView:
    return SysfsRdma(root / "infiniband", root / "dev").look()


def test_devices_are_found_with_the_state_of_their_ports(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_1", 1, "1: DOWN", "Ethernet", "40 Gb/sec (4X QDR)")
    port(tmp_path, "mlx5_0", 2, "2: INIT", "InfiniBand")
    port(tmp_path, "mlx5_0", 1, "4: ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "uverbs0").touch()
    assert view(tmp_path) == RdmaView(
        (
            RdmaPort("mlx5_0", 1, "ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)"),
            RdmaPort("mlx5_0", 2, "INIT", "InfiniBand"),
            RdmaPort("mlx5_1", 1, "DOWN", "Ethernet", "40 Gb/sec (4X QDR)"),
        )
    )
    assert [one.is_active for one in view(tmp_path).ports] == [True, False, False]


def test_a_host_without_devices_has_none_and_nothing_is_said_of_their_files(tmp_path: Path) -> None:
    assert view(tmp_path) == RdmaView()


def test_a_container_that_sees_devices_and_was_not_given_them_is_told(tmp_path: Path) -> None:
    port(tmp_path, "rxe0", 1, "4: ACTIVE")
    assert view(tmp_path).closed == f"no {tmp_path}/dev/uverbs* here"


def test_a_port_that_says_nothing_is_no_active_one(tmp_path: Path) -> None:
    (tmp_path / "infiniband" / "odd0" / "ports" / "1").mkdir(parents=True)
    (tmp_path / "infiniband" / "odd0" / "ports" / "notes").mkdir()
    (found,) = view(tmp_path).ports
    assert (found.state, found.is_active) == ("unknown", False)


@pytest.mark.parametrize(
    ("effective", "may"),
    [("0000000000000000", False), ("0000000000004000", True), ("000001ffffffbfff", False)],
)
def test_whether_the_limit_holds_is_read_from_the_capabilities(effective: str, may: bool) -> None:
    assert may_lock(f"Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t{effective}\nCapBnd:\t0\n") is may


def test_the_limit_is_the_soft_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (65536, resource.RLIM_INFINITY))
    assert memlock() == 65536
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert memlock() is None


def test_no_ucx_is_told_with_the_loaders_words() -> None:
    version, error = ucx_version("libno_such_ucx.so.0")
    assert version == ""
    assert error.startswith("libno_such_ucx.so.0: cannot open shared object file")
    assert "ucp_get_version" in ucx_version("libc.so.6")[1]


def test_room_in_shared_memory_is_told_where_there_is_any(tmp_path: Path) -> None:
    assert (shm_free(str(tmp_path)) or 0) > 0
    assert shm_free(str(tmp_path / "nowhere")) is None


class Constructed:
    """Another way to find devices."""

    def look(self) -> RdmaView:
        return RdmaView((RdmaPort("rxe0", 1, "ACTIVE"),), "not here")


def test_a_look_at_a_host_takes_its_devices_from_whatever_finds_them() -> None:
    probe: RdmaProbe = Constructed()
    found = look(probe)
    assert found.rdma == Constructed().look()
    assert bool(found.ucx) != bool(found.ucx_error)
    assert found.machine.boot


def test_the_ucx_that_is_told_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILKWEED_UCX", "libno_such_ucx.so.0")
    assert look(Constructed()).ucx_error.startswith("libno_such_ucx.so.0:")
