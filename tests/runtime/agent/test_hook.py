"""The hook inside a rank: stacks on a signal, and no harm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from milkweed.runtime.agent.hook_protocol import (
    DUMP_SIGNAL,
    bytecode_environment,
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
        {"MILKWEED_BYTECODE": "/"},
        {"MILKWEED_BYTECODE": "/nowhere", "MILKWEED_BYTECODE_OF": ""},
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


MODULES = """
import sys
sys.dont_write_bytecode = False
import importlib.util as util, json, os
found = []
for path in json.loads(sys.argv[1]):
    cached = util.cache_from_source(path)
    assert util.source_from_cache(cached) == (path if path[0] == "/" else os.path.abspath(path))
    found.append(cached)
import module
found.append(module.__cached__)
print(json.dumps(found))
"""


def shown_to(tmp_path: Path, **more: str) -> tuple[Path, Path, dict[str, str]]:
    """A directory with a module, where its bytecode is to be, and the environment of a run there."""
    shown, plain = tmp_path / "ws", tmp_path / "plain"
    (shown / "deep").mkdir(parents=True)
    plain.mkdir()
    (shown / "module.py").write_text("VALUE = 1\n")
    env = environment(tmp_path, **bytecode_environment(plain, (str(shown),)), **more)
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return shown, plain, env


def cached_at(env: dict[str, str], at: Path, *paths: str, options: tuple[str, ...] = ()) -> list[str]:
    """Of these sources, and then of a module that is imported."""
    command = [sys.executable, *options, "-c", MODULES, json.dumps(paths)]
    done = subprocess.run(command, env=env, cwd=at, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[str] = json.loads(done.stdout)
    return found


def test_bytecode_of_what_is_mounted_is_on_plain_disk_but_for_that_of_environments(tmp_path: Path) -> None:
    shown, plain, env = shown_to(tmp_path)
    tag = sys.implementation.cache_tag
    theirs = [f"{shown}/.venv/lib/python3.11/{name}" for name in ("site-packages/a.py", "os.py")]
    outside = [f"{tmp_path}/other.py", f"{shown}-other/a.py"]
    found = cached_at(env, shown, "deep/a.py", f"{shown}/deep/a.py", *theirs, *outside)
    assert found[:2] == [f"{plain}{shown}/deep/a.{tag}.pyc"] * 2
    for source, one in zip([*theirs, *outside], found[2:-1], strict=True):
        assert one == str(Path(source).parent / "__pycache__" / f"{Path(source).stem}.{tag}.pyc")
    assert found[-1] == f"{plain}{shown}/module.{tag}.pyc"
    assert Path(found[-1]).is_file()
    assert not (shown / "__pycache__").exists()


def test_a_path_that_leads_out_of_what_is_mounted_does_not_lead_out_of_where_bytecode_is(
    tmp_path: Path,
) -> None:
    shown, _, env = shown_to(tmp_path)
    code = "import sys, importlib.util as util; print(util.cache_from_source(sys.argv[1]))"
    path = f"{shown}/../../../../../../../../../../a.py"
    done = subprocess.run(
        [sys.executable, "-c", code, path], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"{shown}/../../")


@pytest.mark.parametrize("way", ["variable", "option", "in the program"])
def test_where_the_user_wants_bytecode_it_is(tmp_path: Path, way: str) -> None:
    wanted = str(tmp_path / "wanted")
    more = {"PYTHONPYCACHEPREFIX": wanted} if way == "variable" else {}
    shown, plain, env = shown_to(tmp_path, **more)
    if way == "in the program":
        (shown / "sitecustomize.py").write_text(f"import sys; sys.pycache_prefix = {wanted!r}")
        env["PYTHONPATH"] += f":{shown}"
    options = ("-X", f"pycache_prefix={wanted}") if way == "option" else ()
    assert all(
        one.startswith(f"{wanted}/") for one in cached_at(env, shown, f"{shown}/a.py", options=options)
    )
    assert list(plain.rglob("module*")) == []


def test_no_bytecode_is_written_where_the_user_forbids_it(tmp_path: Path) -> None:
    shown, plain, env = shown_to(tmp_path, PYTHONDONTWRITEBYTECODE="1")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    subprocess.run([sys.executable, "-c", "import module"], env=env, cwd=shown, check=True)
    assert list(plain.iterdir()) == []
    assert not (shown / "__pycache__").exists()


def test_tools_that_compile_find_what_they_compiled(tmp_path: Path) -> None:
    shown, plain, env = shown_to(tmp_path)
    for command in (["-m", "compileall", "-q", "."], ["-m", "py_compile", "deep/a.py"]):
        (shown / "deep" / "a.py").write_text("VALUE = 2\n")
        subprocess.run([sys.executable, *command], env=env, cwd=shown, check=True)
    compiled = sorted(path.name.partition(".")[0] for path in plain.rglob("*.pyc"))
    assert compiled == ["a", "module"]
    assert not any(shown.rglob("__pycache__"))
    code = "import os, module; print(os.stat(module.__cached__).st_ino)"
    before = os.stat(next(plain.rglob("module.*.pyc"))).st_ino
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=shown, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{before}\n", done.stderr


def test_where_bytecode_cannot_be_written_it_is_as_without_us(tmp_path: Path) -> None:
    shown, plain, env = shown_to(tmp_path)
    plain.rmdir()
    assert cached_at(env, shown)[-1].startswith(f"{shown}/__pycache__/")


def test_a_path_that_cannot_be_told_is_left_alone() -> None:
    assert bytecode_environment(Path("/plain"), ("/a", "/b\nc")) == {}
