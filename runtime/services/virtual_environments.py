"""Whether the interpreter that a virtual environment stands on is on this host too, and is the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ..errors import NotFound

__all__ = ["Interpreters"]

_ASKED = "import sys; print('%d.%d' % sys.version_info[:2])"
_ANSWER_S = 10.0
_MEND = "on the host, or make the environment with an interpreter that all hosts have (`python -m venv`)."


class Interpreters:
    """What was found of interpreters is remembered, until their files change."""

    def __init__(self) -> None:
        self._versions: dict[tuple[str, int], str] = {}

    def check(self, program: str, where: str = "") -> None:
        """Of a program that is no virtual environment's, nothing is asked. Blocks for the start of another.

        Raises:
            NotFound: command_not_found, the base interpreter is missing, or of another version.
        """
        made_for = _made_for(Path(program))
        if made_for is None:
            return
        base = os.path.realpath(program)
        wanted = f"{program} is of a virtual environment that was made for Python {made_for}"
        if not os.path.exists(base):
            raise NotFound(
                "command_not_found", f"{wanted}, and {base} is missing{where}", f"Have it there {_MEND}"
            )
        found = self._version(base)
        if found and found != made_for:
            raise NotFound(
                "command_not_found",
                f"{wanted}, and {base} is Python {found}{where}",
                f"Have Python {made_for} there {_MEND}",
            )

    def _version(self, base: str) -> str:
        """Empty where it does not say; the run itself will tell."""
        key = base, os.stat(base).st_mtime_ns
        if key not in self._versions:
            try:
                asked = subprocess.run(
                    [base, "-I", "-S", "-c", _ASKED],
                    capture_output=True,
                    text=True,
                    timeout=_ANSWER_S,
                    check=False,
                )
                self._versions[key] = asked.stdout.strip()
            except (OSError, subprocess.TimeoutExpired):
                return ""
        return self._versions[key]


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
