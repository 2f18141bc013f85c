"""Reads and writes between two hosts over TCP, beside Monarch's and a plain stream."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from statistics import median
from typing import Any

from ..api import SIDE
from ..buffers import Holder, User
from ..plan import ALL, Plan, Program, Row
from ..two_hosts import ADDRESSES, OUTSIDE, TwoHosts

__all__ = ["Measured", "plans"]

MIB = 1024 * 1024
_WORKER = (
    "from monarch.actor import run_worker_loop_forever;"
    " run_worker_loop_forever(address='tcp://{}:{}', ca='trust_all_connections')"
)
_PORT = 22222
_IPERF_PORT = 22223
_IPERF_S = 1
_ATTACH_S = 90.0


class Measured(Program):
    """`times` transfers of `mib` each way a sample."""

    def __init__(self, mib: int, times: int) -> None:
        self._size, self._times = mib * MIB, times

    async def open(self) -> None:
        self._hosts = TwoHosts(outside=SIDE == "monarch")
        try:
            await (self._open_monarch() if SIDE == "monarch" else self._open_programs())
            await self.sample()
        except BaseException:
            self._hosts.close()
            raise

    async def _open_programs(self) -> None:
        holder = self._started(1, "holder")
        place = await _line(holder)
        self._user = self._started(0, "user")
        await self._say(place if SIDE == "ours" else f"{ADDRESSES[1]} {place}")
        if await _line(self._user) != "ready":
            raise RuntimeError("the user did not come up")

    def _started(self, host: int, role: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"{__package__.rpartition('.')[0]}.across", SIDE, role]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        env = {"MILKWEED_HOST_ADDRESS": ADDRESSES[host]}
        return self._hosts.start(host, [*command, str(self._size)], env, **pipes)

    async def _open_monarch(self) -> None:
        from monarch.actor import attach_to_workers, enable_transport

        for host, address in enumerate(ADDRESSES):
            env = {"HYPERACTOR_MESH_DEFAULT_TRANSPORT": f"tcp://{address}:0"}
            self._hosts.start(host, [sys.executable, "-c", _WORKER.format(address, _PORT)], env)
        for address in ADDRESSES:
            await _listens(address)
        enable_transport(f"tcp://{OUTSIDE}:0")
        workers = [f"tcp://{address}:{_PORT}" for address in ADDRESSES]
        async with asyncio.timeout(_ATTACH_S):
            hosts = attach_to_workers(name="two", ca="trust_all_connections", workers=workers)
            await hosts.initialized
            procs = hosts.spawn_procs(per_host={"gpus": 1})
            holders = procs.spawn("holder", Holder)
            users = procs.spawn("user", User)
            self._buffer = await holders.slice(hosts=1, gpus=0).array.call_one(self._size)
            self._actor: Any = users.slice(hosts=0, gpus=0)

    async def sample(self) -> dict[str, float | str]:
        figures: dict[str, float | str] = {}
        for what in ("read", "write"):
            if SIDE == "monarch":
                seconds = await self._actor.timed.call_one(self._buffer, what, self._size, self._times)
            else:
                await self._say(f"{what} {self._times}")
                seconds = json.loads(await _line(self._user))
            figures[what] = self._size / median(seconds) / 1e9
            if SIDE == "ours":
                figures |= await self._beside_iperf(what, figures[what])
        return figures

    async def _beside_iperf(self, what: str, ours: float) -> dict[str, float | str]:
        """One stream the same way between the same hosts, just after."""
        if shutil.which("iperf3") is None:
            return {"without": "there is no iperf3 (scripts/setup-iperf.sh)"}
        taker, sender = (0, 1) if what == "read" else (1, 0)
        port = ["-p", str(_IPERF_PORT)]
        pipe = {"stdout": subprocess.PIPE}
        server = self._hosts.start(taker, ["iperf3", "-s", "-1", "--forceflush", *port], **pipe)
        while "listening" not in await _line(server):
            pass
        command = ["iperf3", "-c", ADDRESSES[taker], "-t", str(_IPERF_S), "-J", *port]
        client = self._hosts.start(sender, command, **pipe)
        assert client.stdout is not None
        said = await asyncio.to_thread(client.stdout.read)
        await asyncio.to_thread(server.wait)
        theirs = json.loads(said)["end"]["sum_received"]["bits_per_second"] / 8e9
        return {f"{what}_iperf": theirs, f"{what}_beside": ours / theirs}

    async def _say(self, text: str) -> None:
        assert self._user.stdin is not None
        self._user.stdin.write(text.encode() + b"\n")
        self._user.stdin.flush()

    async def close(self) -> None:
        self._hosts.close()


async def _listens(address: str) -> None:
    async with asyncio.timeout(_ATTACH_S):
        while True:
            try:
                _, writer = await asyncio.open_connection(address, _PORT)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


async def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    line = await asyncio.to_thread(process.stdout.readline)
    if not line:
        raise RuntimeError("a process ended")
    return line.decode().strip()


def plans(*, quick: bool) -> list[Plan]:
    rows = (
        Row("read", "64 MiB read between two hosts, TCP", "GB/s", times=1.5, bare=1.0, more=True),
        Row("write", "64 MiB write between two hosts, TCP", "GB/s", times=1.5, bare=1.0, more=True),
        Row("read_iperf", "iperf3, one stream, the way that a read goes", "GB/s", more=True),
        Row("write_iperf", "iperf3, one stream, the way that a write goes", "GB/s", more=True),
        Row("read_beside", "64 MiB read, of one iperf3 stream in the same round", "x", 1.0, more=True),
        Row("write_beside", "64 MiB write, of one iperf3 stream in the same round", "x", 1.0, more=True),
    )
    note = "bare: one stream, sendall and recv_into"
    rounds, times = (2, 2) if quick else (7, 5)
    return [Plan(rows, rounds, {"mib": 64, "times": times}, ALL, note=note)]
