"""What a process finds on its host. To be used in one that may end: a library is loaded."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path
from typing import Protocol

from ..memory.here import machine
from ..memory.ucx import library
from .records import HostFacts, RdmaPort, RdmaView

__all__ = ["RdmaProbe", "SysfsRdma", "look", "may_lock", "memlock", "shm_free", "ucx_version"]

_CAP_IPC_LOCK = 14


class RdmaProbe(Protocol):
    """How the RDMA devices of a host are found."""

    def look(self) -> RdmaView: ...


class SysfsRdma:
    """As the kernel shows them, below `classes` and `devices`."""

    def __init__(
        self, classes: Path = Path("/sys/class/infiniband"), devices: Path = Path("/dev/infiniband")
    ) -> None:
        self._classes = classes
        self._devices = devices

    def look(self) -> RdmaView:
        ports = tuple(
            RdmaPort(
                device.name,
                int(port.name),
                _line(port / "state").partition(": ")[2] or "unknown",  # "4: ACTIVE"
                _line(port / "link_layer"),
                _line(port / "rate"),
            )
            for device in _listed(self._classes)
            for port in sorted(_listed(device / "ports"), key=lambda one: one.name.zfill(4))
            if port.name.isdecimal()
        )
        return RdmaView(ports, self._closed() if ports else "")

    def _closed(self) -> str:
        """A container may see devices in /sys that it was not given."""
        verbs = [path for path in _listed(self._devices) if path.name.startswith("uverbs")]
        if not verbs:
            return f"no {self._devices}/uverbs* here"
        if not any(os.access(path, os.R_OK | os.W_OK) for path in verbs):
            return f"no right to open {verbs[0]}"
        return ""


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def memlock() -> int | None:
    """The soft limit in bytes; None without one."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def may_lock(status: str) -> bool:
    """Whether a process of this /proc/PID/status may lock memory beyond its limit."""
    word = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(word, 16) >> _CAP_IPC_LOCK & 1)


def ucx_version(library: str) -> tuple[str, str]:
    """Version of the UCX that the loader finds, and loads, or why there is none; one of both is empty."""
    numbers = [ctypes.c_uint() for _ in range(3)]
    try:
        ctypes.CDLL(library).ucp_get_version(*map(ctypes.byref, numbers))
    except (OSError, AttributeError) as error:
        return "", str(error)
    return ".".join(str(number.value) for number in numbers), ""


def shm_free(path: str = "/dev/shm") -> int | None:
    """In bytes; None where there is none."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def look(rdma: RdmaProbe) -> HostFacts:
    version, error = ucx_version(library(os.environ))
    status = Path("/proc/self/status").read_text()
    return HostFacts(machine(), memlock(), may_lock(status), rdma.look(), version, error, shm_free())
