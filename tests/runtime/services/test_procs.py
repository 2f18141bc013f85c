"""Procs of a host: started for an owner, watched, and ended with it, whatever happens meanwhile."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent import ptree
from milkweed.runtime.errors import MilkweedError, Unavailable
from milkweed.runtime.proc_records import ProcSpec, SpawnProcs
from milkweed.runtime.records import Exit
from milkweed.runtime.services.procs import Procs
from milkweed.runtime.services.stacks import Stacks
from tests.runtime.hosts import ROOT, GuardedHost, marked, open_guarded, until
from tests.runtime.processes import alive
from tests.runtime.procs import Owner, ask, open_owner, request_of, tell

FINDABLE = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src")))}

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[GuardedHost]:
    async with open_guarded(tmp_path) as host:
        yield host


@pytest.fixture
async def owner(host: GuardedHost) -> AsyncIterator[Owner]:
    async with open_owner(host) as owner:
        yield owner


def agent_and_guard_alone(host: GuardedHost) -> bool:
    return marked(host.mesh) == {}


async def refusal(owner: Owner, request: SpawnProcs) -> MilkweedError:
    with pytest.raises(MilkweedError) as caught:
        await owner.procs.call_one(Procs.spawn, request)
    return caught.value


async def test_procs_answer_on_their_sockets_as_soon_as_they_are_told(owner: Owner) -> None:
    started = await owner.spawn("a", "b", "c")
    assert [one.proc for one in started] == ["a", "b", "c"]
    assert [int(ask(one, "import os; answer = os.getpid()")) for one in started] == [o.pid for o in started]
    for one in started:
        for path in (one.socket, one.control):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        process = ptree.read_process(one.pid)
        assert process is not None
        assert process.start_time == one.start_time


async def test_a_proc_inherits_its_two_sockets_and_nothing_else(owner: Owner) -> None:
    (one,) = await owner.spawn("a")
    ask(one, "")

    def kinds() -> list[str]:
        links = [os.readlink(f"/proc/{one.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{one.pid}/fd")]
        return sorted(re.sub(r"\W.*", "", os.path.basename(name)) for name in links)

    # Output twice, the stack file, stdin, two listeners; our connection is on its way out.
    await until(lambda: kinds() == ["a", "a", "a", "null", "socket", "socket"])


async def test_a_proc_has_its_owners_environment_over_the_hosts(owner: Owner, host: GuardedHost) -> None:
    (one,) = await owner.spawn("a", env={"WORD": "x y", "PATH": "/bin", **FINDABLE}, cwd=str(host.directory))
    code = "from os import *; answer = [*map(environ.get, ('WORD', 'PATH', 'MILKWEED_MESH')), getcwd()]"
    assert ask(one, code) == str(["x y", "/bin", host.mesh, str(host.directory)])


async def test_a_death_is_told_at_once_with_its_signal_and_last_lines(
    owner: Owner, host: GuardedHost
) -> None:
    (one, _) = await owner.spawn("a", "b")
    ask(one, "for n in range(30): print('line', n)")
    os.kill(one.pid, signal.SIGKILL)
    (event,) = await owner.events()
    assert (event.seq, event.proc, event.pid, event.exit) == (1, "a", one.pid, Exit(signal=9))
    assert event.tail == tuple(f"line {n}" for n in range(10, 30))
    assert event.stacks == ""
    with pytest.raises((ConnectionError, FileNotFoundError)):
        ask(one, "")
    assert (await host.event("proc_died")).detail == "proc a of me"


async def test_the_stacks_of_a_crash_are_told(owner: Owner) -> None:
    (one,) = await owner.spawn("a")
    tell(one, "import ctypes; print('before'); ctypes.string_at(0)")
    (event,) = await owner.events()
    assert event.exit == Exit(signal=signal.SIGSEGV)
    assert event.tail == ("before", "Fatal Python error: Segmentation fault")
    assert "most recent call first" in event.stacks
    assert "in string_at" in event.stacks


async def test_an_exception_at_the_start_is_in_the_tail(owner: Owner) -> None:
    (one,) = await owner.spawn("a", env={"MILKWEED_NOTHING": "1", "PYTHONPATH": "/nowhere"}, cwd="/")
    (event,) = await owner.events()
    assert event.pid == one.pid
    assert event.exit == Exit(code=1)
    assert "No module named" in event.tail[-1]


async def test_what_was_asked_for_is_no_death(owner: Owner, host: GuardedHost) -> None:
    await owner.spawn("a", "b", "c")
    assert await owner.end("a", "b", "never", grace_s=5.0) == 2
    events = await owner.events(2)
    assert {event.proc: event.exit for event in events} == dict.fromkeys(
        ("a", "b"), Exit(signal=15, ended_by="cancelled")
    )
    assert await owner.end() == 1
    assert [event.kind for event in host.events()] == []
    assert agent_and_guard_alone(host)


async def test_children_of_a_proc_end_with_it_also_daemons(owner: Owner, host: GuardedHost) -> None:
    (one, other) = await owner.spawn("a", "b")
    daemon = "import os; os.system('setsid sleep 99 & (setsid sleep 99 &)')"
    for proc in (one, other):
        ask(proc, daemon)
    await until(lambda: len(marked(host.mesh)) == 6)
    os.kill(one.pid, signal.SIGKILL)
    await until(lambda: len(marked(host.mesh)) == 3)
    assert await owner.end() == 3
    assert agent_and_guard_alone(host)


async def test_a_daemon_without_marks_ends_behind_the_last_proc_or_run(
    owner: Owner, host: GuardedHost
) -> None:
    (one, _) = await owner.spawn("a", "b")
    code = "import os; answer = os.popen('setsid env -i sleep 99 >&2 & echo $!').read().strip()"
    daemon = int(ask(one, code))
    await until(lambda: Path(f"/proc/{daemon}/cmdline").read_bytes().startswith(b"sleep"))
    await owner.end("a")
    assert alive(daemon)
    await owner.end("b")
    assert not alive(daemon)


async def test_procs_end_with_the_connection_of_their_owner(host: GuardedHost) -> None:
    async with open_owner(host, "other") as other:
        (stays,) = await other.spawn("s")
        async with open_owner(host) as owner:
            await owner.spawn("a", "b")
        await until(lambda: len(marked(host.mesh)) == 1)
        assert ask(stays, "answer = 1") == "1"
    await until(lambda: agent_and_guard_alone(host))


async def test_a_name_of_an_owner_is_free_again_when_it_is_gone(host: GuardedHost) -> None:
    async with open_owner(host) as owner:
        (one,) = await owner.spawn("a")
        with pytest.raises(MilkweedError, match="name_in_use"):
            await owner.procs.call_one(Procs.hold, "me")
    await until(lambda: ptree.read_process(one.pid) is None)
    async with open_owner(host) as again:
        with anyio.fail_after(10):
            await again.spawn("b")


async def test_a_spawn_that_is_given_up_leaves_nothing(owner: Owner, host: GuardedHost) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(owner.spawn, *"abcdefgh")
        await until(lambda: len(marked(host.mesh)) >= 2)
        tasks.cancel_scope.cancel()
    await until(lambda: agent_and_guard_alone(host))
    assert await owner.procs.call_one(Procs.events, "me", 0, 0.0) == ()
    await owner.spawn("z")


async def test_a_proc_killed_while_others_are_spawned_is_given_and_its_end_told(
    owner: Owner, host: GuardedHost
) -> None:
    names = [f"p{n}" for n in range(8)]
    async with anyio.create_task_group() as tasks:
        found = []

        async def spawn() -> None:
            found.extend(await owner.spawn(*names))

        tasks.start_soon(spawn)
        await until(lambda: marked(host.mesh))
        victim = next(iter(marked(host.mesh)))
        os.kill(victim, signal.SIGKILL)
    assert [one.proc for one in found] == names
    (event,) = await owner.events()
    assert (event.pid, event.exit) == (victim, Exit(signal=9))
    assert victim in [one.pid for one in found]


async def test_one_that_cannot_start_ends_those_that_did(owner: Owner, host: GuardedHost) -> None:
    good, bad = ProcSpec("a"), ProcSpec("b", {"WORD": "a\0b"})
    error = await refusal(
        owner, SpawnProcs("me", (good, bad), request_of().python, request_of().cwd, warm=False)
    )
    assert error.code == "allocation_failed"
    assert "the proc b cannot be started" in error.cause
    assert agent_and_guard_alone(host)
    assert await owner.procs.call_one(Procs.events, "me", 0, 0.0) == ()
    assert host.events() == ()
    await owner.spawn("a", "b")


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (request_of("../a"), "invalid_argument"),
        (request_of(""), "invalid_argument"),
        (request_of("a", "a"), "invalid_argument"),
        (request_of("taken"), "name_in_use"),
        (request_of("a", owner="nobody"), "owner_gone"),
        (request_of("a", python="/no/python"), "command_not_found"),
        (request_of("a", cwd="/no/directory"), "file_not_found"),
        (request_of("a", cwd="/etc/passwd"), "invalid_path"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_refused_spawn_starts_nothing(
    owner: Owner, host: GuardedHost, request_: SpawnProcs, code: str
) -> None:
    await owner.spawn("taken")
    assert (await refusal(owner, request_)).code == code
    await until(lambda: marked(host.mesh))
    assert len(marked(host.mesh)) == 1


async def test_an_end_of_the_agent_ends_procs(owner: Owner, host: GuardedHost) -> None:
    await owner.spawn("a", "b")
    os.kill(host.agent, signal.SIGKILL)
    with pytest.raises(Unavailable):
        await owner.events()
    await until(lambda: agent_and_guard_alone(host))


async def test_sockets_and_files_of_ended_procs_go_and_the_last_outputs_stay(
    owner: Owner, host: GuardedHost
) -> None:
    for number in range(3):
        await owner.spawn(*(f"p{number}.{n}" for n in range(30)))
        await owner.end()
    assert os.listdir(host.address.parent) == ["s"]
    left = os.listdir(host.directory / "procs")
    assert len(left) == 64
    assert "p2.29.out" in left
    assert "p0.0.out" not in left


async def test_health_tells_what_a_proc_does(owner: Owner) -> None:
    started = await owner.spawn("ok", "busy", "stopped", "holds", "gone")
    by_name = {one.proc: one for one in started}
    ask(by_name["busy"], "import time; busy['since'] = time.time() - 5")
    os.kill(by_name["stopped"].pid, signal.SIGSTOP)
    tell(by_name["holds"], "import ctypes; ctypes.PyDLL(None).sleep(60)")
    os.kill(by_name["gone"].pid, signal.SIGKILL)
    await owner.events()
    states: dict[str, str] = {}
    with anyio.fail_after(20):
        while states.get("holds") != "holds_gil":  # until the code has got that far
            found = {one.proc: one for one in await owner.health("ok", "busy", "stopped", "holds", "gone")}
            states = {name: one.state for name, one in found.items()}
    assert states == {"ok": "ok", "busy": "busy", "stopped": "stopped", "holds": "holds_gil", "gone": "gone"}
    assert found["busy"].where == "Stand.work"
    assert found["ok"].since == 0.0
    assert found["holds"].where == "<module> (<string>:1)"
    assert found["stopped"].since > 0


async def test_stacks_of_procs_are_dumped_together(owner: Owner) -> None:
    await owner.spawn("a", "b")
    stacks = await owner.stacks.call_one(Stacks.dump_procs, "me", ("b", "a"))
    assert [one.rank for one in stacks] == [0, 1]
    assert all(one.threads[0].main for one in stacks), stacks
