"""Rules for failures for want of something: memory, shared memory, room on a disk, a worker. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from .case import RankCase, RunCase, names, numbers
from .collectives import is_moving
from .devices import memory_in_use
from .finding import Finding
from .said import MB, alike, faults, kernel_lines, memory_words, printed_failure, said, words_of

__all__ = ["find_shortages", "shared_full"]

_UNWRITTEN = re.compile(
    r"unexpected pos \d+ vs \d+|PytorchStreamWriter failed|iostream error|file write failed|short write"
)
_FULL = re.compile(
    r"No space left on device|\[Errno 28\]|Disk quota exceeded|ENOSPC|disk of its output was full"
)
_SHARED = re.compile(r"/dev/shm|shared memory|shm|torch_\d+_\d+")
_BUS = re.compile(r"[Bb]us error|SIGBUS")
_DEVICE_MEMORY = re.compile(
    r"(?:CUDA|HIP)(?: error:)? out of memory|OutOfMemoryError|(?:CUDA|hip)\w*[Ee]rror\w*OutOfMemory"
)
_HOST_MEMORY = re.compile(
    r"\bMemoryError\b|can't allocate memory|Cannot allocate memory|std::bad_alloc|not enough memory"
)
_WORKER = re.compile(
    r"DataLoader worker \(pid\(?s?\)? ?([\d, ]+)\) (?:is killed by signal: (\w[\w ]*)|exited unexpectedly)"
)
_OOM_KILL = re.compile(r"[Oo]ut of memory: Killed process (\d+)")
_LOADER = re.compile(r"torch/utils/data/dataloader\.py")
_BROKEN = frozenset({"ConnectionResetError", "EOFError", "ConnectionRefusedError"})
_LESS_IN_WORKERS = "Fewer workers, a smaller prefetch_factor, or hold less in the dataset."
_OF_WORKERS = (
    "Fewer workers or a smaller prefetch if memory was short; num_workers=0 shows what the dataset itself"
    " does."
)
_PYTHON = re.compile(r"\((?:python|pt_data_worker|pt_main_thread)")
_ROOM = 0.8
# As torch names them, by strsignal.
_SIGNALS = {
    "Killed": "SIGKILL",
    "Terminated": "SIGTERM",
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
}
_POOL = re.compile(r"BrokenProcessPool|terminated abruptly")


def find_shortages(case: RunCase) -> Iterator[Finding]:
    """What the first failure ran out of, by its words."""
    first = case.first_failure
    if first is not None:
        words = words_of(first)
        yield from _of_workers(case, first, words)
        yield from _of_disks(case, first, words)
        yield from _of_memory(case, first, words)
    elif not is_moving(case):
        yield from _of_helpers(case)


def _of_helpers(case: RunCase) -> Iterator[Finding]:
    """What a thread or child had no room for, of ranks that run on and do not hear of it."""
    short = [
        (one, str(found))
        for one in case.alive
        if (found := printed_failure(case, one)) is not None and _FULL.search(str(found))
    ]
    if not short:
        return
    first, words = short[0]
    ranks = tuple(one for one, _ in short)
    shared = _SHARED.search(words) is not None
    full = shared_full(case, first) if shared else _disk_full(case, first, case.mend(words))
    what = "shared memory (/dev/shm)" if shared else f"a disk of host {first.host}"
    yield replace(
        full,
        summary=f"A thread or child of {names(ranks)} failed for want of room in {what}, and what waits for"
        " it has not heard of that.",
        ranks=numbers(ranks),
        evidence=(
            f"rank {first.rank} wrote last: {words[:240]}",
            f"rank {first.rank} at {case.place_of(first)}",
            *full.evidence[len(said(first)) :],
        ),
    )


def _of_workers(case: RunCase, first: RankCase, words: str) -> Iterator[Finding]:
    if found := _WORKER.search(words):
        yield _worker(case, first, found)
    elif _POOL.search(words):
        ranks = alike(case, _POOL)
        summary = f"A worker process of {names(ranks)} was killed."
        yield Finding("worker_killed", 88, summary, numbers(ranks), said(first))
    elif _is_handed_by_a_dead_worker(first):
        yield _handed_over(case, first)
    elif _BUS.search(words) and _SHARED.search(words):
        yield shared_full(case, first)


def _handed_over(case: RunCase, first: RankCase) -> Finding:
    """Nothing names the worker: a Python that the kernel killed on its host for want of memory was it."""
    dead = f"a DataLoader worker of {names([first])}"
    lines = (line.text for line in kernel_lines(case, first))
    killed = next((line for line in lines if _OOM_KILL.search(line) and _PYTHON.search(line)), "")
    if killed:
        return Finding(
            "out_of_memory",
            90,
            f"There was no memory left: the kernel killed a process, and {dead} ended while it handed over a"
            " batch.",
            (first.rank,),
            (*said(first), f"kernel: {killed[:160]}", *memory_words(case, first)),
            _LESS_IN_WORKERS,
        )
    return Finding(
        "worker_killed",
        88,
        f"{dead[0].upper()}{dead[1:]} was killed, or ended, while it handed over a batch.",
        (first.rank,),
        said(first),
        _OF_WORKERS,
    )


def _is_handed_by_a_dead_worker(rank: RankCase) -> bool:
    """Tensors come from a worker over a connection: where it dies in between, that breaks first."""
    return (
        rank.failure is not None
        and rank.failure.exception in _BROKEN
        and _LOADER.search(rank.text[-6000:]) is not None
        and "multiprocessing/connection.py" in rank.text[-6000:]
    )


def _of_disks(case: RunCase, first: RankCase, words: str) -> Iterator[Finding]:
    mend = case.mend(str(first.failure) if first.failure is not None else words[-600:])
    if _FULL.search(words):
        is_shared = _SHARED.search(words) is not None
        yield shared_full(case, first) if is_shared else _disk_full(case, first, mend)
    elif _UNWRITTEN.search(words) or _FULL.search(first.text[-3000:]):
        yield _disk_perhaps_full(case, first, mend)


def _of_memory(case: RunCase, first: RankCase, words: str) -> Iterator[Finding]:
    if _DEVICE_MEMORY.search(words):
        ranks = alike(case, _DEVICE_MEMORY)
        yield Finding(
            "device_memory",
            95,
            f"{names(ranks).capitalize()} ran out of device memory.",
            numbers(ranks),
            (*said(first), *memory_in_use(case, first)),
            "A smaller batch or activation checkpointing; mesh_status tells who else uses the device.",
        )
    elif _HOST_MEMORY.search(words):
        ranks = alike(case, _HOST_MEMORY) or (first,)
        yield Finding(
            "out_of_memory",
            90,
            f"{names(ranks).capitalize()} could not get memory of its host.",
            numbers(ranks),
            (*said(first), *memory_words(case, first)),
            "Its host has room, so look for a limit of its processes: ulimit -v, RLIMIT_AS."
            if _has_room(case, first)
            else "Load or hold less per rank, or use fewer ranks a host.",
        )


def _has_room(case: RunCase, rank: RankCase) -> bool:
    """Now, when the rank's own memory is free again: far more than one rank may have had."""
    host = case.hosts.get(rank.host)
    memory = host.memory if host is not None else None
    return memory is not None and memory.limit is None and memory.available > _ROOM * memory.total


