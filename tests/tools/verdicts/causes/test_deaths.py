"""What ranks that have failed died of."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from milkweed.runtime.evidence import Disk, Fault, HostEvidence, KernelLine, Listener, Memory
from milkweed.runtime.records import Exit, Frame, ThreadStack

from .building import case, cause, raised, rank, told

MIB = 1 << 20

LOST = raised("torch.distributed.DistBackendError: Connection closed by peer [127.0.0.1]:4711")


@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        ("ModuleNotFoundError: No module named 'sentencepiece'", "missing_module"),
        ("RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. ", "worker_killed"),
        ("RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly", "worker_killed"),
        (
            "concurrent.futures.process.BrokenProcessPool: A process was terminated abruptly",
            "worker_killed",
        ),
        (
            (
                "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible"
                " that dataloader's workers are out of shared memory."
            ),
            "shm_full",
        ),
        (
            "OSError: [Errno 28] No space left on device: '/dev/shm/torch_12_34'",
            "shm_full",
        ),
        ("OSError: [Errno 28] No space left on device: 'checkpoints/step-40.pt'", "disk_full"),
        ("OSError: [Errno 98] Address already in use", "port_in_use"),
        (
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a"
                " total capacity of 79.25 GiB of which 1.20 GiB is free."
            ),
            "device_memory",
        ),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "device_memory"),
        ("MemoryError", "out_of_memory"),
        (
            (
                "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't"
                " allocate memory: you tried to allocate 4000000000000 bytes."
            ),
            "out_of_memory",
        ),
        ("FloatingPointError: loss is nan at step 12", "nan_loss"),
        ("KeyError: 'label'", "exception"),
        ("ValueError: finance department not found", "exception"),
        pytest.param(
            "ImportError: cannot import name 'inf' from 'shapes'",
            "exception",
        ),
    ],
)
def test_an_exception_is_told_by_its_words(exception: str, kind: str) -> None:
    assert cause(rank(0, text=raised(exception), code=1), rank(1, text=LOST, code=1)) == (kind, (0,))


def test_the_first_failure_counts_also_where_its_consequence_ends_first() -> None:
    lost = rank(0, text=LOST, code=1, ended_at=9.0)
    found = told(lost, rank(1, text=raised("KeyError: 'label'", "data.py:7 load"), code=1, ended_at=9.2))
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks) == ("exception", (1,))
    assert "KeyError: 'label'" in found.cause.summary
    assert "data.py:7" in found.cause.summary
    assert "rank 0 failed after it" in found.cause.summary


def test_ranks_that_raise_the_same_are_told_together() -> None:
    ranks = [rank(n, text=raised("KeyError: 'label'"), code=1) for n in range(3)]
    assert cause(*ranks) == ("exception", (0, 1, 2))


def test_a_module_that_one_host_lacks() -> None:
    lacking = [
        rank(n, host=1, text=raised("ModuleNotFoundError: No module named 'rotary_ops.fast'"), code=1)
        for n in (2, 3)
    ]
    having = [rank(n, host=0, text=LOST, code=1, packages={"rotary-ops": "1.2"}) for n in (0, 1)]
    found = told(*having, *lacking).cause
    assert found is not None
    assert found.ranks == (2, 3)
    assert "on host 1 only" in found.summary
    assert any("rotary_ops 1.2 on host 0" in line for line in found.evidence)


def test_a_rank_that_milkweed_ended_has_not_failed() -> None:
    peer = rank(0, text=raised("KeyboardInterrupt"), signal=signal.SIGTERM, ended_by="peer_failed")
    assert cause(peer, rank(1, text=raised("KeyError: 1"), code=1)) == ("exception", (1,))
    assert cause(rank(0, signal=signal.SIGKILL, ended_by="cancelled")) == ("", ())


@pytest.mark.parametrize(
    "ended",
    [
        {"signal": signal.SIGSEGV},
        {"signal": signal.SIGFPE},
        pytest.param(
            {"code": 128 + signal.SIGSEGV},
        ),
    ],
)
def test_a_signal_of_the_processor_is_a_fault_in_native_code(ended: dict[str, int]) -> None:
    assert cause(rank(0, text=LOST, code=1), rank(1, **ended)) == ("segfault", (1,))  # type: ignore[arg-type]


def test_the_thread_that_had_the_fault_is_told_by_the_users_frame() -> None:
    site = "/venv/lib/python3.11/site-packages/fastops/__init__.py"
    faulting = ThreadStack(
        "0x2", (Frame("copy_rows", site, 9), Frame("collate", "/project/data.py", 31)), active=True
    )
    main = ThreadStack("MainThread", (Frame("train", "/project/train.py", 5),), main=True)
    fault = Fault("Segmentation fault", (main, faulting))
    found = told(rank(0, signal=signal.SIGSEGV, faults=(fault,))).cause
    assert found is not None
    assert "data.py:31" in found.summary


AT_EXIT = "end\nterminate called without an active exception\n"


def test_a_rank_that_aborts_while_python_shuts_down_has_done_its_work() -> None:
    """As written by a rank on gloo (torch 2.13): a thread of the process group was made to exit."""
    main = ThreadStack("MainThread", (), main=True)
    at_exit = rank(1, text=AT_EXIT, signal=signal.SIGABRT, faults=(Fault("Aborted", (main,)),))
    found = told(rank(0, code=0), at_exit).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("abort_at_exit", (1,))
    assert "ran to the end" in found.summary
    assert "destroy_process_group" in found.next


@pytest.mark.parametrize(
    ("text", "main"),
    [
        (AT_EXIT, (Frame("train", "/project/train.py", 5),)),
        ("terminate called after throwing an instance of 'std::runtime_error'\n", ()),
    ],
)
def test_an_abort_amid_the_work_is_no_end(text: str, main: tuple[Frame, ...]) -> None:
    fault = Fault("Aborted", (ThreadStack("MainThread", main, main=True),))
    assert cause(rank(1, text=text, signal=signal.SIGABRT, faults=(fault,))) == ("exception", (1,))


def test_a_kill_is_for_memory_only_where_the_kernel_says_so() -> None:
    assert cause(rank(0, signal=signal.SIGKILL)) == ("killed", (0,))
    assert cause(rank(0, signal=signal.SIGKILL, oom_kills=1)) == ("out_of_memory", (0,))
    line = KernelLine(5.0, "Out of memory: Killed process 100 (python) total-vm:9000000kB")
    assert cause(rank(0, signal=signal.SIGKILL), hosts=[HostEvidence(0, kernel=(line,))]) == (
        "out_of_memory",
        (0,),
    )


def test_the_limit_that_was_met_is_that_of_the_cgroup_or_of_the_machine() -> None:
    killed = rank(0, signal=signal.SIGKILL, oom_kills=1)
    group = Memory(64 << 30, 30 << 30, limit=700 * MIB, used=690 * MIB, group_kills=1)
    found = told(killed, hosts=[HostEvidence(0, memory=group)]).cause
    assert found is not None
    assert "limit (700 MiB)" in found.summary
    machine = Memory(64 << 30, 1 << 30, machine_kills=1)
    found = told(killed, hosts=[HostEvidence(0, memory=machine)]).cause
    assert found is not None
    assert "its host's memory" in found.summary


def test_a_bus_error_is_of_shared_memory() -> None:
    full = HostEvidence(0, disks=(Disk("/dev/shm", 64 * MIB, 0),))
    assert cause(rank(0, signal=signal.SIGBUS), hosts=[full]) == ("shm_full", (0,))
    assert cause(rank(0, signal=signal.SIGBUS)) == ("shm_full", (0,))


def test_who_holds_a_port_is_told() -> None:
    text = raised("OSError: [Errno 98] Address already in use (port: 29500)")
    host = HostEvidence(0, listeners=(Listener(29500, "*", 77, "python serve.py"),))
    found = told(rank(0, text=text, code=1), hosts=[host]).cause
    assert found is not None
    assert "29500" in found.summary
    assert any("77" in line and "serve.py" in line for line in found.evidence)


def test_a_full_disk_is_named_with_what_it_has_left() -> None:
    text = raised("OSError: [Errno 28] No space left on device")
    disks = (Disk("/project/checkpoints", 6 * MIB, 0), Disk("/tmp", 900 * MIB, 800 * MIB))
    found = told(rank(0, text=text, code=1), hosts=[HostEvidence(0, disks=disks)]).cause
    assert found is not None
    assert found.kind == "disk_full"
    assert any("/project/checkpoints: 0 MiB free of 6" in line for line in found.evidence)
    assert not any("/tmp" in line for line in found.evidence)


def test_a_run_that_ended_well_has_died_of_nothing() -> None:
    text = "error: 0\nretrying after ConnectionResetError\nnan_to_num is fine\n" + raised("KeyError: 1")
    assert cause(rank(0, text=text, code=0), rank(1, text=text, code=0)) == ("", ())


def test_the_mend_of_a_mesh_is_the_next_step() -> None:
    run = case(
        rank(0, text=raised("ModuleNotFoundError: No module named 'tokens'"), code=1),
        mend=lambda words: f"mend {words}",
    )
    found = told(*run.ranks, mend=run.mend).cause
    assert found is not None
    assert found.next == "mend No module named 'tokens'"


def test_a_failure_in_the_same_words_for_want_of_the_first_rank_is_no_cause() -> None:
    def wrapped(why: str) -> str:
        link = "\nThe above exception was the direct cause of the following exception:\n\n"
        return f"{raised(why)}{link}{raised('TrainingError: stopped in step 15')}"

    first = rank(1, code=1, text=wrapped("RuntimeError: sizes differ"), ended_at=10.0)
    lost = rank(0, code=1, text=wrapped("RuntimeError: Connection closed by peer [127.0.0.1]:4711"))
    found = told(lost, first).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("exception", (1,))
    assert "rank 0 failed after it" in found.summary


def test_a_disk_that_took_no_last_words_is_told() -> None:
    full = rank(0, code=1, text="step 3\n", note="the disk of its output was full when it failed")
    assert cause(full, rank(1, code=0)) == ("disk_full", (0,))
    never = replace(rank(0, code=1), exit=Exit(error="disk_full: cannot write /x: No space left on device"))
    found = told(never).cause
    assert found is not None
    assert found.kind == "disk_full"
    assert found.evidence[0].startswith("rank 0 was never started: disk_full")


def test_all_that_somebody_killed_are_told() -> None:
    killed = [rank(n, signal=signal.SIGKILL) for n in (0, 3)]
    found = told(*killed, rank(1, code=0), rank(2, signal=signal.SIGKILL, oom_kills=1)).other
    assert found is None
    found = told(*killed, rank(1, code=0)).cause
    assert found is not None
    assert (found.kind, found.ranks) == ("killed", (0, 3))
    assert found.summary.startswith("Ranks 0,3 were killed")


def test_a_fault_in_a_library_is_named_by_its_place_alone() -> None:
    text = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n'
        '  File "/w/train.py", line 7 in poke\n'
    )
    found = told(rank(0, signal=signal.SIGSEGV, text=text)).cause
    assert found is not None
    assert "SIGSEGV in ctypes/__init__.py:519 string_at: native code" in found.summary


def test_a_line_of_a_traceback_is_no_port() -> None:
    text = raised("OSError: [Errno 98] Address already in use", "serve.py:472 bind")
    found = told(rank(0, text=text, code=1)).cause
    assert found is not None
    assert found.kind == "port_in_use"
    assert "472" not in found.summary
    assert "MASTER_PORT" not in found.next
    rendezvous = raised(
        "torch.distributed.DistNetworkError: address already in use (port: 29500, EADDRINUSE)"
    )
    found = told(rank(0, text=rendezvous, code=1)).cause
    assert found is not None
    assert "29500" in found.summary
    assert "MASTER_PORT" in found.next


def test_what_an_exception_was_raised_from_is_told_first() -> None:
    text = (
        raised("ValueError: parameter group of another size", "resume.py:28 load")
        + "\nThe above exception was the direct cause of the following exception:\n\n"
        + raised("RuntimeError: epoch 4 cannot be resumed", "resume.py:30 restore")
    )
    found = told(rank(0, code=1, text=text)).cause
    assert found is not None
    assert found.evidence[0] == "from ValueError: parameter group of another size"
    assert "from ValueError" not in found.evidence[1]


def test_a_worker_that_the_kernel_killed_for_memory_ran_out_of_it() -> None:
    text = raised("RuntimeError: DataLoader worker (pid(s) 4242, 4243) exited unexpectedly")
    killed = KernelLine(1.0, "Memory cgroup out of memory: Killed process 4243 (pt_data_worker) total-vm:1kB")
    found = told(rank(0, code=1, text=text), hosts=[HostEvidence(0, kernel=(killed,))])
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks) == ("out_of_memory", (0,))
    assert any("4243" in line for line in found.cause.evidence)
    other = KernelLine(1.0, "Memory cgroup out of memory: Killed process 77 (java) total-vm:1kB")
    assert cause(rank(0, code=1, text=text), hosts=[HostEvidence(0, kernel=(other,))])[0] == "worker_killed"


def test_a_module_that_one_rank_alone_imports_is_not_told_of_its_host() -> None:
    lacks = rank(0, host=0, text=raised("ModuleNotFoundError: No module named 'wandb'"), code=1)
    found = told(lacks, *(rank(n, host=n // 2, text=LOST, code=1) for n in (1, 2, 3))).cause
    assert found is not None
    assert found.ranks == (0,)
    assert "only" not in found.summary


def test_memory_that_a_host_with_room_does_not_give_is_a_limit_of_the_process() -> None:
    failed = rank(0, text=raised("MemoryError"), code=1)
    roomy = HostEvidence(0, memory=Memory(total=24_000 * MIB, available=21_000 * MIB))
    tight = HostEvidence(0, memory=Memory(total=24_000 * MIB, available=2_000 * MIB))
    limited, short = told(failed, hosts=[roomy]).cause, told(failed, hosts=[tight]).cause
    assert limited is not None
    assert short is not None
    assert "ulimit -v" in limited.next
    assert "ulimit" not in short.next


def test_a_workers_signal_is_told_by_its_name() -> None:
    text = raised("RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. ")
    found = told(rank(1, text=text, code=1)).cause
    assert found is not None
    assert "was killed by SIGKILL" in found.summary


def test_a_worker_that_dies_while_it_hands_over_a_batch_is_told_though_only_a_connection_broke() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/project/train.py", line 29, in <module>\n    for x in loader:\n'
        '  File "/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 733, in __next__\n'
        '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 395, in _recv\n'
        "ConnectionResetError: [Errno 104] Connection reset by peer\n"
    )
    lost = rank(0, text=LOST, code=1, ended_at=11.0)
    assert cause(lost, rank(1, text=text, code=1, ended_at=10.0)) == ("worker_killed", (1,))
    other = text.replace("torch/utils/data/dataloader.py", "mine/feed.py")
    assert cause(rank(1, text=other, code=1)) == ("exception", (1,))
    for name, kind in (
        ("python", "out_of_memory"),
        ("pt_data_worker", "out_of_memory"),
        ("java", "worker_killed"),
    ):
        killed = KernelLine(1.0, f"Memory cgroup out of memory: Killed process 77 ({name}) total-vm:1kB")
        hosts = [HostEvidence(0, kernel=(killed,))]
        assert cause(lost, rank(1, text=text, code=1, ended_at=10.0), hosts=hosts) == (kind, (1,))
