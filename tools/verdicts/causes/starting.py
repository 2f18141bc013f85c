"""Rules for ranks that do not find each other: the rendezvous, its address, its size. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ....runtime.records import Frame, ProcessStacks
from ..stacks import main_thread
from .case import RankCase, RunCase, names, numbers
from .finding import Finding, Kind
from .said import wait_or_waits

__all__ = ["fails_to_start", "find_starting", "is_starting"]

_IN_RENDEZVOUS = ("torch/distributed/rendezvous.py", "torch/distributed/distributed_c10d.py")
_STARTS = (
    "init_process_group",
    "rendezvous",
    "_env_rendezvous_handler",
    "_tcp_rendezvous_handler",
    "_create_c10d_store",
)
_CANNOT_REACH = re.compile(
    r"client socket has (?:timed out|failed to connect)|failed to connect to \[?([\w.:-]+)\]?:(\d+)|"
    r"Name or service not known|Temporary failure in name resolution|getaddrinfo|No route to host|"
    r"connect\(\) timed out|Connection refused"
)
_REACHED_FOR = re.compile(r"connect to \(?\[?([\w.:-]+?)\]?[,:] ?(?:port )?(\d+)")
_CLIENTS = re.compile(r"(\d+)/(\d+) clients joined|[Tt]imed out .*waiting for clients")
_STORE = re.compile(r"\bTCPStore\(")
_STORE_WAIT = re.compile(
    r"wait timeout after \d+ ?ms, keys|Store\w*.*[Tt]imed? ?out|[Tt]imed? ?out.*default_pg"
)
_NAMES = {
    "world_size": ("world_size", "requested_world_size"),
    "rank": ("rank",),
    "host": ("hostname", "master_addr"),
    "port": ("port", "master_port"),
}


def find_starting(case: RunCase) -> Iterator[Finding]:
    waiting = [one for one in case.looked_at if _starting_here(case, one)]
    failed = [one for one in case.ranks if one.failed and fails_to_start(one)]
    if not waiting and not failed:
        return
    found = {one.rank: _believes(one) for one in (*waiting, *failed)}
    yield from _of_sizes(case, waiting, failed, found)
    yield from _of_addresses(case, waiting, failed, found)


def is_starting(one: RankCase) -> bool:
    """Whether a rank, or a process that it has started, is in the rendezvous."""
    return any(_starts(frames) for frames in _main_frames(one))


def _starts(frames: Sequence[Frame]) -> bool:
    return any(frame.function in _STARTS and frame.file.endswith(_IN_RENDEZVOUS) for frame in frames[:12])


def _main_frames(one: RankCase) -> list[tuple[Frame, ...]]:
    """Of the main threads of a rank's own process and of its children."""
    threads = [main_thread(process) for process in one.latest.stacks]
    return [thread.frames for thread in threads if thread is not None]


def _starting_here(case: RunCase, one: RankCase) -> bool:
    frame = next(iter(one.latest.frames), None)
    line = case.line_of(frame.file, frame.line) if frame is not None else ""
    return is_starting(one) or _STORE.search(line) is not None


def fails_to_start(one: RankCase) -> bool:
    words = _words(one)
    in_start = any(word in words for word in ("rendezvous", "init_process_group", "TCPStore"))
    return bool(_CLIENTS.search(words)) or (
        in_start and bool(_STORE_WAIT.search(words) or _CANNOT_REACH.search(words))
    )


def _children_starting(one: RankCase) -> list[ProcessStacks]:
    return [child for child in one.latest.children if (main := main_thread(child)) and _starts(main.frames)]


def _words(one: RankCase) -> str:
    if one.failure is None:
        return one.text[-1500:]
    return f"{one.failure}\n{one.failure.traceback}\n{one.text[-1500:]}"


def _believes(one: RankCase) -> dict[str, str]:
    """World size, rank, host and port as a rank has them: by its frames' locals, else by its environment."""
    found: dict[str, str] = {}
    inner = [frame for frames in _main_frames(one) if _starts(frames) for frame in frames[:12]]
    for frame in inner or one.latest.frames[:12]:
        values = dict(frame.locals)
        for key, words in _NAMES.items():
            for word in words:
                value = values.get(word, "").strip("'\"")
                if value and value not in ("None", "-1") and key not in found:
                    found[key] = value
    variables = one.fingerprint.variables
    for key, name in (
        ("world_size", "WORLD_SIZE"),
        ("rank", "RANK"),
        ("host", "MASTER_ADDR"),
        ("port", "MASTER_PORT"),
    ):
        found.setdefault(key, variables.get(name, ""))
    if reached := _REACHED_FOR.search(_words(one)):
        found["host"], found["port"] = reached[1], reached[2]
    if one.group is not None:  # it has found the others' store
        found["world_size"], found["rank"] = str(one.group.size), str(one.group.rank)
        if one.group.host:
            found["host"], found["port"] = one.group.host, str(one.group.port)
    return found


