"""hipify upon a copy of sources, in a process of an interpreter that has torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from ..errors import InvalidArgument, NotFound, Unavailable
from ..names import quoted
from .records import Skipped, Source, Translated, Translation
from .sources import TRANSLATABLE

__all__ = ["MOST", "interpreters", "translate"]

MOST = 4000
_PROGRAM = Path(__file__).with_name("inside.py")


def interpreters(folder: Path, workspace: Path) -> tuple[str, ...]:
    """What `python` may mean: the environment of the folder, that of the workspace, then ours."""
    own = [str(place / ".venv" / "bin" / "python") for place in (folder, workspace)]
    return tuple(dict.fromkeys([*filter(os.path.exists, own), sys.executable]))


async def translate(sources: Sequence[Source], pythons: Sequence[str], within_s: float) -> Translation:
    """What hipify makes of the translatable ones. The first interpreter that has torch does it.

    Raises:
        NotFound: command_not_found, none has torch. InvalidArgument: out_of_range, more than `MOST` files.
        Unavailable: deadline_exceeded; transfer_failed, hipify failed, with its last words.
    """
    given = {one.path: one.text for one in sources if one.translatable}
    if not given:
        return Translation()
    if len(given) > MOST:
        raise InvalidArgument(
            "out_of_range",
            f"{len(given):,} files have CUDA in them; hipify is given at most {MOST:,} at once",
            "Name the folders one at a time.",
        )
    with tempfile.TemporaryDirectory(prefix="milkweed-port-") as place:
        copy, elsewhere = Path(place, "copy"), Path(place, "empty")
        elsewhere.mkdir()
        reasons = []
        with anyio.move_on_after(within_s):
            await anyio.to_thread.run_sync(_write, copy, given, time.monotonic() + within_s)
            for python in pythons:
                told = await _run(python, copy, elsewhere)
                if not told.get("missing"):
                    known = {one.path: one.text for one in sources}
                    return await anyio.to_thread.run_sync(_read, copy, known, told, python)
                reasons.append(f"{quoted(python)}: {told['error']}")
            raise NotFound(
                "command_not_found",
                f"hipify is part of torch, and there is none ({'; '.join(reasons)})",
                f"{pythons[0]} -m pip install torch (any build: nothing runs on a device).",
            )
    raise Unavailable(
        "deadline_exceeded",
        f"hipify was not done with {len(given):,} files within {within_s:.0f} s",
        "Name the folders that have CUDA in them, one at a time.",
    )


async def _run(python: str, copy: Path, cwd: Path) -> dict[str, Any]:
    """
    Raises:
        Unavailable: transfer_failed.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
    command = [python, "-c", _PROGRAM.read_text(), str(copy), json.dumps(TRANSLATABLE)]
    try:
        async with await anyio.open_process(
            command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        ) as process:
            output = {"out": b"", "err": b""}

            async def drain(name: str, stream: Any) -> None:
                async for chunk in stream:
                    output[name] = (output[name] + chunk)[-64 * 1024 * 1024 :]

            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(drain, "out", process.stdout)
                    group.start_soon(drain, "err", process.stderr)
                code = await process.wait()
            except BaseException:
                process.kill()
                raise
    except OSError as error:
        return {"missing": True, "error": error.strerror or str(error)}
    try:
        told: dict[str, Any] = json.loads(output["out"])
    except ValueError:
        lines = output["err"].decode("utf-8", "replace").strip().splitlines()
        last = lines[-1][:300] if lines else "it said nothing"
        raise Unavailable(
            "transfer_failed",
            f"hipify ended with exit {code}: {last}",
            "Name a smaller folder to find the file.",
        ) from None
    if "error" in told and not told.get("missing"):
        raise Unavailable(
            "transfer_failed", f"torch cannot be imported by {python}: {told['error']}", "Mend that first."
        )
    return told


def _write(copy: Path, given: dict[str, str], until: float) -> None:
    for path, text in given.items():
        if time.monotonic() > until:
            return
        target = copy / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "w", encoding="utf-8", newline="") as file:
            file.write(text)


def _read(copy: Path, known: dict[str, str], told: dict[str, Any], python: str) -> Translation:
    changed = []
    for path, target in sorted(told["pairs"].items()):
        before = known[path]
        with open(copy / target, encoding="utf-8", newline="") as file:
            after = _lines_as(before, file.read())
        if target != path:
            changed.append(Translated(path, target, before, after, known.get(target) == after))
        elif after != before:
            changed.append(Translated(path, target, before, after))
    failed = tuple(Skipped(path, why) for path, why in sorted(told["failed"].items()))
    return Translation(tuple(changed), failed, told["torch"], python)


def _lines_as(before: str, after: str) -> str:
    """hipify writes the line ends of this system; a file of another one keeps its own."""
    return after.replace("\n", "\r\n") if "\r\n" in before and "\r\n" not in after else after
