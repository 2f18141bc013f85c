"""Runs on one host, with real processes."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from milkweed.runtime.agent.ptree import read_process
from milkweed.runtime.devices import own_device
from milkweed.runtime.errors import Conflict, InvalidArgument, NotFound, Unavailable
from milkweed.runtime.records import Exit, HostPlan, ProcessPlan
from milkweed.runtime.services import host_run
from tests.runtime.hosts import DEADLINE_S, event_of, open_descriptors, open_host, plan_of, python, until

pytestmark = pytest.mark.anyio


async def test_three_ranks_write_to_their_own_files(tmp_path: Path) -> None:
    commands = [("sh", "-c", f"echo rank $RANK; echo to stderr >&2; exit {code}") for code in (0, 0, 3)]
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, *commands))
        await event_of(context.spool, "run_ended")
        slices = await runs.read("run-1", None, {}, None, 1000)
        assert [piece.data for piece in slices] == [b"rank %d\nto stderr\n" % rank for rank in range(3)]
        assert all(piece.ended for piece in slices)
        events = await context.spool.after(0, 0.0)
    exits = {event.rank: event.exit for event in events if event.kind == "rank_exited"}
    assert exits == {0: Exit(code=0), 1: Exit(code=0), 2: Exit(code=3)}
    started = [event for event in events if event.kind == "rank_started"]
    assert [event.rank for event in started] == [0, 1, 2]
    assert all(event.pid for event in started)
    assert events[-1].kind == "run_ended"
    assert oct((tmp_path / "runs/run-1/rank-0.out").stat().st_mode)[-3:] == "600"


async def test_the_environment_of_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILKWEED_GUARD_PID", "1")
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    code = "import os; print(*(f'{k}={v}' for k, v in sorted(os.environ.items())), sep='\\n')"
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, python(code), env={"MILKWEED_HOST": "0", "COLOUR": "blue"}))
        await event_of(context.spool, "run_ended")
        (piece,) = await runs.read("run-1", None, {}, None, 100_000)
    env = dict(line.split("=", 1) for line in piece.data.decode().splitlines())
    assert "MILKWEED_GUARD_PID" not in env
    assert env["MILKWEED_HOST_ID"] == context.instance
    assert (env["MILKWEED_MESH"], env["MILKWEED_RUN"], env["MILKWEED_RANK"]) == (context.mesh, "run-1", "0")
    assert env["MILKWEED_RUN_DIR"] == str(tmp_path / "runs" / "run-1")
    assert env["TMPDIR"] == str(tmp_path / "tmp")
    assert (env["PYTHONUNBUFFERED"], env["COLOUR"], env["MILKWEED_HOST"]) == ("1", "blue", "0")
    assert env["PYTHONPATH"].endswith("hook:/theirs")


async def test_start_is_safe_to_repeat(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, ("sh", "-c", "echo once"))
    async with open_host(tmp_path) as (context, runs):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(runs.start, plan)
        await event_of(context.spool, "run_ended")
        await runs.start(plan)
        (piece,) = await runs.read("run-1", None, {}, None, 100)
        assert piece.data == b"once\n"
        events = await context.spool.after(0, 0.0)
    assert [event.kind for event in events] == ["rank_started", "rank_exited", "run_ended"]


async def test_a_run_of_an_earlier_agent_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "runs" / "run-1").mkdir(parents=True)
    async with open_host(tmp_path) as (_, runs):
        with pytest.raises(Conflict, match="run_ended"):
            await runs.start(plan_of(tmp_path, ("true",)))


async def test_a_wrong_command_is_named_with_the_nearest_and_changes_nothing(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (context, runs):
        with pytest.raises(
            NotFound, match=r"command_not_found: no command 'slep' on host-0; nearest: .*sleep"
        ):
            await runs.start(plan_of(tmp_path, ("slep", "1")))
        assert context.spool.seq == 0
        assert not (tmp_path / "runs").exists()


async def test_a_missing_working_directory_is_said_as_such(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (_, runs):
        with pytest.raises(
            NotFound, match=r"file_not_found: the working directory .*/nowhere does not exist"
        ):
            await runs.check(plan_of(tmp_path, ("true",), cwd=str(tmp_path / "nowhere")))
        (tmp_path / "file").touch()
        with pytest.raises(InvalidArgument, match="is not a directory"):
            await runs.check(plan_of(tmp_path, ("true",), cwd="file"))


async def test_a_rank_that_is_to_have_a_device_gets_it_and_traps_are_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_device, "vendors_here", lambda dev: ("amd",))
    script = "import os; print([(n, v) for n, v in os.environ.items() if n.endswith('_VISIBLE_DEVICES')])"
    traps = {"ROCR_VISIBLE_DEVICES": "4,5", "HIP_VISIBLE_DEVICES": "1"}
    plan = plan_of(tmp_path, python(script), env=traps)
    async with open_host(tmp_path) as (context, runs):
        (said,) = await runs.check(plan)
        assert "what is left is device 5" in said
        own = replace(plan, processes=tuple(replace(one, own_device=0) for one in plan.processes))
        assert await runs.check(own) == ()
        await runs.start(own)
        await event_of(context.spool, "run_ended")
        (output,) = await runs.read(plan.run, None, {}, None, 1000)
    assert output.data.decode().strip() == "[('ROCR_VISIBLE_DEVICES', '5')]"


async def test_a_rank_that_is_to_have_a_device_where_there_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_device, "vendors_here", lambda dev: ())
    plan = plan_of(tmp_path, ("true",))
    own = replace(plan, processes=tuple(replace(one, own_device=0) for one in plan.processes))
    async with open_host(tmp_path) as (_, runs):
        with pytest.raises(InvalidArgument, match="no device of NVIDIA or AMD"):
            await runs.check(own)


async def test_a_file_the_kernel_cannot_run_fails_its_rank_only(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"\x00\x01")
    (tmp_path / "junk").chmod(0o755)
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, ("./junk",), ("echo", "fine")))
        await event_of(context.spool, "run_ended")
        failed = await event_of(context.spool, "rank_failed_to_start")
        assert failed.rank == 0
        assert failed.exit is not None
        assert failed.exit.error.startswith("Exec format error: it has no #! line")
        assert (await event_of(context.spool, "rank_exited", 1)).exit == Exit(code=0)


async def test_a_failure_on_a_full_disk_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_run, "is_full", lambda path: True)
    async with open_host(tmp_path) as (context, runs):
        plan = plan_of(tmp_path, ("false",), ("true",))
        await runs.start(plan)
        await event_of(context.spool, "run_ended")
        slices = await runs.read(plan.run, None, {}, None, 100)
    assert [one.note for one in slices] == ["the disk of its output was full when it failed", ""]


async def test_a_script_runs_by_its_first_line_or_by_strict_bash(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (context, runs):
        await runs.start(
            plan_of(tmp_path, (), run="run-1", script="echo $BASH_VERSION | grep -q .; false; echo no\n")
        )
        assert (await event_of(context.spool, "rank_exited")).exit == Exit(code=1)
        (piece,) = await runs.read("run-1", None, {}, None, 100)
        assert piece.data == b""
        script = "#!/usr/bin/env python3\nimport sys\nprint(sys.argv[1:])\n"
        await runs.start(plan_of(tmp_path, ("a", "b"), run="run-2", script=script))
        assert await runs.wait_output("run-2", None, {}, r"\['a', 'b'\]", 10.0)
        assert oct((tmp_path / "runs/run-2/script").stat().st_mode)[-3:] == "700"


async def test_a_script_with_an_unknown_interpreter_is_refused(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (_, runs):
        with pytest.raises(
            NotFound, match=r"no command '/bin/bsh' on host-0: there is no such file; nearest: /bin/b?a?sh"
        ):
            await runs.check(plan_of(tmp_path, (), script="#!/bin/bsh\nls\n"))


async def test_a_time_limit_ends_the_run(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, ("sleep", "1000"), ("sleep", "1000"), timeout_s=0.2))
        await event_of(context.spool, "run_ended")
        for rank in (0, 1):
            assert (await event_of(context.spool, "rank_exited", rank)).exit == Exit(
                signal=15, ended_by="timeout"
            )


async def test_ranks_that_ignore_sigterm_are_killed_after_the_grace(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, python(code), python(code)))
        assert await runs.wait_output("run-1", (0,), {}, "up", 10.0)
        assert await runs.wait_output("run-1", (1,), {}, "up", 10.0)
        with anyio.fail_after(DEADLINE_S):
            assert await runs.end("run-1", None, "cancelled", 0.3) == 2
        for rank in (0, 1):
            ending = (await event_of(context.spool, "rank_exited", rank)).exit
            assert ending == Exit(signal=9, ended_by="cancelled")
        assert await runs.end("run-1", None, "cancelled", 0.3) == 0


async def test_one_rank_can_be_ended_alone(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, ("sleep", "1000"), ("sleep", "1000")))
        assert len(await runs.processes("run-1", None)) == 2
        assert await runs.end("run-1", (1,), "peer_failed", 1.0) == 1
        assert (await event_of(context.spool, "rank_exited", 1)).exit == Exit(
            signal=15, ended_by="peer_failed"
        )
        ((rank, pid),) = await runs.processes("run-1", None)
        assert rank == 0
        process = read_process(pid)
        assert process is not None
        assert process.alive


async def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, ("sh", "-c", "printf 0123456789")))
        await event_of(context.spool, "run_ended")
        (first,) = await runs.read("run-1", (0,), {0: 2}, None, 3)
        assert (first.start, first.data, first.next, first.size) == (2, b"234", 5, 10)
        (rest,) = await runs.read("run-1", (0,), {0: first.next}, None, 100)
        assert rest.data == b"56789"
        (tail,) = await runs.read("run-1", (0,), {}, 4, 100)
        assert tail.data == b"6789"


async def test_waiting_for_output(tmp_path: Path) -> None:
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    async with open_host(tmp_path) as (_, runs):
        await runs.start(
            plan_of(tmp_path, ("sh", "-c", f"echo first; read line <{fifo}; printf 'step 2 loss 0.5'"))
        )
        assert await runs.wait_output("run-1", None, {}, None, 10.0)
        assert not await runs.wait_output("run-1", None, {0: 6}, None, 0.05)
        assert not await runs.wait_output("run-1", None, {}, r"loss \d", 0.05)
        fifo.write_text("go\n")
        assert await runs.wait_output("run-1", None, {}, r"loss \d", 10.0)
        assert not await runs.wait_output("run-1", None, {}, "never", 10.0)
        with pytest.raises(InvalidArgument):
            await runs.wait_output("run-1", None, {}, "(", 1.0)


async def test_unknown_runs_and_ranks(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (_, runs):
        await runs.start(plan_of(tmp_path, ("true",)))
        with pytest.raises(NotFound, match="run_not_found: no run 'run-9' on host-0; its last ones: run-1"):
            await runs.read("run-9", None, {}, None, 10)
        with pytest.raises(NotFound, match="rank_not_found"):
            await runs.read("run-1", (4,), {}, None, 10)
        with pytest.raises(NotFound, match="rank_not_found"):
            await runs.end("run-1", (4,), "cancelled", 1.0)


async def test_a_reserved_port_can_be_bound_by_a_rank_and_is_given_to_nobody_else(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (_, runs):
        ports = [await runs.reserve_port() for _ in range(20)]
        assert len(set(ports)) == 20
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as store:
            store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            store.bind(("::", ports[0]))
            store.listen()
            with socket.create_connection(("127.0.0.1", ports[0])):
                pass
        for port in ports:
            await runs.release_port(port)
            await runs.release_port(port)


async def test_a_full_disk_refuses_a_run_which_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with open_host(tmp_path) as (context, runs):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_text", full)
            with pytest.raises(Unavailable, match=r"disk_full: cannot write .*: No space left on device"):
                await runs.start(plan_of(tmp_path, ("true",)))
        await runs.start(plan_of(tmp_path, ("true",)))
        assert (await event_of(context.spool, "rank_exited")).exit == Exit(code=0)


async def test_a_rank_that_had_failed_before_its_end_was_asked_for_has_failed(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, ("sh", "-c", "exit 7"), ("sleep", "1000")))
        pid = (await event_of(context.spool, "rank_started", 0)).pid
        while read_process(pid or 0) is not None and (await runs.processes("run-1", (0,))):
            if read_process(pid or 0).state == "Z":  # type: ignore[union-attr]
                break  # it is dead, and the loop has not yet told
        await runs.end("run-1", None, "peer_failed", 1.0)
        assert (await event_of(context.spool, "rank_exited", 0)).exit == Exit(code=7)
        assert (await event_of(context.spool, "rank_exited", 1)).exit == Exit(
            signal=15, ended_by="peer_failed"
        )


async def test_a_port_is_held_until_its_run_ends(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (_, runs):
        port = await runs.reserve_port()
        plan = replace(plan_of(tmp_path, ("sleep", "1000")), reserved_port=port)
        await runs.start(plan)
        assert not can_be_bound(port)
        await runs.end("run-1", None, "cancelled", 1.0)
        await until(lambda: can_be_bound(port))


def can_be_bound(port: int) -> bool:
    with socket.socket() as other:
        try:
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


async def test_sixty_runs_leave_no_descriptor_and_the_oldest_are_forgotten(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (_, runs):

        async def run(name: str) -> None:
            await runs.start(plan_of(tmp_path, ("sh", "-c", "echo hello"), ("true",), run=name))
            await runs.end(name, None, "cancelled", 1.0)

        await run("run-0")
        before = open_descriptors()
        for number in range(1, 61):
            await run(f"run-{number}")
        assert open_descriptors() == before
        with pytest.raises(NotFound, match="run_not_found"):
            await runs.read("run-0", None, {}, None, 10)
        assert len(await runs.read("run-60", None, {}, None, 10)) == 2
    assert (tmp_path / "runs" / "run-0" / "rank-0.out").exists()


async def test_what_is_left_when_the_service_closes_is_ended(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (context, runs):
        await runs.start(plan_of(tmp_path, ("sleep", "1000")))
        ((_, pid),) = await runs.processes("run-1", None)
    assert read_process(pid) is None
    assert context.spool.seq == 3


FAKE_TORCHRUN = """
import os, subprocess, sys
children = []
for rank in (4, 5):
    env = {**os.environ, "RANK": str(rank)}
    shell = 'exec "$@" >>"$MILKWEED_RUN_DIR/rank-$RANK.out" 2>&1'
    children.append(subprocess.Popen(["sh", "-c", shell, "sh", sys.executable, "-c", sys.argv[1]], env=env))
