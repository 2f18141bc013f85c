"""How a host can be shown a directory, from what was found there: which mode, why, what is in the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Facts", "Mend", "Mode", "Verdict", "Wanted", "decide", "in_the_way"]

Mode = Literal["shared", "mount", "copy"]
Wanted = Literal["auto", "shared", "mount", "copy"]

_PACKAGES = "Run as root: apt-get install fuse3"


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one host. `device_error` is why `/dev/fuse` cannot be opened, `binding_error` why pyfuse3 cannot be
    imported; both empty where they can be.
    """

    has_device: bool
    device_error: str
    helper: str
    """Where fusermount3 is; empty: nowhere."""
    may_mount: bool
    """The right to mount without the helper."""
    binding_error: str
    in_container: bool


@dataclass(frozen=True, slots=True)
class Mend:
    """Something that keeps mounts from working, and what helps."""

    problem: str
    mend: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """`mode` is None where what was wanted cannot be."""

    mode: Mode | None
    why: str
    mends: tuple[Mend, ...] = ()


def in_the_way(facts: Facts) -> tuple[Mend, ...]:
    """What keeps this host from mounting; empty: nothing."""
    found = []
    if not facts.has_device:
        found.append(Mend("there is no /dev/fuse", _device_mend(facts.in_container)))
    elif facts.device_error:
        mend = _device_mend(facts.in_container)
        if "ermission" in facts.device_error:
            mend = "Run as root: chmod 666 /dev/fuse"
        found.append(Mend(f"/dev/fuse cannot be opened: {facts.device_error}", mend))
    if not facts.helper and not facts.may_mount:
        found.append(Mend("fusermount3 is missing, and this user may not mount without it", _PACKAGES))
    if facts.binding_error:
        found.append(
            Mend(
                f"pyfuse3 cannot be imported: {facts.binding_error}",
                "Install libfuse3 (apt-get install libfuse3-3; to build pyfuse3 also libfuse3-dev, pkg-config"
                " and a C compiler), then, with Milkweed's python: -m pip install 'pyfuse3>=3.4,<4'",
            )
        )
    return tuple(found)


def _device_mend(in_container: bool) -> str:
    if in_container:
        return (
            "Start the container with --device /dev/fuse --cap-add SYS_ADMIN (Kubernetes: with a FUSE device"
            " plugin, or as a privileged pod)."
        )
    return "Run as root: modprobe fuse"


def decide(wanted: Wanted, facts: Facts) -> Verdict:
    """The mode of a host that does not see the client's directory itself, or is not to."""
    mends = in_the_way(facts)
    if wanted == "shared":
        return Verdict(None, "the host does not see the directory: a token left there was not found")
    if wanted == "mount":
        return Verdict("mount", "it was asked for") if not mends else Verdict(None, mends[0].problem, mends)
    if wanted == "copy":
        return Verdict("copy", "it was asked for", mends)
    if mends:
        return Verdict("copy", f"no mount is possible: {mends[0].problem}", mends)
    return Verdict("mount", "the host is a machine apart, or does not see the directory")
