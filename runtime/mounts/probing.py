"""What this host has for mounts: the facts that `verdict` judges."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .sharing import Token, sees
from .verdict import Facts

__all__ = ["probe"]

_DEVICE = "/dev/fuse"
_SYS_ADMIN = 21
_IMPORT_S = 20.0


def probe(directory: Path | None = None, token: Token | None = None) -> Facts:
    """Blocks for the start of an interpreter: pyfuse3 is tried in a process of its own."""
    return Facts(
        has_device=os.path.exists(_DEVICE),
        device_error=_device_error(),
        helper=shutil.which("fusermount3") or "",
        may_mount=_has_capability(_SYS_ADMIN),
        binding_error=_binding_error(),
        in_container=_in_container(),
        sees_directory=directory is not None and token is not None and sees(directory, token),
    )


def _device_error() -> str:
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _binding_error() -> str:
    try:
        tried = subprocess.run(
            [sys.executable, "-c", "import pyfuse3, pyfuse3.asyncio"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_IMPORT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if tried.returncode == 0:
        return ""
    return (tried.stderr.strip().splitlines() or [f"exit {tried.returncode}"])[-1]


def _has_capability(number: int) -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _in_container() -> bool:
    return any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")))
