"""What one host tells of a run: plain frozen records. Sizes are bytes, times seconds on the wall clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..devices import HostDevices
from ..metrics.series import RankMetrics
from ..records import ProcessStacks, ThreadStack

__all__ = [
    "Collective",
    "Disk",
    "Fault",
    "Fingerprint",
    "Flight",
    "Group",
    "HostEvidence",
    "KernelLine",
    "Listener",
    "Memory",
    "ProcessFacts",
    "RankEvidence",
]


@dataclass(frozen=True, slots=True)
class Collective:
    """One entry of torch's flight recorder: an operation that a rank has begun.

    `seq` counts the collectives of its group from 1, the same number on all its ranks; point-to-point
    operations (`p2p`) have numbers of their own. `op` is without its backend: `all_reduce`. `done`: it has
    completed; a recorder that does not follow a backend leaves it False.
    """

    seq: int
    op: str
    group: str = "0"
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    at: float = 0.0
    done: bool = False
    p2p: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """The latest collectives of a rank, oldest first. `problem`: why there are none, where some should be.

    `kept`: written by the rank itself when it failed.
    """

    entries: tuple[Collective, ...] = ()
    problem: str = ""
    kept: bool = False


@dataclass(frozen=True, slots=True)
class Fault:
    """What faulthandler wrote when a signal ended a process: `Segmentation fault`, and its threads."""

    reason: str
    threads: tuple[ThreadStack, ...] = ()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a rank runs in. `packages` are the distributions of its interpreter, with their versions;
    `modules` what it had imported when an exception ended it: version and file.

    `torch` is what it was built for: `cpu`, `cuda 12.8`, `hip 6.3`. `variables` are those that matter to
    training, secrets left out. `script_hash` is of the program's file as it is now.
    """

    interpreter: str = ""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    torch: str = ""
    driver: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    script: str = ""
    script_hash: str = ""
    modules: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A rank's own process as the kernel sees it. `cpu` is the share of one core that it and its children
    took while they were watched, None where they were not; `wanted` is that and what they were ready to take
    while others had it. `peak` is the most memory it ever had. `switches` counts how often its main thread
    has gone to sleep."""

    pid: int
    os_state: str = ""
    cpu: float | None = None
    wanted: float | None = None
    rss: int = 0
    peak: int = 0
    threads: int = 0
    children: int = 0
    switches: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """What a rank has made its first process group with: its own idea of the world."""

    size: int
    rank: int
    host: str = ""
    port: int = 0
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """`stacks` are the rank's and its children's: of now, or of when it was about to be ended (`kept`).

    `raised`: the exception that ended it, as Python prints it.
    """

    rank: int
    process: ProcessFacts | None = None
    stacks: tuple[ProcessStacks, ...] = ()
    flight: Flight = field(default_factory=Flight)
    faults: tuple[Fault, ...] = ()
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    metrics: RankMetrics | None = None
    group: Group | None = None
    kept: bool = False
    raised: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a host. `limit` and `used` are of the memory cgroup that ranks are in, None without a limit.

    `group_kills` are the kernel's out-of-memory kills in it, `machine_kills` those of the whole machine,
    both since it started.
    """

    total: int = 0
    available: int = 0
    limit: int | None = None
    used: int | None = None
    group_kills: int | None = None
    machine_kills: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    total: int
    free: int
    files_free: int | None = None


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A line of the kernel's log that tells of memory, faults, devices or disks."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Listener:
    """Who listens on a port that the run was to use; pid 0 where that cannot be seen."""

    port: int
    address: str
    pid: int = 0
    command: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class HostEvidence:
    """What one host told, of itself and of its ranks. `error`: it told nothing, and why.

    `clock` is by how much its wall clock is ahead of the keeper's; 0 where that is less than a round trip can
    tell. `late` names what was not there in time.
    """

    host: int
    ranks: tuple[RankEvidence, ...] = ()
    memory: Memory | None = None
    disks: tuple[Disk, ...] = ()
    kernel: tuple[KernelLine, ...] = ()
    listeners: tuple[Listener, ...] = ()
    devices: HostDevices | None = None
    clock: float = 0.0
    late: tuple[str, ...] = ()
    error: str = ""
