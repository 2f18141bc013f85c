"""What procs print, passed on to their owner's own output, line by line and with the rank before it."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from ..errors import MilkweedError
from .host_link import HostLink

__all__ = ["Follower", "Lines", "print_line"]

_SHORTEST_S = 0.05
_LONGEST_S = 0.5
_AT_ONCE = 256 * 1024
_LONGEST_LINE = 16 * 1024
_REMEMBERED = 256
_LAST = 10

OnLine = Callable[[int, str], None]


class Lines:
    """Whole lines of bytes that come in pieces; one that gets too long is given in parts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            whole.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace").rstrip("\r") for line in whole]

    def end(self) -> list[str]:
        """What came without its end of line."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


class Follower:
    """Asks the hosts of some procs what is new: often while something is, rarely else."""

    def __init__(self, ranks: Mapping[HostLink, Mapping[str, int]], on_line: OnLine) -> None:
        self._ranks = ranks
        self._on_line = on_line
        self._cursors = {name: (0, 0) for procs in ranks.values() for name in procs}
        self._lines = {name: Lines() for name in self._cursors}
        self._recent: deque[tuple[int, str]] = deque(maxlen=_REMEMBERED)
        self._looking = asyncio.Lock()

    async def run(self) -> None:
        """For ever."""
        pause = _SHORTEST_S
        while True:
            pause = _SHORTEST_S if await self.look() else min(pause * 1.5, _LONGEST_S)
            await asyncio.sleep(pause)

    async def look(self) -> bool:
        """Passes on what is new now; whether anything was."""
        async with self._looking:  # two at once would be told the same
            news = await asyncio.gather(*(self._look_at(link, procs) for link, procs in self._ranks.items()))
            return any(news)

    async def finish(self) -> None:
        """Passes on the rest."""
        while await self.look():
            pass
        for procs in self._ranks.values():
            for name, rank in procs.items():
                self._pass_on(rank, self._lines[name].end())

    def last_lines(self, ranks: Sequence[int]) -> tuple[str, ...]:
        """The last that these were heard to print, as `[rank 3] line`; of a lost host there is no more."""
        lines = [f"[rank {rank}] {line}" for rank, line in self._recent if rank in ranks]
        return tuple(lines[-_LAST:])

    async def _look_at(self, link: HostLink, procs: Mapping[str, int]) -> bool:
        if link.lost is not None:
            return False
        try:
            pieces = await link.output({name: self._cursors[name] for name in procs}, _AT_ONCE)
        except MilkweedError:
            return False
        for piece in pieces:
            self._cursors[piece.proc] = (piece.pid, piece.next)
            self._pass_on(procs[piece.proc], self._lines[piece.proc].feed(piece.data))
        return bool(pieces)

    def _pass_on(self, rank: int, lines: Sequence[str]) -> None:
        for line in lines:
            self._recent.append((rank, line))
            self._on_line(rank, line)


def print_line(name: str, rank: int, line: str, file: TextIO | None = None) -> None:
    """As a program's own output: `[trainers 3] loss 0.5`."""
    out = sys.stdout if file is None else file
    try:
        out.write(f"[{name} {rank}] {line}\n")
        out.flush()
    except (OSError, ValueError):  # closed: then nobody reads
        return
