"""Small runs, built by hand: `case(rank(0, stack=[...]), rank(1, code=1, text="..."))`.

A stack is written outermost first: `"train.py:12 main"` is of the user, `ALL_REDUCE` of torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from milkweed.runtime.evidence import Collective, Fingerprint, Flight, HostEvidence, ProcessFacts
from milkweed.runtime.metrics.series import MetricPoint, RankMetrics, collect
from milkweed.runtime.records import EndReason, Exit, Frame, ProcessStacks, RankState, RunState, ThreadStack
from milkweed.tools.verdicts.causes import Diagnosis, Look, RankCase, RunCase, diagnose
from milkweed.tools.verdicts.tracebacks import parse_failure

WORKSPACE = "/project"
_SITE = "/venv/lib/python3.11/site-packages"
ALL_REDUCE = f"{_SITE}/torch/distributed/distributed_c10d.py:2810 all_reduce"
BARRIER = f"{_SITE}/torch/distributed/distributed_c10d.py:4720 barrier"
BROADCAST = f"{_SITE}/torch/distributed/distributed_c10d.py:2500 broadcast"
BACKWARD = f"{_SITE}/torch/autograd/graph.py:825 _engine_run_backward"
RENDEZVOUS = (
    f"{_SITE}/torch/distributed/distributed_c10d.py:1700 init_process_group",
    f"{_SITE}/torch/distributed/rendezvous.py:260 _env_rendezvous_handler",
    f"{_SITE}/torch/distributed/rendezvous.py:180 _create_c10d_store",
)
QUEUE_GET = "/usr/lib/python3.11/queue.py:171 get"

Stack = Sequence[str | Frame]


def frame(words: str, **values: str) -> Frame:
    """`train.py:12 main`, or with a whole path."""
    at, _, function = words.partition(" ")
    file, _, line = at.rpartition(":")
    return Frame(
        function,
        file if file.startswith(("/", "<")) else f"{WORKSPACE}/{file}",
        int(line),
        tuple(values.items()),
    )


def thread(stack: Stack, *, gil: bool = False, name: str = "MainThread") -> ThreadStack:
    frames = tuple(one if isinstance(one, Frame) else frame(one) for one in stack)[::-1]
    return ThreadStack(name, frames, owns_gil=gil, main=name == "MainThread")


def process(
    number: int, stack: Stack, *others: ThreadStack, gil: bool = False, child_of: int | None = None
) -> ProcessStacks:
    pid = 100 + number if child_of is None else 1000 + child_of
    return ProcessStacks(number, 0, pid, (thread(stack, gil=gil), *others), child_of)


def flight(*ops: str, every: float = 1.0, start: float = 0.0, done: bool = True, lag: float = 0.0) -> Flight:
    """One collective after another: `all_reduce`, or with a shape: `all_reduce 4x2`."""
    entries = []
    for at, word in enumerate(ops):
        op, _, shape = word.partition(" ")
        sizes = (tuple(int(n) for n in shape.split("x")),) if shape else ((8,),)
        is_done = done or at < len(ops) - 1
        entries.append(Collective(at + 1, op, "0", sizes, ("Float",), start + at * every + lag, is_done))
    return Flight(tuple(entries))


def losses(*values: float, source: str = "printed lines", name: str = "loss") -> RankMetrics:
    found = collect(source, [MetricPoint(step, None, {name: value}) for step, value in enumerate(values)])
    assert found is not None
    return found


def rank(
    number: int,
    *,
    host: int = 0,
    stack: Stack = (),
    then: Stack | None = None,
    children: Sequence[ProcessStacks] = (),
    threads: Sequence[ThreadStack] = (),
    gil: bool = False,
    ops: Flight | None = None,
    ops_then: Flight | None = None,
    code: int | None = None,
    signal: int | None = None,
    ended_at: float | None = None,
    ended_by: EndReason | None = None,
    oom_kills: int = 0,
    text: str = "",
    grows: int = 0,
    cpu: float | None = 0.0,
    wanted: float | None = None,
    os_state: str = "S",
    env: Mapping[str, str] | None = None,
    packages: Mapping[str, str] | None = None,
    **more: Any,
) -> RankCase:
    """A rank that runs and was looked at twice (`then`: its second stack), or one that ended."""
    ended = None
    if code is not None or signal is not None:
        ended = Exit(code, signal, oom_kills, ended_by)
    state: RankState = "running" if ended is None else "succeeded" if ended.ok else "failed"
    failed = ended is not None and not ended.ok and ended_by is None
    first = second = Look()
    if stack:
        first = Look((process(number, stack, *threads, gil=gil), *children), ops or Flight(), len(text))
        again = process(number, stack if then is None else then, *threads, gil=gil)
        second = Look((again, *children), ops_then or ops or Flight(), len(text) + grows)
    elif ops is not None:
        first = Look((), ops, len(text))
    return RankCase(
        number,
        host,
        state,
        ended,
        0.0,
        None if ended is None else 10.0 + number / 10 if ended_at is None else ended_at,
        text,
        parse_failure(text, workspace=WORKSPACE) if failed else None,
        first,
        second if stack and ended is None else None,
        kept=bool(stack) and ended is not None,
        process=ProcessFacts(100 + number, os_state, cpu, wanted) if ended is None else None,
        fingerprint=Fingerprint(variables=env or {}, packages=packages or {}),
        **more,
    )


def case(
    *ranks: RankCase,
    state: RunState | None = None,
    source: Mapping[str, str] | None = None,
    hosts: Sequence[HostEvidence] = (),
    now: float = 100.0,
    **more: Any,
) -> RunCase:
    files = {f"{WORKSPACE}/{name}": text for name, text in (source or {}).items()}
    if state is None:
        failed = any(one.exit is not None and not one.exit.ok for one in ranks)
        state = "failed" if failed else "running" if any(one.alive for one in ranks) else "succeeded"
    return RunCase(
        "run-1",
        "mesh-1",
        state,
        ranks,
        {one.host: one for one in hosts},
        workspace=WORKSPACE,
        now=now,
        moment_s=1.0,
        source=files.get,
        **more,
    )


def told(*ranks: RankCase, **more: Any) -> Diagnosis:
    return diagnose(case(*ranks, **more))


def cause(*ranks: RankCase, **more: Any) -> tuple[str, tuple[int, ...]]:
    """The kind that is told and its ranks; empty where nothing is found to be wrong."""
    found = told(*ranks, **more).cause
    return (found.kind, found.ranks) if found is not None else ("", ())


def raised(exception: str, at: str = "train.py:12 main") -> str:
    """What a Python writes when an exception ends it."""
    place = frame(at)
    return (
        "Traceback (most recent call last):\n"
        f'  File "{place.file}", line {place.line}, in {place.function}\n'
        "    work()\n"
        f"{exception}\n"
    )


def with_metrics(one: RankCase, metrics: RankMetrics) -> RankCase:
    return replace(one, metrics=metrics)
