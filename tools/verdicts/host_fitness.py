"""What is wrong with a host beside others: its devices, clock, environment and disks. Pure.

What all hosts have alike is no drift; of what differs, the value of most hosts is taken for the meant one (of
as many, that of the first host).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from ...runtime.checking import AllReduce, Clock, HostCheck, Surroundings
from ...runtime.devices import HostDevices
from ...runtime.devices.collectives import selected
from ...runtime.devices.visible import VARIABLES, traps
from ..device_words import in_use_by_others, models
from ..words import clip, size_in_words

__all__ = ["collective_trouble", "collective_words", "judge_fitness"]

Finding = tuple[str, str]
T = TypeVar("T")

_SKEW_S = 0.05
_DISK_SHARE, _DISK_BYTES = 0.02, 1024**3
_FILES_LEFT = 1000
_PACKAGES_NAMED, _VARIABLES_NAMED = 4, 4
_NOTES_NAMED = 3
_VALUE = 60

_NTP = "Set its clock by NTP: chronyc makestep, or timedatectl set-ntp true."
_SAME = "Make the environments alike: the same image, or one directory that all hosts see."
_DRIVERS = "Have the same driver on all hosts, or leave those that differ out (ranks='hosts=...')."
_UNSET = "Unset all but one of them where the host is started, or in env of the run."
_FREE = "End that process, or leave this host out (ranks='hosts=...')."
_ROOM = "Make room there, or write elsewhere (options.scratch, cwd)."
_DEVICES = "Look at it with the vendor's tool, and leave this host out meanwhile (ranks='hosts=...')."
_IFNAME = (
    "Name the interface that hosts reach each other by: env={'GLOO_SOCKET_IFNAME': 'eth0'}, and"
    " NCCL_SOCKET_IFNAME; the host's own name may lead to 127.0.1.1 in /etc/hosts."
)


def judge_fitness(checks: Sequence[HostCheck], mesh: str) -> dict[int, list[Finding]]:
    """What is wrong with each host, the worst first."""
    found: dict[int, list[Finding]] = {one.host: [] for one in checks}
    for one in checks:
        if one.devices is not None:
            found[one.host] += _devices(one.devices, mesh)
    for host, finding in (*_device_drift(checks), *_clocks(checks), *_drift(checks)):
        found[host].append(finding)
    for one in checks:
        if one.surroundings is not None:
            found[one.host] += _disks(one.surroundings)
    return found


def _devices(found: HostDevices, mesh: str) -> Iterator[Finding]:
    severe = [(one.index, note) for one in found.view.devices for note in one.notes if note.severe]
    if severe:
        words = "; ".join(f"device {index}: {note.text}" for index, note in severe[:_NOTES_NAMED])
        more = f"; and {len(severe) - _NOTES_NAMED} more" if len(severe) > _NOTES_NAMED else ""
        yield f"{words}{more}", severe[0][1].mend or _DEVICES
    if found.view.problem:
        yield f"devices: {found.view.problem}", found.view.mend or _DEVICES
    if others := in_use_by_others(found, mesh):
        yield others, _FREE
    for vendor in dict.fromkeys(one.vendor for one in found.view.devices):
        count = sum(one.vendor == vendor for one in found.view.devices)
        for trap in traps(vendor, found.variables, count):
            yield trap, _UNSET


def _device_drift(checks: Sequence[HostCheck]) -> Iterator[tuple[int, Finding]]:
    """Of hosts whose devices could be told."""
    known = {
        one.host: one.devices.view
        for one in checks
        if one.devices is not None and not (one.devices.view.problem and not one.devices.view.devices)
    }
    for host, own, others in _differing(
        {host: models(view.devices) or "none" for host, view in known.items()}
    ):
        yield host, (f"devices: {own}; others have {others}", _DEVICES)
    drivers = {host: view.driver for host, view in known.items() if view.driver}
    for host, own, others in _differing(drivers):
        yield host, (f"driver {own}; others have {others}", _DRIVERS)


def _clocks(checks: Sequence[HostCheck]) -> Iterator[tuple[int, Finding]]:
    """Told where more than 50 ms are certain, whatever the messages took."""
    clocks: dict[int, Clock] = {one.host: one.clock for one in checks if one.clock is not None}
    if len(clocks) < 2:
        return
    ordered = sorted(clocks.values(), key=lambda one: one.ahead)
    middle = ordered[(len(ordered) - 1) // 2]
    for host, clock in clocks.items():
        skew = clock.ahead - middle.ahead
        unsure = clock.within + middle.within
        if abs(skew) - unsure > _SKEW_S:
            way = "ahead of" if skew > 0 else "behind"
            yield host, (f"its clock is {_time(abs(skew))} {way} the others (+- {_time(unsure)})", _NTP)


def _time(seconds: float) -> str:
    return f"{seconds:,.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def _drift(checks: Sequence[HostCheck]) -> Iterator[tuple[int, Finding]]:
    known = {one.host: one.surroundings for one in checks if one.surroundings is not None}

    def of(read: Callable[[Surroundings], T]) -> dict[int, T]:
        return {host: read(one) for host, one in known.items()}

    for what, values in (
        ("Python", of(_python)),
        ("torch", of(_torch)),
    ):
        for host, own, others in _differing(values):
            yield host, (f"{what} {own}; others have {others}", _SAME)
    for host, words in _packages(of(lambda one: one.fingerprint.packages)).items():
        yield host, (f"packages: {words}", _SAME)
    # Which devices a host gives may differ by right: a scheduler chooses them.
    variables = of(
        lambda one: {
            name: value
            for name, value in selected(one.fingerprint.variables).items()
            if name not in VARIABLES
        }
    )
    for host, words in _mapping_drift(variables, _VARIABLES_NAMED, "=", "unset").items():
        yield host, (f"variables: {words}", _SAME)


def _python(one: Surroundings) -> str:
    return (
        f"{one.fingerprint.python or '?'} ({one.fingerprint.interpreter})"
        if one.fingerprint.interpreter
        else "none"
    )


def _torch(one: Surroundings) -> str:
    version = one.fingerprint.packages.get("torch", "")
    return f"{version} ({one.fingerprint.torch})" if version and one.fingerprint.torch else version or "none"


def _packages(known: Mapping[int, Mapping[str, str]]) -> dict[int, str]:
    without = {host: {k: v for k, v in one.items() if k != "torch"} for host, one in known.items()}
    return _mapping_drift(without, _PACKAGES_NAMED, " ", "missing")


def _mapping_drift(
    known: Mapping[int, Mapping[str, str]], most: int, sign: str, absent: str
) -> dict[int, str]:
    """`numpy 1.26.4 (others 2.0.1), einops missing`, of each host that differs from most."""
    names = sorted({name for one in known.values() for name in one})
    found: dict[int, list[str]] = {}
    for name in names:
        for host, own, others in _differing({host: one.get(name, "") for host, one in known.items()}):
            mine = f"{name}{sign}{clip(own, _VALUE)}" if own else f"{name} {absent}"
            theirs = f"others {clip(others, _VALUE)}" if others else f"others {absent}"
            found.setdefault(host, []).append(f"{mine} ({theirs})")
    return {
        host: ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
        for host, words in found.items()
    }


def _differing(values: Mapping[int, T]) -> Iterator[tuple[int, T, T]]:
    """(host, what it has, what most have) of those that have something else."""
    if len(set(values.values())) < 2:
        return
    counts = Counter(values[host] for host in sorted(values))
    usual = counts.most_common(1)[0][0]  # of as many, the first counted
    for host, own in values.items():
        if own != usual:
            yield host, own, usual


def _disks(found: Surroundings) -> Iterator[Finding]:
    for disk in found.disks:
        if disk.free < max(_DISK_BYTES, int(disk.total * _DISK_SHARE)):
            yield (
                f"{size_in_words(disk.free)} free of {size_in_words(disk.total)} at {clip(disk.path, 80)}",
                _ROOM,
            )
        elif disk.files_free is not None and disk.files_free < _FILES_LEFT:
            yield f"room for {disk.files_free:,} more files at {clip(disk.path, 80)}", _ROOM


def collective_words(found: AllReduce | None) -> str:
    """What was measured, as what it is; empty where no two hosts are apart."""
    if found is None:
        return ""
    hosts = len(found.hosts)
    what = f"all-reduce of {size_in_words(found.size)} over gloo (CPU), a process on each of {hosts} hosts"
    if found.skipped:
        return f"{what}: not measured: {found.skipped}"
    if missing := next((turn.missing for turn in found.turns.values() if turn.missing), ""):
        return f"{what}: not measured: no torch ({clip(missing, 120)})"
    if found.seconds:
        speed = found.size / found.seconds / 1e9
        return f"{what}: {found.seconds * 1000:.0f} ms, {speed:.2g} GB/s"
    return f"{what}: failed"


def collective_trouble(found: AllReduce | None) -> Finding | None:
    """None where it went well, or was not tried. The first error is told that is no consequence of others."""
    if found is None or found.skipped or found.seconds or any(one.missing for one in found.turns.values()):
        return None
    errors = {host: turn.error for host, turn in sorted(found.turns.items()) if turn.error}
    own = {
        host: text
        for host, text in errors.items()
        if "not done within" not in text and "imed out" not in text
    }
    host, text = next(iter((own or errors).items()), (0, "no host told how long it took"))
    return f"an all-reduce between hosts failed: host {host}: {clip(text, 250)}", _IFNAME
