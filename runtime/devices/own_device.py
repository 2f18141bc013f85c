"""What the environment of a rank means on this host: its traps, and what shows it one device alone."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ..errors import InvalidArgument
from .probe import vendors_here
from .records import Vendor
from .visible import deciding, own_device, traps

__all__ = ["traps_here", "with_own_device"]

_NODE = re.compile(r"nvidia\d+")


def with_own_device(
    env: Mapping[str, str], local_rank: int, where: str = "", dev: Path = Path("/dev")
) -> dict[str, str]:
    """`env` with exactly one variable that hides devices: those of the user and of the host count, as the
    rank's device is one of those that it would see.

    Raises:
        InvalidArgument: unsupported, there is no such device.
    """
    vendors = vendors_here(dev)
    if not vendors:
        raise InvalidArgument(
            "unsupported", f"own_device: there is no device of NVIDIA or AMD{where}", "Leave it out."
        )
    setting = own_device(vendors[0], local_rank, env, _count(vendors[0], dev))
    if isinstance(setting, str):
        raise InvalidArgument(
            "unsupported", f"own_device{where}: {setting}", "Choose fewer ranks a host, or leave it out."
        )
    kept = {name: value for name, value in env.items() if name not in setting.removed}
    return {**kept, setting.name: setting.value}


def traps_here(env: Mapping[str, str], dev: Path = Path("/dev")) -> tuple[str, ...]:
    """`traps` of the devices of this host; nothing where there are none."""
    if not deciding(env):
        return ()
    return tuple(one for vendor in vendors_here(dev) for one in traps(vendor, env, _count(vendor, dev)))


def _count(vendor: Vendor, dev: Path) -> int | None:
    """Nodes of AMD do not tell it: integrated graphics have one too."""
    if vendor != "nvidia":
        return None
    return sum(1 for name in os.listdir(dev) if _NODE.fullmatch(name)) or None
