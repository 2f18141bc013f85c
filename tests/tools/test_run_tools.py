"""The toolset run, on meshes in memory."""

import time
from dataclasses import replace
from typing import Any

import anyio
import pytest

from milkweed.runtime.errors import Conflict, InvalidArgument, MilkweedError, NotFound
from milkweed.runtime.records import Exit, Slowness
from tests.fakes import FakeMesh, FakeMeshes, FakeRun, end_run
from tests.tools.conftest import Ask

pytestmark = pytest.mark.anyio


@pytest.fixture
def running(meshes: FakeMeshes) -> list[FakeRun]:
    """Runs do not end by themselves; here they are."""
    held: list[FakeRun] = []
    meshes.on_start = held.append  # type: ignore[method-assign,assignment]
    return held


async def test_a_run_that_ends_soon_is_answered_with_its_outcome(ask: Ask, mesh: FakeMesh) -> None:
    result = await ask("run_on_mesh", mesh="demo", command="python train.py --lr '0.1'")
    assert (result.state, result.ranks) == ("succeeded", {"succeeded": "0-3"})
    assert result.output_tail == "ranks 0-3:\nhello"
    request = mesh.held[result.run].request
    assert request is not None
    assert request.argv == ("python", "train.py", "--lr", "0.1")


async def test_what_was_asked_for_reaches_the_run(ask: Ask, mesh: FakeMesh) -> None:
    result = await ask(
        "run_on_mesh",
        mesh="demo",
        script="echo hi | cat\n",
        launcher="per_host",
        ranks="0-1",
        env={"A": "b"},
        cwd="sub/dir",
        timeout_s=5,
        options={"keep_going": True, "warm": False, "own_device": True},
    )
    request = mesh.held[result.run].request
    assert request is not None
    assert (request.argv, request.script, request.launcher) == ((), "echo hi | cat\n", "per_host")
    assert (request.ranks, request.env, request.cwd) == ("0-1", {"A": "b"}, "/ws/sub/dir")
    assert (request.timeout_s, request.keep_going, request.warm) == (5.0, True, False)
    assert request.own_device


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"command": "a", "script": "b"},
        {"command": "ls | wc"},
        {"command": ""},
        {"script": " "},
        {"command": "a", "timeout_s": 0},
        {"command": "a", "timeout_s": -3},
        {"command": "a", "wait_s": -1},
        {"command": "a", "wait_s": 46},
        {"command": "a", "launcher": "mpi"},
        {"command": "a", "options": {"keep_goin": True}},
        {"command": "a", "env": {"A=": "b"}},
        {"command": "a", "timout_s": 3},
    ],
)
async def test_a_wrong_argument_starts_nothing(ask: Ask, mesh: FakeMesh, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        await ask("run_on_mesh", mesh="demo", **wrong)
    assert not mesh.held


async def test_a_run_goes_on_when_the_wait_is_over(ask: Ask, mesh: FakeMesh, running: list[FakeRun]) -> None:
    result = await ask("run_on_mesh", mesh="demo", command="sleep 60", wait_s=0.01)
    assert result.state == "running"
    assert result.cursor == "0-3@0"
    end_run(running[0], "failed", Exit(code=2), ranks=[1])
    ended = await ask("wait_for_run", run=result.run)
    assert (ended.state, ended.ranks) == ("failed", {"failed": "1", "succeeded": "0,2-3"})


async def test_a_wait_answers_also_when_the_time_is_up(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    result = await ask("run_on_mesh", mesh="demo", command="sleep 60", wait_s=0)
    assert (await ask("wait_for_run", run=result.run, timeout_s=0.01)).state == "running"
    missed = await ask("wait_for_run", run=result.run, timeout_s=0.01, pattern="loss")
    assert (missed.state, missed.matched) == ("running", False)


async def test_a_wait_for_a_pattern_ends_when_it_is_written(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    result = await ask("run_on_mesh", mesh="demo", command="sleep 60", wait_s=0)

    async def write() -> None:
        await anyio.wait_all_tasks_blocked()
        running[0].output[2] = b"loss 0.5\n"

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            found = await ask("wait_for_run", run=result.run, pattern=r"loss \d")
    assert (found.state, found.matched) == ("running", True)
    assert "loss 0.5" in found.output_tail


async def test_a_pattern_that_is_none_is_refused(ask: Ask, mesh: FakeMesh) -> None:
    result = await ask("run_on_mesh", mesh="demo", command="true")
    with pytest.raises(InvalidArgument, match="is no regular expression"):
        await ask("wait_for_run", run=result.run, pattern="(")
    with pytest.raises(InvalidArgument, match="is no regular expression"):
        await ask("read_run_output", run=result.run, grep="(")


async def test_a_run_is_cancelled(ask: Ask, mesh: FakeMesh, running: list[FakeRun]) -> None:
    result = await ask("run_on_mesh", mesh="demo", command="sleep 60", wait_s=0)
    assert (await ask("cancel_run", run=result.run)).state == "cancelled"


async def test_runs_are_listed(ask: Ask, mesh: FakeMesh) -> None:
    assert (await ask("list_runs", mesh="demo")).content() == {
        "mesh": mesh.id,
        "runs": [],
        "next": f"run_on_mesh(mesh={mesh.id!r}, command=...).",
    }
    for _ in range(25):
        await ask("run_on_mesh", mesh="demo", command="true")
    listed = await ask("list_runs", mesh="demo")
    assert len(listed.runs) + listed.more == 25


async def test_a_released_mesh_runs_nothing(ask: Ask, mesh: FakeMesh) -> None:
    await ask("release_mesh", mesh="demo")
    with pytest.raises(Conflict, match="mesh_released"):
        await ask("run_on_mesh", mesh=mesh.id, command="true")


async def test_an_unknown_run_is_an_error(ask: Ask, mesh: FakeMesh) -> None:
    for tool in ("wait_for_run", "read_run_output", "cancel_run"):
        with pytest.raises(NotFound, match="run_not_found"):
            await ask(tool, run="run-zzz")


async def written(ask: Ask, running: list[FakeRun], *outputs: bytes, ended: bool = True) -> str:
    """A run whose ranks wrote that."""
    result = await ask("run_on_mesh", mesh="demo", command="x", wait_s=0)
    running[-1].output.update(enumerate(outputs))
    if ended:
        end_run(running[-1], "succeeded", Exit(code=0))
    return str(result.run)


LINES = b"".join(b"step %d loss 0.%d\n" % (number, number) for number in range(10_000))


async def test_output_is_read_from_its_end(ask: Ask, mesh: FakeMesh, running: list[FakeRun]) -> None:
    run = await written(ask, running, LINES, LINES, LINES, LINES)
    text = (await ask("read_run_output", run=run)).text
    assert text.splitlines()[0].endswith('before this; cursor="start" reads from the beginning]')
    assert text.splitlines()[-2:] == ["step 9999 loss 0.9999", f"[end of output; {run} is succeeded]"]
    assert len(text.encode()) < 8000


async def test_output_is_read_page_by_page(ask: Ask, mesh: FakeMesh, running: list[FakeRun]) -> None:
    run = await written(ask, running, LINES[:60_000])
    cursor, seen = "start", ""
    for _ in range(40):
        text = (await ask("read_run_output", run=run, ranks="0", cursor=cursor)).text
        assert len(text.encode()) < 8000
        body, _, footer = text.rpartition("\n")
        seen += body + "\n"
        if "end of output" in footer:
            break
        cursor = footer.split('cursor="')[1].rstrip('"]')
    assert seen.encode() == LINES[:60_000][: LINES[:60_000].rfind(b"\n") + 1] + LINES[:60_000].rpartition(
        b"\n"
    )[2] + (b"\n" if not LINES[:60_000].endswith(b"\n") else b"")


async def test_the_last_lines_are_read(ask: Ask, mesh: FakeMesh, running: list[FakeRun]) -> None:
    run = await written(ask, running, LINES, b"only\n")
    text = (await ask("read_run_output", run=run, tail=2)).text
    assert "step 9998 loss 0.9998\nstep 9999 loss 0.9999" in text
    assert "step 9997" not in text
    assert "only" in text
    assert "ranks 2-3: no output" in text


async def test_lines_are_searched_for_in_all_of_the_output(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    run = await written(ask, running, LINES * 20 + b"Error: bad\n" + LINES, LINES)
    text = (await ask("read_run_output", run=run, grep="Error")).text
    assert text.splitlines()[:2] == ["rank 0:", "Error: bad"]
    assert "end of output" in text.splitlines()[-1]
    assert "no line matches" in (await ask("read_run_output", run=run, grep="nothing like it")).text
    last = (await ask("read_run_output", run=run, ranks="1", grep="loss", tail=3)).text
    assert last.splitlines()[:-1] == [f"step {number} loss 0.{number}" for number in (9997, 9998, 9999)]


async def test_a_search_with_many_matches_goes_on_by_cursor(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    run = await written(ask, running, LINES * 20)
    text = (await ask("read_run_output", run=run, ranks="0", grep="loss")).text
    assert len(text.encode()) < 8000
    assert "there is more" in text.splitlines()[-1]


@pytest.mark.parametrize(
    "wrong", [{"tail": 0}, {"max_bytes": 10}, {"cursor": "x"}, {"cursor": "9@1"}, {"ranks": "9"}]
)
async def test_a_wrong_read_is_refused(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun], wrong: dict[str, Any]
) -> None:
    run = await written(ask, running, b"x\n")
    with pytest.raises(MilkweedError):
        await ask("read_run_output", run=run, **wrong)


async def test_nothing_yet_is_said(ask: Ask, mesh: FakeMesh, running: list[FakeRun]) -> None:
    run = await written(ask, running, ended=False)
    text = (await ask("read_run_output", run=run)).text
    assert text == f'(no output)\n[{run} is running; to read on: cursor="0-3@0"]'


@pytest.mark.parametrize(
    "more", [{}, {"cursor": "start"}, {"tail": 10_000}, {"grep": "."}, {"grep": ".", "tail": 100}]
)
async def test_nasty_output_is_read_in_little(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun], more: dict[str, Any]
) -> None:
    nasty = ("\x1b[31m\U0001f4a5\u2603" * 3000).encode() + b"\x00\xff\r" * 5000 + b"\n" + b"\xff\xfe\n" * 3000
    run = await written(ask, running, nasty, nasty[1:], nasty[::-1], b"x" * 500_000)
    text = (await ask("read_run_output", run=run, **more)).text
    assert len(text.encode("utf-8", "replace")) <= 8000
    assert "\x1b" not in text


async def test_long_lines_are_read_in_full_page_by_page(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    run = await written(ask, running, b"x" * 20_000 + b"\n" + "\u2603".encode() * 3000 + b"\n")
    for max_bytes in (500, 8000):
        cursor, seen, footer = "start", "", ""
        while "end of output" not in footer:
            text = (await ask("read_run_output", run=run, ranks="0", cursor=cursor, max_bytes=max_bytes)).text
            assert len(text.encode()) <= max_bytes
            body, _, footer = text.rpartition("\n")
            seen += body
            cursor = footer.partition('cursor="')[2].removesuffix('"]')
        assert seen == "x" * 20_000 + "\u2603" * 3000


async def test_ranks_that_do_not_fit_come_on_later_pages(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    run = await written(ask, running, *(letter * 2000 + b"\n" for letter in (b"a", b"b", b"c", b"d")))
    text = (await ask("read_run_output", run=run, cursor="start", max_bytes=500)).text
    assert "[ranks 1-3: on the next pages]\n[the line goes on; " in text


async def test_a_script_that_bash_cannot_read_fails_alike_on_all_hosts(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    said = "/s/meshes/mesh-a-b2c/hosts/%d/runs/run-7qd/script: line 2: syntax error: unexpected end of file\n"
    result = await ask("run_on_mesh", mesh="demo", script="if then", wait_s=0)
    running[-1].output.update((rank, (said % (rank // 2)).encode()) for rank in range(4))
    end_run(running[-1], "failed", Exit(code=2))
    ended = await ask("wait_for_run", run=result.run)
    assert [group.ranks for group in ended.failure_groups] == ["0-3"]
    assert ended.output_tail == "ranks 0-3:\nscript: line 2: syntax error: unexpected end of file"


async def test_a_run_that_stands_still_is_told_as_hung_and_leads_to_its_diagnosis(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    started = await ask("run_on_mesh", mesh="demo", command="python train.py", wait_s=0)
    assert started.health == "ok"
    (held,) = running
    ranks = tuple(replace(rank, start="warm") for rank in held.view.ranks)
    held.view = replace(held.view, ranks=ranks, still_since=time.time() - 40)
    with anyio.fail_after(5):
        result = await ask("wait_for_run", run=started.run, until="hang", timeout_s=45)
    assert (result.state, result.health) == ("running", "hung")
    assert result.still_s >= 40
    assert result.next.startswith(f"diagnose_run(run='{started.run}')")
    assert "hung: nothing has moved for 4" in result.summary().splitlines()[0]
    assert (await ask("list_runs", mesh="demo")).runs[0].health == "hung"


async def test_what_is_no_python_is_never_told_as_hung(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    started = await ask("run_on_mesh", mesh="demo", command="sleep 1000", wait_s=0)
    running[0].view = replace(running[0].view, still_since=time.time() - 100)
    assert (await ask("wait_for_run", run=started.run, until="hang", timeout_s=0)).health == "ok"


async def test_a_run_that_has_become_slow_is_told_with_both_paces_and_what_to_ask(
    ask: Ask, mesh: FakeMesh, running: list[FakeRun]
) -> None:
    started = await ask("run_on_mesh", mesh="demo", command="python train.py", wait_s=0)
    slow = Slowness(time.time() - 95, 0.35, 2.1)
    running[0].view = replace(running[0].view, slow=slow)
    result = await ask("wait_for_run", run=started.run, timeout_s=0)
    assert (result.state, result.health) == ("running", "slow")
    assert result.pace == "2.1 s a step for 95 s now, usually 0.35 s"
    assert f"slow: {result.pace}" in result.summary().splitlines()[0]
    assert "straggler" in result.next
    end_run(running[0], "succeeded", Exit(code=0))
    ended = await ask("wait_for_run", run=started.run)
    assert (ended.health, ended.pace) == ("ok", "")
