"""What is measured, each beside the plain directory in the same round."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..harness import MIB, Line, measure
from .lab import Lab, drop_caches, make_tree, open_lab, write

__all__ = ["run"]

_GROUP = "mounts"


def run(*, quick: bool, venv: Path) -> Iterator[Line]:
    rounds = 2 if quick else 7
    with tempfile.TemporaryDirectory(prefix="mwb-tree-") as name:
        tree = Path(name)
        make_tree(tree, 5_000 if quick else 48_000, 2_000)
        with open_lab(tree) as lab:
            yield from _opening(lab, rounds)
            yield from _listing(lab, rounds)
            yield from _reading(lab, rounds)
            yield from _edits(lab, 10 if quick else 100)
            yield from _spreading(lab, 3 if quick else 8)
    yield from _importing(venv, 1 if quick else 3)


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _opening(lab: Lab, rounds: int) -> Iterator[Line]:
    first = lab.source.first
    yield measure(_GROUP, f"scan and watch {first['entries']:,} entries", "s", [first["opened_s"]])
    ready = []
    for _ in range(rounds):
        ready.append(lab.mount().ready_s)
        lab.unmount()
    yield measure(_GROUP, "open a mount of them", "s", ready, 0.5, "with the start of its process")


def _listing(lab: Lab, rounds: int) -> Iterator[Line]:
    cold, warm, local = [], [], []
    for _ in range(rounds):
        lab.mount()
        cold.append(_timed(lambda: _list_and_stat(lab.path() / "many")) * 1e3)
        warm.append(_timed(lambda: _list_and_stat(lab.path() / "many")) * 1e3)
        local.append(_timed(lambda: _list_and_stat(lab.shown / "many")) * 1e3)
        lab.unmount()
    yield measure(_GROUP, "list and stat 2,000 files, cold", "ms", cold, 80.0)
    yield measure(_GROUP, "list and stat 2,000 files, warm", "ms", warm, 20.0)
    yield measure(_GROUP, "list and stat 2,000 files, plain directory", "ms", local)


def _list_and_stat(path: Path) -> None:
    assert len([os.stat(f"{path}/{name}") for name in os.listdir(path)]) == 2_000


def _reading(lab: Lab, rounds: int) -> Iterator[Line]:
    cold, warm, local, small, small_local = [], [], [], [], []
    for _ in range(rounds):
        lab.mount()
        size = 200 * MIB / 1e9
        cold.append(size / _timed(lambda: _read(lab.path() / "big")))
        warm.append(size / _timed(lambda: _read(lab.path() / "big")))
        local.append(size / _timed(lambda: _read(lab.shown / "big")))
        small.append(_timed(lambda: _read_all(lab.path() / "many")))
        small_local.append(_timed(lambda: _read_all(lab.shown / "many")))
        lab.unmount()
    yield measure(_GROUP, "read 200 MB, cold", "GB/s", cold, note="target: 0.5 at least")
    yield measure(_GROUP, "read 200 MB, warm", "GB/s", warm, note="target: 3 at least")
    yield measure(_GROUP, "read 200 MB, plain directory, cached", "GB/s", local)
    yield measure(_GROUP, "read 2,000 small files, cold", "s", small)
    yield measure(_GROUP, "read 2,000 small files, plain directory, cached", "s", small_local)


def _read(path: Path) -> None:
    buffer = bytearray(MIB)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _read_all(path: Path) -> None:
    for name in os.listdir(path):
        descriptor = os.open(f"{path}/{name}", os.O_RDONLY)
        os.read(descriptor, 4096)
        os.close(descriptor)


def _edits(lab: Lab, rounds: int) -> Iterator[Line]:
    lab.mount()
    seen, barriers = [], []
    there = lab.path() / "edited"
    for number in range(rounds):
        text = b"%08d" % number
        started = time.perf_counter()
        write(lab.shown / "edited", text)
        while not there.exists() or there.read_bytes() != text:
            time.sleep(0.0002)
        seen.append((time.perf_counter() - started) * 1e3)
    for number in range(rounds):
        write(lab.shown / "edited", b"%08d" % number)
        barriers.append(lab.source.ask("barrier h0")["all_s"] * 1e3)
    yield measure(_GROUP, "edit to visible on a host", "ms", seen, 20.0)
    yield measure(_GROUP, "barrier after an edit, with one host's word", "ms", barriers)
    (lab.shown / "edited").unlink()
    lab.unmount()


def _spreading(lab: Lab, hosts: int) -> Iterator[Line]:
    """Each host has the one before it in a binary tree as its parent."""
    size = (lab.shown / "big").stat().st_size
    before = lab.source.ask("state")["sent"]
    for number in range(hosts):
        parents = (str(lab.root / f"p{(number - 1) // 2}"),) if number else ()
        lab.mount(number, serve=str(lab.root / f"p{number}"), parents=parents)
    readers = [
        subprocess.Popen(["cat", lab.path(number) / "big"], stdout=subprocess.DEVNULL)
        for number in range(hosts)
    ]
    took = _timed(lambda: [reader.wait() for reader in readers])
    told = lab.source.ask("state")
    yield measure(
        _GROUP,
        f"{hosts} hosts read one file: sent by the client",
        "x its size",
        [(told["sent"] - before) / size],
        2.0,
    )
    yield measure(_GROUP, f"{hosts} hosts read one file of 200 MB", "s", [took])
    yield measure(_GROUP, "memory of the source at its peak", "MB", [told["peak"] / 1e6], 100.0)
    yield measure(
        _GROUP, "memory of a mount process", "MB", [one.resident() / 1e6 for one in lab.mounts.values()]
    )
    for number in list(lab.mounts):
        lab.unmount(number)


def _importing(venv: Path, rounds: int) -> Iterator[Line]:
    cold, warm, local, local_cold = [], [], [], []
    with open_lab(venv) as lab:
        for _ in range(rounds):
            local.append(_import_torch(venv))
            local.append(_import_torch(venv))
            lab.mount()
            cold.append(_import_torch(lab.path()))
            warm.append(_import_torch(lab.path()))
            warm.append(_import_torch(lab.path()))
            lab.unmount()
            if drop_caches():
                local_cold.append(_import_torch(venv))
    note = f"the environment has {lab.source.first['entries']:,} entries"
    yield measure(_GROUP, "import torch, cold mount", "s", cold, note=note)
    yield measure(_GROUP, "import torch, warm mount", "s", warm, 1.2 * _median(local))
    yield measure(_GROUP, "import torch, plain directory, cached", "s", local)
    if local_cold:
        yield measure(_GROUP, "import torch, plain directory, caches dropped", "s", local_cold)
        ratio = [_median(cold) / _median(local_cold)]
        yield measure(_GROUP, "import torch, cold mount to caches dropped", "x", ratio, 2.0)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _import_torch(venv: Path) -> float:
    command = [venv / "bin" / "python", "-c", "import torch; print(torch.__file__)"]
    started = time.perf_counter()
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    took = time.perf_counter() - started
    if not found.startswith(str(venv)):
        raise RuntimeError(f"torch was imported from {found}, not from {venv}")
    return took


def main_venv() -> Path:
    return Path(sys.prefix)
