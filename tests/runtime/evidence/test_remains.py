"""What a run has left on disk of itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milkweed.runtime.codec import to_json
from milkweed.runtime.evidence import Fault, HostEvidence, RankEvidence
from milkweed.runtime.evidence.remains import (
    kept_evidence,
    parse_fault,
    read_faults,
    read_kept,
    read_modules,
    read_surroundings,
)
from milkweed.runtime.records import Frame

WORKER_FAULTS = """\
Fatal Python error: Segmentation fault

Thread 0x00007f0000000003 (most recent call first):
  File "/venv/lib/python3.11/threading.py", line 324 in wait
  File "/project/log.py", line 8 in write

Current thread 0x00007f0000000002 (most recent call first):
  File "/project/ops.py", line 12 in copy_rows
  File "/project/data.py", line 31 in collate

Thread 0x00007f0000000001 (most recent call first):
  File "/project/train.py", line 5 in main
  File "/project/train.py", line 9 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)
"""


def test_the_thread_that_had_the_fault_is_marked_wherever_it_stands() -> None:
    fault = parse_fault(WORKER_FAULTS)
    assert fault is not None
    assert fault.reason == "Segmentation fault"
    (active,) = [thread for thread in fault.threads if thread.active]
    assert active.frames[0] == Frame("copy_rows", "/project/ops.py", 12)
    assert not active.main
    (main,) = [thread for thread in fault.threads if thread.main]
    assert main.frames[-1].function == "<module>"
    assert len(fault.threads) == 3


def test_of_several_faults_the_last_counts() -> None:
    fault = parse_fault(WORKER_FAULTS + WORKER_FAULTS.replace("Segmentation fault", "Bus error"))
    assert fault is not None
    assert fault.reason == "Bus error"
    assert len(fault.threads) == 3


@pytest.mark.parametrize("text", ["", "Fatal error", WORKER_FAULTS.partition("\n")[2], "\0" * 100])
def test_a_dump_without_a_fault_is_none(text: str) -> None:
    assert parse_fault(text) is None


def test_a_fault_without_threads_is_told_by_its_reason() -> None:
    assert parse_fault("Fatal Python error: Aborted\n\nCurrent") == Fault("Aborted")


@given(st.text(), st.integers(0, len(WORKER_FAULTS)))
def test_a_dump_that_was_cut_or_overwritten_is_read_as_far_as_it_goes(junk: str, at: int) -> None:
    parse_fault(WORKER_FAULTS[:at] + junk)
    parse_fault(junk + WORKER_FAULTS[at:])


def test_what_python_really_writes(tmp_path: Path) -> None:
    code = """
import ctypes, faulthandler, sys, threading, time
faulthandler.enable(open(sys.argv[1], "w"))
def idle(): time.sleep(1000)
threading.Thread(target=idle, daemon=True).start()
def crash(): ctypes.string_at(0)
thread = threading.Thread(target=crash)
thread.start()
thread.join()
"""
    path = tmp_path / "rank-0.fault.7"
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    (fault,) = read_faults(tmp_path, "rank-0")
    assert fault.reason == "Segmentation fault"
    (active,) = [thread for thread in fault.threads if thread.active]
    assert "crash" in [frame.function for frame in active.frames]
    assert [frame.function for frame in fault.threads[0].frames][-1] == "<module>"


def test_the_ranks_own_process_comes_first_and_files_without_a_fault_count_not(tmp_path: Path) -> None:
    for pid, text in (
        (7, WORKER_FAULTS),
        (12, WORKER_FAULTS.replace("Segmentation fault", "Bus error")),
        (9, ""),
    ):
        (tmp_path / f"rank-1.fault.{pid}").write_text(text)
    (tmp_path / "rank-10.fault.1").write_text(WORKER_FAULTS)
    (tmp_path / "rank-1.fault.99").mkdir()
    assert [one.reason for one in read_faults(tmp_path, "rank-1")] == ["Segmentation fault", "Bus error"]
    assert read_faults(tmp_path, "rank-2") == ()


def test_what_was_kept_comes_back_by_rank(tmp_path: Path) -> None:
    kept = HostEvidence(1, (RankEvidence(2), RankEvidence(3, faults=(Fault("Aborted"),))))
    (tmp_path / "evidence.json").write_text(json.dumps(to_json(kept)))
    assert read_kept(tmp_path) == kept
    assert kept_evidence(tmp_path)[3].faults == (Fault("Aborted"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "\0",
        '{"ranks": 3}',
        '{"ranks": [{"stacks": 1}]}',
        "null",
        "[]",
    ],
)
def test_what_was_not_kept_whole_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "evidence.json").write_text(text)
    assert read_kept(tmp_path) is None
    assert kept_evidence(tmp_path) == {}


def test_surroundings_and_modules_of_a_rank(tmp_path: Path) -> None:
    (tmp_path / "rank-0.python").write_bytes(b"sys.version=3.11.4\0A=b=c\0X=\xff")
    (tmp_path / "rank-0.modules.7").write_text('{"torch": ["2.9.0", "/venv/torch/__init__.py"]}')
    assert read_surroundings(tmp_path, "rank-0") == {"sys.version": "3.11.4", "A": "b=c", "X": "\ufffd"}
    assert read_modules(tmp_path, "rank-0") == {"torch": ("2.9.0", "/venv/torch/__init__.py")}
    assert read_surroundings(tmp_path, "rank-1") == {}
    assert read_modules(tmp_path, "rank-1") == {}


@pytest.mark.parametrize("text", ["", "3", "[1]", '{"a": 1}', '{"a": ["1"]}', "\0\0"])
def test_modules_that_are_no_such_list_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank-0.modules.7").write_text(text)
    assert read_modules(tmp_path, "rank-0") == {}
