"""Procs that are forked: what they are like, and what a thousand of them leave."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import numpy as np
import pytest

from milkweed.runtime.agent import ptree
from milkweed.runtime.agent.hook_protocol import DUMP_SIGNAL, can_dump, stack_file
from tests.runtime.hosts import ROOT, GuardedHost, marked, open_guarded, until
from tests.runtime.procs import Owner, ask, open_owner, tell

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(170)]

# What a proc can see of itself, as one line of Python.
SEEN = (
    "import os, sys, threading, io; m = sys.modules['__main__']; f = lambda p: open(p, 'rb').read();"
    " answer = [sys.argv, sys.orig_argv, os.getcwd(), sys.path, m.__spec__.name, m.__file__, m.__package__,"
    " sorted(set(os.environ) - {'_'}), os.environ['WORD'], f('/proc/self/cmdline'),"
    " os.getsid(0) == os.getpid(),"
    " type(sys.stdout.buffer).__name__, sys.stdout.write_through, sys.stdout.encoding, sys.stdout.errors,"
    " sys.stdout.name, sys.stderr.name, threading.main_thread().native_id == os.getpid(),"
    " [os.get_inheritable(n) for n in (0, 1, 2)], sys.flags, __import__('faulthandler').is_enabled(),"
    " __import__('gc').isenabled(), [__import__('signal').getsignal(n) for n in (1, 10, 13, 15, 17)],"
    " __import__('signal').getsignal(2).__name__, __import__('signal').pthread_sigmask(0, ()),"
    " dict(l.split(b'=', 1) for l in f('/proc/self/environ').split(b'\\0')[:-1])[b'WORD'],"
    " os.readlink('/proc/self/fd/0')]"
)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[GuardedHost]:
    async with open_guarded(tmp_path) as host:
        yield host


@pytest.fixture
async def owner(host: GuardedHost) -> AsyncIterator[Owner]:
    async with open_owner(host) as owner:
        yield owner


async def test_the_first_procs_of_a_host_are_forked(owner: Owner, host: GuardedHost) -> None:
    started = await owner.spawn(*(f"p{n}" for n in range(32)), warm=True)
    assert {one.start for one in started} == {"warm"}
    assert len({int(ask(one, "import os; answer = os.getpid()")) for one in started}) == 32
    table = ptree.snapshot()
    assert {table[one.pid].parent for one in started} == {host.agent}


async def test_a_forked_proc_sees_of_itself_what_an_executed_one_does(owner: Owner) -> None:
    env = {"WORD": "a=b\nc é", "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}
    seen = []
    for name, warm in (("warm", True), ("cold", False)):
        (one,) = await owner.spawn(name, env=env, warm=warm, cwd="/tmp")
        assert one.start == name
        seen.append(ask(one, SEEN).replace(f"'{name}'", "NAME"))
    assert seen[0].split(", ") == seen[1].split(", ")
    assert "-m" in seen[0]


async def test_forked_procs_differ_in_what_is_random(owner: Owner) -> None:
    started = await owner.spawn("a", "b", warm=True)
    code = "import random, uuid, tempfile; answer = [random.random(), uuid.uuid4(), tempfile.mkdtemp()]"
    answers = [ask(one, code) for one in started]
    for column in zip(*(answer.strip("[]").split(", ") for answer in answers), strict=True):
        assert len(set(column)) == 2


async def test_forked_procs_differ_in_the_random_values_of_what_was_imported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILKWEED_WARM_MODULES", "numpy.random")
    async with open_guarded(tmp_path) as host, open_owner(host) as owner:
        started = await owner.spawn("a", "b", warm=True)
        assert {one.start for one in started} == {"warm"}
        code = "import sys; answer = sys.modules['numpy.random'].random()"
        assert len({ask(one, code) for one in started}) == 2


@pytest.fixture
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILKWEED_WARM_MODULES")


@pytest.mark.usefixtures("_nothing_said")
async def test_procs_find_imported_what_their_owner_has_imported(tmp_path: Path) -> None:
    code = "import sys; answer = 'numpy' in sys.modules, len(__import__('os').listdir('/proc/self/task'))"
    async with open_guarded(tmp_path) as host, open_owner(host) as owner:
        (before,) = await owner.spawn("a", warm=True)
        mine = {"numpy": np.__file__}
        (first, second) = await owner.spawn("b", "c", warm=True, imported=mine)
        assert {one.start for one in (before, first, second)} == {"warm"}
        answers = [ask(one, code) for one in (before, first, second)]
        assert [answer.partition(",")[0] for answer in answers] == ["(False", "(True", "(True"]
        assert len({answer.partition(",")[2] for answer in answers}) == 1
        (other,) = await owner.spawn("d", warm=True, imported={"numpy": "/other/numpy/__init__.py"})
        assert other.start == f"cold: the owner has another numpy than {np.__file__}"


@pytest.mark.usefixtures("_nothing_said")
async def test_another_module_of_that_name_is_left_to_the_procs(tmp_path: Path) -> None:
    async with open_guarded(tmp_path) as host, open_owner(host) as owner:
        (one,) = await owner.spawn("a", warm=True, imported={"numpy": "/other/numpy/__init__.py"})
        assert one.start == "warm"
        assert ask(one, "import sys; answer = 'numpy' in sys.modules") == "False"


@pytest.mark.usefixtures("_nothing_said")
async def test_an_import_that_fails_costs_the_starter_and_no_proc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unfit.py").write_text("raise OSError")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT), str(ROOT / "src"))))
    async with open_guarded(tmp_path) as host, open_owner(host) as owner:
        started = await owner.spawn("a", "b", warm=True, imported={"unfit": str(tmp_path / "unfit.py")})
        assert [one.start.partition(":")[0] for one in started] == ["cold", "cold"]
        assert [ask(one, "answer = 1") for one in started] == ["1", "1"]


@pytest.mark.usefixtures("_nothing_said")
async def test_what_an_import_reads_is_another_owners_own_though_the_import_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, file = tmp_path / "gate", tmp_path / "slow.py"
    os.mkfifo(gate)
    file.write_text(f"open({str(tmp_path / 'begun')!r}, 'w').close()\nopen({str(gate)!r}).read()\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT), str(ROOT / "src"))))
    found = []

    async def spawn(owner: Owner) -> None:
        found.extend(await owner.spawn("a", warm=True, imported={"slow": str(file)}))

    async with open_guarded(tmp_path) as host, open_owner(host) as first, open_owner(host, "other") as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(spawn, first)
            try:
                await until((tmp_path / "begun").exists)
                (one,) = await other.spawn("b", warm=True, env={"OMP_NUM_THREADS": "3"})
            finally:
                os.close(os.open(gate, os.O_RDWR))
                gate.rename(tmp_path / "passed")
                (tmp_path / "gate").touch()
        assert one.start.startswith("cold: ")
        assert [each.start for each in found] == ["warm"]


async def test_where_modules_are_named_an_owner_brings_no_others(owner: Owner) -> None:
    (one,) = await owner.spawn("a", warm=True, imported={"numpy": np.__file__})
    assert (one.start, ask(one, "import sys; answer = 'numpy' in sys.modules")) == ("warm", "False")


async def test_processes_of_a_forked_proc_work(owner: Owner) -> None:
    (one,) = await owner.spawn("a", warm=True)
    for method in ("fork", "spawn", "forkserver"):
        code = (
            f"import multiprocessing as m; p = m.get_context({method!r}).Pool(2);"
            " answer = p.map(abs, [-1, -2, -3]); p.close(); p.join()"
        )
        assert ask(one, code) == "[1, 2, 3]"


async def test_a_forked_proc_dumps_itself_when_it_is_asked(owner: Owner, host: GuardedHost) -> None:
    (one,) = await owner.spawn("a", warm=True)
    ask(one, "")
    assert can_dump(one.pid)
    os.kill(one.pid, DUMP_SIGNAL)
    path = stack_file(host.directory / "procs", "a", one.pid)
    await until(lambda: b"in main" in path.read_bytes())


async def test_the_stacks_of_a_crash_of_a_forked_proc_are_told(owner: Owner) -> None:
    (one,) = await owner.spawn("a", warm=True)
    tell(one, "import ctypes; ctypes.string_at(0)")
    (event,) = await owner.events()
    assert event.exit.signal == signal.SIGSEGV
    assert "in string_at" in event.stacks


async def test_variables_that_are_read_at_the_start_are_honoured(owner: Owner) -> None:
    """Where the starter cannot give them, the proc is executed."""
    code = "import sys; answer = [sys.flags.hash_randomization, hash('a') == hash('a'), sys.flags.optimize]"
    (one,) = await owner.spawn("a", env={"PYTHONHASHSEED": "0", "PYTHONOPTIMIZE": "1"}, warm=True)
    assert one.start.startswith("cold: ")
    assert ask(one, code) == "[0, True, 1]"
    (other,) = await owner.spawn("b", env={"OMP_NUM_THREADS": "3"}, warm=True)
    assert other.start == "warm"


async def test_without_the_starter_procs_are_executed(owner: Owner, host: GuardedHost) -> None:
    os.kill(host.starter, signal.SIGKILL)
    await until(lambda: ptree.read_process(host.starter) is None)
    (one,) = await owner.spawn("a", warm=True)
    assert one.start.startswith("cold: ")
    assert ask(one, "answer = 1") == "1"


async def test_a_starter_killed_while_it_forks_makes_procs_cold(owner: Owner, host: GuardedHost) -> None:
    os.kill(host.starter, signal.SIGSTOP)
    found = []

    async def spawn() -> None:
        found.extend(await owner.spawn("a", "b", warm=True))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spawn)
        await until((host.directory / "procs" / "b.out").exists)
        os.kill(host.starter, signal.SIGKILL)
    assert [one.start.partition(":")[0] for one in found] == ["cold", "cold"]
    assert [ask(one, "answer = 1") for one in found] == ["1", "1"]


async def test_procs_that_are_not_wanted_any_more_never_run(owner: Owner, host: GuardedHost) -> None:
    os.kill(host.starter, signal.SIGSTOP)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: owner.spawn("a", "b", warm=True))
        await until((host.directory / "procs" / "b.out").exists)
        tasks.cancel_scope.cancel()
    os.kill(host.starter, signal.SIGCONT)
    await until(lambda: marked(host.mesh) == {} and os.listdir(host.address.parent) == ["s"])
    (one,) = await owner.spawn("c", warm=True)
    assert one.start == "warm"


@pytest.mark.parametrize("process", ["agent", "guard"])
async def test_forked_procs_and_their_starter_end_with_the_agent(
    owner: Owner, host: GuardedHost, process: str
) -> None:
    started = await owner.spawn("a", "b", warm=True)
    os.kill(host.agent if process == "agent" else host.guard.pid, signal.SIGKILL)
    await until(lambda: not any(map(ptree.read_process, (host.starter, *(one.pid for one in started)))))


@pytest.mark.timeout(900)
async def test_a_thousand_procs_killed_and_started_again_leave_nothing(
    owner: Owner, host: GuardedHost, full_size: bool
) -> None:
    async def cycle(number: int) -> None:
        (one,) = await owner.spawn(f"p{number}", warm=True)
        assert one.start == "warm"
        os.kill(one.pid, signal.SIGKILL)
        (event,) = await owner.events()
        assert (event.pid, event.exit.signal) == (one.pid, signal.SIGKILL)

    async def sizes() -> list[int]:
        await owner.end()
        await until(lambda: os.listdir(host.address.parent) == ["s"])
        pids = (host.agent, host.starter)
        return [*(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids), *map(resident_mib, pids)]

    for number in range(100):
        await cycle(number)
    before = await sizes()
    cycles = 1000 if full_size else 100
    for number in range(100, 100 + cycles):
        await cycle(number)
    after = await sizes()
    assert after[:2] == before[:2]
    # Its last 4,096 events, of which there are one a cycle, are what an agent may grow by.
    assert after[2] <= before[2] + 2 + cycles // 250
    assert after[3] <= before[3] + 1
    assert ptree.descendants(ptree.snapshot(), [host.agent]) == {host.starter}
    assert len(os.listdir(host.directory / "procs")) == 64


def resident_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0
