"""What torchrun 2.13 says of its ranks: recorded text, and a real one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from milkweed.runtime.records import Exit, HostPlan, ProcessPlan
from milkweed.runtime.services.torchrun import RankFailure, endings, parse_failures
from tests.runtime.hosts import event_of, open_host

RECORDED = Path(__file__).parent / "recorded"
BOTH_FAILED = (RECORDED / "torchrun-exit-and-segfault.txt").read_text()
ONE_STOPPED = (RECORDED / "torchrun-one-stopped.txt").read_text()
FAILED = Exit(code=1)


def test_the_root_cause_comes_first() -> None:
    assert parse_failures(BOTH_FAILED) == (
        RankFailure(rank=0, pid=5992, code=3, first=True),
        RankFailure(rank=1, pid=5993, code=-11),
    )


def test_a_rank_that_torchrun_stopped_is_told_from_one_that_failed() -> None:
    assert parse_failures(ONE_STOPPED) == (
        RankFailure(rank=1, pid=6020, code=1, first=True),
        RankFailure(rank=0, pid=6019, code=-15, stopped=True),
    )


@pytest.mark.parametrize(
    "text", ["", "Traceback ...\nModuleNotFoundError: torch", "ChildFailedError", BOTH_FAILED[:900]]
)
def test_without_a_summary_nothing_is_known(text: str) -> None:
    assert parse_failures(text) == ()
    assert endings((0, 1), FAILED, text) == ()


def test_how_ranks_ended() -> None:
    assert endings((0, 1), FAILED, BOTH_FAILED) == ((0, Exit(code=3)), (1, Exit(signal=11)))
    assert endings((0, 1), FAILED, ONE_STOPPED) == (
        (1, Exit(code=1)),
        (0, Exit(signal=15, ended_by="peer_failed")),
    )
    # A rank that is not named ended well, unless torchrun stopped it.
    assert endings((0, 1, 2), FAILED, BOTH_FAILED)[2] == (2, Exit(code=0))
    stopped = "W1130 21:00:00 api.py:1000] Sending process 77 closing signal SIGTERM\n" + BOTH_FAILED
    assert endings((0, 1, 2), FAILED, stopped)[2] == (2, Exit(ended_by="peer_failed"))
    assert endings((0, 1), Exit(code=0), "") == ((0, Exit(code=0)), (1, Exit(code=0)))
    ended = Exit(signal=15, ended_by="timeout")
    assert endings((0,), ended, BOTH_FAILED) == ((0, ended),)


def test_only_the_last_summary_counts() -> None:
    assert parse_failures(BOTH_FAILED + ONE_STOPPED)[0].rank == 1


@pytest.mark.anyio
async def test_a_real_torchrun(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys, time\n"
        "print('hello from', os.environ['RANK'], os.environ['MILKWEED_RUN'])\n"
        "if os.environ['RANK'] == '1':\n"
        "    open('up', 'w').close()\n"
        "    time.sleep(1000)\n"
        "while not os.path.exists('up'):\n"
        "    time.sleep(0.01)\n"
        "sys.exit(3)\n"
    )
    own_output = 'exec "$@" >>"$MILKWEED_RUN_DIR/rank-$RANK.out" 2>&1'
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python")
    argv = (sys.executable, *launcher, "/bin/sh", "-c", own_output, "sh", sys.executable, "train.py")
    proc = ProcessPlan(-1, "torchrun-0", argv, {}, str(tmp_path))
    async with open_host(tmp_path) as (context, runs):
        await runs.start(HostPlan("run-1", 0, (proc,), (0, 1), None, 120.0))
        while not await context.spool.after(1, 60.0):
            pass
        await event_of(context.spool, "run_ended")
        events = await context.spool.after(0, 0.0)
        outputs = await runs.read("run-1", None, {}, None, 1000)
    exits = {event.rank: event.exit for event in events if event.kind == "rank_exited"}
    assert exits == {0: Exit(code=3), 1: Exit(signal=15, ended_by="peer_failed"), -1: Exit(code=1)}
    assert [piece.data for piece in outputs] == [b"hello from %d run-1\n" % rank for rank in (0, 1)]
