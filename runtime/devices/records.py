"""What is told of the accelerators of a host: plain frozen records, the same of every vendor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "Device",
    "DeviceNote",
    "DeviceProcess",
    "DeviceUse",
    "DeviceView",
    "HostDevices",
    "NoteKind",
    "Vendor",
]

Vendor = Literal["nvidia", "amd"]

NoteKind = Literal["lost", "reset", "xid", "ecc", "remap", "ras", "throttled", "mig", "fault", "unreadable"]


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process that has a device open; `pid` is in the driver's namespace, `bytes` None where unknown."""

    pid: int
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceNote:
    """Something about the health of a device. `severe`: work on it fails, or will; `mend` is for a person."""

    kind: NoteKind
    text: str
    severe: bool = False
    mend: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator, as its vendor's library counts them: `index` is physical, whatever is visible to whom.

    Memory is in bytes, `utilisation` in percent, None where the library does not tell; so is `numa`. `pci` is
    the address (`0000:01:00.0`); `arch` such as `gfx942`, of AMD.
    """

    index: int
    vendor: Vendor
    model: str
    uuid: str = ""
    memory_total: int | None = None
    memory_used: int | None = None
    utilisation: int | None = None
    processes: tuple[DeviceProcess, ...] = ()
    notes: tuple[DeviceNote, ...] = ()
    pci: str = ""
    numa: int | None = None
    arch: str = ""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """The devices of a host. `problem` says why some or all are not told of, `mend` what helps.

    `driver` and `runtime` (`CUDA 12.8`, `ROCm 7.0.2`) are versions, empty where unknown.
    """

    devices: tuple[Device, ...] = ()
    driver: str = ""
    runtime: str = ""
    library: str = ""
    problem: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """A process on a device, as its host knows it.

    `mesh`, `run` and `rank` are its marks, if Milkweed started it; `command` is empty where it cannot be
    seen, as in another container.
    """

    device: int
    vendor: Vendor
    pid: int
    bytes: int | None = None
    mesh: str = ""
    run: str = ""
    rank: int | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class HostDevices:
    """`variables` are those of the host that decide which devices its processes see."""

    host: int
    view: DeviceView = field(default_factory=DeviceView)
    uses: tuple[DeviceUse, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
