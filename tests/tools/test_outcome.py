"""The outcome of a run, assembled from what is known; small whatever the ranks did."""

import json
from dataclasses import replace

import pytest

from milkweed.runtime.records import (
    EndReason,
    Exit,
    MeshSpec,
    MeshView,
    OutputSlice,
    RankState,
    RankView,
    RunState,
    RunView,
)
from milkweed.tools.mending import Mender
from milkweed.tools.outcome import describe_item, describe_run, tail_bytes
from milkweed.tools.results import RESULT_BYTES, RunList, RunResult

TRACEBACK = b"""\
Traceback (most recent call last):
  File "/ws/train.py", line 7, in <module>
    main()
  File "/ws/train.py", line 4, in main
    raise ValueError("rank %d is bad")
ValueError: rank %d is bad
"""


def rank(number: int, state: RankState = "succeeded", *, at: float = 10.0, **exit_: object) -> RankView:
    ended = Exit(**(exit_ or {"code": 0})) if state not in ("running", "pending") else None  # type: ignore[arg-type]
    return RankView(number, number // 2, state, 100 + number, ended, 1.0, at if ended else None)


def run(state: RunState, *ranks: RankView, reason: str = "", warnings: tuple[str, ...] = ()) -> RunView:
    ended = None if state in ("running", "queued") else 12.5
    return RunView("run-a", "mesh-a", state, "spmd", "python train.py", ranks, 2.0, ended, reason, warnings)


def outcome(view: RunView, outputs: dict[int, bytes] | None = None) -> RunResult:
    slices = [
        OutputSlice(number, 0, data, len(data), len(data), view.ended_at is not None)
        for number, data in (outputs or {}).items()
    ]
    return describe_run(view, slices, now=20.0, lease_left_s=100.4, workspace="/ws")


def size(result: RunResult) -> int:
    return len(json.dumps(result.content(), ensure_ascii=False).encode())


def test_a_full_disk_under_the_output_leads_to_what_makes_room() -> None:
    note = "the disk of its output was full when it failed"
    slices = [OutputSlice(0, 0, b"", 0, 0, True, note=note)]
    mender = Mender(MeshView("mesh-a", MeshSpec("a", hosts=1, procs_per_host=1, workspace="/ws"), "ready"))
    view = run("failed", rank(0, "failed", code=1))
    result = describe_run(view, slices, now=20.0, lease_left_s=100.4, workspace="/ws", mender=mender)
    assert result.next == "A disk of the hosts is full: make room there."


def test_a_run_that_went_well_says_little() -> None:
    result = outcome(run("succeeded", rank(0), rank(1)), {0: b"loss 1\n", 1: b"loss 1\n"})
    assert result.content() == {
        "run": "run-a",
        "mesh": "mesh-a",
        "state": "succeeded",
        "ranks": {"succeeded": "0-1"},
        "output_tail": "ranks 0-1:\nloss 1",
        "command": "python train.py",
        "duration_s": 10.5,
        "lease_left_s": 100.0,
    }
    assert result.summary() == "run-a: succeeded after 10.5 s\nranks 0-1:\nloss 1"


def test_what_a_collective_raised_is_to_be_diagnosed() -> None:
    view = run("failed", rank(0, "failed", code=1), rank(1, "failed", at=5.0, code=1))
    lost = (
        b'Traceback (most recent call last):\n  File "train.py", line 4, in f\n    g()\nRuntimeError: reset\n'
    )
    assert (
        outcome(view, {0: lost, 1: lost}).next == "diagnose_run(run='run-a') tells the cause from all ranks."
    )


def test_the_first_failure_is_told_with_its_traceback() -> None:
    view = run(
        "failed",
        rank(0, "ended", signal=15, ended_by="peer_failed"),
        rank(1, "failed", at=5.0, code=1),
        rank(2, "failed", at=4.0, code=1),
    )
    result = outcome(view, {0: b"", 1: TRACEBACK.replace(b"%d", b"1"), 2: TRACEBACK.replace(b"%d", b"2")})
    assert result.ranks == {"failed": "1-2", "ended": "0"}
    assert result.first_failure is not None
    assert (result.first_failure.rank, result.first_failure.host) == (2, 1)
    assert result.first_failure.exit == "exit 1"
    assert result.first_failure.exception == "ValueError: rank 2 is bad"
    assert "train.py:4" in result.first_failure.traceback
    assert [(group.ranks, group.exit) for group in result.failure_groups] == [("1-2", "exit 1")]
    assert result.next == ""  # what it raised is all there is to tell
    head, first, *rest = result.summary().splitlines()
    assert head.startswith("run-a: failed after")
    assert first == "first failure: rank 2 on host 1, exit 1: ValueError: rank 2 is bad"
    assert "train.py:4" in "\n".join(rest)


def test_the_tail_says_what_led_to_a_failure_and_not_its_traceback_again() -> None:
    view = run("failed", *(rank(number, "failed", at=5.0 + number, code=1) for number in range(2)))
    outputs = {number: b"loss nan\n" + TRACEBACK.replace(b"%d", b"%d" % number) for number in range(2)}
    result = outcome(view, outputs)
    assert result.output_tail == "ranks 0-1:\nloss nan"
    assert "train.py:4" in result.summary()
    outputs[1] += b"cleaning up\n"
    assert "rank 1 is bad" in outcome(view, outputs).output_tail


def test_the_fields_come_in_the_order_in_which_they_help() -> None:
    view = run("failed", rank(0, "failed", code=3), rank(1, "failed", signal=9), reason="2 ranks failed")
    names = list(outcome(view, {0: b"x" * 9000, 1: b"y\n"}).content())
    wanted = [
        "state",
        "reason",
        "ranks",
        "first_failure",
        "failure_groups",
        "output_tail",
        "duration_s",
        "next",
    ]
    assert [name for name in names if name in wanted] == wanted


def test_lists_name_whole_ids_and_count_what_is_left_out() -> None:
    items = [describe_item(replace(run("running"), run=f"run-{number:03}"), 20.0) for number in range(30)]
    text = RunList(mesh="mesh-a", runs=items, more=5).summary()
    shown = text.split(", ")
    assert shown[:2] == ["run-000 (running)", "run-001 (running)"]
    assert shown[-1] == f"{35 - (len(shown) - 1)} more"
    assert set(shown[:-1]) <= {f"run-{number:03} (running)" for number in range(30)}
    assert RunList(mesh="mesh-a", runs=items[:2]).summary() == "run-000 (running), run-001 (running)"


def test_ranks_that_failed_differently_are_groups() -> None:
    ranks = [
        rank(0, "failed", at=9.0, code=1),
        rank(1, "failed", at=3.0, signal=11),
        rank(2, "failed", code=1),
    ]
    result = outcome(run("failed", *ranks))
    assert [(group.ranks, group.exit) for group in result.failure_groups] == [
        ("1", "SIGSEGV"),
        ("0,2", "exit 1"),
    ]


@pytest.mark.parametrize("why", ["cancelled", "timeout", "released", "lease_ended"])
def test_ranks_that_we_ended_did_not_fail(why: EndReason) -> None:
    ranks = [rank(number, "ended", signal=15, ended_by=why) for number in range(3)]
    result = outcome(run("cancelled", *ranks, reason="cancelled"))
    assert result.first_failure is None
    assert result.failure_groups == []
    assert "reason" not in result.content()
    assert result.ranks == {"ended": "0-2"}


def test_a_running_run_has_a_cursor_and_the_calls_that_help() -> None:
    result = outcome(run("running", rank(0, "running"), rank(1)), {0: b"abc\n", 1: b"abcdef\n"})
    assert result.cursor == "0@4;1@7"
    assert result.duration_s == 18.0
    for call in ("wait_for_run", "diagnose_run", "cancel_run"):
        assert call in result.next


def nasty_outputs(ranks: int) -> dict[int, bytes]:
    line = '\x1b[31m"\\\u2603\U0001f4a5'.encode() * 20 + b"\x00\xff\xfe\r50%\r"
    body = b"\n".join(b"%d " % number + line for number in range(60))
    return {
        number: body + b"rank %d\n" % number + TRACEBACK.replace(b"%d", b'\\"\xf0\x9f\x92\xa5' * 200)
        for number in range(ranks)
    }


@pytest.mark.parametrize("ranks", [1, 2, 64, 512])
def test_the_outcome_is_small_whatever_the_ranks_wrote(ranks: int) -> None:
    members = [
        rank(number, "failed" if number % 2 else "succeeded", code=number % 7 + 1) for number in range(ranks)
    ]
    long = '\\"\U0001f4a5' * 5000
    view = run("failed", *members, reason=long, warnings=(long,) * 40)
    outputs = {number: data[-tail_bytes(ranks) :] for number, data in nasty_outputs(ranks).items()}
    result = outcome(view, outputs)
    assert size(result) <= RESULT_BYTES
    assert len(result.summary().encode()) <= RESULT_BYTES
    if ranks > 1:
        assert result.first_failure is not None


def test_the_tail_of_a_failed_run_is_there_in_a_nasty_one() -> None:
    result = outcome(run("failed", rank(0, "failed", code=1)), nasty_outputs(1))
    assert result.output_tail
    assert result.first_failure is not None
    assert result.first_failure.exception.startswith("ValueError: ")


def test_bytes_read_from_each_rank_shrink_with_their_count() -> None:
    assert tail_bytes(1) == 16_384
    assert tail_bytes(1024) == 2_048
    assert tail_bytes(0) == 16_384


def test_a_run_in_a_list_is_short() -> None:
    ranks = [rank(number, "failed" if number % 2 else "succeeded", code=number % 2) for number in range(512)]
    item = describe_item(run("failed", *ranks, reason="x" * 1000), now=30.0)
    assert len(json.dumps(item.model_dump())) < 700
    assert (item.duration_s, item.age_s) == (10.5, 28.0)


@pytest.mark.parametrize(
    ("starts", "told"),
    [
        (("", ""), {}),
        (("warm", "warm"), {"start": "warm"}),
        (("cold", "cold"), {"start": "cold"}),
        (("cold: not ready", "cold: other"), {"start": "cold", "cold_because": "not ready"}),
        (("warm", "cold: not ready"), {"start": "mixed", "cold_because": "not ready"}),
    ],
)
def test_the_outcome_says_how_python_started_and_why_cold(
    starts: tuple[str, str], told: dict[str, str]
) -> None:
    ranks = [replace(rank(number), start=start) for number, start in enumerate(starts)]
    content = outcome(run("succeeded", *ranks)).content()
    assert {name: content[name] for name in ("start", "cold_because") if name in content} == told


def test_the_summary_says_how_python_started_too() -> None:
    warm = replace(rank(0), start="warm")
    assert outcome(run("succeeded", warm)).summary() == "run-a: succeeded after 10.5 s, warm start"


def test_what_the_structured_twin_warns_of_is_in_the_text_too() -> None:
    view = run(
        "failed",
        rank(0, "failed", at=4.0, code=3),
        rank(1, "failed", at=5.0, signal=9),
        warnings=("host 0: its mount\nwent", *("w" * 900 for _ in range(9))),
    )
    lines = outcome(replace(view, edited_since_start=True)).summary().splitlines()
    assert lines[1].startswith("first failure: rank 0")
    assert lines[2:4] == ["rank 1: SIGKILL", "warning: host 0: its mount went"]
    assert "the workspace was edited since it began" in lines
    assert max(map(len, lines)) <= 240
    assert len(lines) < 10


def test_output_that_is_shown_whole_is_not_to_be_read_again() -> None:
    view = run("failed", rank(0, "failed", code=3))
    assert outcome(view, {0: b"cat: x: no\n"}).next.startswith("diagnose_run(run='run-a')")
    assert outcome(view, {0: b"x" * 9000}).next.startswith("read_run_output(run='run-a', ranks='0')")
