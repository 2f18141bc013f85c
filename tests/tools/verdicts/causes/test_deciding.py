"""The likeliest cause, or the two likeliest; and no evidence whatever makes a rule fall over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milkweed.runtime.evidence import (
    Collective,
    Disk,
    Fault,
    Flight,
    HostEvidence,
    KernelLine,
    Listener,
    Memory,
)
from milkweed.runtime.metrics.series import MetricPoint, collect
from milkweed.runtime.records import Frame
from milkweed.tools.diagnosis import describe
from milkweed.tools.verdicts.causes import Diagnosis, Finding, Kind, RunCase, deciding, diagnose

from .building import (
    ALL_REDUCE,
    BACKWARD,
    QUEUE_GET,
    RENDEZVOUS,
    case,
    flight,
    process,
    raised,
    rank,
    thread,
    told,
)


def decided(monkeypatch: pytest.MonkeyPatch, *certain: tuple[Kind, int]) -> tuple[str, str]:
    def rule(run: RunCase) -> Iterator[Finding]:
        yield from (Finding(kind, certainty, f"{certainty}") for kind, certainty in certain)

    monkeypatch.setattr(deciding, "_RULES", (rule,))
    found = diagnose(case())
    return found.cause.summary if found.cause else "", found.other.summary if found.other else ""


@pytest.mark.parametrize(
    ("certain", "expected"),
    [
        ((), ("", "")),
        ((("exception", 44),), ("", "")),
        ((("exception", 45),), ("45", "")),
        ((("exception", 70), ("disk_full", 93)), ("93", "")),
        ((("exception", 70), ("disk_full", 81)), ("81", "70")),
        ((("disk_full", 90), ("disk_full", 92)), ("92", "")),
        ((("killed", 60), ("stopped", 70), ("segfault", 65)), ("70", "65")),
    ],
)
def test_the_most_certain_counts_and_one_about_as_likely_is_told(
    monkeypatch: pytest.MonkeyPatch, certain: tuple[tuple[Kind, int], ...], expected: tuple[str, str]
) -> None:
    assert decided(monkeypatch, *certain) == expected


def test_a_run_that_moves_is_told_to_make_progress() -> None:
    stack = ["train.py:5 main", ALL_REDUCE]
    moving = rank(0, stack=stack, ops=flight("all_reduce"), ops_then=flight("all_reduce", "all_reduce"))
    assert told(moving) == Diagnosis(None, None, progress=True)
    assert not told(rank(0, stack=stack, ops=flight("all_reduce"))).progress


def test_of_no_ranks_nothing_is_told() -> None:
    assert told() == Diagnosis(None)


JUNK = (
    "\0\x01\x1b[31m\ufffd\udcff" * 200,
    "Traceback (most recent call last):\n" * 300,
    raised("ValueError: " + "x" * 100_000),
    raised("\u0080"),
    'Traceback (most recent call last):\n  File "", line 99999999999, in \n: \n',
    "RuntimeError: Timed out waiting 0ms " * 50,
    "No module named ''\nModuleNotFoundError: No module named '...'",
    "DataLoader worker (pid(s) ) exited unexpectedly",
    "client socket has failed to connect to [::]:99999",
    "0/0 clients joined",
    "OSError: [Errno 98] Address already in use: ('', 0)",
)


@pytest.mark.parametrize("text", JUNK, ids=range(len(JUNK)))
@pytest.mark.parametrize("ended", [{"code": 1}, {"signal": 11}, {"signal": 9}, {"code": 139}, {}])
def test_junk_in_the_output_makes_no_rule_fall_over(text: str, ended: dict[str, int]) -> None:
    told(rank(0, text=text, **ended), rank(1, text=text[::-1], code=1))  # type: ignore[arg-type]


def test_a_stack_of_ten_thousand_frames_is_read() -> None:
    deep = [f"train.py:{line % 50 + 1} descend" for line in range(10_000)]
    ranks = [rank(0, stack=[*deep, ALL_REDUCE]), rank(1, stack=deep), rank(2, stack=[*deep[:-1], QUEUE_GET])]
    run = case(*ranks, source={"train.py": "def descend():\n" * 50})
    size = len(describe(run, diagnose(run)).model_dump_json(exclude_defaults=True))
    assert size < 1500


def test_hosts_that_tell_nothing_leave_a_verdict_on_the_others() -> None:
    silent = [HostEvidence(host, error="no answer within 5.0 s") for host in range(1, 64)]
    failed = rank(0, text=raised("KeyError: 'label'"), code=1)
    lost = [rank(n, host=n, text=raised("ConnectionResetError: reset by peer"), code=1) for n in range(1, 64)]
    run = case(failed, *lost, hosts=[HostEvidence(0), *silent])
    found = diagnose(run)
    assert found.cause is not None
    assert (found.cause.kind, found.cause.ranks) == ("exception", (0,))
    answer = describe(run, found)
    assert len(answer.model_dump_json(exclude_defaults=True)) < 1500
    assert len(answer.notes) == 4


TEXTS = st.one_of(
    st.text(max_size=200),
    st.sampled_from(JUNK[3:]),
    st.sampled_from(
        ["loss: nan", "ZeroDivisionError: x", "MemoryError", "No space left on device /dev/shm"]
    ).map(raised),
)
PLACES = st.one_of(
    st.sampled_from([ALL_REDUCE, BACKWARD, QUEUE_GET, *RENDEZVOUS, "train.py:4 main", "train.py:9 main"]),
    st.builds(
        Frame,
        st.text(max_size=8),
        st.text(max_size=12),
        st.integers(-1, 2**40),
        st.lists(
            st.tuples(st.sampled_from(["world_size", "port", "x"]), st.text(max_size=5)), max_size=2
        ).map(tuple),
    ),
)
STACKS = st.lists(PLACES, max_size=6)
ENTRIES = st.builds(
    Collective,
    st.integers(0, 5),
    st.text(max_size=10),
    st.sampled_from(["0", "1"]),
    st.lists(st.lists(st.integers(0, 9), max_size=2).map(tuple), max_size=2).map(tuple),
    at=st.floats(0, 200),
    done=st.booleans(),
    p2p=st.booleans(),
)
FLIGHTS = st.builds(
    Flight, st.lists(ENTRIES, max_size=6).map(tuple), st.sampled_from(["", "is the GIL held?"])
)
METRICS = st.lists(
    st.builds(
        MetricPoint,
        st.none() | st.integers(0, 99),
        st.none() | st.floats(0, 100),
        st.dictionaries(st.sampled_from(["loss", "acc", ""]), st.floats(), max_size=2),
    ),
    max_size=30,
).map(lambda points: collect("printed lines", points))
WORDS = st.dictionaries(st.sampled_from(["WORLD_SIZE", "MASTER_ADDR", "X"]), st.text(max_size=6), max_size=3)
HOSTS = st.builds(
    HostEvidence,
    st.integers(0, 2),
    memory=st.none()
    | st.builds(Memory, limit=st.none() | st.integers(0), group_kills=st.none() | st.integers(0, 3)),
    disks=st.lists(
        st.builds(Disk, st.sampled_from(["/dev/shm", "/tmp"]), st.integers(0), st.integers(0))
    ).map(tuple),
    kernel=st.lists(st.builds(KernelLine, st.floats(0, 10), st.text(max_size=30)), max_size=2).map(tuple),
    listeners=st.lists(st.builds(Listener, st.integers(0, 65535), st.text(max_size=9)), max_size=2).map(
        tuple
    ),
    clock=st.floats(-10, 10),
    error=st.text(max_size=10),
)
ENDS = st.one_of(
    st.just({}),
    st.builds(lambda code: {"code": code}, st.integers(-1, 256)),
    st.builds(
        lambda number, kills: {"signal": number, "oom_kills": kills}, st.integers(1, 64), st.integers(0, 2)
    ),
)


@st.composite
def ranks(draw: st.DrawFn, number: int):  # type: ignore[no-untyped-def]
    stack = draw(STACKS)
    return rank(
        number,
        host=draw(st.integers(0, 2)),
        stack=stack,
        then=draw(st.none() | STACKS),
        children=draw(st.just(()) | st.builds(lambda s: (process(number, s, child_of=7),), STACKS)),
        threads=draw(st.just(()) | st.builds(lambda s: (thread(s, name="reader"),), STACKS)),
        gil=draw(st.booleans()),
        ops=draw(FLIGHTS),
        ops_then=draw(st.none() | FLIGHTS),
        text=draw(TEXTS),
        grows=draw(st.integers(0, 1)),
        cpu=draw(st.none() | st.floats(0, 2)),
        os_state=draw(st.sampled_from(["S", "R", "T", "D", ""])),
        env=draw(WORDS),
        packages=draw(WORDS),
        faults=draw(st.just(()) | st.builds(lambda text: (Fault(text),), st.text(max_size=20))),
        metrics=draw(METRICS),
        **draw(ENDS),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.integers(1, 4), st.lists(HOSTS, max_size=3))
def test_any_evidence_gets_an_answer_of_a_bounded_size(
    data: st.DataObject, count: int, hosts: list[HostEvidence]
) -> None:
    run = case(
        *(data.draw(ranks(number)) for number in range(count)),
        hosts=hosts,
        source={
            "train.py": "def main():\n    for x in y:\n        z(x)\n        work()\n" + "    end()\n" * 9
        },
        notes=("2 processes were ended",) if data.draw(st.booleans()) else (),
    )
    found = diagnose(run)
    answer = describe(run, found)
    assert len(answer.model_dump_json(exclude_defaults=True).encode()) < 4096
    if found.cause is not None:
        assert set(found.cause.ranks) <= set(range(count)) or found.cause.kind == "missing_rank"
        assert found.cause.summary


def test_of_ranks_that_compute_it_is_told_where_and_who_waits_for_them() -> None:
    run = case(
        rank(0, stack=["train.py:16 evaluate"], ops=flight("all_reduce"), cpu=0.97, woke=9),
        rank(1, stack=["train.py:30 main", ALL_REDUCE], ops=flight("all_reduce", "all_reduce", done=False)),
    )
    answer = describe(run, Diagnosis(None))
    assert "Rank 0 computes: rank 0 at train.py:16 evaluate; rank 1 waits in all_reduce;" in answer.finding
