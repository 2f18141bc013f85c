"""`check_mesh`: on meshes in memory what is told, and on real hosts that it is so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from milkweed.runtime.checking import (
    AllReduce,
    Clock,
    HostCheck,
    HostFacts,
    LinkCheck,
    Measured,
    MeshCheck,
    RdmaPort,
    RdmaView,
    Surroundings,
    Turn,
)
from milkweed.runtime.devices import Device, DeviceView, HostDevices
from milkweed.runtime.errors import InvalidArgument, NotFound
from milkweed.runtime.evidence import Disk, Fingerprint
from milkweed.runtime.memory.handle import Machine
from milkweed.tools.check_outcome import describe_check
from milkweed.tools.results import RESULT_BYTES
from tests.fakes import FakeMesh
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio

GIB = 1024**3


def facts(host: int) -> HostFacts:
    return HostFacts(
        Machine(f"boot-{host}", 1, 1), 8 << 20, False, RdmaView(), "1.17.0", "", (8 + host % 2) * GIB
    )


def healthy(count: int) -> MeshCheck:
    links = []
    for host in range(count):
        links.append(LinkCheck(host, host, Measured("process_vm", 5.0 + host / 1000, 1, {"shared": "x"})))
        over = Measured("tcp", 1.0 + host / 1000, 1, {"shared": "x", "process_vm": "elsewhere"})
        links.append(LinkCheck(host, (host + 1) % count, over))
    return MeshCheck(tuple(HostCheck(host, facts(host)) for host in range(count)), tuple(links))


def test_hosts_that_are_well_and_alike_share_one_entry_and_cost_little() -> None:
    result = describe_check("mesh-t-aaa", healthy(64))
    assert result.content() == {
        "mesh": "mesh-t-aaa",
        "verdict": "ok",
        "host_list": [
            {
                "hosts": "0-63",
                "verdict": "ok",
                "rdma": "no device",
                "ucx": "1.17.0",
                "memlock": "8.0 MB, too little for RDMA",
                "shm_free": "8.0 GB",
            }
        ],
        "links": [
            {
                "links": "64, each host from the next: 0<-1, ... 63<-0",
                "transport": "tcp",
                "gb_per_s": "1 to 1.1, median 1",
            },
            {"links": "within 0-63", "transport": "process_vm", "gb_per_s": "5 to 5.1, median 5"},
        ],
    }
    assert len(json.dumps(result.content())) < 500


def test_a_slow_link_is_between_its_hosts_and_not_said_of_both_as_if_known() -> None:
    check = healthy(8)
    links = tuple(
        replace(link, measured=replace(link.measured, gb_per_s=0.001))
        if (link.reader, link.source) == (2, 3) and link.measured
        else link
        for link in check.links
    )
    more = (LinkCheck(0, 3, links[-1].measured), LinkCheck(2, 0, links[-1].measured))
    result = describe_check("m", MeshCheck(check.hosts, (*links, *more)))
    assert result.verdict == "something is wrong between hosts 2-3 of 8"
    assert "each host from the next" not in "".join(item.links for item in result.links)


def test_the_worst_comes_first_with_the_step_that_mends_it() -> None:
    check = healthy(5)
    hosts = list(check.hosts)
    hosts[1] = HostCheck(1, replace(facts(1), shm_free=1))
    hosts[4] = HostCheck(4, error="its agent was killed (SIGKILL)", state="lost")
    links = tuple(link for link in check.links if 4 not in (link.reader, link.source))
    result = describe_check("m", MeshCheck(tuple(hosts), links))
    assert result.verdict == "something is wrong with hosts 1,4 of 5"
    assert [(item.hosts, item.verdict.partition(":")[0]) for item in result.host_list] == [
        ("4", "lost"),
        ("1", "/dev/shm has 0 MiB free"),
        ("0,2-3", "ok"),
    ]
    assert result.next == result.host_list[0].next != ""
    said = result.summary().splitlines()
    assert said[1] == "host 4: lost: its agent was killed (SIGKILL)"
    assert said[-1] == result.next


def test_hosts_that_differ_in_what_they_have_are_told_apart() -> None:
    check = healthy(4)
    port = RdmaPort("mlx5_0", 1, "ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)")
    other = replace(facts(2), ucx="1.13.1", memlock=None, rdma=RdmaView((port,)))
    result = describe_check(
        "m", replace(check, hosts=(*check.hosts[:2], HostCheck(2, other), check.hosts[3]))
    )
    assert {item.hosts: (item.ucx, item.memlock, item.rdma) for item in result.host_list} == {
        "0-1,3": ("1.17.0", "8.0 MB, too little for RDMA", "no device"),
        "2": ("1.13.1", "unlimited", "mlx5_0:1 ACTIVE InfiniBand 400 Gb/sec (4X NDR)"),
    }


def test_why_a_better_way_was_passed_over_is_told_with_the_links_that_it_holds_for() -> None:
    check = healthy(3)
    links = [
        replace(one, measured=replace(one.measured, passed_over={"rdma": "no device"}))
        if one.measured and (one.reader, one.source) == (1, 2)
        else one
        for one in check.links
    ]
    result = describe_check("m", replace(check, links=tuple(links)))
    assert [(item.links, item.not_used) for item in result.links if item.transport == "tcp"] == [
        ("0<-1, 2<-0", ""),
        ("1<-2", "rdma: no device"),
    ]


def test_however_much_is_wrong_an_answer_is_bounded() -> None:
    long = "x" * 5000
    hosts = tuple(HostCheck(host, error=f"{host} {long}", state="lost") for host in range(500))
    links = tuple(
        LinkCheck(host, host, Measured("unix", 1.0, 1, {"process_vm": f"{host} {long}"}))
        for host in range(500)
    )
    result = describe_check("m", MeshCheck(hosts, links))
    assert len(json.dumps(result.content())) <= RESULT_BYTES
    assert result.more == 492 * 2
    assert len(result.summary()) < 1000


def test_devices_disks_and_an_all_reduce_are_told_shortly() -> None:
    check = healthy(16)
    view = DeviceView(tuple(Device(at, "nvidia", "NVIDIA H200", memory_total=141 * GIB) for at in range(8)))
    rooms = Surroundings(Fingerprint(), (Disk("/ws", 900 * GIB, 300 * GIB),))
    hosts = tuple(
        replace(one, devices=HostDevices(one.host, view), surroundings=rooms, clock=Clock(0.0, 0.001))
        for one in check.hosts
    )
    reduced = AllReduce((0, 8), 16 * 1024 * 1024, {0: Turn(0.02), 8: Turn(0.02)})
    result = describe_check("m", MeshCheck(hosts, check.links, reduced))
    assert result.verdict == "ok"
    (item,) = result.host_list
    assert (item.devices, item.disk_free) == ("8 NVIDIA H200 (141 GB)", "300 GB")
    assert result.collective.endswith("each of 2 hosts: 20 ms, 0.84 GB/s")
    assert len(json.dumps(result.content())) < 700


def test_an_all_reduce_that_failed_is_no_ok() -> None:
    check = healthy(2)
    failed = AllReduce((0, 1), 16 * 1024 * 1024, {0: Turn(error="refused"), 1: Turn(error="refused")})
    result = describe_check("m", replace(check, all_reduce=failed))
    assert result.verdict == "an all-reduce between hosts failed: host 0: refused"
    assert "GLOO_SOCKET_IFNAME" in result.next
    hosts = (HostCheck(0, replace(facts(0), shm_free=1)), check.hosts[1])
    result = describe_check("m", replace(check, hosts=hosts, all_reduce=failed))
    assert result.verdict.startswith(
        "something is wrong with host 0 of 2; an all-reduce between hosts failed"
    )


async def test_the_hosts_that_are_named_are_checked(ask: Ask, mesh: FakeMesh, reports: list[str]) -> None:
    asked: list[Sequence[int]] = []

    async def check(*, hosts: Sequence[int]) -> MeshCheck:
        asked.append(hosts)
        return healthy(2)

    mesh.files = SimpleNamespace(check=check)
    for hosts in (None, "all", "1", "hosts=0"):
        given = {} if hosts is None else {"hosts": hosts}
        assert (await ask("check_mesh", mesh="demo", **given)).verdict == "ok"
    assert asked == [(0, 1), (0, 1), (1,), (0,)]
    assert reports[0] == "checking hosts 0-1"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"mesh": "nope"}, NotFound),
        ({"mesh": "demo", "hosts": "7"}, NotFound),
        ({"mesh": "demo", "hosts": "x"}, InvalidArgument),
        ({"mesh": "demo", "size": 3}, InvalidArgument),
    ],
)
async def test_what_is_not_there_is_refused(
    ask: Ask, mesh: FakeMesh, arguments: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await ask("check_mesh", **arguments)
