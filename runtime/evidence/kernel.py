"""What the kernel tells of a host and its processes: memory, disks, its log, who listens."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from ..agent.oom import cgroup_counter, read_counts
from ..agent.ptree import family, is_sampled, read_environ
from ..kernel_log import KMSG, parse_records, read_records
from .records import Disk, KernelLine, Listener, Memory, ProcessFacts

__all__ = [
    "cpu_seconds",
    "mounts_below",
    "parse_kernel_log",
    "read_disk",
    "read_kernel_log",
    "read_listeners",
    "read_memory",
    "read_process_facts",
    "waited_seconds",
]

_TELLS = re.compile(
    r"[Oo]ut of memory|oom[-_]kill|segfault|general protection|traps:|NVRM|Xid|amdgpu|No space left|"
    r"I/O error|EXT4-fs error|XFS .*error|nfs: server|hung task|blocked for more than",
)
_MOST_LINES = 20
_MOST_MOUNTS = 5
_UNLIMITED = 1 << 60
_TICKS = os.sysconf("SC_CLK_TCK")
_LISTENING = "0A"


def read_memory(pid: int | None = None) -> Memory:
    """Of this machine, and of the memory cgroup of `pid` (default: ours)."""
    fields = dict(_fields(_text("/proc/meminfo")))
    counter = cgroup_counter(pid or os.getpid())
    counts = read_counts(counter)
    limit = used = None
    if counter is not None:
        group = counter.parent
        limit = _number(group / "memory.max", group / "memory.limit_in_bytes")
        used = _number(group / "memory.current", group / "memory.usage_in_bytes")
    if limit is not None and limit >= _UNLIMITED:
        limit = None
    return Memory(
        total=fields.get("MemTotal", 0),
        available=fields.get("MemAvailable", 0),
        limit=limit,
        used=used if limit is not None else None,
        group_kills=counts.group,
        machine_kills=counts.machine,
    )


def read_disk(path: str) -> Disk | None:
    """The file system that a path is on; None where there is none."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    unit = found.f_frsize
    return Disk(path, found.f_blocks * unit, found.f_bavail * unit, found.f_favail if found.f_files else None)


def mounts_below(directory: str) -> list[str]:
    """Where other file systems are mounted below a directory; a few at most."""
    places = [line.split()[4] for line in _text("/proc/self/mountinfo").splitlines() if len(line.split()) > 4]
    plain = [place.replace("\\040", " ") for place in places]
    return [place for place in plain if place.startswith(f"{directory.rstrip('/')}/")][:_MOST_MOUNTS]


def read_kernel_log(since: float, device: str = KMSG) -> tuple[KernelLine, ...]:
    """Telling lines of the kernel's log since then, the latest; empty where it may not be read."""
    booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return parse_kernel_log(read_records(device), since, booted_at)


def parse_kernel_log(records: Iterable[str], since: float, booted_at: float) -> tuple[KernelLine, ...]:
    """The telling lines of records of /dev/kmsg."""
    found = []
    for seconds, text in parse_records(records):
        at = booted_at + seconds
        line = text.partition("\n")[0]
        if at >= since and _TELLS.search(line):
            found.append(KernelLine(round(at, 3), line[:300]))
    return tuple(found[-_MOST_LINES:])


def read_process_facts(
    pid: int, cpu: float | None = None, wanted: float | None = None
) -> ProcessFacts | None:
    """Of a process that lives; None when it does not."""
    status = _text(f"/proc/{pid}/status")
    if not status:
        return None
    fields = dict(_fields(status))
    state = next((line.split()[1] for line in status.splitlines() if line.startswith("State:")), "")
    if is_sampled(status):
        state = "S"  # nobody has stopped it
    return ProcessFacts(
        pid=pid,
        os_state=state,
        cpu=cpu,
        wanted=wanted,
        rss=fields.get("VmRSS", 0),
        peak=fields.get("VmHWM", 0),
        threads=fields.get("Threads", 0),
        children=max(0, len(family(pid)) - 1),
        switches=fields.get("voluntary_ctxt_switches", 0),
    )


def cpu_seconds(pid: int) -> float:
    """What a process and those below it have used of processors since they started."""
    ticks = 0
    for one in family(pid):
        text = _text(f"/proc/{one}/stat")
        fields = text[text.rfind(")") + 2 :].split()
        if len(fields) > 14:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def waited_seconds(pid: int) -> float:
    """How long threads of a process and of those below it have been ready to run while others ran, as
    `/proc/PID/task/TID/schedstat` has it."""
    waited = 0
    for one in family(pid):
        try:
            threads = os.listdir(f"/proc/{one}/task")
        except OSError:
            continue
        for thread in threads:
            fields = _text(f"/proc/{one}/task/{thread}/schedstat").split()
            waited += int(fields[1]) if len(fields) > 1 else 0
    return waited / 1e9


def read_listeners(ports: Collection[int]) -> tuple[Listener, ...]:
    """Who listens on these TCP ports, in this network namespace."""
    if not ports:
        return ()
    sockets: dict[str, tuple[int, str]] = {}
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        for line in _text(table).splitlines()[1:]:
            fields = line.split()
            address, _, port = fields[1].rpartition(":")
            if fields[3] == _LISTENING and int(port, 16) in ports:
                sockets[f"socket:[{fields[9]}]"] = (int(port, 16), _address(address))
    owners = _owners(sockets)
    found = []
    for link, (number, address) in sockets.items():
        pid = owners.get(link, 0)
        command = _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:120] if pid else ""
        found.append(
            Listener(number, address, pid, command, read_environ(pid).get("MILKWEED_RUN", "") if pid else "")
        )
    return tuple(found)


def _owners(sockets: Collection[str]) -> dict[str, int]:
    """Which process has each of these sockets, as far as we may see."""
    found: dict[str, int] = {}
    if not sockets:
        return found
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                for fd in os.listdir(f"/proc/{name}/fd"):
                    link = os.readlink(f"/proc/{name}/fd/{fd}")
                    if link in sockets:
                        found.setdefault(link, int(name))
            except OSError:
                continue
    return found


def _address(word: str) -> str:
    """Of /proc/net/tcp, whose words are in the machine's byte order."""
    if set(word) == {"0"}:
        return "*"
    if len(word) == 8:
        return ".".join(str(byte) for byte in bytes.fromhex(word)[::-1])
    return "IPv6"


def _fields(text: str) -> Iterator[tuple[str, int]]:
    """`Name: 12 kB` in bytes, `Name: 12` as it is."""
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdecimal():
            yield name, int(words[0]) * (1024 if words[1:] == ["kB"] else 1)


def _number(*paths: Path) -> int | None:
    for path in paths:
        text = _text(str(path)).strip()
        if text.isdecimal():
            return int(text)
    return None


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(1024 * 1024).decode("utf-8", "replace")
    except OSError:
        return ""
