"""What a check of a mesh finds: plain frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..devices.records import HostDevices
from ..evidence.records import Disk, Fingerprint
from ..records import HostState

if TYPE_CHECKING:
    from ..memory.handle import Machine

__all__ = [
    "LATE",
    "AllReduce",
    "AllReduceTurn",
    "Clock",
    "HostCheck",
    "HostFacts",
    "LinkCheck",
    "Measured",
    "MeshCheck",
    "RdmaPort",
    "RdmaView",
    "Surroundings",
    "Turn",
]

LATE = "not measured: there was no time left"
"""The error of a link whose turn did not come."""


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """A port of an RDMA device, in the kernel's words: state `ACTIVE`, layer `InfiniBand` or `Ethernet`."""

    device: str
    port: int
    state: str
    layer: str = ""
    rate: str = ""

    @property
    def is_active(self) -> bool:
        return self.state == "ACTIVE"


@dataclass(frozen=True, slots=True)
class RdmaView:
    """The RDMA devices of a host. `closed`: why programs cannot open them; empty where they can, or there are
    none."""

    ports: tuple[RdmaPort, ...] = ()
    closed: str = ""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a process finds on its host.

    `memlock` is the soft limit of memory that it may lock, in bytes, None without one; `may_lock`: it need
    not heed that. `ucx` is the version of the loader's UCX, else `ucx_error` says why there is none.
    `shm_free` is what /dev/shm has room for, in bytes, None where there is none.
    """

    machine: Machine
    memlock: int | None
    may_lock: bool
    rdma: RdmaView
    ucx: str
    ucx_error: str
    shm_free: int | None


@dataclass(frozen=True, slots=True)
class Measured:
    """One-sided reads, the largest of `size` bytes: by what, how fast the best was, why nothing better."""

    transport: str
    gb_per_s: float
    size: int
    passed_over: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LinkCheck:
    """How `reader` read from `source`, host numbers; from another process of its own where they are the same.

    `error` says why it did not.
    """

    reader: int
    source: int
    measured: Measured | None = None
    error: str = ""

    @property
    def within(self) -> bool:
        return self.reader == self.source


@dataclass(frozen=True, slots=True)
class Clock:
    """By how much a host's wall clock is ahead of the keeper's, in seconds, and half of the shortest round
    trip: it is that much less or more at most."""

    ahead: float
    within: float


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What runs find on a host, and the file systems that they write to."""

    fingerprint: Fingerprint
    disks: tuple[Disk, ...] = ()


@dataclass(frozen=True, slots=True)
class AllReduceTurn:
    """One host's part in an all-reduce of `size` bytes over gloo, that meets at `address` and `port`."""

    python: str
    rank: int
    world: int
    address: str
    port: int
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Turn:
    """How long the all-reduce took one host at best. `missing`: it has no torch to do it with."""

    seconds: float = 0.0
    error: str = ""
    missing: str = ""


@dataclass(frozen=True, slots=True)
class AllReduce:
    """An all-reduce of `size` bytes over gloo with one process on each of `hosts`, by host.

    `turns` is empty where there was none: `skipped` says why.
    """

    hosts: tuple[int, ...] = ()
    size: int = 0
    turns: Mapping[int, Turn] = field(default_factory=dict)
    skipped: str = ""

    @property
    def seconds(self) -> float:
        """Of the slowest host; 0 where any failed."""
        if not self.turns or any(turn.error or turn.missing for turn in self.turns.values()):
            return 0.0
        return max(turn.seconds for turn in self.turns.values())


@dataclass(frozen=True, slots=True)
class HostCheck:
    """`error`: why nothing is known of it, or what became of it; `state` is the host's at the end.

    What its agent did not tell in time is None.
    """

    host: int
    facts: HostFacts | None = None
    error: str = ""
    state: HostState = "ready"
    clock: Clock | None = None
    surroundings: Surroundings | None = None
    devices: HostDevices | None = None


@dataclass(frozen=True, slots=True)
class MeshCheck:
    """Hosts in their order. `all_reduce` is None where no two of them are apart."""

    hosts: tuple[HostCheck, ...]
    links: tuple[LinkCheck, ...]
    all_reduce: AllReduce | None = None
