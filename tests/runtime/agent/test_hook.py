"""The hook inside a rank: stacks on a signal, and no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milkweed.runtime.agent.hook_protocol import (
    DUMP_SIGNAL,
    can_dump,
    catches,
    clear_stack_files,
    find_stack_file,
    hook_environment,
    stack_file,
)
from tests.runtime.hosts import popen, until

pytestmark = pytest.mark.anyio


def environment(directory: Path, python_path: str = "", **more: str) -> dict[str, str]:
    return {**os.environ, "MILKWEED_RANK": "3", **hook_environment(directory, "rank-3", python_path), **more}


def output_of(code: str, env: dict[str, str], *options: str) -> str:
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


async def test_the_signal_dumps_the_stacks_of_all_threads(tmp_path: Path) -> None:
    code = """
import threading, time
def forward(): time.sleep(1000)
threading.Thread(target=forward, daemon=True).start()
def train(): time.sleep(1000)
train()
"""
    rank = popen([sys.executable, "-c", code], env=environment(tmp_path))
    try:
        await until(lambda: can_dump(rank.pid))
        file = stack_file(tmp_path, "rank-3", rank.pid)
        assert find_stack_file(tmp_path, rank.pid) == file

        def dumped() -> bool:
            os.kill(rank.pid, DUMP_SIGNAL)
            text = file.read_text()
            return "in train" in text and "in forward" in text

        await until(dumped)
        assert rank.poll() is None
    finally:
        rank.kill()
        rank.wait()
    clear_stack_files(tmp_path)
    assert file.exists()


async def test_children_of_every_kind_have_their_own_file(tmp_path: Path) -> None:
    code = """
import multiprocessing, os, signal, sys, time
def work(): time.sleep(1000)
if __name__ == "__main__":
    for kind in ("fork", "spawn"):
        multiprocessing.get_context(kind).Process(target=work, daemon=True).start()
    print(*[child.pid for child in multiprocessing.active_children()], flush=True)
    sys.stdin.read()
"""
    (tmp_path / "rank.py").write_text(code)
    rank = popen(
        [sys.executable, str(tmp_path / "rank.py")],
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert rank.stdout is not None
    try:
        pids = [int(word) for word in rank.stdout.readline().split()]
        await until(lambda: all(can_dump(pid) and find_stack_file(tmp_path, pid) for pid in pids))

        def dumped(pid: int) -> bool:
            os.kill(pid, DUMP_SIGNAL)
            return "in work" in stack_file(tmp_path, "rank-3", pid).read_text()

        await until(lambda: all(dumped(pid) for pid in pids))
        assert stack_file(tmp_path, "rank-3", rank.pid).read_text() == ""
    finally:
        rank.communicate(timeout=30)
    clear_stack_files(tmp_path)
    assert find_stack_file(tmp_path, rank.pid) is None


def test_the_users_own_sitecustomize_runs_with_its_path(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys; sys.theirs = __file__")
    code = "import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__, 'hook' in ''.join(sys.path))"
    file = str(theirs / "sitecustomize.py")
    assert output_of(code, environment(tmp_path, str(theirs))) == f"{file} {file} False\n"


def test_without_another_sitecustomize_nothing_is_different(tmp_path: Path) -> None:
    code = "import sys; print(sys.path[1:])"
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    assert output_of(code, environment(tmp_path)) == output_of(code, plain)


@pytest.mark.parametrize(
    "broken",
    [
        {"MILKWEED_DUMP_SIGNAL": "many"},
        {"MILKWEED_DUMP_SIGNAL": "9"},
        {"MILKWEED_RUN_DIR": "/nowhere"},
        {"MILKWEED_RANK": "/../"},
    ],
)
def test_whatever_is_wrong_does_no_harm(tmp_path: Path, broken: dict[str, str]) -> None:
    assert output_of("print('fine')", environment(tmp_path, **broken)) == "fine\n"


def test_an_isolated_python_has_no_handler_and_is_spared(tmp_path: Path) -> None:
    code = f"import signal; print(signal.getsignal({int(DUMP_SIGNAL)}) == signal.SIG_DFL)"
    assert output_of(code, environment(tmp_path), "-I") == "True\n"
    assert not can_dump(2**22)


def test_caught_signals_in_a_status() -> None:
    assert catches("Name:\tx\nSigCgt:\t0000080000000000\n", 44)
    assert not catches("Name:\tx\nSigCgt:\t0000080000000000\n", 43)
    assert not catches("Name:\tx\n", 44)
    assert signal.SIGRTMIN < DUMP_SIGNAL < signal.SIGRTMAX
