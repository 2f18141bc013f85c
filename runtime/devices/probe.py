"""How devices are looked at: one Protocol, whoever made them; and what of it there may be on a host."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from .records import DeviceView, Vendor

__all__ = ["DeviceProbe", "NoDevices", "closed", "joined", "vendors_here"]

_NVIDIA_NODE = re.compile(r"nvidia\d+|nvidiactl")
_RENDER_NODE = re.compile(r"renderD\d+")


class DeviceProbe(Protocol):
    """The devices of one vendor. `look` tells of what it cannot do, and raises nothing; it may take long, or
    for ever where a driver is dead, and a library stays loaded: it is for a process that may be ended."""

    def look(self) -> DeviceView: ...


class NoDevices:
    """Where there are none."""

    def look(self) -> DeviceView:
        return DeviceView()


def vendors_here(dev: Path = Path("/dev")) -> tuple[Vendor, ...]:
    """Whose device nodes there are; of a host without any, nothing needs to be asked."""
    try:
        names = os.listdir(dev)
    except OSError:
        return ()
    found: list[Vendor] = []
    if any(_NVIDIA_NODE.fullmatch(name) for name in names):
        found.append("nvidia")
    if "kfd" in names:
        found.append("amd")
    return tuple(found)


def closed(vendor: Vendor, dev: Path = Path("/dev")) -> tuple[str, str]:
    """Why this user cannot open the device nodes, and what helps; empty where that is not so."""
    try:
        names = sorted(os.listdir(dev))
    except OSError:
        return "", ""
    if vendor == "nvidia":
        nodes = [dev / name for name in names if _NVIDIA_NODE.fullmatch(name)]
        mend = "Give it rights to /dev/nvidia* (containers: --gpus all, by the NVIDIA Container Toolkit)."
    else:
        render = [f"dri/{name}" for name in _listed(dev / "dri") if _RENDER_NODE.fullmatch(name)]
        nodes = [dev / name for name in ("kfd", *render)]
        mend = (
            "Add the user to the groups render and video (containers: --device /dev/kfd --device /dev/dri"
            " --group-add video --group-add render)."
        )
    for node in nodes:
        if not os.access(node, os.R_OK | os.W_OK):
            return f"no right to open {node}", mend
    return "", ""


def joined(views: Iterable[DeviceView]) -> DeviceView:
    """What several probes have found on one host."""
    every = list(views)
    if not every:
        return DeviceView()
    return replace(
        every[0],
        devices=tuple(device for view in every for device in view.devices),
        driver=_words([view.driver for view in every]),
        runtime=_words([view.runtime for view in every]),
        library=_words([view.library for view in every]),
        problem=_words([view.problem for view in every], "; "),
        mend=next((view.mend for view in every if view.mend), ""),
    )


def _words(parts: Sequence[str], between: str = ", ") -> str:
    return between.join(filter(None, parts))


def _listed(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