def _of_sizes(
    case: RunCase, waiting: Sequence[RankCase], failed: Sequence[RankCase], found: dict[int, dict[str, str]]
) -> Iterator[Finding]:
    sizes = {
        rank: believed["world_size"] for rank, believed in found.items() if believed["world_size"].isdecimal()
    }
    told = [match for one in failed if (match := _CLIENTS.search(_words(one))) and match[2]]
    if told and failed:
        sizes[failed[0].rank] = told[0][2]
    started = [len(_children_starting(one)) for one in case.ranks]
    actual = sum(count or 1 for count in started)  # a rank may start the processes of a group itself
    distinct = sorted(set(sizes.values()))
    if len(distinct) > 1:
        words = ", ".join(f"{names([r for r in sizes if sizes[r] == size])}: {size}" for size in distinct)
        odd = [rank for rank in sizes if sizes[rank] != str(actual)]
        yield Finding(
            "world_size_mismatch",
            93,
            f"The ranks have different world sizes at the rendezvous ({words}; the run has {actual} ranks).",
            tuple(odd),
            _at(case, waiting, failed),
            "Take WORLD_SIZE from the environment of the run on every rank.",
        )
        return
    size = int(distinct[0]) if distinct else 0
    if size > actual:
        set_by_user = any(started) or any(
            one.fingerprint.variables.get("WORLD_SIZE") == str(size) for one in case.ranks
        )
        kind: Kind = "missing_rank" if set_by_user else "world_size_mismatch"
        yield Finding(
            kind,
            90,
            f"The rendezvous waits for {size} ranks, but the run has {actual}: ranks"
            f" {actual}-{size - 1} were never started.",
            tuple(range(actual, size)) if kind == "missing_rank" else numbers(waiting or failed),
            _at(case, waiting, failed),
            f"Start the run on {size} ranks, or take WORLD_SIZE from the environment of the run.",
        )
        return
    absent = [one for one in case.ranks if one not in waiting and one not in failed]
    if 0 < size <= actual and absent and waiting:
        ended = [one for one in absent if one.exit is not None]
        who = ended or absent
        what = (
            "ended before it"
            if ended
            else f"{'are' if len(who) > 1 else 'is'} at {case.place_of(who[0]) or 'work elsewhere'}"
        )
        if not all(one.latest.flight.entries for one in absent):
            yield Finding(
                "missing_rank",
                80,
                f"{names(waiting).capitalize()} {wait_or_waits(waiting)} at the rendezvous for {names(who)},"
                f" which {what}.",
                numbers(who),
                _at(case, waiting, failed),
                f"read_run_output(run={case.run!r}, ranks='{who[0].rank}') tells what it did instead.",
            )
    if 0 < size < actual:
        yield Finding(
            "world_size_mismatch",
            85,
            f"The ranks take a world size of {size}, but the run has {actual}.",
            numbers(waiting or failed),
            _at(case, waiting, failed),
            "Take WORLD_SIZE from the environment of the run on every rank.",
        )


def _of_addresses(
    case: RunCase, waiting: Sequence[RankCase], failed: Sequence[RankCase], found: dict[int, dict[str, str]]
) -> Iterator[Finding]:
    places = {
        rank: f"{believed['host']}:{believed['port']}" for rank, believed in found.items() if believed["host"]
    }
    distinct = sorted(set(places.values()))
    unreached = [one for one in (*failed, *waiting) if _CANNOT_REACH.search(_words(one))]
    if len(distinct) > 1:
        words = ", ".join(
            f"{names([r for r in places if places[r] == place])}: {place}" for place in distinct[:3]
        )
        yield Finding(
            "wrong_master",
            91,
            f"The ranks look for the rendezvous at different addresses: {words}.",
            tuple(rank for rank in places if places[rank] != places.get(0, distinct[0])),
            _at(case, waiting, failed),
            "Take MASTER_ADDR and MASTER_PORT from the environment of the run on every rank.",
        )
        return
    given = {
        f"{one.fingerprint.variables.get('MASTER_ADDR')}:{one.fingerprint.variables.get('MASTER_PORT')}"
        for one in case.ranks
    }
    if unreached and distinct and not _CLIENTS.search(_words(unreached[0])):
        listening = any(
            str(one.port) == distinct[0].rpartition(":")[2] and one.pid
            for host in case.hosts.values()
            for one in host.listeners
        )
        nobody = "" if listening else ": nobody listens there"
        other = f" (the run's own is {next(iter(given))})" if given and given != set(distinct) else ""
        yield Finding(
            "wrong_master",
            89 if not listening else 60,
            f"{names(unreached).capitalize()} cannot reach the rendezvous at {distinct[0]}{other}{nobody}.",
            numbers(unreached),
            (*_socket_lines(unreached), *_at(case, waiting, failed)),
            "Take MASTER_ADDR and MASTER_PORT from the environment of the run; rank 0 must listen there.",
        )


def _socket_lines(ranks: Sequence[RankCase]) -> tuple[str, ...]:
    for one in ranks:
        for line in reversed(one.text.splitlines()):
            if _CANNOT_REACH.search(line):
                return (f"rank {one.rank}: {line.strip()[:180]}",)
    return ()


def _at(case: RunCase, waiting: Sequence[RankCase], failed: Sequence[RankCase]) -> tuple[str, ...]:
    found = [f"{names(waiting)} at {case.place_of(waiting[0])}"] if waiting else []
    found += [f"{names([failed[0]])}: {str(failed[0].failure)[:160]}"] if failed and failed[0].failure else []
    return tuple(found)
