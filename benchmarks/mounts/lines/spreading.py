"""Everything is read: 50,000 small files and 200 MB by one host, then 500 MB by eight at once."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

from ...runtime.plan import BOTH, Plan, Program, Row
from ..hosts import Ours, open_hosts
from ..memory import own_of
from ..trees import make_big, make_small, read, read_each, timed

__all__ = ["Measured", "plans"]

_HOSTS = 8
_MB = 1e6


class Measured(Program):
    """`mib` is what eight hosts read."""

    def __init__(self, files: int, mib: int) -> None:
        self._files, self._mib = files, mib

    async def open(self) -> None:
        self._tree = Path.cwd() / "tree"
        make_small(self._tree / "small", self._files)
        make_big(self._tree / "big", 191)
        make_big(self._tree / "shared", self._mib)
        self._hosts = await open_hosts(_HOSTS)

    async def sample(self) -> dict[str, float]:
        hosts = self._hosts
        await hosts.open(self._tree)
        try:
            figures = {"small": await asyncio.to_thread(timed, lambda: read_each(hosts.path(0) / "small"))}
            await asyncio.to_thread(read, hosts.path(0) / "big")
            before = self._sent()
            figures["took"] = await asyncio.to_thread(timed, self._read_by_all)
            if isinstance(hosts, Ours):
                figures["sent"] = (self._sent() - before) / (self._tree / "shared").stat().st_size
                figures["mount"] = max(own_of(one.child.pid) for one in hosts.lab.mounts.values()) / _MB
            if peak := hosts.feeder_peak():
                figures["feeder"] = peak / _MB
        finally:
            await hosts.close()
        return figures

    def _sent(self) -> int:
        return int(self._hosts.lab.source.ask("state")["sent"]) if isinstance(self._hosts, Ours) else 0

    def _read_by_all(self) -> None:
        paths = [self._hosts.path(host) / "shared" for host in range(_HOSTS)]
        readers = [subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL) for path in paths]
        codes = [reader.wait() for reader in readers]
        if any(codes):
            raise RuntimeError("a host could not read it")

    async def close(self) -> None:
        await self._hosts.end()


def plans(*, quick: bool) -> list[Plan]:
    files, mib = (5_000, 48) if quick else (50_000, 477)
    mb = round(mib * 1.048576)
    rows = (
        Row("sent", f"8 hosts read one file of {mb} MB: sent by the client", "x its size", 2),
        Row("took", f"8 hosts read one file of {mb} MB", "s"),
        Row("small", f"a host reads {files:,} small files", "s"),
        Row("feeder", "peak memory of the source, after all that was read", "MB", 100),
        Row("mount", "memory of a mount process, the largest of 8", "MB"),
    )
    options = {"files": files, "mib": mib}
    return [
        Plan(
            rows,
            1 if quick else 3,
            options,
            BOTH,
            timeout_s=300,
            setup_s=180,
        )
    ]
