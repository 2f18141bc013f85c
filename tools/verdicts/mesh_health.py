"""A verdict on each host of a mesh, from what a check found: `ok`, or what is wrong and the next step. Pure.

The worst comes first: a lost host, links that move nothing, links that go a worse way than they could, slow
ones; then what is wrong with it beside others (`host_fitness`), what keeps RDMA from working where there are
devices, and too small a /dev/shm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...runtime.checking import LATE, HostCheck, HostFacts, LinkCheck, MeshCheck, slow_links
from .host_fitness import judge_fitness

__all__ = [
    "HostVerdict",
    "SlowLink",
    "judge_hosts",
    "link_name",
    "machines_of",
    "passed_over",
    "speed_in_words",
]

MIB = 1024 * 1024
MEMLOCK_ENOUGH = 1024 * MIB
_SHM_ENOUGH = 128 * MIB
_NAMED = 4
# Ways within one machine, best first; the first two move memory by the same means.
_ONE_SIDED = ("local", "shared", "process_vm")
_WITHIN_A_MACHINE = (*_ONE_SIDED, "unix")

_NEXT_OF_STATE = {
    "lost": "mesh_status says more; release_mesh and allocate_mesh again replace a lost host.",
    "silent": "It may come back: mesh_status; kill -CONT its agent if it was stopped.",
}
_AGAIN = "Call check_mesh again; mesh_status says whether the host is still there."
_FEWER = "Check fewer hosts at once (hosts), or when nothing else runs on them."
_PTRACE = (
    "Let its processes look into each other: sysctl kernel.yama.ptrace_scope=0, or --cap-add SYS_PTRACE."
)
_PORT = "Look at the cable, the switch and (InfiniBand) the subnet manager: ibstat, rdma link."
_OPEN = "Give the host /dev/infiniband (containers: --device /dev/infiniband) and rights to it."
_MEMLOCK = "Raise it where the host is started: ulimit -l unlimited, LimitMEMLOCK=infinity, or CAP_IPC_LOCK."
_UCX = "Install UCX on the host (apt-get install libucx0)."
_MEND = "Mend what it says, and call check_mesh again."
_SHM = "Give it room: mount -o remount,size=8G /dev/shm (containers: --shm-size=8g)."
_WITHOUT = "run without it (ranks='hosts=...') meanwhile."
_SLOW = f"Compare its network with the others: ethtool, qdiscs, other traffic; {_WITHOUT}"
_SLOW_BETWEEN = (
    "Either end may be at fault, or what is between: compare their networks with the others (ethtool, qdiscs,"
    " other traffic)."
)
_SLOW_WITHIN = f"Look what else runs on it, and at its memory: numactl -H, free; {_WITHOUT}"


@dataclass(frozen=True, slots=True)
class HostVerdict:
    """`wrong` is empty where all is well; `next` mends the first of it.

    `or_another`: all that is wrong is a slow link whose other end may as well be at fault.
    """

    host: int
    wrong: tuple[str, ...] = ()
    next: str = ""
    or_another: bool = False


@dataclass(frozen=True, slots=True)
class SlowLink:
    """`median` is of its transport, in GB/s."""

    reader: int
    source: int
    gb_per_s: float
    median: float

    @property
    def ends(self) -> tuple[int, ...]:
        return (self.reader,) if self.reader == self.source else (self.reader, self.source)


Finding = tuple[str, str]


def judge_hosts(check: MeshCheck, mesh: str = "") -> tuple[HostVerdict, ...]:
    """In the order of the hosts; `mesh` tells its own processes from others'."""
    fitness = judge_fitness(check.hosts, mesh)
    facts = {one.host: one.facts for one in check.hosts if one.facts is not None}
    gone = {one.host for one in check.hosts if one.error}
    slow = _slow(check)
    blamed = _blamed(slow)
    verdicts = []
    for one in check.hosts:
        own = facts.get(one.host)
        findings = list(_gone(one))
        # What a lost host did not do is not held against the others.
        links = [link for link in check.links if link.reader == one.host and link.source not in gone]
        if not one.error:
            findings += _failed(links)
            findings += _worse_ways(links, facts)
            findings += _slow_ones(one.host, blamed)
        findings += fitness[one.host]
        if own is not None:
            findings += _rdma(own)
            findings += _shared_memory(own)
        wrong = tuple(dict.fromkeys(text for text, _ in findings))
        either = bool(findings) and all(step == _SLOW_BETWEEN for _, step in findings)
        verdicts.append(HostVerdict(one.host, wrong, findings[0][1] if findings else "", either))
    return tuple(verdicts)


def machines_of(check: MeshCheck) -> dict[int, str]:
    """What tells hosts of one machine: its boot."""
    return {one.host: one.facts.machine.boot for one in check.hosts if one.facts is not None}


def _slow(check: MeshCheck) -> list[SlowLink]:
    speeds = {(link.reader, link.source): link.measured for link in check.links if link.measured is not None}
    found = slow_links(check.links, machines_of(check))
    return [SlowLink(*ends, speeds[ends].gb_per_s, median) for ends, median in found.items()]


