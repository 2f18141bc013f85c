"""What is wrong with a host beside others. CONSTRUCTED: the records are made up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from milkweed.runtime.checking import AllReduce, Clock, HostCheck, Surroundings, Turn
from milkweed.runtime.devices import Device, DeviceNote, DeviceUse, DeviceView, HostDevices
from milkweed.runtime.evidence import Disk, Fingerprint
from milkweed.tools.verdicts.host_fitness import collective_trouble, collective_words, judge_fitness

MESH = "mesh-t-aaa"
GIB = 1024**3
PACKAGES = {"torch": "2.13.0", "numpy": "2.4.6", "einops": "0.8"}


def host(
    number: int,
    *,
    packages: Mapping[str, str] = PACKAGES,
    variables: Mapping[str, str] | None = None,
    python: str = "3.11.7",
    ahead: float = 0.0,
    within: float = 0.001,
    free: int = 500 * GIB,
    devices: HostDevices | None = None,
) -> HostCheck:
    surroundings = Surroundings(
        Fingerprint("/ws/.venv/bin/python", python, packages, "cuda 12.8", variables=variables or {}),
        (Disk("/ws", 1000 * GIB, free, 10**6),),
    )
    return HostCheck(number, clock=Clock(ahead, within), surroundings=surroundings, devices=devices)


def gpus(number: int, *uses: DeviceUse, count: int = 8, driver: str = "570.86", **view: str) -> HostDevices:
    every = tuple(Device(at, "nvidia", "NVIDIA H200", memory_total=141 * GIB) for at in range(count))
    return HostDevices(number, DeviceView(every, driver=driver, **view), uses)


def told(*hosts: HostCheck) -> dict[int, list[str]]:
    found = judge_fitness(hosts, MESH)
    assert all(step for findings in found.values() for _, step in findings)
    return {number: [text for text, _ in findings] for number, findings in found.items() if findings}


def test_hosts_that_are_alike_have_nothing_wrong() -> None:
    assert told(*(host(at, devices=gpus(at)) for at in range(8))) == {}
    assert told(HostCheck(0), HostCheck(1, error="lost")) == {}


def test_an_environment_that_drifts_is_told_of_the_host_that_differs_from_most() -> None:
    other = {**PACKAGES, "torch": "2.12.0", "numpy": "1.26.4"}
    del other["einops"]
    assert told(host(0), host(1), host(2, packages=other, python="3.12.1"), host(3)) == {
        2: [
            "Python 3.12.1 (/ws/.venv/bin/python); others have 3.11.7 (/ws/.venv/bin/python)",
            "torch 2.12.0 (cuda 12.8); others have 2.13.0 (cuda 12.8)",
            "packages: einops missing (others 0.8), numpy 1.26.4 (others 2.4.6)",
        ]
    }


def test_of_two_hosts_that_differ_the_second_is_told() -> None:
    assert list(told(host(0), host(1, python="3.12.1"))) == [1]


def test_many_packages_that_differ_are_counted() -> None:
    other = PACKAGES | {f"package-{at}": "1" for at in range(50)}
    (words,) = told(host(0), host(1), host(2, packages=other))[2]
    assert words.endswith(" and 46 more")


def test_variables_that_change_a_run_are_compared_and_those_of_devices_are_the_schedulers() -> None:
    variables = {"NCCL_SOCKET_IFNAME": "eth0", "EDITOR": "vi", "CUDA_VISIBLE_DEVICES": "0,1"}
    others = {**variables, "EDITOR": "emacs", "CUDA_VISIBLE_DEVICES": "2,3"}
    assert told(host(0, variables=variables), host(1, variables=others)) == {}
    del others["NCCL_SOCKET_IFNAME"]
    assert told(host(0, variables=variables), host(1, variables=others)) == {
        1: ["variables: NCCL_SOCKET_IFNAME unset (others eth0)"]
    }


def test_a_clock_is_told_where_the_skew_is_certain() -> None:
    assert told(host(0), host(1, ahead=0.049), host(2, ahead=-0.049)) == {}
    assert told(host(0), host(1, ahead=2.5), host(2)) == {
        1: ["its clock is 2.5 s ahead of the others (+- 2 ms)"]
    }
    assert told(host(0), host(1, ahead=-0.08), host(2)) == {
        1: ["its clock is 80 ms behind the others (+- 2 ms)"]
    }


def test_a_skew_that_a_slow_message_may_explain_is_none() -> None:
    assert told(host(0), host(1, ahead=0.3, within=0.3), host(2)) == {}
    assert told(host(0, ahead=5.0)) == {}


def test_of_two_clocks_the_one_that_is_ahead_is_told() -> None:
    assert list(told(host(0, ahead=3.0), host(1))) == [0]


def test_a_disk_that_is_nearly_full_is_told() -> None:
    assert told(host(0), host(1, free=GIB // 2)) == {1: ["512 MB free of 1000 GB at /ws"]}
    full = Surroundings(Fingerprint(), (Disk("/ws", 1000 * GIB, 500 * GIB, 7),))
    assert told(HostCheck(0, surroundings=full)) == {0: ["room for 7 more files at /ws"]}


def test_devices_that_are_sick_used_by_others_or_hidden_are_told() -> None:
    sick = gpus(0)
    note = DeviceNote("ecc", "3 uncorrectable ECC errors", severe=True, mend="Reset it.")
    first, *rest = sick.view.devices
    sick = replace(sick, view=replace(sick.view, devices=(replace(first, notes=(note,)), *rest)))
    used = gpus(1, DeviceUse(2, "nvidia", 7, 40 * GIB, command="python x.py"))
    own = gpus(2, DeviceUse(2, "nvidia", 8, 40 * GIB, mesh=MESH, run="run-1", rank=0, command="python"))
    hidden = replace(gpus(3), variables={"CUDA_VISIBLE_DEVICES": "9"})
    hosts = [host(at, devices=one) for at, one in enumerate((sick, used, own, hidden))]
    assert told(*hosts) == {
        0: ["device 0: 3 uncorrectable ECC errors"],
        1: ["device 2: pid 7 (python x.py) has 40 GB, not of this mesh"],
        3: ["CUDA_VISIBLE_DEVICES=9 names device 9, and there are 8: it and what follows is not seen"],
    }
    assert judge_fitness(hosts, MESH)[0][0][1] == "Reset it."


def test_all_three_variables_of_amd_are_told_as_the_trap_that_they_are() -> None:
    view = DeviceView(tuple(Device(at, "amd", "AMD Instinct MI300X") for at in range(8)))
    variables = dict.fromkeys(("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), "4,5")
    (words,) = told(host(0, devices=HostDevices(0, view, variables=variables)))[0]
    assert "no device is left" in words


def test_devices_and_drivers_that_differ_are_told_and_those_that_are_not_known_are_no_drift() -> None:
    unknown = HostDevices(3, DeviceView(problem="nvidia-ml-py is not installed", mend="pip install"))
    hosts = [host(at, devices=gpus(at)) for at in range(3)]
    hosts += [
        host(3, devices=unknown),
        host(4, devices=gpus(4, count=7)),
        host(5, devices=gpus(5, driver="550.1")),
    ]
    assert told(*hosts) == {
        3: ["devices: nvidia-ml-py is not installed"],
        4: ["devices: 7 NVIDIA H200 (141 GB); others have 8 NVIDIA H200 (141 GB)"],
        5: ["driver 550.1; others have 570.86"],
    }


MIB16 = 16 * 1024 * 1024


def test_an_all_reduce_is_told_as_what_it_is() -> None:
    found = AllReduce((0, 2), MIB16, {0: Turn(0.016), 2: Turn(0.0168)})
    assert collective_words(found) == (
        "all-reduce of 16 MB over gloo (CPU), a process on each of 2 hosts: 17 ms, 1 GB/s"
    )
    assert collective_trouble(found) is None
    assert collective_words(None) == ""
    assert collective_trouble(None) is None


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (AllReduce((0, 1), MIB16, skipped="there was no time left"), "not measured: there was no time left"),
        (
            AllReduce((0, 1), MIB16, {0: Turn(), 1: Turn(missing="No module named 'torch'")}),
            "no torch (No module",
        ),
    ],
)
def test_one_that_was_not_tried_is_nothing_wrong(found: AllReduce, words: str) -> None:
    assert words in collective_words(found)
    assert collective_trouble(found) is None


def test_one_that_failed_is_told_by_the_host_that_says_why() -> None:
    found = AllReduce(
        (0, 1), MIB16, {0: Turn(error="not done within 15 s"), 1: Turn(error="RuntimeError: refused")}
    )
    assert collective_words(found).endswith("hosts: failed")
    trouble = collective_trouble(found)
    assert trouble is not None
    assert trouble[0] == "an all-reduce between hosts failed: host 1: RuntimeError: refused"
    assert "GLOO_SOCKET_IFNAME" in trouble[1]
    silent = collective_trouble(AllReduce((0, 1), MIB16, {0: Turn(error="not done within 15 s")}))
    assert silent is not None
    assert "host 0: not done within 15 s" in silent[0]
