"""The devices of a mesh in a few lines: what there are, which rank is on which, who else is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..runtime.devices import Device, DeviceUse, HostDevices
from ..runtime.errors import MilkweedError
from ..runtime.mesh import format_ranks
from .words import clip, size_in_words

__all__ = ["describe_devices", "in_use_by_others", "models", "strangers"]

_COMMAND = 60
_OTHERS_NAMED = 3
# Display servers and monitors have a little memory of a device; who computes has more.
_MUCH = 512 * 1024 * 1024


def describe_devices(found: Mapping[int, HostDevices | MilkweedError], mesh: str) -> list[str]:
    """`hosts 0-3: 8 NVIDIA H200 (141 GB)`, then a line for each run, and for what is wrong or not ours.

    Hosts without devices, and those that did not answer, are left out.
    """
    known = {host: one for host, one in found.items() if isinstance(one, HostDevices)}
    lines = _folded({host: models(one.view.devices) for host, one in known.items()})
    lines += _folded({host: one.view.problem for host, one in known.items()})
    lines += _runs(known)
    lines += _folded({host: "; ".join(_severe(one.view.devices)) for host, one in known.items()})
    lines += _folded({host: in_use_by_others(one, mesh) for host, one in known.items()})
    return lines


def models(devices: Sequence[Device]) -> str:
    """8 NVIDIA H200 (141 GB); empty where there is none."""
    kinds = Counter((one.model, one.memory_total) for one in devices)
    return ", ".join(
        f"{count} {model}" + (f" ({size_in_words(memory)})" if memory else "")
        for (model, memory), count in kinds.items()
    )


def strangers(found: HostDevices, mesh: str) -> list[DeviceUse]:
    """Uses of devices by processes that are not of the mesh, and have more than a little memory there."""
    return [one for one in found.uses if one.mesh != mesh and (one.bytes is None or one.bytes >= _MUCH)]


def in_use_by_others(found: HostDevices, mesh: str) -> str:
    """device 2: pid 4711 (python x.py) has 40 GB, not of this mesh; empty where there is nothing to tell."""
    by_process: dict[int, list[DeviceUse]] = {}
    for use in strangers(found, mesh):
        by_process.setdefault(use.pid, []).append(use)
    words = []
    for pid, uses in list(by_process.items())[:_OTHERS_NAMED]:
        numbers = format_ranks({use.device for use in uses})
        sizes = [use.bytes for use in uses if use.bytes is not None]
        has = f" has {size_in_words(sum(sizes))}" if sizes else " is there"
        who = f" of {uses[0].mesh}" if uses[0].mesh else f" ({clip(uses[0].command, _COMMAND)})"
        who = who if uses[0].mesh or uses[0].command else " (not to be seen from here)"
        words.append(f"device{'s' * (len(uses) > 1)} {numbers}: pid {pid}{who}{has}, not of this mesh")
    more = len(by_process) - _OTHERS_NAMED
    return "; ".join([*words, *([f"and {more} more processes"] if more > 0 else [])])


def _severe(devices: Iterable[Device]) -> list[str]:
    return [f"device {one.index}: {note.text}" for one in devices for note in one.notes if note.severe]


def _runs(known: Mapping[int, HostDevices]) -> list[str]:
    """`run-7qd: ranks 0-7 on devices 0-7 of host 0, 61 GB each`; hosts that are used alike share a line."""
    runs: dict[str, list[tuple[int, list[DeviceUse]]]] = {}
    for host, one in known.items():
        for run in dict.fromkeys(use.run for use in one.uses if use.run and use.rank is not None):
            runs.setdefault(run, []).append((host, [use for use in one.uses if use.run == run]))
    lines = []
    for run, hosts in runs.items():
        alike: dict[tuple[str, str], list[tuple[int, list[DeviceUse]]]] = {}
        for host, uses in hosts:
            alike.setdefault(_placed(uses), []).append((host, uses))
        parts = []
        for (devices, size), members in alike.items():
            ranks = format_ranks({use.rank for _, uses in members for use in uses if use.rank is not None})
            where = f"host{'s' * (len(members) > 1)} {format_ranks(host for host, _ in members)}"
            parts.append(f"rank{'' if ranks.isdecimal() else 's'} {ranks} on {devices} of {where}{size}")
        lines.append(f"{run}: {'; '.join(parts)}")
    return lines


def _placed(uses: Sequence[DeviceUse]) -> tuple[str, str]:
    """The devices of a host's ranks, and the memory of each rank there."""
    by_rank: dict[int, set[int]] = {}
    memory: Counter[int] = Counter()
    for use in uses:
        if use.rank is not None:
            by_rank.setdefault(use.rank, set()).add(use.device)
            memory[use.rank] += use.bytes or 0
    order = sorted(by_rank)
    single = all(len(by_rank[rank]) == 1 for rank in order)
    numbers = [min(by_rank[rank]) for rank in order]
    if single and numbers == sorted(set(numbers)):
        devices = f"device{'s' * (len(numbers) > 1)} {format_ranks(numbers)}"
    else:  # two on one device, or one on two: each is named
        devices = "devices " + " ".join(f"{rank}:{format_ranks(by_rank[rank])}" for rank in order)
        devices += " (rank:devices)"
    sizes = sorted(memory.values())
    if not sizes or not sizes[-1]:
        return devices, ""
    low, high = size_in_words(sizes[0]), size_in_words(sizes[-1])
    each = " each" if len(sizes) > 1 else ""
    return devices, f", {low}{each}" if low == high else f", {low} to {high}{each}"


def _folded(texts: Mapping[int, str]) -> list[str]:
    alike: dict[str, list[int]] = {}
    for host, text in texts.items():
        if text:
            alike.setdefault(text, []).append(host)
    return [f"host{'s' * (len(hosts) > 1)} {format_ranks(hosts)}: {text}" for text, hosts in alike.items()]
