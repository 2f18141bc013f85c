"""What this host has for mounts: the facts that `verdict` judges."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .verdict import Facts

__all__ = ["TRY_BINDING", "TRY_S", "binding_error", "probe"]

_DEVICE = "/dev/fuse"
_SYS_ADMIN = 21
TRY_BINDING = (sys.executable, "-c", "import pyfuse3, pyfuse3.asyncio")
TRY_S = 20.0


def probe(binding: str | None = None) -> Facts:
    """Blocks, without `binding` for the start of an interpreter: pyfuse3 is tried in a process of its own.

    Args:
        binding: `binding_error` of a process that was started already.
    """
    return Facts(
        has_device=os.path.exists(_DEVICE),
        device_error=_device_error(),
        helper=shutil.which("fusermount3") or "",
        may_mount=_has_capability(_SYS_ADMIN),
        binding_error=_binding_error() if binding is None else binding,
        in_container=_in_container(),
    )


def _device_error() -> str:
    try:
        os.close(os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _binding_error() -> str:
    try:
        tried = subprocess.run(TRY_BINDING, capture_output=True, text=True, check=False, timeout=TRY_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return binding_error(tried.returncode == 0, tried.stderr)


def binding_error(ok: bool, words: str) -> str:
    """What `TRY_BINDING` says, which ended well or not, with these words on standard error."""
    return "" if ok else (words.strip().splitlines() or ["the try ended without a word"])[-1]


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