def _blamed(slow: Sequence[SlowLink]) -> dict[int, list[SlowLink]]:
    """The host that several slow links have in common is at fault; of a single link, either end may be.

    Where that are many, each is told of all links, so that they fold.
    """
    often = Counter(host for link in slow for host in link.ends)
    blamed: dict[int, list[SlowLink]] = {}
    for link in slow:
        most = max(often[host] for host in link.ends)
        for host in link.ends:
            if often[host] == most:
                blamed.setdefault(host, []).append(link)
    return blamed if len(blamed) <= _NAMED else {host: list(slow) for host in blamed}


def _gone(check: HostCheck) -> Iterator[Finding]:
    if check.state != "ready":
        yield f"{check.state}: {check.error}", _NEXT_OF_STATE.get(check.state, _AGAIN)
    elif check.error:
        yield f"its check broke off: {check.error}", _AGAIN


def _failed(links: Sequence[LinkCheck]) -> Iterator[Finding]:
    for link in links:
        if link.error == LATE:
            yield LATE, _FEWER
        elif link.error:
            what = "within the host" if link.within else f"from host {link.source}"
            yield f"no reads {what}: {link.error}", _MEND


def _worse_ways(links: Sequence[LinkCheck], facts: Mapping[int, HostFacts]) -> Iterator[Finding]:
    for link in links:
        if link.measured is None or not {link.reader, link.source} <= facts.keys():
            continue
        way, here, there = link.measured.transport, facts[link.reader], facts[link.source]
        if here.machine.shares_memory(there.machine):
            if way not in _ONE_SIDED:
                why = link.measured.passed_over.get("process_vm", "no reason is known")
                yield f"memory within the machine goes by {way}; not process_vm: {why}", _PTRACE
        elif way != "rdma" and _may_rdma(here) and _may_rdma(there):
            why = link.measured.passed_over.get("rdma", "this version has no such transport")
            yield f"RDMA is there, and reads go by {way}: {why}", _MEND


def _may_rdma(facts: HostFacts) -> bool:
    return any(port.is_active for port in facts.rdma.ports)


def _slow_ones(host: int, blamed: Mapping[int, Sequence[SlowLink]]) -> Iterator[Finding]:
    """Worded alike for both ends of a link, so that they fold."""
    slow = blamed.get(host, ())
    for median in sorted({link.median for link in slow}):
        members = sorted((link for link in slow if link.median == median), key=lambda link: link.gb_per_s)
        names = ", ".join(
            f"{link_name(link.reader, link.source)} {speed_in_words(link.gb_per_s)}"
            for link in members[:_NAMED]
        )
        more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
        step = _SLOW
        if all(len(link.ends) == 1 for link in members):
            step = _SLOW_WITHIN
        elif all(set(link.ends) <= blamed.keys() for link in slow):
            step = _SLOW_BETWEEN
        yield f"slow: {names}{more} (GB/s; median {speed_in_words(median)})", step


def _rdma(facts: HostFacts) -> Iterator[Finding]:
    ports = facts.rdma.ports
    if not ports:
        return
    down = [port for port in ports if not port.is_active]
    if down:
        names = ", ".join(f"{port.device}:{port.port} is {port.state}" for port in down[:_NAMED])
        yield f"RDMA port {names}", _PORT
    if len(down) == len(ports):
        return
    if facts.rdma.closed:
        yield f"RDMA devices cannot be opened: {facts.rdma.closed}", _OPEN
    if facts.memlock is not None and facts.memlock < MEMLOCK_ENOUGH and not facts.may_lock:
        yield f"memlock {facts.memlock // 1024} KiB: RDMA registers no more memory than that", _MEMLOCK
    if not facts.ucx:
        yield f"no UCX for RDMA: {facts.ucx_error}", _UCX


def _shared_memory(facts: HostFacts) -> Iterator[Finding]:
    if facts.shm_free is None:
        yield "no /dev/shm", _SHM
    elif facts.shm_free < _SHM_ENOUGH:
        yield f"/dev/shm has {facts.shm_free // MIB} MiB free: too little for data loaders and gloo", _SHM


def link_name(reader: int, source: int) -> str:
    """`1<-2`: host 1 reads from host 2."""
    return f"within {reader}" if reader == source else f"{reader}<-{source}"


def speed_in_words(gb_per_s: float) -> str:
    """Two digits that count: 0.0025, 0.13, 1.2, 12."""
    if gb_per_s >= 9.95:
        return f"{gb_per_s:.0f}"
    return f"{float(f'{gb_per_s:.1e}'):.9f}".rstrip("0").rstrip(".")


def passed_over(link: LinkCheck, facts: Mapping[int, HostFacts]) -> dict[str, str]:
    """Why nothing better was used, but for what cannot be between those hosts, or moves by the same means."""
    if link.measured is None:
        return {}
    left_out = {"local", *(("shared",) if link.measured.transport == "process_vm" else ())}
    known = {link.reader, link.source} <= facts.keys()
    if known and not facts[link.reader].machine.shares_memory(facts[link.source].machine):
        left_out |= {*_WITHIN_A_MACHINE}
    return {way: why for way, why in link.measured.passed_over.items() if way not in left_out}
