"""A side's interpreter, seen from outside: started, asked, and ended with all that it started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from .plan import Plan, Side

__all__ = ["ROOT", "Contestant", "Unusable", "interpreter", "open_contestant"]

ROOT = Path(__file__).resolve().parents[2]
MARK = "BENCH_CONTESTANT"
_OTHERS = {"monarch": "torchmonarch", "nixl": "nixl-cu12"}
"""What the sides are that have an interpreter of their own."""
_END_S = 15.0
_LEAVE_S = 5.0
_LOOK_S = 0.05
_LAST_LINES = 12


class Unusable(Exception):
    """A side that cannot be measured; the text says why."""


class Contestant:
    """One side's process. `left` is how many processes it left when it ended, which were then killed."""

    def __init__(
        self, side: Side, process: asyncio.subprocess.Process, sock: socket.socket, log: Path
    ) -> None:
        self.side, self.process, self.log = side, process, log
        self._sock = sock
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.left = 0

    async def ask(self, order: str, timeout_s: float) -> Any:
        """
        Raises:
            Unusable: it failed, ended or took too long.
        """
        if self._streams is None:
            self._streams = await asyncio.open_connection(sock=self._sock)
        reader, writer = self._streams
        try:
            async with asyncio.timeout(timeout_s):
                writer.write(order.encode() + b"\n")
                line = await reader.readline()
        except TimeoutError:
            raise Unusable(f"{order}: no answer in {timeout_s:g} s{self._last_words()}") from None
        except ConnectionError as error:
            raise Unusable(f"{order}: {error}{self._last_words()}") from None
        if not line:
            raise Unusable(f"{order}: its process ended{self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Unusable(f"{order}: {answer['error']}")
        return answer["ok"]

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return "".join(f"\n  {line}" for line in lines)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._sock.close()


def interpreter(side: Side) -> Path:
    """
    Raises:
        Unusable: it is not installed; the text says why.
    """
    if side not in _OTHERS:
        return Path(sys.executable)
    package = _OTHERS[side]
    own = ROOT / f".venv-{side}" / "bin" / "python"
    python = Path(os.environ.get(f"BENCH_{side.upper()}_PYTHON", own))
    if not python.exists():
        failed = ROOT / "build" / f"{side}.failed"
        why = failed.read_text().strip() if failed.exists() else f"scripts/setup-{side}.sh has not been run"
        raise Unusable(f"{package} is not installed: {why}")
    return python


@asynccontextmanager
async def open_contestant(side: Side, line: str, plan: Plan) -> AsyncIterator[Contestant]:
    """Nothing that the side started is left at the end of the block.

    Raises:
        Unusable: the side cannot be set up.
    """
    python = interpreter(side)
    mark = uuid.uuid4().hex
    work = Path(tempfile.mkdtemp(prefix="mwb-", dir="/tmp"))
    log = work / "log"
    here, there = socket.socketpair()
    here.setblocking(False)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(
                python,
                "-m",
                f"{__package__}.child",
                line,
                str(there.fileno()),
                json.dumps(dict(plan.options)),
            ),
            env={**_environment(side, python, work), MARK: mark, **plan.env.get(side, {})},
            cwd=work,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[there.fileno()],
            start_new_session=True,
        )
    there.close()
    contestant = Contestant(side, process, here, log)
    try:
        await contestant.ask("open", plan.setup_s)
        yield contestant
        await contestant.ask("close", plan.timeout_s)
    finally:
        contestant.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_S)
        contestant.left = await _sweep(mark)
        await process.wait()
        await asyncio.to_thread(_unmount_below, work)
        shutil.rmtree(work, ignore_errors=True)


def _environment(side: Side, python: Path, work: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILKWEED_")}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **inherited,
        "BENCH_SIDE": side,
        "PATH": f"{python.parent}:{inherited.get('PATH', os.defpath)}",
        "PYTHONPATH": ":".join(paths),
        "MILKWEED_STATE_DIR": str(work / "state"),
        "MILKWEED_RUNTIME_DIR": str(work / "run"),
        "HYPERACTOR_MESH_ADMIN_ADDR": "127.0.0.1:0",
    }


async def _sweep(mark: str) -> int:
    """Waits for what carries the mark to end, then kills it; returns how many had to be killed."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LEAVE_S):
            while _marked(mark):  # noqa: ASYNC110 - nobody tells of the end of what is no child of ours
                await asyncio.sleep(_LOOK_S)
    killed: set[int] = set()
    while found := _marked(mark):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        await asyncio.sleep(_LOOK_S)
    return len(killed)


def _unmount_below(work: Path) -> None:
    """Mounts that a side left: nobody answers there any more, and none must be followed by a removal."""
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        path = line.split()[1]
        if path.startswith(f"{work}/"):
            subprocess.run(["umount", "-l", "--", path], stderr=subprocess.DEVNULL, check=False)


def _marked(mark: str) -> set[int]:
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in Path(entry.path, "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found


def environment_note(env: Mapping[str, str]) -> str:
    """`NAME=value` pairs for a note."""
    return " ".join(f"{name}={value}" for name, value in env.items())
