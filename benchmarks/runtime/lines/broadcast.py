"""One buffer to eight hosts, each behind a link of 200 Mb/s, beside one transfer and a star."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
import subprocess
import sys
from typing import Any

from milkweed.runtime.mesh_secret import ADDRESS_VARIABLE

from ..plan import Plan, Program, Row
from ..two_hosts import HostsApart

__all__ = ["Measured", "plans"]

MIB = 1024 * 1024


class Measured(Program):
    """A transfer of `mib` to one of `hosts`, then a broadcast to all, then, with `star`, a read by each."""

    def __init__(self, hosts: int, mib: int, mbit: int, star: bool) -> None:
        self._count, self._size, self._mbit, self._star = hosts, mib * MIB, mbit, star

    async def open(self) -> None:
        addresses = [f"10.78.10.{2 + number}" for number in range(self._count + 1)]
        self._hosts = HostsApart(addresses, mbit=self._mbit)
        try:
            self._source, *self._receivers = (
                self._started(number, "receiver" if number else "source") for number in range(len(addresses))
            )
            buffers = [pickle.loads(base64.b64decode(await _line(one))) for one in self._all]
            await _say(self._source, _packed(buffers[1:]))
            for receiver in self._receivers:
                await _say(receiver, _packed(buffers[:1]))
            self._sum = await self._ask(self._source, "sum")
        except BaseException:
            self._hosts.close()
            raise

    @property
    def _all(self) -> list[subprocess.Popen[bytes]]:
        return [self._source, *self._receivers]

    def _started(self, host: int, role: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"{__package__.rpartition('.')[0]}.spreading", role, str(self._size)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        env = {ADDRESS_VARIABLE: self._hosts.addresses[host]}  # as a simulated host has it
        return self._hosts.start(host, command, env, **pipes)

    async def sample(self) -> dict[str, float | str]:
        one = await self._ask(self._receivers[0], "read")
        every = await self._ask(self._source, "broadcast")
        await self._check()
        figures: dict[str, float | str] = {"one": one, "all": every, "ratio": every / one}
        if self._star:
            loop = asyncio.get_running_loop()
            started = loop.time()
            await asyncio.gather(*(self._ask(receiver, "read") for receiver in self._receivers))
            figures["star"] = loop.time() - started
            await self._check()
        return figures

    async def _check(self) -> None:
        for receiver in self._receivers:
            if await self._ask(receiver, "sum") != self._sum:
                raise RuntimeError("other bytes were received")
            await self._ask(receiver, "clear")

    async def _ask(self, process: subprocess.Popen[bytes], order: str) -> Any:
        await _say(process, order)
        return json.loads(await _line(process))

    async def close(self) -> None:
        self._hosts.close()


def _packed(buffers: list[Any]) -> str:
    return base64.b64encode(pickle.dumps(buffers)).decode()


async def _say(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode() + b"\n")
    process.stdin.flush()


async def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    if not line:
        raise RuntimeError("a process ended")
    return line.decode().strip()


def plans(*, quick: bool) -> list[Plan]:
    mib, rounds = (16, 1) if quick else (256, 2)
    rows = (
        Row("one", f"{mib} MiB to one host over 200 Mb/s", "s"),
        Row("all", f"{mib} MiB to 8 hosts, each over 200 Mb/s", "s"),
        Row("ratio", "that, of one transfer", "x", 1.5),
        Row("star", f"{mib} MiB read from the source by 8 hosts at once", "s"),
    )
    options = {"hosts": 8, "mib": mib, "mbit": 200, "star": True}
    return [Plan(rows, rounds, options, ("ours",), timeout_s=600.0, note="links shaped by tbf, both ways")]
