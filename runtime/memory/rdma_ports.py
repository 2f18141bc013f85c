"""The ports of this host's RDMA devices, as the kernel shows them."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Port", "address_of_interface", "ports"]

_DEVICES = Path("/sys/class/infiniband")
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True, slots=True)
class Port:
    """`state`: `ACTIVE`, `DOWN`, ...; `interface`: the network interface that it is, for RoCE."""

    device: str
    number: int
    state: str
    interface: str | None

    @property
    def is_active(self) -> bool:
        return self.state == "ACTIVE"

    def __str__(self) -> str:
        return f"{self.device}:{self.number}"


def ports(devices: Path = _DEVICES) -> list[Port]:
    """Empty where there is no device, and where its files cannot be read."""
    with suppress(OSError):
        return sorted(_found(devices), key=str)
    return []


def _found(devices: Path) -> Iterator[Port]:
    for device in devices.iterdir():
        for port in (device / "ports").iterdir():
            state = _text(port / "state").rpartition(": ")[2] or "UNKNOWN"  # as in "4: ACTIVE"
            yield Port(device.name, int(port.name), state, _text(port / "gid_attrs/ndevs/0") or None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def address_of_interface(name: str) -> str | None:
    """Its IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            found = fcntl.ioctl(sock, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])
