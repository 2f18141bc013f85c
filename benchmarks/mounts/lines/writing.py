"""Writing over a mount: one large file, many small ones, a build, in the mount and in a scratch folder."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from ...runtime.plan import Plan, Program, Row, Side
from ..hosts import Ours, open_hosts
from ..trees import timed, write

__all__ = ["Measured", "plans"]

_MIB = 256
_GB = _MIB * 1.048576e-3
_MODULES = 500
_PACKED = 5_000
_CREATED = 2_000
_COMPILE = (sys.executable, "-m", "compileall", "-q", "modules")
_SIDES: tuple[Side, ...] = ("ours", "bare")
_MODULE = "import os\n\n" + "".join(
    f"def function_{number}(value: int) -> int:\n    return value * {number} + len(os.sep)\n\n"
    for number in range(20)
)
_SOURCE = """
#include <map>
#include <string>
#include <vector>
extern "C" long count_{number}(long size) {{
    std::map<std::string, std::vector<long>> found;
    for (long at = 0; at < size; ++at) found[std::to_string(at % 7)].push_back(at);
    return static_cast<long>(found.size());
}}
"""
_NINJA = """
rule compile
  command = c++ -O1 -fPIC -MMD -MF $out.d -c $in -o $out
  depfile = $out.d
rule link
  command = c++ -shared $in -o $out
"""


class Measured(Program):
    async def open(self) -> None:
        self._tree = Path.cwd() / "tree"
        _make_modules(self._tree / "modules")
        _make_extension(self._tree / "extension")
        self._packed = Path.cwd() / "packed.tar"
        _pack(self._packed)
        self._hosts = await open_hosts(1)
        self._number = 0

    async def sample(self) -> dict[str, float]:
        self._number += 1
        at = self._shown()
        dd = ("dd", "if=/dev/zero", "of=big", "bs=1M", f"count={_MIB}")
        try:
            return {
                "dd": _GB / timed(lambda: _run(*dd, at=at)),
                "again": _GB / timed(lambda: _run(*dd, "conv=notrunc", at=at)),
                "compile": timed(lambda: _run(*_COMPILE, at=at, env=self._env)),
                "build": timed(lambda: _run("ninja", "--quiet", at=at / "extension")),
                "create": timed(lambda: _create(at / "created")) / _CREATED * 1e3,
                "extract": timed(lambda: _extract(self._packed, at / "extracted")),
                "scratch": timed(lambda: _extract(self._packed, at / "scratch")),
            }
        finally:
            await self._hidden()

    def _shown(self) -> Path:
        """A fresh tree that may be written to, its folder `scratch` and its bytecode as runs have them."""
        if not isinstance(self._hosts, Ours):
            self._env = dict(os.environ)
            fresh = Path.cwd() / f"fresh{self._number}"
            shutil.copytree(self._tree, fresh)
            (fresh / "scratch").mkdir()
            return fresh
        from milkweed.runtime.agent.hook_protocol import HOOK_DIRECTORY, bytecode_environment
        from milkweed.runtime.holdings import MountPlace
        from milkweed.runtime.services.scratch import Scratch

        lab = self._hosts.lab
        place = MountPlace(Path.cwd() / f"place{self._number}")
        lab.open(self._tree)
        lab.mount(0, overlay=str(place.overlay)).ready()
        Scratch(place, str(lab.path(0)), "scratch").begin()
        place.bytecode.mkdir()
        self._env = {
            **os.environ,
            **bytecode_environment(place.bytecode, [str(lab.path(0))]),
            "PYTHONPATH": str(HOOK_DIRECTORY),
        }
        return lab.path(0)

    async def _hidden(self) -> None:
        if isinstance(self._hosts, Ours):
            from milkweed.runtime.mounts.mountpoints import clear

            clear(self._hosts.path(0) / "scratch", ours_only=False)
            await self._hosts.close()
        for name in (f"fresh{self._number}", f"place{self._number}"):
            shutil.rmtree(Path.cwd() / name, ignore_errors=True)

    async def close(self) -> None:
        await self._hosts.end()


def _make_modules(root: Path) -> None:
    for number in range(_MODULES):
        folder = root / f"package_{number // 50:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / f"module_{number % 50:02d}.py", _MODULE.encode())


def _make_extension(root: Path) -> None:
    root.mkdir(parents=True)
    objects = []
    rules = _NINJA
    for number in range(4):
        write(root / f"part_{number}.cc", _SOURCE.format(number=number).encode())
        rules += f"build out/part_{number}.o: compile part_{number}.cc\n"
        objects.append(f"out/part_{number}.o")
    rules += f"build out/extension.so: link {' '.join(objects)}\n"
    write(root / "build.ninja", rules.encode())


def _pack(path: Path) -> None:
    with tarfile.open(path, "w") as packed:
        for number in range(_PACKED):
            member = tarfile.TarInfo(f"folder_{number // 100:02d}/file_{number:04d}")
            data = os.urandom(300)
            member.size = len(data)
            packed.addfile(member, io.BytesIO(data))


def _extract(packed: Path, to: Path) -> None:
    to.mkdir(exist_ok=True)
    _run("tar", "-xf", str(packed), "-C", str(to), at=to)


def _create(folder: Path) -> None:
    folder.mkdir()
    for number in range(_CREATED):
        write(folder / f"file_{number}", b"x")


def _run(*command: str, at: Path, env: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, cwd=at, env=env, check=True, capture_output=True)


def plans(*, quick: bool) -> list[Plan]:
    rows = (
        Row("dd", f"dd of {_MIB} MiB, a new file", "GB/s", 0.5, more=True),
        Row("again", "the same over it", "GB/s", more=True),
        Row("compile", f"python -m compileall of {_MODULES} files", "s", bare=0.5),
        Row("build", "ninja builds a C++ extension of four files", "s", bare=0.5),
        Row("create", "a new file of one byte", "ms"),
        Row("extract", f"tar extracts {_PACKED:,} files of 300 bytes", "s"),
        Row("scratch", "the same in a scratch folder", "s", bare=1 / 1.5),
    )
    note = "in a mount whose directory has all these; Monarch's mounts are read-only"
    return [Plan(rows, 2 if quick else 7, {}, _SIDES, timeout_s=120, setup_s=120, note=note)]
