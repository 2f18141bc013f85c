"""What taking a mount away says."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import MountSpec

__all__ = ["Unmounted"]


@dataclass(frozen=True, slots=True)
class Unmounted:
    """`in_use`: who was in it, which host and process."""

    spec: MountSpec
    in_use: tuple[str, ...]
