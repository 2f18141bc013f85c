"""Stacks of a controller and of the procs that it spawned, as its user sees them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from milkweed.runtime.records import CallWait, Frame, Inside, ProcessStacks, ServedNote, ThreadStack
from milkweed.tools.verdicts.run_stacks import render_run

OURS = "/v/lib/python3.11/site-packages/milkweed/runtime"
EDITABLE = "/home/me/milkweed/src/milkweed/runtime"
SELECT = Frame("EpollSelector.select", "/usr/lib/python3.11/selectors.py", 468)
RUN_ONCE = Frame("BaseEventLoop._run_once", "/usr/lib/python3.11/asyncio/base_events.py", 1884)
MODULE = Frame("<module>", "/w/control.py", 30)
MAIN = Frame("main", "/w/control.py", 20)
LOAD = Frame("Worker.load", "/w/data.py", 7)
SERVED = (
    Frame("ServedCall.run.<locals>.<lambda>", f"{EDITABLE}/proc/calls.py", 80),
    Frame("MainThread.interruptible", f"{EDITABLE}/proc/main_thread.py", 145),
    Frame("ServedCall.run", f"{EDITABLE}/proc/calls.py", 80),
)
GET = Frame("Future.get", f"{OURS}/node/future.py", 78)
LOOP = ThreadStack("milkweed", (SELECT, RUN_ONCE, Frame("Node._run", f"{OURS}/node/node.py", 218)))
CONTROL = ThreadStack("milkweed-control", (Frame("ControlSocket._accept", f"{OURS}/control_socket.py", 48),))


def forever(*frames: Frame) -> ThreadStack:
    outer = (
        Frame("MainThread.run_forever", f"{OURS}/proc/main_thread.py", 114),
        Frame("<module>", f"{OURS}/proc/__main__.py", 9),
        Frame("_run_code", "<frozen runpy>", 88),
    )
    return ThreadStack("MainThread", (*frames, *outer), main=True)


def proc(
    rank: int, main: ThreadStack, inside: Inside | None = None, mesh: str = "workers-1f2a3c"
) -> ProcessStacks:
    inside = inside or Inside(f"node-{mesh}-{rank}")
    return ProcessStacks(rank, 0, 200 + rank, (main, LOOP, CONTROL), os_state="S", procs=mesh, inside=inside)


def idle(rank: int, mesh: str = "workers-1f2a3c") -> ProcessStacks:
    return proc(rank, forever(Frame("MainThread._run_next", f"{OURS}/proc/main_thread.py", 120)), mesh=mesh)


def busy(rank: int, frame: Frame = LOAD, for_s: float = 12.4) -> ProcessStacks:
    note = ServedNote("Worker.step", "main", "program", for_s)
    return proc(rank, forever(frame, *SERVED), Inside(f"node-{rank}", None, (note,)))


def controller(*waits_for: int) -> ProcessStacks:
    """Its main task awaits workers."""
    waits = CallWait("workers.step", tuple(f"workers-1f2a3c-{rank}" for rank in waits_for))
    task = ThreadStack("Task-1", (Frame("Future.__await__", f"{OURS}/node/future.py", 99), MAIN), waits=waits)
    main = ThreadStack("MainThread", (SELECT, RUN_ONCE, MODULE), main=True)
    return ProcessStacks(
        0, 0, 100, (main, LOOP, CONTROL), os_state="S", inside=Inside("program", tasks=(task,))
    )


def said(*processes: ProcessStacks) -> str:
    return render_run(processes, workspace="/w", world_size=1)


def test_a_controller_says_whom_it_waits_for_and_the_one_at_work_is_shown() -> None:
    assert said(controller(3), *map(idle, range(3)), busy(3)).splitlines() == [
        (
            "rank 0 is in a call of workers.step on workers 3 (control.py:20 main);"
            " workers 3 is at data.py:7 Worker.load; workers 0-2 are idle"
        ),
        "rank 0 (a call of workers.step on workers 3):",
        "  control.py:20 main",
        "  control.py:30 <module>",
        "workers 3 (Worker.step for 12 s):",
        "  data.py:7 Worker.load",
    ]


def test_procs_are_grouped_as_ranks_are_and_the_odd_one_is_named() -> None:
    groups = said(*(busy(rank) for rank in range(3)), busy(3, Frame("Worker.save", "/w/save.py", 5)))
    assert "workers 0-2 are at data.py:7 Worker.load; workers 3 is elsewhere: save.py:5 Worker.save" in groups


def test_nothing_of_ours_is_shown() -> None:
    text = said(controller(0), busy(0), idle(1))
    assert "milkweed" not in text
    assert "MainThread" not in text


def test_two_meshes_of_one_name_are_told_apart_by_their_tokens() -> None:
    both = said(idle(0, "procs-aaa"), idle(0, "procs-bbb"))
    assert "procs-aaa 0 is idle; procs-bbb 0 is idle" in both
    assert "procs 0 is idle" in said(idle(0, "procs-aaa"))


def test_an_async_endpoint_is_where_it_awaits_though_the_main_thread_is_idle() -> None:
    fetch = Frame("Worker.fetch", "/w/data.py", 9)
    sleep = Frame("sleep", "/usr/lib/python3.11/asyncio/tasks.py", 649)
    note = ServedNote(
        "Worker.fetch", "task", "program", stack=ThreadStack("Task-7", (sleep, fetch, SERVED[2]))
    )
    text = said(replace(idle(0), inside=Inside("n", None, (note,))))
    assert "workers 0 is in asyncio.sleep (data.py:9 Worker.fetch)" in text
    assert text.endswith("workers 0 (Worker.fetch, asyncio.sleep):\n  data.py:9 Worker.fetch")


def test_what_a_gather_awaits_is_said_though_its_tasks_have_no_frame_of_the_users() -> None:
    waits = [CallWait(f"workers.{name}", (f"workers-1f2a3c-{rank}",)) for rank, name in enumerate(("a", "b"))]
    bare = [
        ThreadStack(
            f"Task-{at}", (Frame("_wrap_awaitable", "/usr/lib/python3.11/asyncio/tasks.py", 694),), waits=one
        )
        for at, one in enumerate(waits, 2)
    ]
    main = controller().threads[0]
    gathers = ThreadStack("Task-1", (MAIN,))
    one = ProcessStacks(0, 0, 100, (main, LOOP), inside=Inside("program", tasks=(gathers, *bare)))
    assert said(one).startswith(
        "rank 0 is in a call of workers.a and workers.b on workers 0-1 (control.py:20 main)"
    )


def test_an_endpoint_that_keeps_its_loop_busy_is_shown() -> None:
    spin = Frame("Worker.spin", "/w/data.py", 4)
    loop = replace(
        LOOP, frames=(spin, Frame("ServedCall.run_async", f"{OURS}/proc/calls.py", 60), *LOOP.frames[1:])
    )
    stuck = idle(0)
    assert "workers 0 is at data.py:4 Worker.spin" in said(replace(stuck, threads=(stuck.threads[0], loop)))


def test_a_proc_that_holds_its_gil_tells_nothing_itself_and_is_shown() -> None:
    holder = replace(forever(LOAD, *SERVED), owns_gil=True)
    silent = replace(proc(0, holder), inside=None)
    assert "workers 0 is at data.py:7 Worker.load, holding the GIL" in said(silent)


def exchanging(rank: int, other: int) -> ProcessStacks:
    calls = (
        ServedNote("Stage.exchange", "main", "program", 9.0),
        ServedNote("Stage.state", "waiting", f"n-{other}"),
    )
    waits = CallWait("stages.state", (f"workers-1f2a3c-{other}",))
    place = Frame("Stage.exchange", "/w/stage.py", 16)
    return proc(rank, forever(GET, place, *SERVED), Inside(f"n-{rank}", waits, calls))


def test_a_circle_of_calls_comes_first_with_its_mend() -> None:
    text = said(controller(0, 1), exchanging(0, 1), exchanging(1, 0))
    assert text.splitlines()[0] == (
        "deadlock: workers 0 in Stage.exchange waits for Stage.state on workers 1,"
        " workers 1 in Stage.exchange waits for Stage.state on workers 0"
        " (mend: make state async, or wait for it elsewhere);"
        " rank 0 is in a call of workers.step on workers 0-1 (control.py:20 main)"
    )
    assert (
        "workers 0-1 (Stage.exchange for 9 s, 2 calls waiting in all, a call of stages.state on workers 0-1):"
        in text
    )


def test_a_host_that_does_not_answer_is_said() -> None:
    silent = ProcessStacks(1, 1, 0, error="host_lost: t-1 is lost", procs="procs of host")
    assert "procs of host 1 not dumped: host_lost: t-1 is lost" in said(controller(), silent)


@pytest.mark.parametrize(("procs", "most"), [(4, 450), (32, 2000)])
def test_the_report_stays_small(procs: int, most: int) -> None:
    working = [busy(rank, Frame("Worker.load", "/w/data.py", 7 + rank // 12)) for rank in range(procs - 1)]
    assert len(said(controller(procs - 1), *working, idle(procs - 1)).encode()) <= most