def _worker(case: RunCase, first: RankCase, found: re.Match[str]) -> Finding:
    how = found[2] or ""
    if _BUS.search(how) or (_BUS.search(words_of(first)) and "shared memory" in words_of(first)):
        return shared_full(case, first)
    ranks = alike(case, _WORKER)
    if line := _of_kernel(case, ranks):
        return Finding(
            "out_of_memory",
            95,
            f"The kernel killed DataLoader workers of {names(ranks)}: there was no memory left for them.",
            numbers(ranks),
            (*said(first), f"kernel: {line[:160]}", *memory_words(case, first)),
            _LESS_IN_WORKERS,
        )
    killed = f" by {_SIGNALS.get(how, how)}" if how else ""
    kills = sum(one.exit.oom_kills for one in ranks if one.exit is not None)
    memory = ("the kernel's oom_kill counter rose",) if kills else ()
    return Finding(
        "worker_killed",
        93,
        f"A DataLoader worker of {names(ranks)} was killed{killed}.",
        numbers(ranks),
        (*said(first), *memory, *faults(first)),
        _OF_WORKERS,
    )


def _of_kernel(case: RunCase, ranks: tuple[RankCase, ...]) -> str:
    """What the kernel wrote as it killed a worker of these ranks for want of memory; empty if it did not."""
    for one in ranks:
        found = _WORKER.search(words_of(one))
        pids = re.findall(r"\d+", found[1]) if found is not None else []
        for line in kernel_lines(case, one):
            if (killed := _OOM_KILL.search(line.text)) and killed[1] in pids:
                return line.text
    return ""


def shared_full(case: RunCase, first: RankCase) -> Finding:
    host = case.hosts.get(first.host)
    shm = next((disk for disk in host.disks if disk.path == "/dev/shm"), None) if host is not None else None
    room = (
        (f"/dev/shm of its host: {shm.free // MB} of {shm.total // MB} MiB free now",)
        if shm is not None
        else ()
    )
    return Finding(
        "shm_full",
        92,
        f"{names([first]).capitalize()} ran out of shared memory (/dev/shm).",
        (first.rank,),
        (*said(first), *room),
        "A larger /dev/shm (docker --shm-size), fewer DataLoader workers, or"
        " torch.multiprocessing.set_sharing_strategy('file_system').",
    )


def _disk_full(case: RunCase, first: RankCase, mend: str) -> Finding:
    host = case.hosts.get(first.host)
    full = [disk for disk in host.disks if disk.free < 0.01 * disk.total] if host is not None else []
    tight = tuple(f"{disk.path}: {disk.free // MB} MiB free of {disk.total // MB}" for disk in full[:2])
    ranks = alike(case, _FULL) or (first,)
    return Finding(
        "disk_full",
        93,
        f"A disk of host {first.host} was full when {names(ranks)} wrote to it.",
        numbers(ranks),
        (*said(first), *tight),
        mend or "Make room there, or write elsewhere.",
    )


def _disk_perhaps_full(case: RunCase, first: RankCase, mend: str) -> Finding:
    """Of a failure that does not say so: torch tells of bytes it could not write, or it was said before."""
    found = _disk_full(case, first, mend)
    told = next((line for line in reversed(first.text.splitlines()) if _FULL.search(line)), "")
    sure = bool(told) or len(found.evidence) > len(said(first))
    evidence = (
        *found.evidence[:1],
        *((f"it wrote: {told.strip()[:140]}",) if told else ()),
        *found.evidence[1:],
    )
    return replace(found, certainty=88 if sure else 76, ranks=(first.rank,), evidence=evidence)