sys.exit(max(child.wait() for child in children))
"""


def launcher_plan(directory: Path, code: str) -> HostPlan:
    proc = ProcessPlan(-1, "torchrun-0", (*python(FAKE_TORCHRUN), code), {}, str(directory))
    return HostPlan("run-1", 0, (proc,), (4, 5))


async def test_ranks_of_a_launcher_are_found_read_and_ended(tmp_path: Path) -> None:
    code = "import os, time; print('rank', os.environ['RANK'], os.getpid()); time.sleep(1000)"
    async with open_host(tmp_path) as (context, runs):
        await runs.start(launcher_plan(tmp_path, code))
        started = {rank: await event_of(context.spool, "rank_started", rank) for rank in (-1, 4, 5)}
        await until(lambda: (tmp_path / "runs/run-1/rank-5.out").stat().st_size > 0)
        assert await runs.processes("run-1", None) == ((4, started[4].pid), (5, started[5].pid))
        for rank in (4, 5):
            assert await runs.wait_output("run-1", (rank,), {}, f"rank {rank} {started[rank].pid}", 10.0)
        assert await runs.end("run-1", None, "cancelled", 1.0) == 3
        for rank in (-1, 4, 5):
            ending = (await event_of(context.spool, "rank_exited", rank)).exit
            assert ending is not None
            assert ending.ended_by == "cancelled"


async def test_ranks_of_a_launcher_that_ends_well_ended_well(tmp_path: Path) -> None:
    async with open_host(tmp_path) as (context, runs):
        await runs.start(launcher_plan(tmp_path, "print('hello')"))
        await event_of(context.spool, "run_ended")
        events = await context.spool.after(0, 0.0)
    exits = [(event.rank, event.exit) for event in events if event.kind == "rank_exited"]
    assert exits == [(4, Exit(code=0)), (5, Exit(code=0)), (-1, Exit(code=0))]
