"""Simulated hosts with a mount, network and UTS namespace each, on one bridge: `isolation=namespaces`.

Each has its own `eth0`, name, `/etc/hosts`, `/dev/shm` and `/var/tmp`; the rest of the file system is shared.
No address is put on the bridge itself: nothing but the hosts can be reached through it. `enter_host.py` makes
them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..errors import Unavailable

__all__ = [
    "PREFIX_LENGTH",
    "address_of",
    "bridge_name",
    "cable_name",
    "check_possible",
    "enter_command",
    "leave_commands",
    "remove_bridge",
]

PREFIX_LENGTH = 16
_ENTER = f"{__package__}.enter_host"


def address_of(host: int) -> str:
    """10.77.0.1 for host 0 and so on; every mesh has a bridge of its own, so meshes may share addresses."""
    number = host + 1
    return f"10.77.{number // 256}.{number % 256}"


def check_possible() -> None:
    """
    Raises:
        Unavailable: isolation_unavailable, with what is missing and the mend.
    """
    if shutil.which("ip") is None:
        raise Unavailable(
            "isolation_unavailable", "the `ip` command is missing", "Run: apt-get install iproute2"
        )
    tried = subprocess.run(
        ["unshare", "--mount", "--net", "--uts", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        raise Unavailable(
            "isolation_unavailable",
            f"this kernel or user may not make namespaces ({tried.stderr.strip() or 'unshare failed'})",
            "Run as root or with CAP_SYS_ADMIN and CAP_NET_ADMIN, or leave out the isolation option.",
        )


def _tag(mesh: str) -> str:
    # Interface names have at most 15 bytes.
    return hashlib.blake2s(mesh.encode(), digest_size=4).hexdigest()


def bridge_name(mesh: str) -> str:
    return f"mw{_tag(mesh)}"


def cable_name(mesh: str, host: int) -> str:
    return f"mw{_tag(mesh)}-{host:x}"


def enter_command(mesh: str, host: int, hosts: int, name: str, directory: Path) -> tuple[str, ...]:
    options = (
        "--mesh",
        mesh,
        "--host",
        str(host),
        "--hosts",
        str(hosts),
        "--name",
        name,
        "--directory",
        str(directory),
    )
    return (sys.executable, "-m", _ENTER, *options, "--")


def leave_commands(mesh: str, host: int) -> tuple[tuple[str, ...], ...]:
    """The cable goes with its namespace, only later: the last host out takes the bridge along."""
    cable, bridge = cable_name(mesh, host), bridge_name(mesh)
    others = f'[ -n "$(ls /sys/class/net/{bridge}/brif 2>/dev/null)" ]'
    script = f"ip link delete {cable} 2>/dev/null; {others} || ip link delete {bridge} 2>/dev/null; true"
    return (("/bin/sh", "-c", script),)


def remove_bridge(mesh: str, hosts: int) -> None:
    """Removes what a killed guard could not; safe to repeat."""
    for name in (*(cable_name(mesh, host) for host in range(hosts)), bridge_name(mesh)):
        if os.path.exists(f"/sys/class/net/{name}"):
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)
