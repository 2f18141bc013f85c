"""Which devices a process sees: the variables that decide it, the traps in them, and the one to set. Pure.

NVIDIA has one such variable, CUDA_VISIBLE_DEVICES. AMD has several, which are applied one after the other:
ROCR_VISIBLE_DEVICES by the runtime below everything, then, among what that left and counted from 0 again,
HIP_VISIBLE_DEVICES (or, where that is not set, CUDA_VISIBLE_DEVICES) by HIP. So the same index in two of them
leaves no device at all, and with different ones a process sits on another device than either says.

Milkweed sets none unless it is asked to (`own_devices`): programs use the device of their LOCAL_RANK. Where
it is asked, exactly one is set, and what it replaces is removed. On AMD that is ROCR_VISIBLE_DEVICES: AMD's
documentation recommends it on Linux, every ROCm program heeds it (HIP's variables only HIP does), it takes
UUIDs, and Slurm sets that one too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .records import Vendor

__all__ = ["VARIABLES", "Setting", "Visible", "deciding", "own_device", "traps", "variable_of", "visible"]

CUDA, HIP, ROCR, ORDINAL = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
VARIABLES = (CUDA, HIP, ROCR, ORDINAL)
_ORDER = "CUDA_DEVICE_ORDER"
_NAMED = ("GPU-", "MIG-")


@dataclass(frozen=True, slots=True)
class Visible:
    """What a process sees: `devices` by their physical index (or UUID, where it is named by that) in its own
    order, None where nothing hides any; `traps` in words."""

    devices: tuple[int | str, ...] | None
    traps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable to set, and those to remove; `device` is physical, None where only its place is known."""

    name: str
    value: str
    removed: tuple[str, ...] = ()
    device: int | str | None = None


def deciding(env: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that are set."""
    return {name: env[name] for name in (*VARIABLES, _ORDER) if name in env}


def variable_of(vendor: Vendor) -> str:
    """The one that Milkweed sets."""
    return CUDA if vendor == "nvidia" else ROCR


def visible(vendor: Vendor, env: Mapping[str, str], count: int | None = None) -> Visible:
    """What a process with this environment sees of `count` devices (None: it is not known how many)."""
    seen: list[int | str] | None = None if count is None else list(range(count))
    applied = _applied(vendor, env)
    for name in applied:
        chosen = _read(env[name])
        seen = chosen if seen is None else _among(chosen, seen)
    return Visible(tuple(seen or ()) if applied else None, traps(vendor, env, count))


def traps(vendor: Vendor, env: Mapping[str, str], count: int | None = None) -> tuple[str, ...]:
    """What is wrong, or not what it seems, in the variables; empty where all is well."""
    found = []
    applied = _applied(vendor, env)
    if vendor == "amd":
        if len(applied) > 1:
            found += _two(applied, env)
        if HIP in env and CUDA in env and env[HIP] != env[CUDA]:
            found.append(
                f"{HIP}={env[HIP]} and {CUDA}={env[CUDA]}: HIP heeds the first, other programs either"
            )
        if ORDINAL in env and applied:
            found.append(f"{ORDINAL}={env[ORDINAL]} is applied beside {applied[0]}: unset it")
    else:
        meant = [name for name in (HIP, ROCR) if name in env]
        if meant and CUDA not in env:
            found.append(f"{meant[0]}={env[meant[0]]} means nothing to NVIDIA devices: set {CUDA}")
    for name in applied:
        found += _within(name, env[name], count if name == applied[0] else None)
    return tuple(found)


def _two(applied: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Nothing where the second leaves all that the first does, in its order: it only looks dangerous."""
    first, second = applied[0], applied[1]
    chosen = _read(env[first])
    left = _among(_read(env[second]), chosen)
    if left and left == chosen:
        return []
    what = f"what is left is device {','.join(map(str, left))}" if left else "no device is left"
    said = (
        f"{first}={env[first]} and then {second}={env[second]} are applied one after the other, the second"
        f" counted from 0 in what the first left: {what}. Keep {first} alone"
    )
    return [said]


def _within(name: str, value: str, count: int | None) -> list[str]:
    chosen = _read(value)
    words = [word.strip() for word in value.split(",")]
    if not value.strip() or words[0] == "-1":
        return [f"{name}={value!r} hides all devices"]
    found = []
    if len(set(words)) < len(words):
        found.append(f"{name}={value} names a device twice: a program may see none")
    elif len(chosen) < len(words):
        found.append(f"{name}={value}: what follows {words[len(chosen)]!r} is not seen")
    beyond = [one for one in chosen if isinstance(one, int) and count is not None and one >= count]
    if beyond:
        found.append(
            f"{name}={value} names device {beyond[0]}, and there are {count}: it and what follows is not seen"
        )
    return found


def own_device(
    vendor: Vendor, local_rank: int, env: Mapping[str, str], count: int | None = None
) -> Setting | str:
    """What shows a rank the device of its place alone: the `local_rank`-th of those that it would see.

    A text says why there is no such device.
    """
    applied = _applied(vendor, env)
    seen = visible(vendor, env, count).devices
    devices = tuple(range(count)) if seen is None and count is not None else seen
    name = variable_of(vendor)
    removed = tuple(other for other in VARIABLES if other != name and other in env)
    if devices is None:
        return Setting(name, str(local_rank), removed)
    if local_rank >= len(devices):
        what = f" of {', '.join(f'{one}={env[one]}' for one in applied)}" if applied else ""
        return f"local rank {local_rank} has no device of its own: there are {len(devices)}{what}"
    device = devices[local_rank]
    return Setting(name, str(device), removed, device)


def _applied(vendor: Vendor, env: Mapping[str, str]) -> list[str]:
    """The variables that count, in the order in which they are applied."""
    if vendor == "nvidia":
        return [CUDA] if CUDA in env else []
    by_hip = HIP if HIP in env else CUDA
    return [name for name in (ROCR, by_hip) if name in env]


def _read(value: str) -> list[int | str]:
    """As the runtimes read it: up to the first that is no index or name; nothing where one is there twice."""
    found: list[int | str] = []
    for word in value.split(","):
        text = word.strip()
        if text.startswith(_NAMED):
            one: int | str = text
        elif text.isdecimal():
            one = int(text)
        else:
            break
        if one in found:
            return []
        found.append(one)
    return found


def _among(chosen: Sequence[int | str], seen: Sequence[int | str]) -> list[int | str]:
    """What a variable leaves of what is seen. A name is taken as it is where what is seen has numbers."""
    left: list[int | str] = []
    for one in chosen:
        if isinstance(one, int):
            if one >= len(seen):
                break
            left.append(seen[one])
        elif one in seen or all(isinstance(other, int) for other in seen):
            left.append(one)
        else:
            break
    return left
