"""Through the tools: a run after an edit, what the mount costs of it, and the memory of the keeper."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.plan import Plan, Program, Row
from ..memory import peak_of
from ..trees import make_big, make_small, write

if TYPE_CHECKING:
    from ...harness import Lab

__all__ = ["Measured", "plans"]

_HOSTS = 8
_MB = 1e6
_AT = re.compile(r"value (\d+) at ([\d.]+)")
_MAIN = "import time, edited\nprint('value', edited.VALUE, 'at', time.time(), flush=True)\n"
_READ = """
import os, sys
block = bytearray(1 << 20)
for name in ("shared", "big"):
    with open(name, "rb", buffering=0) as file:
        while file.readinto(block):
            pass
if os.environ["RANK"] == "0":
    for folder, _, names in os.walk("small"):
        for name in names:
            open(f"{folder}/{name}", "rb").read()
print("all was read", flush=True)
"""


class Measured(Program):
    """Runs are on two hosts of a mesh with mounts and, in turns, of one that shares the directory; in the end
    all eight hosts read."""

    def __init__(self, files: int, mib: int, edits: int) -> None:
        self._files, self._mib, self._edits = files, mib, edits
        self._value = 10**7

    async def open(self) -> None:
        self._ending = asyncio.Event()
        opened: asyncio.Future[Lab] = asyncio.get_running_loop().create_future()
        self._holding = asyncio.create_task(self._hold(opened))
        await asyncio.wait({self._holding, opened}, return_when=asyncio.FIRST_COMPLETED)
        if self._holding.done():
            await self._holding
        lab = self._lab = await opened
        make_small(lab.workspace / "small", self._files)
        make_big(lab.workspace / "big", 191)
        make_big(lab.workspace / "shared", self._mib)
        (lab.workspace / "main.py").write_text(_MAIN)
        (lab.workspace / "read.py").write_text(_READ)
        (lab.workspace / "edited.py").write_text("VALUE = 0\n")

    async def _hold(self, opened: asyncio.Future[Lab]) -> None:
        """The client is opened and closed by one task, as it must be; orders come in their own."""
        from ...harness import open_lab

        async with open_lab() as lab:
            opened.set_result(lab)
            await self._ending.wait()

    async def sample(self) -> dict[str, float]:
        lab = self._lab
        found: dict[str, list[float]] = {}
        meshes = {}
        for mode in ("shared", "mount"):
            meshes[mode] = await self._allocated(mode)
        for number in range(2 * self._edits):
            mode = ("shared", "mount")[number % 2]
            found.setdefault(mode, []).append(await self._first_line(meshes[mode]))
        figures = {mode: sorted(values)[len(values) // 2] for mode, values in found.items()}
        figures["more"] = figures["mount"] - figures["shared"]
        keeper = next(one for one in lab.processes()["keeper"] if meshes["mount"] in one.cmdline())
        figures["before"] = peak_of(keeper.pid) / _MB
        run = await lab.start(meshes["mount"], ["python", "read.py"])
        await self._ended(run)
        figures["keeper"] = peak_of(keeper.pid) / _MB
        for mesh in meshes.values():
            await lab.call("release_mesh", mesh=mesh)
        return figures

    async def _allocated(self, mode: str) -> str:
        answer = await self._lab.call(
            "allocate_mesh", name=mode, hosts=_HOSTS, workspace=str(self._lab.workspace), workspace_mode=mode
        )
        if answer.fields.get("warnings"):
            raise RuntimeError(answer.text)
        return str(answer.fields["mesh"])

    async def _first_line(self, mesh: str) -> float:
        self._value += 1
        at = time.time()
        # Another size each time: in a plain directory Python takes the last .pyc for that of this second.
        text = f"VALUE = {self._value}\n{'#' * (self._value % 97)}"
        write(Path(self._lab.workspace) / "edited.py", text.encode())
        run = await self._lab.start(mesh, ["python", "main.py"], ranks="0-1", options={"warm": False})
        await self._ended(run)
        texts = [(await self._lab.call("read_run_output", run=run, ranks=rank)).text for rank in ("0", "1")]
        lines = [match for text in texts if (match := _AT.search(text))]
        if [int(line[1]) for line in lines] != [self._value, self._value]:
            raise RuntimeError(f"{self._value} was expected: {texts}")
        return max(float(line[2]) for line in lines) - at

    async def _ended(self, run: str) -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            answer = await self._lab.call("wait_for_run", run=run, timeout_s=40)
            if answer.fields["state"] != "running":
                break
        if answer.fields["state"] != "succeeded":
            raise RuntimeError(answer.text)

    async def close(self) -> None:
        self._ending.set()
        await self._holding


def plans(*, quick: bool) -> list[Plan]:
    files, mib = (5_000, 48) if quick else (50_000, 477)
    rows = (
        Row("mount", "edit, run_on_mesh, first line of 2 hosts, mounts", "s"),
        Row("shared", "the same where hosts share the directory", "s"),
        Row("more", "what barrier and mount add to that", "s"),
        Row("before", "peak memory of the keeper before much is read", "MB"),
        Row("keeper", "the same after 8 hosts read 0.7 GB, one all small files", "MB", 100),
    )
    options = {"files": files, "mib": mib, "edits": 3 if quick else 10}
    note = f"through an MCP client; a tree of {files:,} files; cold starts of Python"
    return [Plan(rows, 1 if quick else 2, options, ("ours",), timeout_s=590, setup_s=180, note=note)]
