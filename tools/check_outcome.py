"""What a check of a mesh found, as `check_mesh` tells it: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..runtime.checking import HostCheck, HostFacts, LinkCheck, MeshCheck, median
from ..runtime.mesh import format_ranks
from .device_words import models
from .results import CheckedHosts, CheckedLinks, CheckResult, bounded
from .verdicts.host_fitness import collective_trouble, collective_words
from .verdicts.mesh_health import (
    MEMLOCK_ENOUGH,
    HostVerdict,
    judge_hosts,
    link_name,
    passed_over,
    speed_in_words,
)
from .words import clip, size_in_words

__all__ = ["describe_check"]

_SHOWN = 8
_LINKS_NAMED = 6


def describe_check(mesh: str, check: MeshCheck) -> CheckResult:
    """Hosts that are alike share an entry, those with most wrong first; so do links."""
    facts = {one.host: one.facts for one in check.hosts if one.facts is not None}
    verdicts = judge_hosts(check, mesh)
    trouble = collective_trouble(check.all_reduce)
    items = _host_items(check.hosts, verdicts)
    links = _link_items(check.links, facts)
    wrong = [verdict for verdict in verdicts if verdict.wrong]

    def build(share: float) -> CheckResult:
        return CheckResult(
            mesh=mesh,
            verdict=_verdict(wrong, len(verdicts), trouble),
            host_list=[_clipped(item, share) for item in items[:_SHOWN]],
            links=[_clipped_links(item, share) for item in links[:_SHOWN]],
            more=max(0, len(items) - _SHOWN) + max(0, len(links) - _SHOWN),
            collective=clip(collective_words(check.all_reduce), int(300 * share)),
            next=items[0].next if wrong else trouble[1] if trouble else "",
        )

    return bounded(build)


def _verdict(wrong: Sequence[HostVerdict], count: int, trouble: tuple[str, str] | None) -> str:
    if not wrong:
        return trouble[0] if trouble else "ok"
    hosts = format_ranks(verdict.host for verdict in wrong)
    where = "between" if all(verdict.or_another for verdict in wrong) else "with"
    also = f"; {trouble[0]}" if trouble else ""
    return f"something is wrong {where} host{'s' * (len(wrong) > 1)} {hosts} of {count}{also}"


def _host_items(checks: Sequence[HostCheck], verdicts: Sequence[HostVerdict]) -> list[CheckedHosts]:
    pairs = sorted(
        zip(checks, verdicts, strict=True),
        key=lambda pair: (not pair[0].error, not pair[1].wrong, pair[0].host),
    )
    alike: dict[tuple[HostVerdict, tuple[str, str, str], str], list[HostCheck]] = {}
    for check, verdict in pairs:
        devices = "" if check.devices is None else models(check.devices.view.devices)
        alike.setdefault((replace(verdict, host=0), _words(check.facts), devices), []).append(check)
    items = []
    for (verdict, (memlock, rdma, ucx), devices), members in alike.items():
        free = [one.facts.shm_free for one in members if one.facts is not None]
        known = [size for size in free if size is not None]
        items.append(
            CheckedHosts(
                hosts=format_ranks(one.host for one in members),
                verdict="; ".join(verdict.wrong) or "ok",
                next=verdict.next,
                devices=devices,
                rdma=rdma,
                ucx=ucx,
                memlock=memlock,
                shm_free=size_in_words(min(known)) if known else "",
                disk_free=_least_room(members),
            )
        )
    return items


def _least_room(members: Sequence[HostCheck]) -> str:
    free = [disk.free for one in members if one.surroundings for disk in one.surroundings.disks]
    return size_in_words(min(free)) if free else ""


def _words(facts: HostFacts | None) -> tuple[str, str, str]:
    """Memlock, RDMA and UCX of a host; empty where nothing is known."""
    if facts is None:
        return "", "", ""
    if facts.memlock is None:
        memlock = "unlimited"
    else:
        small = ", too little for RDMA" if facts.memlock < MEMLOCK_ENOUGH else ""
        note = ", not enforced (CAP_IPC_LOCK)" if facts.may_lock else small
        memlock = f"{size_in_words(facts.memlock)}{note}"
    ports = [
        " ".join(filter(None, (f"{port.device}:{port.port}", port.state, port.layer, port.rate)))
        for port in facts.rdma.ports
    ]
    return memlock, "; ".join(ports) or "no device", facts.ucx or f"none: {facts.ucx_error}"


def _link_items(links: Sequence[LinkCheck], facts: Mapping[int, HostFacts]) -> list[CheckedLinks]:
    alike: dict[tuple[bool, str, str], list[LinkCheck]] = {}
    for link in links:
        if link.measured is not None:
            why = "; ".join(f"{way}: {reason}" for way, reason in passed_over(link, facts).items())
            alike.setdefault((link.within, link.measured.transport, why), []).append(link)
    return [
        CheckedLinks(
            links=_names(members),
            transport=transport,
            gb_per_s=_speeds([one.measured.gb_per_s for one in members if one.measured is not None]),
            not_used=why,
        )
        for (_, transport, why), members in sorted(alike.items(), key=lambda item: item[0])
    ]


def _names(links: Sequence[LinkCheck]) -> str:
    if links[0].within:
        return f"within {format_ranks(link.reader for link in links)}"
    names = [link_name(*ends) for ends in sorted((link.reader, link.source) for link in links)]
    if len(names) <= _LINKS_NAMED:
        return ", ".join(names)
    each = ", each host from the next" if len({link.reader for link in links}) == len(links) else ""
    return f"{len(names)}{each}: {names[0]}, ... {names[-1]}"


def _speeds(speeds: Sequence[float]) -> str:
    low, high = speed_in_words(min(speeds)), speed_in_words(max(speeds))
    if low == high:
        return low
    middle = f", median {speed_in_words(median(speeds))}" if len(speeds) > 2 else ""
    return f"{low} to {high}{middle}"


def _clipped(item: CheckedHosts, share: float) -> CheckedHosts:
    return item.model_copy(
        update={
            "hosts": clip(item.hosts, int(300 * share)),
            "verdict": clip(item.verdict, int(700 * share)),
            "devices": clip(item.devices, int(160 * share)),
            "rdma": clip(item.rdma, int(300 * share)),
            "ucx": clip(item.ucx, int(160 * share)),
        }
    )


def _clipped_links(item: CheckedLinks, share: float) -> CheckedLinks:
    return item.model_copy(
        update={
            "links": clip(item.links, int(300 * share)),
            "not_used": clip(item.not_used, int(300 * share)),
        }
    )
