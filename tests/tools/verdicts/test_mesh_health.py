"""Verdicts on hosts, from what a check found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milkweed.runtime.checking import (
    LATE,
    HostCheck,
    HostFacts,
    LinkCheck,
    Measured,
    MeshCheck,
    RdmaPort,
    RdmaView,
)
from milkweed.runtime.memory.handle import Machine
from milkweed.tools.verdicts.mesh_health import (
    HostVerdict,
    judge_hosts,
    link_name,
    passed_over,
    speed_in_words,
)

GIB = 1024**3
ACTIVE, DOWN = RdmaPort("mlx5_0", 1, "ACTIVE", "InfiniBand"), RdmaPort("mlx5_1", 1, "DOWN", "InfiniBand")
ELSEWHERE = dict.fromkeys(("shared", "process_vm", "unix"), "its owner is on another host")


def facts(host: int, *ports: RdmaPort, **fields: object) -> HostFacts:
    """Of a machine of its own."""
    usual = HostFacts(
        Machine(f"boot-{host}", 1, 1), None, False, RdmaView(tuple(ports)), "1.17.0", "", 8 * GIB
    )
    return replace(usual, **fields)  # type: ignore[arg-type]


def link(reader: int, source: int, gb_per_s: float = 1.0, transport: str = "tcp", **passed: str) -> LinkCheck:
    return LinkCheck(reader, source, Measured(transport, gb_per_s, 1, {**ELSEWHERE, **passed}))


def mesh(*hosts: HostFacts | HostCheck, links: tuple[LinkCheck, ...] = ()) -> MeshCheck:
    checks = [one if isinstance(one, HostCheck) else HostCheck(at, one) for at, one in enumerate(hosts)]
    return MeshCheck(tuple(checks), links)


def wrong(check: MeshCheck) -> dict[int, tuple[str, ...]]:
    return {verdict.host: verdict.wrong for verdict in judge_hosts(check) if verdict.wrong}


def only(check: MeshCheck) -> HostVerdict:
    (verdict,) = (one for one in judge_hosts(check) if one.wrong)
    return verdict


def test_hosts_that_are_well_are_so_without_a_next_step() -> None:
    check = mesh(facts(0), facts(1), links=(link(0, 1), link(1, 0), link(0, 0, 5.0, "process_vm")))
    assert judge_hosts(check) == (HostVerdict(0), HostVerdict(1))


@pytest.mark.parametrize(
    ("state", "said", "step"),
    [
        ("lost", "lost: its agent was killed", "release_mesh"),
        ("silent", "silent: its agent was killed", "kill -CONT"),
        ("ready", "its check broke off: its agent was killed", "check_mesh again"),
    ],
)
def test_a_host_that_is_gone_is_said_first_and_not_held_against_those_that_read_from_it(
    state: str, said: str, step: str
) -> None:
    gone = HostCheck(1, facts(1, shm_free=0), "its agent was killed", state)  # type: ignore[arg-type]
    check = mesh(facts(0), gone, links=(LinkCheck(0, 1, error="buffer_owner_lost: gone"),))
    verdict = only(check)
    assert (verdict.host, verdict.wrong[0]) == (1, said)
    assert step in verdict.next


def test_reads_that_fail_are_told_with_their_reason_at_the_reader() -> None:
    links = (LinkCheck(0, 1, error="transport_unusable: no way"), LinkCheck(1, 1, error="x: y"))
    assert wrong(mesh(facts(0), facts(1), links=links)) == {
        0: ("no reads from host 1: transport_unusable: no way",),
        1: ("no reads within the host: x: y",),
    }


def test_what_was_not_measured_is_told_alike_for_all_hosts() -> None:
    links = (LinkCheck(0, 1, error=LATE), LinkCheck(1, 0, error=LATE), LinkCheck(1, 1, error=LATE))
    assert wrong(mesh(facts(0), facts(1), links=links)) == {0: (LATE,), 1: (LATE,)}


def test_a_slower_way_within_a_machine_is_told_with_its_reason_and_mend() -> None:
    slow = LinkCheck(0, 0, Measured("unix", 2.0, 1, {"process_vm": "Operation not permitted"}))
    verdict = only(mesh(facts(0), facts(1), links=(slow,)))
    assert verdict.wrong == (
        "memory within the machine goes by unix; not process_vm: Operation not permitted",
    )
    assert "ptrace" in verdict.next


def test_tcp_is_well_unless_both_ends_have_rdma() -> None:
    tcp = (link(0, 1, rdma="no route between the GIDs"),)
    assert wrong(mesh(facts(0, ACTIVE), facts(1), links=tcp)) == {}
    assert wrong(mesh(facts(0), facts(1, ACTIVE), links=tcp)) == {}
    assert wrong(mesh(facts(0, ACTIVE), facts(1, ACTIVE), links=tcp)) == {
        0: ("RDMA is there, and reads go by tcp: no route between the GIDs",)
    }
    assert wrong(mesh(facts(0, ACTIVE), facts(1, ACTIVE), links=(link(0, 1, transport="rdma"),))) == {}


def test_rdma_that_is_there_and_passed_over_without_a_word_is_told_too() -> None:
    check = mesh(facts(0, ACTIVE), facts(1, ACTIVE), links=(link(0, 1),))
    assert only(check).wrong[0].startswith("RDMA is there, and reads go by tcp: ")


def test_the_host_that_slow_links_have_in_common_is_at_fault() -> None:
    hosts = [facts(host) for host in range(5)]
    speeds = (1.0, 0.02, 0.03, 1.1, 0.9)
    links = tuple(link(host, (host + 1) % 5, speed) for host, speed in enumerate(speeds))
    assert wrong(mesh(*hosts, links=links)) == {2: ("slow: 1<-2 0.02, 2<-3 0.03 (GB/s; median 0.9)",)}


def test_of_one_slow_link_either_end_may_be_at_fault_in_the_same_words() -> None:
    hosts = [facts(host) for host in range(4)]
    links = tuple(link(host, (host + 1) % 4, 0.1 if host == 1 else 1.0) for host in range(4))
    said = ("slow: 1<-2 0.1 (GB/s; median 1)",)
    assert wrong(mesh(*hosts, links=links)) == {1: said, 2: said}
    assert {one.or_another for one in judge_hosts(mesh(*hosts, links=links))} == {False, True}


def test_a_host_that_a_third_one_reads_from_as_slowly_is_at_fault_alone() -> None:
    hosts = [facts(host) for host in range(4)]
    links = tuple(link(host, (host + 1) % 4, 0.1 if host == 1 else 1.0) for host in range(4))
    (fault,) = (one for one in judge_hosts(mesh(*hosts, links=(*links, link(0, 2, 0.1)))) if one.wrong)
    assert (fault.host, fault.or_another) == (2, False)
    assert "run without it (ranks='hosts=...')" in fault.next
    either = [one for one in judge_hosts(mesh(*hosts, links=(*links, link(0, 2), link(1, 0)))) if one.wrong]
    assert [(one.host, one.or_another) for one in either] == [(1, True), (2, True)]
    assert either[0].next.startswith("Either end may be at fault")


def test_many_slow_links_are_told_alike_at_all_their_hosts_the_slowest_first() -> None:
    hosts = [facts(host) for host in range(30)]
    slow = {0: 0.14, 4: 0.13, 8: 0.12, 12: 0.11, 16: 0.1}
    links = tuple(link(host, (host + 1) % 30, slow.get(host, 1.0)) for host in range(30))
    found = wrong(mesh(*hosts, links=links))
    assert sorted(found) == sorted([*slow, *(host + 1 for host in slow)])
    assert set(found.values()) == {
        ("slow: 16<-17 0.1, 12<-13 0.11, 8<-9 0.12, 4<-5 0.13 and 1 more (GB/s; median 1)",)
    }


def test_a_host_that_is_slow_within_itself_is_named() -> None:
    links = tuple(link(host, host, 0.5 if host == 2 else 5.0, "process_vm") for host in range(4))
    assert wrong(mesh(*map(facts, range(4)), links=links)) == {2: ("slow: within 2 0.5 (GB/s; median 5)",)}
    (fault,) = (one for one in judge_hosts(mesh(*map(facts, range(4)), links=links)) if one.wrong)
    assert "network" not in fault.next


def test_ports_that_are_down_are_named_and_without_an_active_one_nothing_else_of_rdma() -> None:
    assert only(mesh(facts(0, DOWN, memlock=1, ucx="", ucx_error="no"))).wrong == (
        "RDMA port mlx5_1:1 is DOWN",
    )
    found = only(mesh(facts(0, ACTIVE, DOWN, ucx="", ucx_error="libucp.so.0: not found")))
    assert found.wrong == ("RDMA port mlx5_1:1 is DOWN", "no UCX for RDMA: libucp.so.0: not found")


@pytest.mark.parametrize(
    ("memlock", "may_lock", "bad"),
    [(None, False, False), (8 << 20, False, True), (8 << 20, True, False), (4 * GIB, False, False)],
)
def test_a_small_memlock_is_wrong_where_it_holds(memlock: int | None, may_lock: bool, bad: bool) -> None:
    found = wrong(mesh(facts(0, ACTIVE, memlock=memlock, may_lock=may_lock)))
    assert found == ({0: ("memlock 8192 KiB: RDMA registers no more memory than that",)} if bad else {})
    assert wrong(mesh(facts(0, memlock=memlock, may_lock=may_lock))) == {}  # without a device it is no matter


def test_devices_that_cannot_be_opened_are_told() -> None:
    view = RdmaView((ACTIVE,), "no /dev/infiniband/uverbs* here")
    verdict = only(mesh(facts(0, rdma=view)))
    assert verdict.wrong == ("RDMA devices cannot be opened: no /dev/infiniband/uverbs* here",)
    assert "--device" in verdict.next


def test_a_small_shared_memory_is_told_with_the_mend() -> None:
    verdict = only(mesh(facts(0, shm_free=64 << 20)))
    assert verdict.wrong[0].startswith("/dev/shm has 64 MiB free")
    assert "--shm-size" in verdict.next
    assert wrong(mesh(facts(0, shm_free=None))) == {0: ("no /dev/shm",)}


def test_the_next_step_is_of_the_worst() -> None:
    links = tuple(link(host, (host + 1) % 4, 0.1 if host in (0, 3) else 1.0) for host in range(4))
    verdict = judge_hosts(mesh(facts(0, DOWN, shm_free=0), *map(facts, (1, 2, 3)), links=links))[0]
    assert [text.partition(" ")[0] for text in verdict.wrong] == ["slow:", "RDMA", "/dev/shm"]
    assert "ethtool" in verdict.next


def test_only_ways_that_could_have_been_are_said_to_be_passed_over() -> None:
    apart = {0: facts(0), 1: facts(1)}
    assert passed_over(link(0, 1, rdma="no device"), apart) == {"rdma": "no device"}
    mine = {"local": "another", "shared": "not allocated"}
    assert passed_over(LinkCheck(0, 0, Measured("process_vm", 1, 1, mine)), apart) == {}
    by_socket = {**mine, "process_vm": "EPERM"}
    assert passed_over(LinkCheck(0, 0, Measured("unix", 1, 1, by_socket)), apart) == {
        "shared": "not allocated",
        "process_vm": "EPERM",
    }
    assert passed_over(LinkCheck(0, 1, error="x"), apart) == {}


def test_simulated_hosts_of_one_machine_are_apart_where_they_have_networks_of_their_own() -> None:
    machines = [Machine("boot", 1, network, simulated=True) for network in (1, 2)]
    hosts = [facts(at, machine=machine) for at, machine in enumerate(machines)]
    assert wrong(mesh(*hosts, links=(link(0, 1),))) == {}
    assert passed_over(link(0, 1), dict(enumerate(hosts))) == {}


@pytest.mark.parametrize(
    ("speed", "said"), [(12.34, "12"), (9.96, "10"), (4.56, "4.6"), (0.0251, "0.025"), (1e-5, "0.00001")]
)
def test_speeds_have_two_digits(speed: float, said: str) -> None:
    assert speed_in_words(speed) == said


def test_links_are_named_by_who_reads() -> None:
    assert (link_name(1, 2), link_name(3, 3)) == ("1<-2", "within 3")
