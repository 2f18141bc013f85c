"""Rules for what the first failure raised: a module, a port, a number, any exception. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..failures import exit_in_words
from ..tracebacks import PythonFailure
from .case import RankCase, RunCase, names, numbers
from .finding import Finding
from .said import FATAL, alike, faults, is_lost, place_of_failure, said, words_of

__all__ = ["UNEQUAL", "find_raised"]

_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")
_PORT_IN_USE = re.compile(
    r"[Aa]ddress already in use|EADDRINUSE|errno: 98\b|port is already in use", re.IGNORECASE
)
_OF_TORCH = re.compile(
    r"rendezvous|init_process_group|TCPStore|DistNetworkError|MASTER_PORT|server socket|c10d"
)
_PORT = re.compile(r"(?:port[: ]+|:)(\d{3,5})\b")
UNEQUAL = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)|Received data size doesn't match")
_DETECTED = re.compile(r"Detected mismatch between collectives on ranks")
_OP_TYPE = re.compile(r"OpType=(\w+)")
_SHAPE = re.compile(r"TensorShape=(\[[^\]]*\])")
_IMPORTS = re.compile(r"^(?:ImportError|ModuleNotFoundError)\b")
_BAD_NUMBER = re.compile(r"\b(?:nan|inf|infinite|infinity|non-?finite|not finite)\b", re.IGNORECASE)


def find_raised(case: RunCase) -> Iterator[Finding]:
    """Of the first failure; and what the transport of collectives has told of any."""
    first = case.first_failure
    if first is not None:
        yield from _of_words(case, first)
    yield from _of_mismatches(case)


def _of_words(case: RunCase, first: RankCase) -> Iterator[Finding]:
    words = words_of(first)
    short = str(first.failure) if first.failure is not None else words[-600:]
    causes = f"{short}\n{first.failure.cause}" if first.failure is not None else short
    mend = case.mend(short)
    if found := _NO_MODULE.search(causes):
        yield _missing_module(case, first, found[1])
    if _PORT_IN_USE.search(words):
        yield _port_in_use(case, first)
    if first.failure is not None and _BAD_NUMBER.search(short) and not _IMPORTS.search(short):
        yield Finding(
            "nan_loss",
            84,
            f"{names([first]).capitalize()} stopped at a number that is not finite.",
            (first.rank,),
            said(first),
            "Find the first bad value: torch.autograd.set_detect_anomaly(True), or check inputs before"
            " that line.",
        )
    if first.failure is None or first.failure.exception != FATAL:
        yield _exception(case, first, mend)


def _of_mismatches(case: RunCase) -> Iterator[Finding]:
    """What the transport, or torch's debugging of collectives, has said of them."""
    for rank in case.ranks:
        text = f"{rank.failure or ''}\n{rank.text[-3000:]}" if rank.failed else ""
        if _DETECTED.search(text):
            ops, shapes = set(_OP_TYPE.findall(text)), list(dict.fromkeys(_SHAPE.findall(text)))
            differ = len(ops) > 1
            what = "different collectives" if differ else "one collective with different shapes or types"
            told = ", ".join(sorted(ops)) + (f" of {' and '.join(shapes[:2])}" if not differ else "")
            yield Finding(
                "collective_mismatch" if differ else "shape_mismatch",
                93,
                f"The ranks called {what}: {told}.",
                (),
                (*said(rank), *_places_of(case)),
                "All ranks must call the same collectives in the same order, with equal shapes and types.",
            )
            return
        if found := UNEQUAL.search(text):
            sizes = f": {found[1]} bytes came where {found[2]} were to come" if found[1] else ""
            yield Finding(
                "shape_mismatch",
                91,
                f"Rank {rank.rank} called a collective with another size than a rank that it talked"
                f" to{sizes}.",
                (rank.rank,),
                (*faults(rank), *_places_of(case)),
                "All ranks must give a collective equal shapes and types; pad, or use all_gather_object.",
            )
            return


def _places_of(case: RunCase) -> tuple[str, ...]:
    """Where ranks failed, and in which collective."""
    found = []
    for rank in case.ranks:
        last = rank.last_begun
        if rank.failure is not None and rank.failure.file and rank.failure.exception != FATAL:
            begun = f" in {last.op}" if last is not None else ""
            found.append(f"rank {rank.rank} at {rank.failure.file}:{rank.failure.line}{begun}")
    return tuple(found[:2])


