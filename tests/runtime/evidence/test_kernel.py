"""What the kernel tells of a host and its processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.agent.ptree import is_sampled
from milkweed.runtime.evidence import KernelLine
from milkweed.runtime.evidence.kernel import (
    cpu_seconds,
    parse_kernel_log,
    read_disk,
    read_kernel_log,
    read_listeners,
    read_memory,
    read_process_facts,
    waited_seconds,
)
from milkweed.runtime.services.stacks import find_pyspy

OOM = "Out of memory: Killed process 4242 (python) total-vm:9000000kB, anon-rss:8000000kB"


def record(seconds: float, text: str, number: int = 1) -> str:
    return f"3,{number},{int(seconds * 1e6)},-;{text}\n SUBSYSTEM=memory\n"


def test_telling_lines_of_the_log_with_their_time() -> None:
    records = [
        record(5.0, OOM),
        record(6.0, "usb 1-1: new device"),
        record(7.5, "python[7]: segfault at 0 ip 1"),
    ]
    assert parse_kernel_log(records, 0.0, 1000.0) == (
        KernelLine(1005.0, OOM),
        KernelLine(1007.5, "python[7]: segfault at 0 ip 1"),
    )


def test_what_was_before_the_run_is_left_out() -> None:
    assert parse_kernel_log([record(5.0, OOM), record(9.0, OOM)], 1006.0, 1000.0) == (
        KernelLine(1009.0, OOM),
    )


def test_only_the_latest_lines_are_kept_and_long_ones_cut() -> None:
    found = parse_kernel_log((record(at, f"{OOM} {at}" + "x" * 999) for at in range(50)), 0.0, 0.0)
    assert len(found) == 20
    assert found[-1].text.startswith(f"{OOM} 49")
    assert len(found[-1].text) == 300


def test_devices_and_disks_tell_too() -> None:
    words = [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
        "amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
        "EXT4-fs error (device sda1): ext4_find_entry",
        "INFO: task python:77 blocked for more than 120 seconds.",
        "nfs: server store not responding, still trying",
    ]
    assert [one.text for one in parse_kernel_log(map(record, range(5), words), 0.0, 0.0)] == words


@given(st.lists(st.text(max_size=40) | st.text(max_size=9).map(lambda text: f"3,1,{text};{OOM}")))
def test_junk_in_the_log_is_passed_over(records: list[str]) -> None:
    assert len(parse_kernel_log(records, 0.0, 0.0)) <= len(records)


def test_a_log_that_may_not_be_read_is_empty(tmp_path: Path) -> None:
    assert read_kernel_log(0.0, str(tmp_path / "none")) == ()


def test_this_machine_has_memory_and_disks() -> None:
    memory = read_memory()
    assert memory.total >= memory.available > 0
    assert (memory.limit is None) is (memory.used is None)
    disk = read_disk("/")
    assert disk is not None
    assert disk.total >= disk.free
    assert read_disk("/nowhere/at/all") is None


def test_a_process_is_told_while_it_lives() -> None:
    facts = read_process_facts(os.getpid(), 0.5)
    assert facts is not None
    assert facts.peak >= facts.rss > 0
    assert facts.threads >= 1
    assert (facts.pid, facts.cpu) == (os.getpid(), 0.5)
    assert cpu_seconds(os.getpid()) > 0
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert read_process_facts(child.pid) is None
    assert cpu_seconds(child.pid) == 0


def test_what_is_ready_to_run_while_another_runs_is_told_apart_from_what_sleeps() -> None:
    core = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{core}}}); print(flush=True)\nwhile True: pass"
    sleep = "import time; print(flush=True); time.sleep(1000)"
    children = [
        subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) for text in (spin, spin, sleep)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        while max(waited_seconds(child.pid) for child in children[:2]) < 0.3:
            os.sched_yield()
        assert waited_seconds(children[2].pid) < 0.3
    finally:
        for child in children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


def test_a_process_that_is_sampled_is_not_stopped(tmp_path: Path) -> None:
    pyspy = find_pyspy()
    assert pyspy is not None
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    record = [pyspy, "record", "--native", "-r", "500", "-d", "60", "-o", str(tmp_path / "x"), "-f", "raw"]
    sampler = subprocess.Popen(
        [*record, "--pid", str(spin.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not is_sampled(Path(f"/proc/{spin.pid}/status").read_text()):
            assert sampler.poll() is None
        facts = [read_process_facts(spin.pid) for _ in range(500)]
        assert {one.os_state for one in facts if one is not None} <= {"R", "S"}
    finally:
        for one in (sampler, spin):
            one.kill()
            one.wait()


def test_who_listens_on_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("", 0)) as everywhere:
        ports = {one.getsockname()[1] for one in (server, everywhere)}
        found = {one.port: one for one in read_listeners(ports)}
        assert set(found) == ports
        here = found[server.getsockname()[1]]
        assert (here.address, here.pid) == ("127.0.0.1", os.getpid())
        assert "python" in here.command
        assert found[everywhere.getsockname()[1]].address == "*"
    assert read_listeners(ports) == ()
    assert read_listeners(()) == ()
