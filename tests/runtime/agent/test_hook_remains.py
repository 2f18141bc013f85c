"""What the hook leaves of a rank for a diagnosis: faults, surroundings, modules. It prints nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milkweed.runtime.agent.hook_protocol import HOOK_DIRECTORY, hook_environment
from milkweed.runtime.evidence.remains import read_faults, read_modules, read_raised, read_surroundings


def run(directory: Path, code: str, *options: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "MILKWEED_RANK": "3", **hook_environment(directory, "rank-3", ""), **more}
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def plainly(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def faults(directory: Path) -> list[str]:
    return [one.reason for one in read_faults(directory, "rank-3")]


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


CRASH = "import ctypes; ctypes.string_at(0)"


def test_a_fault_is_told_in_a_file_and_nothing_is_printed(tmp_path: Path) -> None:
    done = run(tmp_path, CRASH)
    assert done.returncode == -signal.SIGSEGV
    assert (done.stdout, done.stderr) == ("", "")
    assert faults(tmp_path) == ["Segmentation fault"]


def test_a_faulthandler_of_the_users_own_keeps_its_file(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    code = f"import faulthandler; faulthandler.enable(open({str(theirs)!r}, 'w')); {CRASH}"
    assert run(tmp_path, code).stderr == ""
    assert "Segmentation fault" in theirs.read_text()
    assert faults(tmp_path) == []


def test_one_that_the_interpreter_was_told_to_have_prints_as_ever(tmp_path: Path) -> None:
    done = run(tmp_path, CRASH, "-X", "faulthandler")
    assert done.stderr.startswith("Fatal Python error: Segmentation fault")
    assert faults(tmp_path) == []


def test_a_fault_of_a_child_is_told_too(tmp_path: Path) -> None:
    code = f"""
import os
if os.fork() == 0:
    {CRASH}
os.wait()
"""
    assert run(tmp_path, code).returncode == 0
    assert faults(tmp_path) == ["Segmentation fault"]


def test_what_the_rank_runs_in_is_told_without_secrets(tmp_path: Path) -> None:
    secret = {"HF_TOKEN": "s3cr3t", "my_password": "s3cr3t", "API_KEY": "s3cr3t", "BASIC_AUTH": "s3cr3t"}
    done = run(tmp_path, "print('fine')", STAGE="blue=1", **secret)
    assert (done.stdout, done.stderr) == ("fine\n", "")
    told = read_surroundings(tmp_path, "rank-3")
    assert told["sys.executable"] == sys.executable
    assert told["STAGE"] == "blue=1"
    assert not set(secret) & set(told)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"s3cr3t" in path.read_bytes() for path in files)


def test_the_first_python_of_a_rank_is_told_and_not_its_children(tmp_path: Path) -> None:
    code = "import os, subprocess, sys; os.environ['LATE'] = '1'; subprocess.run([sys.executable, '-c', ''])"
    assert run(tmp_path, code).returncode == 0
    assert "LATE" not in read_surroundings(tmp_path, "rank-3")
    assert [path.name for path in tmp_path.glob("*.python")] == ["rank-3.python"]


RAISES = "import json, pytest; raise KeyError('label')"
QUIET_HOOK = "import sys; sys.excepthook = lambda *given: None\n"
LOUD_HOOK = "import sys; sys.excepthook = lambda kind, *given: print('mine', kind.__name__)\n"


@pytest.mark.parametrize(
    ("before", "out", "error"),
    [
        pytest.param("", "", "KeyError: 'label'\n", id="an exception"),
        pytest.param(QUIET_HOOK, "", "", id="excepthook replaced, quietly"),
        pytest.param(LOUD_HOOK, "mine KeyError\n", "", id="excepthook replaced"),
        pytest.param("import sys; sys.stderr.close()\n", "", "", id="stderr closed"),
        pytest.param("import os; os.close(2)\n", "", "", id="descriptor 2 closed"),
        pytest.param("import sys; sys.stderr = None\n", "", "", id="no stderr"),
    ],
)
def test_the_exception_that_ended_a_rank_is_told_with_its_modules(
    tmp_path: Path, before: str, out: str, error: str
) -> None:
    done = run(tmp_path, before + RAISES)
    assert done.returncode == plainly(before + RAISES).returncode == 1
    assert done.stdout == out
    assert done.stderr.endswith(error)
    assert without_addresses(done.stderr) == without_addresses(plainly(before + RAISES).stderr)
    assert read_modules(tmp_path, "rank-3")["pytest"][0] == pytest.__version__
    assert read_raised(tmp_path, "rank-3", None).endswith("KeyError: 'label'\n")


@pytest.mark.parametrize(
    "code", ["import pytest", "import pytest, sys; sys.exit(3)", "import os; os._exit(1)"]
)
def test_a_rank_that_no_exception_ended_tells_no_modules(tmp_path: Path, code: str) -> None:
    assert run(tmp_path, code).stderr == ""
    assert read_modules(tmp_path, "rank-3") == {}
    assert read_raised(tmp_path, "rank-3", None) == ""


def test_stderr_that_is_closed_changes_nothing_about_a_fault(tmp_path: Path) -> None:
    done = run(tmp_path, f"import os; os.close(2); {CRASH}")
    assert done.returncode == -signal.SIGSEGV
    assert faults(tmp_path) == ["Segmentation fault"]


def test_a_directory_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    code = f"import shutil; shutil.rmtree({str(tmp_path / 'run')!r}); raise KeyError('label')"
    (tmp_path / "run").mkdir()
    done = run(tmp_path / "run", code)
    assert done.returncode == 1
    assert done.stderr == plainly("raise KeyError('label')").stderr


# A thread in C with the processor, as one of gloo that has yet to drop what it holds, while the program ends.
AT_WORK = """
import hashlib, threading, sys
sys.path.insert(0, %(hook)r)
import milkweed_flight
if %(serves)s:
    milkweed_flight.serve(%(directory)r, "rank-3")
begun = threading.Event()
def work():
    begun.set()
    hashlib.pbkdf2_hmac("sha256", b"", b"", %(rounds)d)
    open(%(done)r, "w").close()
threading.Thread(target=work, daemon=True).start()
begun.wait()
"""


@pytest.mark.parametrize("serves", [True, False])
def test_threads_at_work_come_to_their_end_before_python_of_a_rank_with_a_group(
    tmp_path: Path, serves: bool
) -> None:
    done = tmp_path / "done"
    code = AT_WORK % {
        "hook": str(HOOK_DIRECTORY),
        "serves": serves,
        "rounds": 20_000 if serves else 10_000_000,  # 10 ms, and longer than a program takes to end
        "directory": str(tmp_path),
        "done": str(done),
    }
    assert plainly(code).returncode == 0
    assert done.exists() is serves
