"""Whether the interpreter that a virtual environment stands on is on this host too, and is the same."""

from __future__ import annotations

import os
from pathlib import Path

import anyio.to_thread

from ..agent.children import Children
from ..errors import NotFound, Unavailable

__all__ = ["Interpreters"]

_ASKED = "import sys; print('%d.%d' % sys.version_info[:2])"
_ANSWER_S = 10.0
_MEND = "on the host, or make the environment with an interpreter that all hosts have (`python -m venv`)."


class Interpreters:
    """What was found of interpreters is remembered, until their files change."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._versions: dict[tuple[str, int], str] = {}

    async def check(self, program: str, where: str = "") -> None:
        """Of a program that is no virtual environment's, nothing is asked.

        Raises:
            NotFound: command_not_found, the base interpreter is missing, or of another version.
        """
        made_for = await anyio.to_thread.run_sync(_made_for, Path(program))
        if made_for is None:
            return
        base, changed_at = await anyio.to_thread.run_sync(_base_of, program)
        wanted = f"{program} is of a virtual environment that was made for Python {made_for}"
        if not changed_at:
            raise NotFound(
                "command_not_found", f"{wanted}, and {base} is missing{where}", f"Have it there {_MEND}"
            )
        found = await self._version(base, changed_at)
        if found and found != made_for:
            raise NotFound(
                "command_not_found",
                f"{wanted}, and {base} is Python {found}{where}",
                f"Have Python {made_for} there {_MEND}",
            )

    async def _version(self, base: str, changed_at: int) -> str:
        """Empty where it does not say; the run itself will tell."""
        key = base, changed_at
        if key not in self._versions:
            try:
                asked = await self._children.run([base, "-I", "-S", "-c", _ASKED], timeout_s=_ANSWER_S)
            except (OSError, Unavailable):
                return ""
            if not (said := asked.stdout.decode(errors="replace").strip()):
                return ""
            self._versions[key] = said
        return self._versions[key]


def _base_of(program: str) -> tuple[str, int]:
    """The interpreter that it leads to, and when that was changed; 0: it is not there."""
    base = os.path.realpath(program)
    try:
        return base, os.stat(base).st_mtime_ns
    except OSError:
        return base, 0


def _made_for(program: Path) -> str | None:
    """Major and minor version, as the environment's own file has them."""
    if not program.name.startswith("python"):
        return None
    try:
        text = (program.parent.parent / "pyvenv.cfg").read_text(errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip() in ("version", "version_info"):
            return ".".join(value.strip().split(".")[:2])
    return None