def _missing_module(case: RunCase, first: RankCase, module: str) -> Finding:
    pattern = re.compile(rf"No module named '?{re.escape(module)}\b")
    ranks = alike(case, pattern) or (first,)
    top = module.partition(".")[0]
    everywhere = len(ranks) == case.world_size
    hosts = {one.host for one in ranks}
    where = (
        ""
        if everywhere
        else f" on host {', '.join(map(str, sorted(hosts)))} only"
        if _others(case, hosts) and all(one in ranks for one in case.ranks if one.host in hosts)
        else ""
    )
    evidence = [*said(first)]
    having = sorted(
        {(one.host, one.fingerprint.packages[_package(one, top)]) for one in case.ranks if _package(one, top)}
    )
    if having:
        evidence.append(
            "installed: " + ", ".join(f"{top} {version} on host {host}" for host, version in having[:3])
        )
    if interpreter := first.fingerprint.interpreter:
        evidence.append(f"interpreter: {interpreter}")
    return Finding(
        "missing_module",
        95,
        f"Module {module} is missing{where}: {names(ranks)} cannot import it.",
        numbers(ranks),
        tuple(evidence),
        case.mend(f"No module named '{module}'"),
    )


def _others(case: RunCase, hosts: set[int]) -> bool:
    return bool({one.host for one in case.ranks} - hosts)


def _package(rank: RankCase, module: str) -> str:
    name = module.lower().replace("_", "-")
    return name if name in rank.fingerprint.packages else ""


def _port_in_use(case: RunCase, first: RankCase) -> Finding:
    ranks = alike(case, _PORT_IN_USE) or (first,)
    # Not in a traceback, where numbers are lines.
    told = f"{first.failure}\n{first.failure.cause}" if first.failure is not None else words_of(first)
    found = _PORT.search(told)
    port = found[1] if found else ""
    host = case.hosts.get(first.host)
    holders = [one for one in host.listeners if one.pid and str(one.port) == port] if host is not None else []
    who = tuple(f"port {one.port} is held by pid {one.pid}: {one.command}" for one in holders[:1])
    return Finding(
        "port_in_use",
        93,
        f"{f'Port {port}' if port else 'A port'} is in use on host {first.host}: {names(ranks)} could not"
        " listen on it.",
        numbers(ranks),
        (*said(first), *who),
        "Leave MASTER_PORT to the run (it reserves a free one), or choose another port."
        if _OF_TORCH.search(words_of(first))
        else "Choose another port: each rank of a host one of its own (port + LOCAL_RANK), or 0 for any.",
    )


def _end_of(failure: PythonFailure) -> str:
    """Of its traceback, without what it was raised from."""
    lines = failure.traceback.splitlines()
    of_cause = next((at for at, line in enumerate(lines) if line.startswith("from ")), len(lines))
    return "\n".join(lines[:of_cause][-6:])[:500]


def _exception(case: RunCase, first: RankCase, mend: str) -> Finding:
    others = [one for one in case.ranks if one.failed and one is not first]
    same = [
        one
        for one in others
        if one.failure
        and first.failure
        and one.failure.exception == first.failure.exception
        and one.failure.line == first.failure.line
        and is_lost(one) == is_lost(first)
    ]
    after = [one for one in others if one not in same]
    who = names([first, *same]) if same else names([first])
    ended = exit_in_words(first.exit) if first.exit is not None else ""
    what = str(first.failure)[:200] if first.failure is not None else ended
    verb = "raised" if first.failure is not None else "failed:"
    then = f"; {names(after)} failed after it" if after else ""
    evidence = list(said(first))
    if first.failure is not None and first.failure.traceback:
        evidence = [_end_of(first.failure)]
        if first.failure.cause:
            evidence.insert(0, f"from {first.failure.cause[:240]}")
    if first.unprinted:
        evidence.append("not in its output: sys.excepthook is another one, or stderr is closed")
    if after and after[0].failure is not None:
        evidence.append(f"then {names([after[0]])}: {str(after[0].failure)[:100]}")
    certainty = 70 if first.failure is not None else 40
    at = f" at {place_of_failure(first).strip()}" if place_of_failure(first) else ""
    return Finding(
        "exception",
        certainty,
        f"{who.capitalize()} {verb} {what}{at}{then}.",
        (first.rank, *numbers(same)),
        tuple(evidence),
        mend or (f"Mend {place_of_failure(first).strip()} and run again." if place_of_failure(first) else ""),
    )
