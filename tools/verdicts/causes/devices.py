"""Rules for faults of devices: hardware, and kernels that read or wrote where nothing is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....runtime.devices.kernel_lines import log_notes
from ....runtime.devices.records import DeviceNote, HostDevices
from .case import RankCase, RunCase, names, numbers
from .collectives import is_moving
from .finding import Finding
from .said import said, words_of

__all__ = ["find_device_faults", "memory_in_use"]

# What CUDA, HIP and the ROCm runtime say of memory that a kernel must not touch, and of its own assertions.
_PROGRAM = re.compile(
    r"illegal memory access|misaligned address|illegal instruction was encountered|unspecified launch failure"
    r"|hipErrorIllegalAddress|[Mm]emory access fault by GPU"
)
_ASSERT = re.compile(r"device-side assert triggered|HSA_STATUS_ERROR_EXCEPTION|hipErrorAssert")
_HARDWARE = re.compile(
    r"uncorrectable (?:ECC|NVLink) error|hipErrorECCNotCorrectable|GPU is lost|fallen off the bus"
    r"|system has unsupported display driver|no longer accessible|hardware stack error"
)
_GB = 1e9
_LEAST_BYTES = 256 << 20


def find_device_faults(case: RunCase) -> Iterator[Finding]:
    """Of the first failure, with what drivers tell; and of a run that stands while a device is broken."""
    first = case.first_failure
    if first is None:
        if case.alive and not is_moving(case):
            yield from _broken_meanwhile(case)
        return
    words = words_of(first)
    notes = _notes(case, first.host)
    severe = tuple(text for text, note in notes if note.severe)
    if _HARDWARE.search(words) or (severe and (_PROGRAM.search(words) or "CUDA error" in words)):
        yield _hardware(first, severe)
    elif _PROGRAM.search(words):
        yield _of_program(case, first, tuple(text for text, _ in notes))
    elif _ASSERT.search(words):
        yield Finding(
            "device_fault",
            93,
            f"An assertion in a kernel failed on {names([first])}: as a rule an index out of range.",
            (first.rank,),
            said(first),
            "CUDA_LAUNCH_BLOCKING=1 (ROCm: AMD_SERIALIZE_KERNEL=3) shows the call; the same batch on the CPU"
            " names the index: check labels and token ids against their tables.",
        )


def memory_in_use(case: RunCase, rank: RankCase) -> tuple[str, ...]:
    """Who has memory of the devices of a rank's host, the most first."""
    found = _devices(case, rank.host)
    if found is None:
        return ()
    uses = sorted(
        (use for use in found.uses if (use.bytes or 0) >= _LEAST_BYTES), key=lambda use: -(use.bytes or 0)
    )
    told = []
    for use in uses[:2]:
        whose = (
            f"rank {use.rank} of this run"
            if use.run == case.run and use.rank is not None
            else f"{use.run} of mesh {use.mesh}"
            if use.run
            else f"pid {use.pid} ({use.command[:60] or 'of another container'})"
        )
        told.append(f"device {use.device} of host {rank.host}: {(use.bytes or 0) / _GB:.1f} GB by {whose}")
    return tuple(told)


def _hardware(first: RankCase, severe: tuple[str, ...]) -> Finding:
    return Finding(
        "device_fault",
        95,
        f"A device of host {first.host} broke under {names([first])}: {severe[0] if severe else 'hardware'}.",
        (first.rank,),
        (*said(first), *severe[1:3]),
        f"Leave that host out and run again; check_mesh tells of its devices. Host {first.host} needs a reset"
        " of the device, or its administrator.",
    )


def _of_program(case: RunCase, first: RankCase, log: tuple[str, ...]) -> Finding:
    ranks = tuple(one for one in case.ranks if one.failed and _PROGRAM.search(words_of(one)))
    return Finding(
        "device_fault",
        93,
        f"A kernel of {names(ranks or [first])} read or wrote device memory that is not its own.",
        numbers(ranks or (first,)),
        (*said(first), *log[-1:]),
        "The line told is where it was noticed, not where it was launched: CUDA_LAUNCH_BLOCKING=1 (ROCm:"
        " AMD_SERIALIZE_KERNEL=3) shows that; compute-sanitizer, or a build with -fsanitize=address on AMD,"
        " the access.",
    )


def _broken_meanwhile(case: RunCase) -> Iterator[Finding]:
    """A device that its driver gave up since the run began is why a collective does not end."""
    for host in sorted(case.hosts):
        severe = [text for text, note in _notes(case, host, log_only=True) if note.severe]
        ranks = tuple(one for one in case.alive if one.host == host)
        if severe and ranks:
            yield Finding(
                "device_fault",
                94,
                f"A device of host {host} broke while {names(ranks)} ran: {severe[0]}.",
                numbers(ranks),
                tuple(severe[1:3]),
                f"Cancel the run, leave that host out, and start again; host {host} needs its administrator.",
            )


def _notes(case: RunCase, host: int, *, log_only: bool = False) -> list[tuple[str, DeviceNote]]:
    """What is amiss with a host's devices: by the kernel's log since the run began, then by its driver."""
    evidence = case.hosts.get(host)
    if evidence is None:
        return []
    view = evidence.devices.view if evidence.devices is not None else None
    places = {one.pci.rpartition(".")[0].lower(): one for one in view.devices} if view is not None else {}
    found = []
    for address, notes in log_notes(line.text for line in evidence.kernel).items():
        device = places.get(address)
        name = f"device {device.index}" if device is not None else f"device {address}"
        found += [(f"{name}: {note.text}", note) for note in notes]
    if view is not None and not log_only:
        known = {text for text, _ in found}
        for device in view.devices:
            found += [
                (text, note)
                for note in device.notes
                if note.severe and (text := f"device {device.index}: {note.text}") not in known
            ]
    return found


def _devices(case: RunCase, host: int) -> HostDevices | None:
    evidence = case.hosts.get(host)
    return evidence.devices if evidence is not None else None
