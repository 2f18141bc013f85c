"""Faults of devices. CONSTRUCTED: words of CUDA, ROCm and both drivers as documented, of no real device."""

from __future__ import annotations

import signal

import pytest

from milkweed.runtime.devices import Device, DeviceNote, DeviceUse, DeviceView, HostDevices
from milkweed.runtime.evidence import HostEvidence, KernelLine

from .building import case, cause, flight, raised, rank, told

XID_79 = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_31 = "NVRM: Xid (PCI:0000:1B:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault"
ILLEGAL = raised(
    "torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "ops.py:9 go"
)
LOST = raised("torch.distributed.DistBackendError: Connection closed by peer [127.0.0.1]:4711")


def host(number: int, *log: str, notes: tuple[DeviceNote, ...] = (), uses: tuple[DeviceUse, ...] = ()):  # type: ignore[no-untyped-def]
    device = Device(2, "nvidia", "H200", pci="0000:1b:00.0", notes=notes)
    lines = tuple(KernelLine(5.0, line) for line in log)
    return HostEvidence(number, kernel=lines, devices=HostDevices(number, DeviceView((device,)), uses))


@pytest.mark.parametrize(
    ("exception", "log"),
    [
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", ()),
        ("RuntimeError: CUDA error: unspecified launch failure", (XID_79,)),
        ("RuntimeError: CUDA error: unknown error", (XID_79,)),
        ("RuntimeError: HIP error: hipErrorECCNotCorrectable", ()),
    ],
)
def test_broken_hardware_is_told_with_its_host_and_device(exception: str, log: tuple[str, ...]) -> None:
    ranks = rank(0, text=LOST, code=1), rank(1, host=1, text=raised(exception), code=1)
    found = told(*ranks, hosts=[host(0), host(1, *log)]).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("device_fault", (1,))
    assert "host 1" in found.summary
    assert not log or "device 2: Xid 79: fell off the bus" in found.summary
    assert "Leave that host out" in found.next


def test_a_kernel_that_reads_where_nothing_is_is_the_programs_fault() -> None:
    found = told(rank(0, text=ILLEGAL, code=1), rank(1, text=LOST, code=1), hosts=[host(0, XID_31)]).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("device_fault", (0,))
    assert any("Xid 31" in line for line in found.evidence)
    assert "CUDA_LAUNCH_BLOCKING=1" in found.next


def test_rocm_ends_a_program_with_its_words_and_a_signal() -> None:
    text = (
        "Memory access fault by GPU node-2 (Agent handle: 0x55d) on address 0x7f0. Reason: Page not"
        " present or supervisor privilege.\n"
    )
    assert cause(rank(0, text=text, signal=signal.SIGABRT)) == ("device_fault", (0,))


def test_an_index_out_of_range_in_a_kernel() -> None:
    text = raised("torch.AcceleratorError: CUDA error: device-side assert triggered")
    assert cause(rank(0, text=text, code=1)) == ("device_fault", (0,))


def test_a_device_that_broke_is_why_a_run_stands() -> None:
    stack = ("torch/distributed/distributed_c10d.py:3007 all_reduce", "train.py:12 main")
    ops = flight("all_reduce", done=False)
    ranks = [rank(n, host=n, stack=stack, ops=ops) for n in (0, 1)]
    assert cause(*ranks, hosts=[host(0), host(1, XID_79)]) == ("device_fault", (1,))
    assert cause(*ranks, hosts=[host(0), host(1, XID_31)]) != ("device_fault", (1,))


def test_what_was_amiss_with_a_device_before_is_no_cause_of_another_failure() -> None:
    old = DeviceNote("ecc", "3 uncorrectable ECC errors since it was started", severe=True)
    failed = rank(0, text=raised("KeyError: 'label'"), code=1)
    assert cause(failed, hosts=[host(0, notes=(old,))]) == ("exception", (0,))


def test_who_else_has_the_memory_of_a_device_is_told_where_that_ran_out() -> None:
    uses = (
        DeviceUse(2, "nvidia", 4711, 60_000_000_000, command="python serve.py"),
        DeviceUse(2, "nvidia", 9, 5_000_000_000, mesh="mesh-1", run="run-1", rank=1),
        DeviceUse(2, "nvidia", 10, 1_000_000, command="Xorg"),
    )
    text = raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    found = told(rank(0, text=text, code=1), hosts=[host(0, uses=uses)]).cause
    assert found is not None
    assert found.kind == "device_memory"
    assert "device 2 of host 0: 60.0 GB by pid 4711 (python serve.py)" in found.evidence
    assert "device 2 of host 0: 5.0 GB by rank 1 of this run" in found.evidence
    assert not any("Xorg" in line for line in found.evidence)


def test_no_device_is_blamed_for_what_a_healthy_run_writes() -> None:
    fine = rank(0, text="CUDA error recovered: uncorrectable ECC error encountered, retried\n", code=0)
    assert cause(fine, hosts=[host(0, XID_79)]) == ("", ())
    assert case(fine).first_failure is None
